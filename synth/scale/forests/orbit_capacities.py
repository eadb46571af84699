"""Distribution of the capacities of edge orbits over demands that may be met by several kinds of paths.

A maximum flow solves it where the sets of kinds that use each orbit are nested, and an integer program elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from synth.solvers.highs import integer
from synth.solvers.max_flow import MaxFlow

Key = TypeVar("Key", bound=Hashable)
Amounts = tuple[dict[Key, dict[int, int]] | None, set[int]]
# Limits of the integer program: variables, and seconds of its solver.
MOST_VARIABLES, SECONDS = 60_000, 5.0


class _Limit(NamedTuple):
    """The paths of all `kinds` together carry at most the `capacity` of `orbit`."""

    orbit: int
    capacity: int
    kinds: frozenset[int]


def nested_kinds(kinds: Sequence[tuple[int, ...]], preferred: Sequence[int]) -> frozenset[int]:
    """Return a set of kinds for which the sets of users of any two orbits are disjoint or one contains the other.

    `kinds[c]` are the orbits that a path of kind c uses. Kinds are added greedily in the order of `preferred`.
    """
    accepted: list[int] = []
    users: dict[int, set[int]] = {}
    for c in preferred:
        updated = {o: users.get(o, set()) | {c} for o in kinds[c]}
        sets = [*updated.values(), *(other for o, other in users.items() if o not in updated)]
        if all(_nested(a, b) for a in updated.values() for b in sets):
            users |= updated
            accepted.append(c)
    return frozenset(accepted)


def _nested(a: set[int], b: set[int]) -> bool:
    return a <= b or b <= a or not a & b


class OrbitCapacities:
    """The capacities of edge orbits, to be distributed over kinds of paths.

    `kinds[c]` are the orbits that a path of kind c uses, `capacity[o]` the units that orbit o carries.

    Only the kinds in `used` may be assigned. Of orbits with the same users the one with the least capacity counts.
    """

    def __init__(self, kinds: Sequence[tuple[int, ...]], capacity: Mapping[int, int], used: frozenset[int]) -> None:
        users: dict[int, frozenset[int]] = {}
        for c in sorted(used):
            for o in kinds[c]:
                users[o] = users.get(o, frozenset()) | {c}
        narrowest: dict[frozenset[int], int] = {}
        for o, group in users.items():
            if group not in narrowest or capacity[o] < capacity[narrowest[group]]:
                narrowest[group] = o
        self.kinds = len(kinds)
        limits = [_Limit(o, capacity[o], group) for group, o in narrowest.items()]
        self.limits = sorted(limits, key=lambda limit: (len(limit.kinds), limit.orbit))
        # If the sets of users are nested, the limits form a forest: `parent` is the next larger set. Then a flow from
        # each kind through its smallest limit, `first`, up to a root respects them all.
        self.parent: list[int] = []
        self.first = [-1] * len(kinds)
        self.nested = True
        for i, limit in enumerate(self.limits):
            larger = [j for j in range(i + 1, len(self.limits)) if self.limits[j].kinds & limit.kinds]
            self.nested &= all(limit.kinds <= self.limits[j].kinds for j in larger)
            self.parent.append(larger[0] if larger else -1)
            for c in limit.kinds:
                if self.first[c] < 0:
                    self.first[c] = i

    def share(self, options: Mapping[Key, Mapping[int, object]], weight: int) -> Amounts[Key]:
        """Distribute `weight` units of each key over the kinds in ``options[key]``, within the capacities.

        Returns (units of each key by kind, empty set). Where that is impossible, or the integer program has no answer,
        the result is (None, orbits that a flow lacked, empty where unknown).
        """
        if any(not kinds for kinds in options.values()):
            return None, set()
        pairs = [(i, c) for i, kinds in enumerate(options.values()) for c in kinds]
        return self._flow(options, pairs, weight) if self.nested else self._program(options, pairs, weight)

    def _flow(
        self, options: Mapping[Key, Mapping[int, object]], pairs: list[tuple[int, int]], weight: int
    ) -> Amounts[Key]:
        """Nodes of the network: source, keys, kinds, limits, sink."""
        count, base = len(options), 1 + len(options)
        first_limit = base + self.kinds
        sink = first_limit + len(self.limits)
        table = np.array(pairs, np.int64).reshape(-1, 2)
        entries = [(base + c, first_limit + f) for c, f in enumerate(self.first) if f >= 0]
        parent = np.array(self.parent, np.int64)
        parents = np.where(parent < 0, sink, first_limit + parent).tolist()
        chain = list(zip(range(first_limit, sink), parents, strict=True))
        inner = np.array([*entries, *chain], np.int64).reshape(-1, 2)
        tail = np.r_[np.zeros(count, np.int64), 1 + table[:, 0], inner[:, 0]]
        head = np.r_[1 + np.arange(count), base + table[:, 1], inner[:, 1]]
        total = count * weight
        flow = MaxFlow(tail, head)
        capacities = [min(limit.capacity, total) for limit in self.limits]
        flow.set_capacities(
            np.r_[np.full(count + len(pairs), weight), np.full(len(entries), total), capacities].astype(np.int64)
        )
        if flow.value(0, sink) < total:
            inside = flow.source_side(sink + 1)
            cut = [i for i, (a, b) in enumerate(chain) if inside[a] and not inside[b]]
            return None, {self.limits[i].orbit for i in cut}
        return _amounts(options, pairs, flow.flows()[count : count + len(pairs)]), set()

    def _program(
        self, options: Mapping[Key, Mapping[int, object]], pairs: list[tuple[int, int]], weight: int
    ) -> Amounts[Key]:
        if len(pairs) > MOST_VARIABLES:
            return None, set()
        limits_of: list[list[int]] = [[] for _ in range(self.kinds)]
        for i, limit in enumerate(self.limits):
            for c in limit.kinds:
                limits_of[c].append(i)
        uses = [(i, k) for k, (_, c) in enumerate(pairs) for i in limits_of[c]]
        need = _incidence(((i, k) for k, (i, _) in enumerate(pairs)), len(options), len(pairs))
        use = _incidence(uses, len(self.limits), len(pairs))
        capacities: Any = np.array([limit.capacity for limit in self.limits], float)  # SciPy's stubs want a number
        rows = [(need, weight, weight), (use, -np.inf, capacities)]
        solution = integer(np.zeros(len(pairs)), rows, weight, time_limit=SECONDS)
        if solution.x is None:
            return None, set()
        amounts = np.rint(solution.x).astype(np.int64)
        # The solver works with tolerances: check its rounded answer in integers.
        met = (need.astype(np.int64) @ amounts == weight).all()
        fits = (use.astype(np.int64) @ amounts <= capacities.astype(np.int64)).all()
        return (_amounts(options, pairs, amounts) if met and fits else None), set()


def _incidence(places: Iterable[tuple[int, int]], rows: int, columns: int) -> Any:
    """Return the sparse matrix with ones at these (row, column)."""
    from scipy.sparse import csr_array

    table = np.array(list(places), np.int64).reshape(-1, 2)
    return csr_array((np.ones(len(table)), (table[:, 0], table[:, 1])), shape=(rows, columns))


def _amounts(
    options: Mapping[Key, Mapping[int, object]], pairs: list[tuple[int, int]], flows: np.ndarray
) -> dict[Key, dict[int, int]]:
    keys = list(options)
    amounts: dict[Key, dict[int, int]] = {key: {} for key in keys}
    for (i, c), amount in zip(pairs, flows.tolist(), strict=True):
        if amount:
            amounts[keys[i]][c] = amount
    return amounts

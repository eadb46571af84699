"""Sharing out what orbits of edges can carry among those who need a way: a flow, or where ways overlap an integer
program."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from synth.solvers.highs import integer
from synth.solvers.max_flow import MaxFlow

Key = TypeVar("Key", bound=Hashable)
# Variables and CPU seconds of the integer program for kinds of ways that share orbits criss-cross.
MOST_VARIABLES, SECONDS = 60_000, 5.0


def nesting(kinds: Sequence[tuple[int, ...]], preferred: Sequence[int]) -> frozenset[int]:
    """Kinds, the preferred first, whose orbits are shared in a nested way, so that they can be shared out by a flow."""
    kept: list[int] = []
    users: dict[int, set[int]] = {}
    for c in preferred:
        fresh = {o: users.get(o, set()) | {c} for o in kinds[c]}
        sets = [*fresh.values(), *(who for o, who in users.items() if o not in fresh)]
        if all(a <= b or b <= a or not a & b for a in fresh.values() for b in sets):
            users |= fresh
            kept.append(c)
    return frozenset(kept)


class Budgets:
    """`kinds[c]` are the orbits that a way of kind c uses, `budget[o]` what orbit o carries; only kinds `used` are
    asked for."""

    def __init__(self, kinds: Sequence[tuple[int, ...]], budget: Mapping[int, int], used: frozenset[int]) -> None:
        users: dict[int, frozenset[int]] = {}
        for c in sorted(used):
            for o in kinds[c]:
                users[o] = users.get(o, frozenset()) | {c}
        tight: dict[frozenset[int], int] = {}
        for o, who in users.items():
            if who not in tight or budget[o] < budget[tight[who]]:
                tight[who] = o
        self.kinds = len(kinds)
        self.limits = sorted((len(who), o, budget[o], who) for who, o in tight.items())
        self.orbit_of = [o for _, o, _, _ in self.limits]
        # Budgets nest where the kinds that use one are some, all or none of those that use the other: then they are a
        # flow.
        self.above: list[int] = []
        self.first = [-1] * len(kinds)
        self.nested = True
        for i, (_, _, _, who) in enumerate(self.limits):
            later = [j for j in range(i + 1, len(self.limits)) if self.limits[j][3] & who]
            self.nested &= all(who <= self.limits[j][3] for j in later)
            self.above.append(later[0] if later else -1)
            for c in who:
                if self.first[c] < 0:
                    self.first[c] = i

    def share(
        self, options: Mapping[Key, Mapping[int, object]], weight: int
    ) -> tuple[dict[Key, dict[int, int]] | None, set[int]]:
        """How much of `weight` each takes by each of its kinds; or None, and the orbits that were short where known."""
        if any(not kinds for kinds in options.values()):
            return None, set()
        return self._flow(options, weight) if self.nested else self._program(options, weight)

    def _flow(
        self, options: Mapping[Key, Mapping[int, object]], weight: int
    ) -> tuple[dict[Key, dict[int, int]] | None, set[int]]:
        count, base = len(options), 1 + len(options)
        limit = base + self.kinds
        sink = limit + len(self.limits)
        pairs = [(i, c) for i, kinds in enumerate(options.values()) for c in kinds]
        who = np.array(pairs, np.int64).reshape(-1, 2)
        steps = [(base + c, limit + f) for c, f in enumerate(self.first) if f >= 0]
        chain = [(limit + i, limit + up if up >= 0 else sink) for i, up in enumerate(self.above)]
        tail = np.r_[np.zeros(count, np.int64), 1 + who[:, 0], [a for a, _ in (*steps, *chain)]]
        head = np.r_[1 + np.arange(count), base + who[:, 1], [b for _, b in (*steps, *chain)]]
        total = count * weight
        flow = MaxFlow(tail, head)
        widths = [min(b, total) for _, _, b, _ in self.limits]
        flow.set(np.r_[np.full(count + len(pairs), weight), np.full(len(steps), total), widths].astype(np.int64))
        if flow.value(0, sink) < total:
            inside = flow.inside(sink + 1)
            return None, {self.orbit_of[i] for i, (a, b) in enumerate(chain) if inside[a] and not inside[b]}
        return _amounts(options, pairs, flow.flows()[count : count + len(pairs)]), set()

    def _program(
        self, options: Mapping[Key, Mapping[int, object]], weight: int
    ) -> tuple[dict[Key, dict[int, int]] | None, set[int]]:
        from scipy.sparse import csr_array

        pairs = [(i, c) for i, kinds in enumerate(options.values()) for c in kinds]
        if len(pairs) > MOST_VARIABLES:
            return None, set()
        column = np.arange(len(pairs))
        rows = np.array([i for i, _ in pairs])
        meets = [[i for i, (_, _, _, who) in enumerate(self.limits) if c in who] for c in range(self.kinds)]
        uses = [(i, k) for k, (_, c) in enumerate(pairs) for i in meets[c]]
        need = csr_array((np.ones(len(pairs)), (rows, column)), shape=(len(options), len(pairs)))
        use = csr_array(
            (np.ones(len(uses)), ([i for i, _ in uses], [k for _, k in uses])), shape=(len(self.limits), len(pairs))
        )
        widths: Any = np.array([b for _, _, b, _ in self.limits], float)  # SciPy's stubs want a number
        rows_of = [(need, weight, weight), (use, -np.inf, widths)]
        found = integer(np.zeros(len(pairs)), rows_of, weight, time_limit=SECONDS)
        if found.x is None:
            return None, set()
        amounts = np.rint(found.x).astype(np.int64)
        exact = (need.astype(np.int64) @ amounts == weight).all() and (
            use.astype(np.int64) @ amounts <= widths.astype(np.int64)
        ).all()
        return (_amounts(options, pairs, amounts) if exact else None), set()


def _amounts(
    options: Mapping[Key, Mapping[int, object]], pairs: list[tuple[int, int]], flows: np.ndarray
) -> dict[Key, dict[int, int]]:
    keys = list(options)
    found: dict[Key, dict[int, int]] = {key: {} for key in keys}
    for (i, c), amount in zip(pairs, flows.tolist(), strict=True):
        if amount:
            found[keys[i]][c] = amount
    return found

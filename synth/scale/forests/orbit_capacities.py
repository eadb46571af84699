"""Distribution of the capacities of edge orbits over demands that may be met by several kinds of paths.

A maximum flow solves it, as the sets of kinds that use each orbit are nested: of any two, disjoint or one in the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from synth.solvers.max_flow import MaxFlow

Key = TypeVar("Key", bound=Hashable)


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


def shared(
    kinds: Sequence[tuple[int, ...]],
    capacity: Mapping[int, int],
    used: frozenset[int],
    options: Mapping[Key, Mapping[int, object]],
    weight: int,
) -> tuple[dict[Key, dict[int, int]] | None, set[int]]:
    """Distribute `weight` units of each key over the kinds of paths in ``options[key]``.

    `kinds[c]` are the orbits that a path of kind c uses, `capacity[o]` the units that orbit o carries. `used`: the
    kinds in the options, from `nested_kinds`. Returns the units of each key by kind and an empty
    set; where that is impossible None and the orbits that the flow lacked.
    """
    if any(not branches for branches in options.values()):
        return None, set()

    # The narrowest orbit of those with the same users. By the number of users, the next larger set is the next one that
    # has a user in common. So a flow from each kind through its smallest set and all larger ones respects all orbits.
    users: dict[int, frozenset[int]] = {}
    for c in sorted(used):
        for o in kinds[c]:
            users[o] = users.get(o, frozenset()) | {c}
    narrowest: dict[frozenset[int], int] = {}
    for o, group in users.items():
        if group not in narrowest or capacity[o] < capacity[narrowest[group]]:
            narrowest[group] = o
    limits = sorted(narrowest, key=len)

    # Nodes of the network: source, keys, kinds, limits, sink.
    base, first_limit = 1 + len(options), 1 + len(options) + len(kinds)
    sink, total = first_limit + len(limits), len(options) * weight
    pairs = [(1 + i, base + c) for i, branches in enumerate(options.values()) for c in branches]
    arcs = [(0, 1 + i, weight) for i in range(len(options))]
    arcs += [(tail, head, weight) for tail, head in pairs]
    for c in sorted(used):
        smallest = next((i for i, group in enumerate(limits) if c in group), None)
        if smallest is not None:
            arcs.append((base + c, first_limit + smallest, total))
    first_chain = len(arcs)
    for i, group in enumerate(limits):
        larger = next((j for j in range(i + 1, len(limits)) if group & limits[j]), len(limits))
        arcs.append((first_limit + i, first_limit + larger, min(capacity[narrowest[group]], total)))
    tails, heads, capacities = np.array(arcs, np.int64).T
    flow = MaxFlow(tails, heads)
    flow.set_capacities(capacities)
    if flow.value(0, sink) < total:
        inside = flow.source_side(sink + 1)
        short = set()
        for group, (tail, head, _) in zip(limits, arcs[first_chain:], strict=True):
            if inside[tail] and not inside[head]:
                short.add(narrowest[group])
        return None, short
    keys = list(options)
    amounts: dict[Key, dict[int, int]] = {key: {} for key in keys}
    for (i, c), amount in zip(pairs, flow.flows()[len(keys) : len(keys) + len(pairs)].tolist(), strict=True):
        if amount:
            amounts[keys[i - 1]][c - base] = amount
    return amounts, set()

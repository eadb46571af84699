"""Symmetric arborescences: one tree for each orbit of roots, whose images under the group together load links evenly.

Under a group that acts freely on the ranks, the images of a hop load all edges of an orbit alike. So only the load of
each orbit counts. Each tree partitions the ranks into layers (by distance, or with scarce orbits last), and each rank
has its parent in an earlier layer. *One* flow with the capacities of the orbits at time x* chooses the kind of path
(the set of orbits used) for each rank. On Cayley graphs (tori, rings, circulants, hypercubes) layers are distances, so
that trees are as shallow as the graph allows. Boxes behind switches and rails work the same way. A flow that falls
short proves nothing: the layers are then recomputed with higher prices on saturated orbits. If that fails as well, the
caller packs trees one by one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np

from synth.model.gc_pause import collector_off
from synth.scale.fabric.automorphisms import edge_orbits, orbits
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.orbit_capacities import nested_kinds, shared
from synth.scale.forests.orbit_paths import PathEntries, path_entries
from synth.scale.forests.partial_trees import Branch, BranchForest
from synth.solvers.deadline import check_deadline

# Limit on the units into which a shard is cut: the number of chunks of the schedule.
MOST_WEIGHT = 1 << 12
# Attempts at layers with higher and higher prices on the orbits that the flow lacked.
TRIES = 10
# Trees for each root, each in an order of its own, where layers by distance leave too little choice (MI250 boxes).
COPIES = 6
# Exponent by which the price of an orbit grows from unused to fully used.
STEEP = 6.0
# Ranks of a layer that are tried as the parent of a rank. The first may not do: a box has no path through the network
# to itself.
LOOKED_AT = 80

# The branches of each (tree, rank) by kind of path.
Options = dict[tuple[int, int], dict[int, Branch]]


@collector_off()
def grow(fabric: Fabric, group: Sequence[np.ndarray], time: Fraction) -> BranchForest | None:
    """Return trees that need no more than `time` (shards per unit) for one root of each orbit, or None where the search
    finds none.

    `group`: commuting automorphisms of the fabric that act freely on the ranks, from `free_group`. The edges of the
    fabric have the direction in which data spreads.
    """
    # The orbits of roots and of edges, and the shards that each orbit of edges can carry in `time`, over the order.
    label = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in group])
    roots = np.flatnonzero(label == np.arange(fabric.ranks)).tolist()
    group_order = fabric.ranks // len(roots)
    orbit = edge_orbits(fabric, group)
    sizes = np.bincount(orbit, minlength=len(orbit))
    share = {int(o): time * int(fabric.cap[o]) * int(sizes[o]) / group_order for o in np.unique(orbit).tolist()}
    entries = path_entries(fabric, orbit, label)
    if entries is None:
        return None

    # Whole units: as many as all orbits carry exactly, unless that cuts a shard too finely.
    weight = math.lcm(*(s.denominator for s in share.values()))
    if weight > MOST_WEIGHT:
        weight = time.denominator
    order = sorted(range(len(entries.kinds)), key=lambda c: (not entries.alike[c], len(entries.kinds[c]), c))
    used = nested_kinds(entries.kinds, order)
    layers = _Layers(fabric, entries, used)

    for copies in (1, COPIES):
        trees = [(root, copy) for copy in range(copies) for root in roots]
        capacity = {o: math.floor(s * weight * copies) for o, s in share.items()}
        found = _attempts(layers, trees, capacity, weight)
        if found is None:
            continue
        # Of the units of a tree, some ranks take some over one path and the rest over another.
        options, amounts = found
        forest = BranchForest(weight * copies, [], [], [])
        for tree, (root, _) in enumerate(trees):
            parts: dict[int, list[tuple[int, Branch]]] = {}
            for y in range(fabric.ranks):
                if y != root:
                    kinds, units = zip(*sorted(amounts[tree, y].items()), strict=True)
                    branches = [options[tree, y][kind] for kind in kinds]
                    parts[y] = list(zip(accumulate(units), branches, strict=True))
            forest.add(root, weight, parts)
        return forest
    return None


def _attempts(
    layers: _Layers, trees: Sequence[tuple[int, int]], capacity: dict[int, int], weight: int
) -> tuple[Options, dict[tuple[int, int], dict[int, int]]] | None:
    """Return the branches of each (tree, rank) by kind of path, and the units that each carries; None where none fit.

    Of several copies each is one more tree, in which an orbit costs more, the more of it earlier ones used.
    """
    several = any(copy for _, copy in trees)
    # First all orbits have price 0. Then an orbit costs the reciprocal of its capacity, and those that the flow lacked
    # cost four times as much in the next attempt.
    free = dict.fromkeys(capacity, 0.0)
    scarce = dict.fromkeys(capacity, 1e12)  # the price of an orbit without capacity
    scarce.update((o, 1 / b) for o, b in capacity.items() if b)
    price, attempts = free, 0
    while attempts <= (1 if several else TRIES):
        options: Options = {}
        load = dict.fromkeys(capacity, 0)
        for tree, (root, copy) in enumerate(trees):
            check_deadline()
            raised = price
            if several:
                raised = dict(price)
                for o, most in capacity.items():
                    if most:
                        raised[o] *= math.exp(STEEP * load[o] / most)
            grown = layers.tree(root, raised, copy, load, weight)
            if grown is None:
                return None
            depth, order = grown
            for y, branches in layers.branches(root, depth, order if several else depth).items():
                options[tree, y] = branches
        amounts, short = shared(layers.entries.kinds, capacity, layers.used, options, weight)
        if amounts is not None:
            return options, amounts
        if price is not free and not short:
            return None
        raise_short = {o: 4 * price[o] for o in short}
        price = scarce if price is free else price | raise_short
        attempts += 1
    return None


class _Layers:
    """Trees over the kinds of paths in `used`. Their layers are the depths of the ranks, or single ranks in the order
    of growth where there are several copies.
    """

    def __init__(self, fabric: Fabric, entries: PathEntries, used: frozenset[int]) -> None:
        self.fabric, self.entries, self.used = fabric, entries, used

    def tree(
        self, root: int, price: dict[int, float], copy: int, load: dict[int, int], weight: int
    ) -> tuple[list[int], list[int]] | None:
        """Return the depth and the place in order of the ranks of a tree grown like Prim's; None where one is missing.

        Adds `weight` for each branch to the `load` of the orbits. Copies differ in the order of equal ranks.
        The cheapest kind of path comes first, then the rank nearest to the root. A kind costs as much as its most
        expensive orbit.
        """
        cost = [0.0] * len(self.entries.kinds)
        for c, kind in enumerate(self.entries.kinds):
            cost[c] = max(price[o] for o in kind)
        position = {c: i for i, c in enumerate(sorted(set(cost)))}
        priority = [position[c] for c in cost]
        tie_break = _shuffled(self.fabric.ranks, copy)
        depth, place = [-1] * self.fabric.ranks, [0] * self.fabric.ranks
        missing = self.fabric.ranks - 1
        entered: dict[int, list[int]] = {}
        heap: list[tuple[int, int, int, int, int]] = []

        def enter(x: int) -> None:
            for d in self.entries.outof[x]:
                kind, sources, last = self.entries.entries[d]
                if kind not in self.used:
                    continue
                if len(sources) > 1:
                    members = entered.setdefault(d, [])
                    members.append(x)
                    if len(members) > 2:
                        continue
                for y in last:
                    if depth[y] < 0:
                        heapq.heappush(heap, (priority[kind], depth[x] + 1, tie_break[y], y, d))

        depth[root] = 0
        enter(root)
        while heap and missing:
            _, _, _, y, d = heapq.heappop(heap)
            if depth[y] < 0:
                # An entry from a single rank is pushed on the heap only once this rank is in the tree.
                members = entered[d][:LOOKED_AT] if d in entered else self.entries.entries[d].paths
                parent = next((x for x in members if self._path(d, x, y) is not None), None)
                if parent is not None:
                    depth[y] = 1 + depth[parent]
                    place[y] = self.fabric.ranks - missing
                    missing -= 1
                    for o in self.entries.kinds[self.entries.entries[d].kind]:
                        load[o] += weight
                    enter(y)
        return None if missing else (depth, place)

    def _path(self, d: int, x: int, y: int) -> tuple[int, ...] | None:
        """Return the edges from x through entry d to y; None where schedules may not take this path."""
        entry = self.entries.entries[d]
        path = (*entry.paths[x], entry.last[y])
        return path if x != y and (len(path) == 1 or self.fabric.links_of(path) is not None) else None

    def branches(self, root: int, depth: list[int], layer: list[int]) -> dict[int, dict[int, Branch]]:
        """Return for each rank and kind of path the branch to the shallowest possible parent in an earlier layer."""
        candidates: dict[int, list[int]] = {}
        options: dict[int, dict[int, Branch]] = {}
        for y in range(self.fabric.ranks):
            if y == root:
                continue
            branches: dict[int, Branch] = {}
            for d in self.entries.into[y]:
                kind, sources, _ = self.entries.entries[d]
                if kind not in self.used:
                    continue
                if d not in candidates:
                    candidates[d] = sorted(sources, key=depth.__getitem__)[:LOOKED_AT]
                for x in candidates[d]:
                    if layer[x] >= layer[y]:
                        continue
                    path = self._path(d, x, y)
                    if path is not None:
                        if kind not in branches or depth[x] < depth[branches[kind].parent]:
                            branches[kind] = Branch(x, path)
                        break
            options[y] = branches
        return options


def _shuffled(count: int, copy: int) -> list[int]:
    """Return sort keys of the ranks: ascending in copy 0, descending in copy 1, then pseudo-random by `copy`."""
    if copy == 0:
        return list(range(count))
    if copy == 1:
        return list(range(count, 0, -1))
    return [(r * 0x9E3779B1 + copy * 0x85EBCA6B) * 0xC2B2AE35 >> 7 & 0xFFFFFF for r in range(count)]

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from synth.model.gc_pause import collector_off
from synth.scale.fabric.automorphisms import edge_images, orbits
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.orbit_capacities import OrbitCapacities, nested_kinds
from synth.scale.forests.orbit_paths import PathEntries, path_entries
from synth.scale.forests.partial_trees import ArrayForest, Branch, BranchForest, branches_at
from synth.solvers.processes.deadline import check_deadline


@dataclass(frozen=True)
class SymmetricTreeSettings:
    """Limits of the search for symmetric trees.

    Attributes:
        most_weight: Limit on the units into which a shard is cut: the number of chunks of the schedule.
        tries: Attempts at layers by distance, each with higher prices on the orbits that the flow before
            lacked.
        copies: Trees for each root, each in an order of its own, where layers by distance leave too little
            choice.
        steep: Exponent by which the price of an orbit grows from unused to fully used.
        looked_at: Ranks of a layer that are tried as the parent of a rank. The first may not do: a box has no
            path through the network to itself.
    """

    most_weight: int = 1 << 12
    tries: int = 10
    copies: int = 6
    steep: float = 6.0
    looked_at: int = 80


SETTINGS = SymmetricTreeSettings()


@dataclass(frozen=True, eq=False)
class _Problem:
    """The trees that are sought: one of `time` for each of `roots`, over paths of `entries`.

    `share[o]`: shards that orbit o can carry in `time`, over the order of the group.
    """

    fabric: Fabric
    entries: PathEntries
    roots: list[int]
    share: dict[int, Fraction]
    time: Fraction


@collector_off()
def grow(
    fabric: Fabric, group: Sequence[np.ndarray], time: Fraction, *, program: bool = True
) -> BranchForest | ArrayForest | None:
    """Return trees that need no more than `time` (shards per unit) for one root of each orbit, or None where the search
    finds none.

    `group`: commuting automorphisms of the fabric that act freely on the ranks, from `free_group`. The edges of the
    fabric have the direction in which data spreads. `program`: an integer program (of some seconds) may be solved
    where the sets of paths over each orbit are not nested.
    """
    images = [edge_images(fabric, pi) for pi in group]
    if any(image is None for image in images):
        return None
    label = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in group])
    roots = np.flatnonzero(label == np.arange(fabric.ranks)).tolist()
    group_order = fabric.ranks // len(roots)
    orbit = orbits(len(fabric.src), [image for image in images if image is not None])
    sizes = np.bincount(orbit, minlength=len(orbit))
    share = {int(o): time * int(fabric.cap[o]) * int(sizes[o]) / group_order for o in np.unique(orbit).tolist()}
    entries = path_entries(fabric, orbit, label)
    if entries is None:
        return None
    every = frozenset(range(len(entries.kinds)))
    nested = nested_kinds(entries.kinds, sorted(every, key=lambda c: (not entries.alike[c], len(entries.kinds[c]), c)))
    problem = _Problem(fabric, entries, roots, share, time)
    for used in (nested, every) if nested != every and program else (nested,):
        for copies in (1, SETTINGS.copies):
            grown = _Layers(problem, used, copies).run()
            if grown is not None:
                return grown
    return None


class _Layers:
    """One tree for each root and copy, over the kinds of paths in `used`.

    With a single copy the layers are the depths. With several copies each rank is a layer of its own, in an order that
    differs from copy to copy.
    """

    def __init__(self, problem: _Problem, used: frozenset[int], copies: int) -> None:
        self.fabric, self.entries, self.used, self.copies = problem.fabric, problem.entries, used, copies
        self.roots = [(root, copy) for copy in range(copies) for root in problem.roots]
        weight = math.lcm(*(s.denominator for s in problem.share.values()))
        self.weight = weight if weight <= SETTINGS.most_weight else problem.time.denominator
        self.capacity = {o: math.floor(s * self.weight * copies) for o, s in problem.share.items()}
        self.orbits = OrbitCapacities(self.entries.kinds, self.capacity, used)

    def run(self) -> BranchForest | None:
        """Return the trees, or None.

        First all orbits have price 0. Then an orbit costs the reciprocal of its capacity, and those that the flow
        lacked cost four times as much in the next attempt.
        """
        free = dict.fromkeys(self.capacity, 0.0)
        scarce = dict.fromkeys(self.capacity, 1e12)  # the price of an orbit without capacity
        scarce.update((o, 1 / b) for o, b in self.capacity.items() if b)
        for price in (free, scarce):
            for _ in range(SETTINGS.tries if self.copies == 1 else 1):
                options = self._attempt(price)
                if options is None:
                    return None
                amounts, short = self.orbits.share(options, self.weight)
                if amounts is not None:
                    return self._trees(options, amounts)
                if not short or not any(price.values()):
                    break
                price = price | {o: 4 * price[o] for o in short}
        return None

    def _attempt(self, price: dict[int, float]) -> dict[tuple[int, int], dict[int, Branch]] | None:
        """Return for each (tree, rank) a branch for each kind of path; None where a rank is not reached.

        An orbit costs more in later copies, the more of it the layers of earlier copies used.
        """
        options: dict[tuple[int, int], dict[int, Branch]] = {}
        load = dict.fromkeys(self.capacity, 0)
        for j, (root, copy) in enumerate(self.roots):
            check_deadline()
            layers = self._layered(root, self._raised(price, load), copy)
            if layers is None:
                return None
            depth, layer, kinds = layers
            for c in kinds:
                for o in self.entries.kinds[c]:
                    load[o] += self.weight
            options |= {(j, y): branches for y, branches in self._options(root, depth, layer).items()}
        return options

    def _raised(self, price: dict[int, float], load: dict[int, int]) -> dict[int, float]:
        """Return the prices of the orbits, raised by their loads where there are several copies."""
        if self.copies == 1:
            return price
        raised = dict(price)
        for o, p in price.items():
            if self.capacity[o]:
                raised[o] = p * math.exp(SETTINGS.steep * load[o] / self.capacity[o])
        return raised

    def _layered(self, root: int, price: dict[int, float], copy: int) -> tuple[list[int], list[int], list[int]] | None:
        """Return depths, layers and the kinds of paths used, of a tree grown like Prim's; None where a rank is not
        reached.

        The cheapest kind of path comes first, then the rank nearest to the root. A kind costs as much as its most
        expensive orbit.
        """
        cost = [0.0] * len(self.entries.kinds)
        for c, kind in enumerate(self.entries.kinds):
            cost[c] = max(price[o] for o in kind)
        position = {c: i for i, c in enumerate(sorted(set(cost)))}
        priority = [position[c] for c in cost]
        kinds: list[int] = []
        tie_break = _shuffled(self.fabric.ranks, copy)
        depth, order = [-1] * self.fabric.ranks, [root]
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
        while heap and len(order) < self.fabric.ranks:
            _, _, _, y, d = heapq.heappop(heap)
            if depth[y] < 0:
                joined = (x for x in self._ranks_in_tree(entered, d) if self._path(d, x, y) is not None)
                parent = next(joined, None)
                if parent is not None:
                    depth[y] = 1 + depth[parent]
                    order.append(y)
                    kinds.append(self.entries.entries[d].kind)
                    enter(y)
        if len(order) < self.fabric.ranks:
            return None
        if self.copies == 1:
            return depth, depth, kinds
        layer = [0] * self.fabric.ranks
        for i, y in enumerate(order):
            layer[y] = i
        return depth, layer, kinds

    def _ranks_in_tree(self, entered: dict[int, list[int]], d: int) -> Iterable[int]:
        """Return ranks in the tree that share entry d, at most `SETTINGS.looked_at` of them.

        An entry from a single rank is pushed on the heap only once this rank is in the tree.
        """
        return entered[d][: SETTINGS.looked_at] if d in entered else self.entries.entries[d].paths

    def _path(self, d: int, x: int, y: int) -> tuple[int, ...] | None:
        """Return the edges from x through entry d to y; None where schedules may not take this path."""
        entry = self.entries.entries[d]
        path = (*entry.paths[x], entry.last[y])
        return path if x != y and (len(path) == 1 or self.fabric.links_of(path) is not None) else None

    def _options(self, root: int, depth: list[int], layer: list[int]) -> dict[int, dict[int, Branch]]:
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
                    candidates[d] = sorted(sources, key=depth.__getitem__)[: SETTINGS.looked_at]
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

    def _trees(
        self, options: dict[tuple[int, int], dict[int, Branch]], amounts: dict[tuple[int, int], dict[int, int]]
    ) -> BranchForest:
        """Return integral trees: the weight of each tree is cut wherever the parent of a rank changes."""
        roots, weights, rows = [], [], []
        for j, (root, _) in enumerate(self.roots):
            ends: dict[int, list[tuple[int, Branch]]] = {}
            cuts = {0, self.weight}
            for y in range(self.fabric.ranks):
                if y == root:
                    continue
                at, parts = 0, []
                for kind, amount in sorted(amounts[j, y].items()):
                    at += amount
                    parts.append((at, options[j, y][kind]))
                    cuts.add(at)
                ends[y] = parts
            for start, end in pairwise(sorted(cuts)):
                roots.append(root)
                weights.append(end - start)
                rows.append(branches_at(ends, start))
        return BranchForest(self.weight * self.copies, roots, weights, rows)


def _shuffled(count: int, copy: int) -> list[int]:
    """Return sort keys of the ranks: ascending in copy 0, descending in copy 1, then pseudo-random by `copy`."""
    if copy == 0:
        return list(range(count))
    if copy == 1:
        return list(range(count, 0, -1))
    return [(r * 0x9E3779B1 + copy * 0x85EBCA6B) * 0xC2B2AE35 >> 7 & 0xFFFFFF for r in range(count)]

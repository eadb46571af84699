"""Forests with the symmetry of their fabric: one tree for each orbit of roots, whose images together load links evenly.

Under a group that moves every rank, the images of a hop load all edges of the orbits it uses alike. So only totals
count: each tree layers the ranks (nearest first, or scarce orbits last), each rank hears from an earlier layer, and
*one* flow with the orbits' budgets at time x* says over which kind of way. On Cayley graphs (tori, rings, circulants,
hypercubes) layers are distances, so that trees are as shallow as the graph allows; boxes behind switches and rails work
the same way. A flow that falls short proves nothing: the layers are made again with saturated orbits dearer, then the
caller packs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from synth.model.gc_pause import collector_off
from synth.scale.fabric.automorphisms import edge_images, orbits
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests import symmetric_trees_direct
from synth.scale.forests.orbit_capacities import Budgets, nesting
from synth.scale.forests.orbit_paths import Doors, doors
from synth.scale.forests.partial_trees import Branch, Flat, Grown
from synth.solvers.processes.deadline import check

MOST_WEIGHT = 1 << 12
TRIES = 10
# Orders tried together for each root where layers by depth leave too little choice; how fast what is used gets dearer.
COPIES, STEEP = 6, 6.0
# Members of a layer looked at for one that a way really joins (a box has no way through the network to itself).
LOOKED_AT = 80


@collector_off()
def grow(fabric: Fabric, group: Sequence[np.ndarray], time: Fraction, *, program: bool = True) -> Grown | Flat | None:
    """Trees that need no more than `time` (shards per unit), for representatives of the roots' orbits; None where none
    are found.

    `group`: commuting symmetries of the fabric that move every rank, as `free_group` finds them. Edges run as data
    spreads.
    `program`: whether orbits that ways share criss-cross may take an integer program (seconds).
    """
    images = [edge_images(fabric, pi) for pi in group]
    if any(image is None for image in images):
        return None
    label = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in group])
    roots = np.flatnonzero(label == np.arange(fabric.ranks)).tolist()
    order = fabric.ranks // len(roots)
    orbit = orbits(len(fabric.src), [image for image in images if image is not None])
    sizes = np.bincount(orbit, minlength=len(orbit))
    share = {int(o): time * int(fabric.cap[o]) * int(sizes[o]) / order for o in np.unique(orbit).tolist()}
    if fabric.nodes == fabric.ranks:
        flat = symmetric_trees_direct.grow(fabric, orbit, roots, share, MOST_WEIGHT)
        if flat is not None:
            return flat
    made = doors(fabric, orbit, label)
    if made is None:
        return None
    every = frozenset(range(len(made.kinds)))
    nested = nesting(made.kinds, sorted(every, key=lambda c: (not made.alike[c], len(made.kinds[c]), c)))
    for used in (nested, every) if nested != every and program else (nested,):
        for copies in (1, COPIES):
            grown = _Layers(fabric, made, roots, share, time, used, copies).run()
            if grown is not None:
                return grown
    return None


class _Layers:
    """One tree for each root and copy. A single copy layers ranks by depth; several order them, each in its own way."""

    def __init__(
        self,
        fabric: Fabric,
        made: Doors,
        roots: list[int],
        share: dict[int, Fraction],
        time: Fraction,
        used: frozenset[int],
        copies: int,
    ) -> None:
        self.fabric, self.made, self.used, self.copies = fabric, made, used, copies
        self.roots = [(root, copy) for copy in range(copies) for root in roots]
        weight = math.lcm(*(s.denominator for s in share.values()))
        self.weight = weight if weight <= MOST_WEIGHT else time.denominator
        self.budget = {o: math.floor(s * self.weight * copies) for o, s in share.items()}
        self.budgets = Budgets(made.kinds, self.budget, used)

    def run(self) -> Grown | None:
        """By distance, then with scarce kinds of ways dearer, then with those dearer that were short."""
        scarce = {o: 1 / b if b else 1e12 for o, b in self.budget.items()}
        for price in (dict.fromkeys(self.budget, 0.0), scarce):
            for _ in range(TRIES if self.copies == 1 else 1):
                options = self._attempt(price)
                if options is None:
                    return None
                amounts, short = self.budgets.share(options, self.weight)
                if amounts is not None:
                    return self._trees(options, amounts)
                if not short or not any(price.values()):
                    break
                price = {o: p * 4 if o in short else p for o, p in price.items()}
        return None

    def _attempt(self, price: dict[int, float]) -> dict[tuple[int, int], dict[int, Branch]] | None:
        """Layers for every tree, and whom each rank can hear from; what earlier copies would use is dearer for later
        ones."""
        options: dict[tuple[int, int], dict[int, Branch]] = {}
        load = dict.fromkeys(self.budget, 0)
        for j, (root, copy) in enumerate(self.roots):
            check()
            now = price
            if self.copies > 1:
                now = {
                    o: p * math.exp(STEEP * load[o] / self.budget[o]) if self.budget[o] else p for o, p in price.items()
                }
            layers = self._layered(root, now, copy)
            if layers is None:
                return None
            depth, layer, kinds = layers
            for c in kinds:
                for o in self.made.kinds[c]:
                    load[o] += self.weight
            options |= {(j, y): found for y, found in self._options(root, depth, layer).items()}
        return options

    def _layered(self, root: int, price: dict[int, float], copy: int) -> tuple[list[int], list[int], list[int]] | None:
        """Depths in a tree grown over the cheapest kinds of ways first, near the root where they cost the same; layers;
        kinds used."""
        cost = [max(price[o] for o in kind) for kind in self.made.kinds]
        place = {c: i for i, c in enumerate(sorted(set(cost)))}
        rank_of = [place[c] for c in cost]
        kinds: list[int] = []
        salt = _shuffled(self.fabric.ranks, copy)
        depth, order = [-1] * self.fabric.ranks, [root]
        entered: dict[int, list[int]] = {}
        heap: list[tuple[int, int, int, int, int]] = []

        def enter(x: int) -> None:
            for d in self.made.outof[x]:
                kind, ways, last = self.made.doors[d]
                if kind not in self.used:
                    continue
                if len(ways) > 1:
                    members = entered.setdefault(d, [])
                    members.append(x)
                    if len(members) > 2:
                        continue
                for y in last:
                    if depth[y] < 0:
                        heapq.heappush(heap, (rank_of[kind], depth[x] + 1, salt[y], y, d))

        depth[root] = 0
        enter(root)
        while heap and len(order) < self.fabric.ranks:
            _, _, _, y, d = heapq.heappop(heap)
            if depth[y] < 0:
                near = next((x for x in self._members(entered, d) if self._way(d, x, y) is not None), None)
                if near is not None:
                    depth[y] = 1 + depth[near]
                    order.append(y)
                    kinds.append(self.made.doors[d].kind)
                    enter(y)
        if len(order) < self.fabric.ranks:
            return None
        if self.copies == 1:
            return depth, depth, kinds
        layer = [0] * self.fabric.ranks
        for i, y in enumerate(order):
            layer[y] = i
        return depth, layer, kinds

    def _members(self, entered: dict[int, list[int]], d: int) -> Iterable[int]:
        """Some of those at a door that have joined the tree; a door of one rank opens when that has."""
        return entered[d][:LOOKED_AT] if d in entered else self.made.doors[d].ways

    def _way(self, d: int, x: int, y: int) -> tuple[int, ...] | None:
        """The edges from x through the door to y, where the topology has them."""
        door = self.made.doors[d]
        path = (*door.ways[x], door.last[y])
        return path if x != y and (len(path) == 1 or self.fabric.links_of(path) is not None) else None

    def _options(self, root: int, depth: list[int], layer: list[int]) -> dict[int, dict[int, Branch]]:
        """For each rank and kind of way the shallowest rank of an earlier layer that it can hear from."""
        inside: dict[int, list[int]] = {}
        found: dict[int, dict[int, Branch]] = {}
        for y in range(self.fabric.ranks):
            if y == root:
                continue
            here: dict[int, Branch] = {}
            for d in self.made.into[y]:
                kind, ways, _ = self.made.doors[d]
                if kind not in self.used:
                    continue
                if d not in inside:
                    inside[d] = sorted(ways, key=depth.__getitem__)[:LOOKED_AT] if len(ways) > 1 else list(ways)
                for x in inside[d]:
                    if layer[x] >= layer[y]:
                        continue
                    path = self._way(d, x, y)
                    if path is not None:
                        if kind not in here or depth[x] < depth[here[kind].parent]:
                            here[kind] = Branch(x, path)
                        break
            found[y] = here
        return found

    def _trees(
        self, options: dict[tuple[int, int], dict[int, Branch]], amounts: dict[tuple[int, int], dict[int, int]]
    ) -> Grown:
        """Cuts the unit interval of each tree wherever a rank changes its parent."""
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
                rows.append({y: next(branch for to, branch in parts if to > start) for y, parts in ends.items()})
        return Grown(self.weight * self.copies, roots, weights, rows)


def _shuffled(count: int, copy: int) -> list[int]:
    """Numbers that order the ranks: as they are, backwards, then mixed up, always in the same way."""
    if copy < 2:
        return list(range(count)) if copy == 0 else list(range(count, 0, -1))
    return [(r * 0x9E3779B1 + copy * 0x85EBCA6B) * 0xC2B2AE35 >> 7 & 0xFFFFFF for r in range(count)]

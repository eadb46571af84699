"""Forests with the symmetry of their fabric: one tree for each orbit of roots, whose images together load links evenly.

Under a group that moves every rank, the images of a hop load all edges of the orbits it uses alike. So only totals count:
each tree layers the ranks (nearest first, or scarce orbits last), each rank hears from an earlier layer, and *one* flow
with the orbits' budgets at time x* says over which kind of way. On Cayley graphs (tori, rings, circulants, hypercubes)
layers are distances, so that trees are as shallow as the graph allows; boxes behind switches and rails work the same way.
A flow that falls short proves nothing: the layers are made again with saturated orbits dearer, then the caller packs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from synth.flows.automorphisms import edge_images, orbits
from synth.flows.budgets import Budgets
from synth.flows.fabric import Fabric
from synth.flows.routes import Doors, doors
from synth.flows.trees import Branch, Grown

MOST_WEIGHT = 1 << 12
TRIES = 10
# Members of a layer looked at for one that a way really joins (a box has no way through the network to itself).
LOOKED_AT = 80


def grow(fabric: Fabric, group: Sequence[np.ndarray], time: Fraction, *, program: bool = True) -> Grown | None:
    """Trees that need no more than `time` (shards per unit), for representatives of the roots' orbits; None where none are found.

    `group`: commuting symmetries of the fabric that move every rank, as `free_group` finds them. Edges run as data spreads.
    `program`: whether orbits that ways share criss-cross may take an integer program (seconds).
    """
    images = [edge_images(fabric, pi) for pi in group]
    if any(image is None for image in images):
        return None
    label = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in group])
    roots = np.flatnonzero(label == np.arange(fabric.ranks)).tolist()
    order = fabric.ranks // len(roots)
    orbit = orbits(len(fabric.src), [image for image in images if image is not None])
    made = doors(fabric, orbit)
    if made is None:
        return None
    sizes = np.bincount(orbit, minlength=len(orbit))
    share = {int(o): time * int(fabric.cap[o]) * int(sizes[o]) / order for o in np.unique(orbit)}
    weight = math.lcm(*(s.denominator for s in share.values()))
    weight = weight if weight <= MOST_WEIGHT else time.denominator
    return _Layers(fabric, made, roots, weight, {o: math.floor(s * weight) for o, s in share.items()}, program).run()


class _Layers:
    def __init__(self, fabric: Fabric, made: Doors, roots: list[int], weight: int, budget: dict[int, int], program: bool) -> None:
        self.fabric, self.made, self.roots, self.weight, self.budget = fabric, made, roots, weight, budget
        self.budgets, self.program = Budgets(made.kinds, budget), program

    def run(self) -> Grown | None:
        """By distance, then with scarce kinds of ways dearer, then with those dearer that were short."""
        scarce = {o: Fraction(1, b) if b else Fraction(1 << 40) for o, b in self.budget.items()}
        if not self.budgets.nested and not self.program:
            return None
        for price in ({o: Fraction(0) for o in self.budget}, scarce):
            for _ in range(TRIES):
                layers = [self._layered(root, price) for root in self.roots]
                if any(layer is None for layer in layers):
                    return None
                options = {
                    (j, y): found
                    for j, layer in enumerate(layers)
                    for y, found in self._options(self.roots[j], layer).items()  # type: ignore[arg-type]
                }
                amounts, short = self.budgets.share(options, self.weight)
                if amounts is not None:
                    return self._trees(options, amounts)
                if not short or not any(price.values()):
                    break
                price = {o: p * 4 if o in short else p for o, p in price.items()}
        return None

    def _layered(self, root: int, price: dict[int, Fraction]) -> list[int] | None:
        """The depth of each rank in a tree grown over the cheapest kinds of ways first, near the root where they cost the same."""
        cost = [max(price[o] for o in kind) for kind in self.made.kinds]
        place = {c: i for i, c in enumerate(sorted(set(cost)))}
        rank_of = [place[c] for c in cost]
        depth, left = [-1] * self.fabric.ranks, self.fabric.ranks - 1
        entered: dict[int, list[int]] = {}
        heap: list[tuple[int, int, int, int]] = []

        def enter(x: int) -> None:
            for d in self.made.outof[x]:
                kind, ways, last = self.made.doors[d]
                if len(ways) > 1:
                    members = entered.setdefault(d, [])
                    members.append(x)
                    if len(members) > 2:
                        continue
                for y in last:
                    if depth[y] < 0:
                        heapq.heappush(heap, (rank_of[kind], depth[x] + 1, y, d))

        depth[root] = 0
        enter(root)
        while left and heap:
            _, _, y, d = heapq.heappop(heap)
            if depth[y] < 0:
                near = [x for x in self._members(entered, d) if self._way(d, x, y) is not None]
                if near:
                    depth[y] = 1 + min(depth[x] for x in near)
                    left -= 1
                    enter(y)
        return None if left else depth

    def _members(self, entered: dict[int, list[int]], d: int) -> Iterable[int]:
        """Some of those at a door that have joined the tree; a door of one rank opens when that has."""
        return entered[d][:LOOKED_AT] if d in entered else self.made.doors[d].ways

    def _way(self, d: int, x: int, y: int) -> tuple[int, ...] | None:
        """The edges from x through the door to y, where the topology has them."""
        door = self.made.doors[d]
        path = (*door.ways[x], door.last[y])
        return path if x != y and (len(path) == 1 or self.fabric.links_of(path) is not None) else None

    def _options(self, root: int, depth: list[int]) -> dict[int, dict[int, Branch]]:
        """For each rank and kind of way the earliest rank of an earlier layer that it can hear from."""
        inside: dict[int, list[int]] = {}
        found: dict[int, dict[int, Branch]] = {}
        for y in range(self.fabric.ranks):
            if y == root:
                continue
            here: dict[int, Branch] = {}
            for d in self.made.into[y]:
                door = self.made.doors[d]
                if d not in inside:
                    inside[d] = sorted(door.ways, key=depth.__getitem__)[:LOOKED_AT] if len(door.ways) > 1 else list(door.ways)
                for x in inside[d]:
                    if depth[x] >= depth[y]:
                        break
                    path = self._way(d, x, y)
                    if path is not None:
                        if door.kind not in here or depth[x] < depth[here[door.kind].parent]:
                            here[door.kind] = Branch(x, path)
                        break
            found[y] = here
        return found

    def _trees(self, options: dict[tuple[int, int], dict[int, Branch]], amounts: dict[tuple[int, int], dict[int, int]]) -> Grown:
        """Cuts the unit interval of each tree wherever a rank changes its parent."""
        roots, weights, rows = [], [], []
        for j, root in enumerate(self.roots):
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
        return Grown(self.weight, roots, weights, rows)

"""Partition of the ranks into boxes, and the trees inside a box and between boxes that templates are made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from synth.model.topology import Topology
from synth.scale.composition.loads import LinkIndex
from synth.scale.composition.phases import Edge

Levels = list[list[Edge]]


@dataclass(frozen=True)
class Boxes:
    """`boxes`: the ranks of each box in ascending order. `links` tells which ranks are joined."""

    links: LinkIndex
    boxes: tuple[tuple[int, ...], ...]

    @cached_property
    def box_of(self) -> dict[int, int]:
        """The box of each rank."""
        return {rank: b for b, box in enumerate(self.boxes) for rank in box}

    def hubs(self, rank: int, shift: int = 0) -> list[int]:
        """Return the rank of each box at the place that `rank` has in its own box; `rank` itself in its own.

        Places are counted in proportion where boxes differ in size; in other boxes they are `shift` further.
        """
        home = self.boxes[self.box_of[rank]]
        place = home.index(rank)
        hubs = []
        for box in self.boxes:
            hubs.append(rank if box is home else box[(place * len(box) // len(home) + shift) % len(box)])
        return hubs

    @cached_property
    def complete(self) -> bool:
        """True where all ranks of each box are joined to each other."""
        pairs = (pair for box in self.boxes for pair in permutations(box, 2))
        return all(self.links.joins(*pair) for pair in pairs)

    def tree(self, box: int, hub: int, without: tuple[int, ...] = (), variant: int = 0) -> Levels | None:
        """Return the levels of a tree of a box from `hub`, or None where a rank cannot be reached.

        The first variant is a breadth-first tree. Later ones avoid links that the trees before them load. Every second
        one may be one level deeper. Ranks `without` are no part of the tree.
        """
        ranks = [rank for rank in self.boxes[box] if rank not in without]
        return self._tree(ranks, hub) if not variant else self._balanced_tree(ranks, hub, variant % 2)

    def trees(self, hubs: list[int], boxes: list[int], variant: int = 0) -> Levels | None:
        """Return the levels of the trees of these boxes from their hubs, all at once."""
        levels: Levels = []
        for b in boxes:
            tree = self.tree(b, hubs[b], (), variant)
            if tree is None:
                return None
            for depth, level in enumerate(tree):
                if depth == len(levels):
                    levels.append([])
                levels[depth] += level
        return levels

    def path(self, box: int, start: int, end: int) -> list[int]:
        """Return the ranks on the path from `start` to `end` in the tree of their box; empty where there is none."""
        tree = self.tree(box, start)
        if tree is None:
            return []
        parents = {child: parent for level in tree for parent, child in level}
        path = [end]
        while path[-1] != start:
            path.append(parents[path[-1]])
        return path[::-1]

    def tree_of_hubs(self, hubs: list[int], start: int) -> Levels | None:
        """Return the levels of a tree from the hub of box `start` to the other hubs, over links between hubs."""
        return self._tree(hubs, hubs[start])

    def _tree(self, ranks: list[int], hub: int) -> Levels | None:
        missing = set(ranks) - {hub}
        level, levels = [hub], []
        while missing:
            children = dict.fromkeys(level, 0)
            edges = []
            for rank in sorted(missing):
                parents = [p for p in level if self.links.joins(p, rank)]
                if parents:
                    parent = max(parents, key=lambda p: (self.links.width(p, rank) / (1 + children[p]), -p))
                    children[parent] += 1
                    edges.append((parent, rank))
            if not edges:
                return None
            levels.append(edges)
            level = [rank for _, rank in edges]
            missing -= set(level)
        return levels

    def _balanced_tree(self, ranks: list[int], hub: int, extra: int) -> Levels | None:
        """Return the levels of a tree grown along the least loaded links; no rank is more than `extra` levels later
        than in a breadth-first tree."""
        shortest = self._tree(ranks, hub)
        if shortest is None:
            return None
        latest = {child: depth + extra for depth, level in enumerate(shortest, 1) for _, child in level}
        depth = {hub: 0}
        levels: Levels = []
        while len(depth) < len(ranks):
            candidates = []
            for a, before in depth.items():
                for b in ranks:
                    if b not in depth and before < latest[b] and self.links.joins(a, b):
                        candidates.append((self._marginal_load(a, b), before, a, b))
            _, before, a, b = min(candidates)
            depth[b] = before + 1
            if before == len(levels):
                levels.append([])
            levels[before].append((a, b))
            self._load[self._orbit(a, b)] += 1
        return levels

    def _marginal_load(self, a: int, b: int) -> float:
        """Return the increase of the third powers of loads per unit of capacity, summed over links."""
        width = self.links.width(a, b)
        load = self._load[self._orbit(a, b)]
        return ((load + 1) / width) ** 3 - (load / width) ** 3

    def _orbit(self, a: int, b: int) -> int:
        return self.links.orbit_of[a, b]

    @cached_property
    def _load(self) -> Counter[int]:
        """Number of tree edges so far on each orbit of links."""
        return Counter()


def boxes_of(links: LinkIndex) -> Boxes | None:
    """Return the boxes that the topology names, or None where it names fewer than two."""
    topology: Topology = links.topology
    named: dict[int, list[int]] = {}
    for rank, box in enumerate(topology.nodes):
        named.setdefault(box, []).append(rank)
    if len(named) < 2 or len(topology.nodes) != topology.ranks:
        return None
    return Boxes(links, tuple(tuple(box) for box in named.values()))

"""Partition of the ranks into boxes, and the trees inside a box and between boxes that templates are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from synth.model.topology import Topology
from synth.scale.composition.loads import PathIndex
from synth.scale.composition.phases import Edge

Levels = list[list[Edge]]


@dataclass(frozen=True)
class Boxes:
    """`boxes`: the ranks of each box in ascending order. `links` tells which ranks are joined."""

    links: PathIndex
    boxes: tuple[tuple[int, ...], ...]

    @cached_property
    def box_of(self) -> dict[int, int]:
        """The box of each rank."""
        return {rank: b for b, box in enumerate(self.boxes) for rank in box}

    def hubs(self, rank: int) -> list[int]:
        """Return the rank of each box at the place that `rank` has in its own box; `rank` itself in its own.

        Places are counted in proportion where boxes differ in size.
        """
        home = self.boxes[self.box_of[rank]]
        place = home.index(rank)
        hubs = []
        for box in self.boxes:
            hubs.append(rank if box is home else box[place * len(box) // len(home)])
        return hubs

    def tree(self, box: int, hub: int, without: tuple[int, ...] = ()) -> Levels | None:
        """Return the levels of a breadth-first tree of a box from `hub`, or None where a rank cannot be reached.

        Ranks `without` are no part of the tree.
        """
        key = box, hub, without
        if key not in self._found:
            self._found[key] = self._tree([rank for rank in self.boxes[box] if rank not in without], hub)
        return self._found[key]

    @cached_property
    def _found(self) -> dict[tuple[int, int, tuple[int, ...]], Levels | None]:
        """The trees so far, by their arguments: messages ask for the same ones many times."""
        return {}

    def trees(self, hubs: list[int], boxes: list[int]) -> Levels | None:
        """Return the levels of the trees of these boxes from their hubs, all at once."""
        levels: Levels = []
        for b in boxes:
            tree = self.tree(b, hubs[b])
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


def boxes_of(links: PathIndex) -> Boxes | None:
    """Return the boxes that the topology names, or None where it names fewer than two."""
    topology: Topology = links.topology
    named: dict[int, list[int]] = {}
    for rank, box in enumerate(topology.nodes):
        named.setdefault(box, []).append(rank)
    if len(named) < 2 or len(topology.nodes) != topology.ranks:
        return None
    return Boxes(links, tuple(tuple(box) for box in named.values()))

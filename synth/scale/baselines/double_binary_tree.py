"""NCCL's double binary trees on the links of a machine, and the rate that they reach.

Tree k's parent of a rank flips its lowest set bit (src/graph/trees.cc); the second tree is the first shifted by one
rank, or mirrored when N is even; each carries half of the data. A tree edge goes over the links between its two ranks,
shared out by their widths; where there is none it takes a shortest way over other ranks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from fractions import Fraction

import numpy as np

from synth.scale.baselines.rings.ring_network import Roads
from synth.solvers.processes.deadline import check


def binary_trees(ranks: int) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """NCCL's two trees: the parent of each rank, None for the root."""
    first = tuple(_parent(ranks, r) for r in range(ranks))
    if ranks % 2 == 0:  # mirrored
        second = tuple(None if (p := first[ranks - 1 - r]) is None else ranks - 1 - p for r in range(ranks))
    else:  # shifted by one
        second = tuple(None if (p := first[(r - 1) % ranks]) is None else (p + 1) % ranks for r in range(ranks))
    return first, second


def _parent(ranks: int, rank: int) -> int | None:
    if rank == 0:
        return None
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    return rank ^ bit if up >= ranks else up


def tree_rate(wires: Roads, root: int | None = None) -> Fraction:
    """Units of algorithmic bandwidth of the double binary trees. 0: not connected.

    Of an allreduce, up both trees and down again; of a broadcast from `root` down both, the ranks counted from there,
    with the half of the second tree sent to its root first.
    """
    load: defaultdict[int, Fraction] = defaultdict(Fraction)
    ways = _Ways(wires)
    edges: list[tuple[int, int]] = []
    for parents in binary_trees(wires.ranks):
        down = [(parent, child) for child, parent in enumerate(parents) if parent is not None]
        if root is None:
            edges += [*down, *((b, a) for a, b in down)]
        else:
            edges += [
                ((a + root) % wires.ranks, (b + root) % wires.ranks)
                for a, b in [*down, (0, parents.index(None))]
                if a != b
            ]
    for a, b in edges:
        way = ways.way(a, b)
        if way is None:
            return Fraction(0)
        for hop in way:
            for link, part in ways.shares(hop):
                load[link] += part
    first, which = wires.limits
    limits: defaultdict[int, Fraction] = defaultdict(Fraction)
    for link, much in load.items():
        for k in which[first[link] : first[link + 1]].tolist():
            limits[k] += much
    loads = [(int(wires.units[link]), much) for link, much in load.items()]
    loads += [(int(wires.room[k]), much) for k, much in limits.items()]
    return min(Fraction(2 * room) / much for room, much in loads)


class _Ways:
    """Shortest ways, hop by hop; the widest first link among equals."""

    def __init__(self, wires: Roads) -> None:
        self.wires = wires
        self.starts = np.searchsorted(wires.keys, np.arange(wires.ranks + 1) * wires.ranks)
        self.known: dict[int, dict[int, list[int]]] = {}

    def row(self, rank: int) -> dict[int, list[int]]:
        """The links from `rank` by where they lead."""
        if rank not in self.known:
            found: dict[int, list[int]] = {}
            for link in self.wires.order[self.starts[rank] : self.starts[rank + 1]].tolist():
                if self.wires.units[link]:
                    found.setdefault(int(self.wires.dst[link]), []).append(link)
            self.known[rank] = found
        return self.known[rank]

    def between(self, a: int, b: int) -> list[int]:
        """The links from a to b."""
        key = a * self.wires.ranks + b
        first, end = np.searchsorted(self.wires.keys, [key, key + 1])
        return [link for link in self.wires.order[first:end].tolist() if self.wires.units[link]]

    def shares(self, hop: tuple[int, int]) -> list[tuple[int, Fraction]]:
        """The links between two ranks, with what part of the data each takes."""
        links = self.between(*hop)
        if len(links) == 1:
            return [(links[0], Fraction(1))]
        units = [int(self.wires.units[k]) for k in links]
        return [(k, Fraction(n, sum(units))) for k, n in zip(links, units, strict=True)]

    def way(self, a: int, b: int) -> tuple[tuple[int, int], ...] | None:
        """The pairs along a shortest way from a to b, None where there is none."""
        check()
        if self.between(a, b):
            return ((a, b),)
        before: dict[int, int] = {a: a}
        queue = deque([a])
        while queue and b not in before:
            u = queue.popleft()
            row = self.row(u)
            for v in sorted(row, key=lambda v: (-max(int(self.wires.units[k]) for k in row[v]), v)):
                if v not in before:
                    before[v] = u
                    queue.append(v)
        if b not in before:
            return None
        way = []
        while b != a:
            way.append((before[b], b))
            b = before[b]
        return tuple(reversed(way))

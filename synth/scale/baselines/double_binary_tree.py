"""NCCL's double binary trees on the links of a machine, and the rate that they reach.

Tree k's parent of a rank flips its lowest set bit (src/graph/trees.cc); the second tree is the first shifted by one
rank, or mirrored when N is even; each carries half of the data. A tree edge uses all links between its two ranks, in
proportion to their widths; where there is none, it follows a shortest path over other ranks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from fractions import Fraction

import numpy as np

from synth.scale.baselines.rings.ring_network import RingNetwork
from synth.solvers.processes.deadline import check_deadline

Parents = tuple[int | None, ...]  # parent of each node of a tree, None for the root


def binary_trees(ranks: int) -> tuple[Parents, Parents]:
    """Return NCCL's two trees: the parent of each rank, None for the root."""
    first = tuple(_parent(ranks, r) for r in range(ranks))
    second: list[int | None] = []
    for r in range(ranks):
        if ranks % 2 == 0:  # mirrored
            parent = first[ranks - 1 - r]
            second.append(None if parent is None else ranks - 1 - parent)
        else:  # shifted by one
            parent = first[(r - 1) % ranks]
            second.append(None if parent is None else (parent + 1) % ranks)
    return first, tuple(second)


def _parent(ranks: int, rank: int) -> int | None:
    if rank == 0:
        return None
    bit = rank & -rank
    parent = (rank ^ bit) | (bit << 1)
    return rank ^ bit if parent >= ranks else parent


def tree_rate(network: RingNetwork, root: int | None = None) -> Fraction:
    """Return the algorithmic bandwidth of the double binary trees in units; 0 where ranks are not connected.

    `root` is None for an allreduce, which goes up both trees and down again. A broadcast from `root` goes down both,
    with the ranks counted from there, after the half of the second tree is sent to its root. Raises TimeUp.
    """
    load: defaultdict[int, Fraction] = defaultdict(Fraction)
    paths = _ShortestPaths(network)
    for a, b in _tree_edges(network.ranks, root):
        path = paths.path(a, b)
        if path is None:
            return Fraction(0)
        for pair in path:
            for link, part in paths.shares(pair):
                load[link] += part
    first, limits_of = network.limits
    limit_load: defaultdict[int, Fraction] = defaultdict(Fraction)
    for link, amount in load.items():
        for k in limits_of[first[link] : first[link + 1]].tolist():
            limit_load[k] += amount
    loads = [(int(network.units[link]), amount) for link, amount in load.items()]
    loads += [(int(network.capacity[k]), amount) for k, amount in limit_load.items()]
    return min(Fraction(2 * capacity) / amount for capacity, amount in loads)


def _tree_edges(ranks: int, root: int | None) -> list[tuple[int, int]]:
    """Pairs of ranks that half of the data is sent between, for an allreduce (None) or a broadcast from `root`."""
    edges: list[tuple[int, int]] = []
    for parents in binary_trees(ranks):
        down = [(parent, child) for child, parent in enumerate(parents) if parent is not None]
        if root is None:
            edges += [*down, *((child, parent) for parent, child in down)]
        else:
            down.append((0, parents.index(None)))
            edges += [((a + root) % ranks, (b + root) % ranks) for a, b in down if a != b]
    return edges


class _ShortestPaths:
    """Paths with the fewest links between two ranks; of equally short ones, the widest first link at each rank."""

    def __init__(self, network: RingNetwork) -> None:
        self.network = network
        self.starts = np.searchsorted(network.keys, np.arange(network.ranks + 1) * network.ranks)
        self.rows: dict[int, dict[int, list[int]]] = {}

    def row(self, rank: int) -> dict[int, list[int]]:
        """Links that leave `rank`, by their destination."""
        if rank not in self.rows:
            row: dict[int, list[int]] = {}
            for link in self.network.order[self.starts[rank] : self.starts[rank + 1]].tolist():
                if self.network.units[link]:
                    row.setdefault(int(self.network.dst[link]), []).append(link)
            self.rows[rank] = row
        return self.rows[rank]

    def between(self, a: int, b: int) -> list[int]:
        """Links from a to b."""
        key = a * self.network.ranks + b
        first, end = np.searchsorted(self.network.keys, [key, key + 1])
        return [link for link in self.network.order[first:end].tolist() if self.network.units[link]]

    def shares(self, pair: tuple[int, int]) -> list[tuple[int, Fraction]]:
        """(link, part of the data) of the links between two ranks."""
        links = self.between(*pair)
        if len(links) == 1:
            return [(links[0], Fraction(1))]
        units = [int(self.network.units[k]) for k in links]
        return [(k, Fraction(n, sum(units))) for k, n in zip(links, units, strict=True)]

    def path(self, a: int, b: int) -> tuple[tuple[int, int], ...] | None:
        """Return the (source, destination) pairs of a shortest path from rank a to rank b; None if there is none.

        Raises TimeUp at the end of the time limit.
        """
        check_deadline()
        if self.between(a, b):
            return ((a, b),)
        predecessor: dict[int, int] = {a: a}
        queue = deque([a])
        while queue and b not in predecessor:
            u = queue.popleft()
            row = self.row(u)
            for v in sorted(row, key=lambda v: (-max(int(self.network.units[k]) for k in row[v]), v)):
                if v not in predecessor:
                    predecessor[v] = u
                    queue.append(v)
        if b not in predecessor:
            return None
        path = []
        while b != a:
            path.append((predecessor[b], b))
            b = predecessor[b]
        return tuple(reversed(path))

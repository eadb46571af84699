"""The paths that schedules may take: links from rank to rank, and shortest paths through switches between two ranks.

`Topology.network` lists the same paths. Here a single path is examined at a time, and distances are computed once for
each switch and not for each rank.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from synth.model.link_table import ends
from synth.model.topology import Topology

FAR = 1 << 30  # the distance of an unreachable node

Neighbors = tuple[dict[int, list[int]], dict[int, list[int]]]  # by node: neighbouring ranks, neighbouring switches


class ShortestPaths:
    """Distances through switches along the links of `topology`, counted in links."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.ranks = topology, topology.ranks
        self.known: dict[tuple[int, int, int], bool] = {}
        self.distances: dict[tuple[int, bool], np.ndarray] = {}

    def allows(self, start: int, end: int, links: int) -> bool:
        """Return True if schedules may take a path of this number of links between two ranks.

        For a path from or to a switch: True if it is part of such a path.
        """
        if links == 1 and start < self.ranks and end < self.ranks:
            return True
        key = start, end, links
        if key not in self.known:
            self.known[key] = self._allows(start, end, links)
        return self.known[key]

    def _allows(self, start: int, end: int, links: int) -> bool:
        if start < self.ranks and end < self.ranks:
            _, switches = self._neighbors[True]
            return links == 1 + min((int(self._distances(s, True)[end]) for s in switches[start]), default=FAR)
        if start < self.ranks:
            return self._is_shortest(start, self._distances(end, True) + links, True)
        if end < self.ranks:
            return self._is_shortest(end, self._distances(start, False) + links, False)
        before, after = self._distances(start, False), self._distances(end, True) + links
        starts = np.flatnonzero(before < FAR).tolist()
        return any(self._is_shortest(rank, after + int(before[rank]), True) for rank in starts)

    def _is_shortest(self, rank: int, lengths: np.ndarray, onward: bool) -> bool:
        """Return True if a path between the rank and any other rank, with these lengths, is a shortest path."""
        same = lengths == self._distances(rank, onward)
        same[rank] = False
        return bool(same.any())

    def _distances(self, node: int, onward: bool) -> np.ndarray:
        """Return the lengths of shortest paths through switches from a node to each rank, or to the node if not
        `onward`.
        """
        if (node, onward) not in self.distances:
            self.distances[node, onward] = self._search(node, onward)
        return self.distances[node, onward]

    def _search(self, node: int, onward: bool) -> np.ndarray:
        far = np.full(self.ranks, FAR, np.int32)
        ranks, switches = self._neighbors[onward]
        if node < self.ranks:  # only through its switches: a direct link to a rank does not count
            for s in switches[node]:
                far = np.minimum(far, 1 + self._distances(s, onward))
            return far
        links = {node: 1}
        order = [node]
        for s in order:
            far[ranks[s]] = np.minimum(far[ranks[s]], links[s])
            for t in switches[s]:
                if t not in links:
                    links[t] = links[s] + 1
                    order.append(t)
        return far

    @cached_property
    def _neighbors(self) -> dict[bool, Neighbors]:
        src, dst = (end.tolist() for end in ends(self.topology.links))
        nodes = self.ranks + len(self.topology.switches)
        neighbors: dict[bool, Neighbors] = {}
        for onward, tail, head in ((True, src, dst), (False, dst, src)):
            ranks: dict[int, list[int]] = {n: [] for n in range(nodes)}
            switches: dict[int, list[int]] = {n: [] for n in range(nodes)}
            for a, b in zip(tail, head, strict=True):
                (ranks if b < self.ranks else switches)[a].append(b)
            neighbors[onward] = ranks, switches
        return neighbors

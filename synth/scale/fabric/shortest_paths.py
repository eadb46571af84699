"""The ways that schedules may take: links from rank to rank, and between two ranks the shortest ways through switches.

The same as `Topology.network` lists, asked of one way at a time: distances are counted from each switch once, not from
each rank.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from synth.model.link_table import ends
from synth.model.topology import Topology

FAR = 1 << 30  # where no way leads

Near = tuple[dict[int, list[int]], dict[int, list[int]]]  # of each node the ranks next to it, and the switches


class Shortest:
    """Distances through switches along the links of `topology`, counted in links."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.ranks = topology, topology.ranks
        self.known: dict[tuple[int, int, int], bool] = {}
        self.counted: dict[tuple[int, bool], np.ndarray] = {}

    def allows(self, start: int, end: int, links: int) -> bool:
        """Whether a way of so many links between ranks may be taken; of one from or to a switch, whether it is part of
        such a way."""
        if links == 1 and start < self.ranks and end < self.ranks:
            return True
        key = start, end, links
        if key not in self.known:
            self.known[key] = self._allows(start, end, links)
        return self.known[key]

    def _allows(self, start: int, end: int, links: int) -> bool:
        if start < self.ranks and end < self.ranks:
            return links == 1 + min((int(self._far(s, True)[end]) for s in self._near[True][1][start]), default=FAR)
        if start < self.ranks:
            return self._extends(start, self._far(end, True) + links, True)
        if end < self.ranks:
            return self._extends(end, self._far(start, False) + links, False)
        before, after = self._far(start, False), self._far(end, True) + links
        return any(
            self._extends(rank, after + int(before[rank]), True) for rank in np.flatnonzero(before < FAR).tolist()
        )

    def _extends(self, rank: int, lengths: np.ndarray, onward: bool) -> bool:
        """Whether a way between the rank and another, of these lengths, is a shortest one."""
        same = lengths == self._far(rank, onward)
        same[rank] = False
        return bool(same.any())

    def _far(self, node: int, onward: bool) -> np.ndarray:
        """Links of the shortest way through switches from a node to each rank; to it from each where not `onward`."""
        if (node, onward) not in self.counted:
            self.counted[node, onward] = self._count(node, onward)
        return self.counted[node, onward]

    def _count(self, node: int, onward: bool) -> np.ndarray:
        far = np.full(self.ranks, FAR, np.int32)
        ranks, switches = self._near[onward]
        if node < self.ranks:  # through its switches: a link to a rank is no such way
            for s in switches[node]:
                far = np.minimum(far, 1 + self._far(s, onward))
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
    def _near(self) -> dict[bool, Near]:
        src, dst = (end.tolist() for end in ends(self.topology.links))
        nodes = self.ranks + len(self.topology.switches)
        found: dict[bool, Near] = {}
        for onward, tail, head in ((True, src, dst), (False, dst, src)):
            ranks: dict[int, list[int]] = {n: [] for n in range(nodes)}
            switches: dict[int, list[int]] = {n: [] for n in range(nodes)}
            for a, b in zip(tail, head, strict=True):
                (ranks if b < self.ranks else switches)[a].append(b)
            found[onward] = ranks, switches
        return found

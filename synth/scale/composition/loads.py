"""Loads that sends put on links and limits, exact, for all images under the machine's symmetries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from synth.model.link_table import ends, widths
from synth.model.topology import Topology
from synth.scale.composition.phases import Phase
from synth.scale.fabric.graphs import hops_from
from synth.scale.fabric.link_loads import group_order, link_loads, path_links


class PathIndex:
    """A path for each pair of ranks that a link joins, or links through switches: the shortest, of these the widest.

    `src` and `dst` are the ends of the paths, `paths[i]` the links of path i in the order of the data. `generators` of
    a free commuting group of automorphisms. With `flipped`, `joins` and `width` count every path from its destination
    to its source.
    """

    def __init__(self, topology: Topology, generators: Sequence[np.ndarray] = (), *, flipped: bool = False) -> None:
        self.topology, self.generators, self.flipped = topology, tuple(generators), flipped
        unit = topology.unit_bandwidth()
        wide, which = widths(topology.links)
        self.link_units = np.array([int(width / unit) for width in wide], np.int64)[which]
        self.src, self.dst, self.paths = self._through_switches() if topology.switches else self._single_links()
        keys = self.src * topology.ranks + self.dst
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def _single_links(self) -> tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]]:
        """Return the ends of the widest link between each two ranks, and the links."""
        src, dst = ends(self.topology.links)
        keys = src * self.topology.ranks + dst
        order = np.lexsort((self.link_units, keys))
        last = np.append(keys[order][1:] != keys[order][:-1], True)
        link = order[last]
        return src[link], dst[link], [(i,) for i in link.tolist()]

    def _through_switches(self) -> tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]]:
        """Return the ends and the links of the paths: the widest of the shortest from each rank over switches."""
        ranks = self.topology.ranks
        leaving: list[list[tuple[int, int]]] = [[] for _ in range(ranks + len(self.topology.switches))]
        src, dst = (array.tolist() for array in ends(self.topology.links))
        for link in sorted(range(len(src)), key=lambda i: -int(self.link_units[i])):
            leaving[src[link]].append((link, dst[link]))
        pairs: list[tuple[int, int]] = []
        paths: list[tuple[int, ...]] = []
        for rank in range(ranks):
            best: dict[int, tuple[int, int, tuple[int, ...]]] = {}
            for node, path in hops_from(rank, ranks, leaving.__getitem__):
                row = len(path), -self._units(path), path
                if node != rank and (node not in best or row[:2] < best[node][:2]):
                    best[node] = row
            for node, (_, _, path) in sorted(best.items()):
                pairs.append((rank, node))
                paths.append(path)
        first, last = np.array(pairs, np.int64).reshape(-1, 2).T
        return first, last, paths

    def _units(self, path: Sequence[int]) -> int:
        return min((int(self.link_units[link]) for link in path), default=0)

    @cached_property
    def images(self) -> int:
        """The number of symmetries."""
        return group_order(self.topology, self.generators)

    def find(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the path from each source to each destination, -1 where there is none."""
        if not len(self._keys):
            return np.full(len(src), -1)
        keys = src * self.topology.ranks + dst
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._order[at], -1)

    def joins(self, src: int, dst: int) -> bool:
        """Return True if a path leads from `src` to `dst`, or the opposite way where this index is flipped."""
        return (src, dst) in self._width

    def width(self, src: int, dst: int) -> int:
        """Return the units of the narrowest link on the path from `src` to `dst`, 0 where there is none."""
        return self._width.get((src, dst), 0)

    @cached_property
    def _width(self) -> dict[tuple[int, int], int]:
        first, last = (self.dst, self.src) if self.flipped else (self.src, self.dst)
        pairs = zip(first.tolist(), last.tolist(), strict=True)
        return dict(zip(pairs, map(self._units, self.paths), strict=True))


class Resources:
    """Orbits of links, and limits: a send on a path, with all its images, takes `usage[path, resource]` of each.

    `capacity`: the chunks that each carries in a round.
    """

    def __init__(self, index: PathIndex) -> None:
        self.index = index
        of_links, self.capacity = link_loads(index.topology, index.generators)
        self.usage = path_links(index.paths, len(index.topology.links)) @ of_links

    def loads(self, phases: Sequence[Phase]) -> np.ndarray:
        """Return ``loads[phase, resource]``, the chunks that one chunk of each block takes of each resource."""
        from scipy.sparse import csr_matrix

        sends = [send for phase in phases for send in phase.sends]
        _, src, dst = np.array(sends, np.int64).reshape(-1, 3).T
        row = np.repeat(np.arange(len(phases)), [len(phase.sends) for phase in phases])
        paths = self.index.find(src, dst)
        shape = (len(phases), len(self.index.paths))
        counts = csr_matrix((np.ones(len(row), np.int64), (row, paths)), shape=shape)
        return csr_matrix(counts @ self.usage).toarray()

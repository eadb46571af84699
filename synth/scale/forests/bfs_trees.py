"""The forest of fewest steps on any fabric: a breadth-first tree from each rank, the least loaded way at each
branch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from synth.errors import InfeasibleError
from synth.model.link_table import ends as ends_of
from synth.model.spanning_forest import ROOTED, TURNED, Forest
from synth.model.topology import Topology
from synth.scale.fabric.automorphisms import orbits
from synth.solvers.processes.deadline import check


class Shallow:
    """Ways from rank to rank over links and through switches; data spreads along them (against them for reductions)."""

    def __init__(self, topology: Topology, collective: str, ends: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        """`ends`: source and destination of each link as arrays, where the caller has them already."""
        self.topology, self.collective = topology, collective
        links = topology.links
        if ends is None:
            ends = ends_of(links)
        leaves, self.enters = ends[::-1] if collective in TURNED else ends
        self.turned = collective in TURNED
        nodes = topology.ranks + len(topology.switches)
        self.order = np.argsort(leaves, kind="stable")
        self.starts = np.searchsorted(leaves[self.order], np.arange(nodes + 1))
        self.known: dict[int, list[tuple[int, int]]] = {}
        self.load = np.zeros(len(links), np.int64)

    def _out(self, node: int) -> list[tuple[int, int]]:
        """(link, where it leads) of the links that data may take from a node."""
        if node not in self.known:
            links = self.order[self.starts[node] : self.starts[node + 1]]
            self.known[node] = list(zip(links.tolist(), self.enters[links].tolist(), strict=True))
        return self.known[node]

    def height(self, root: int, generators: Sequence[np.ndarray], most: int | None = None) -> int:
        """The height of `forest`, without making it; of its first `most` trees where that is given."""
        return max((d for start in self._roots(root, generators)[:most] for d in self._distances(start)), default=0)

    def _roots(self, root: int, generators: Sequence[np.ndarray]) -> list[int]:
        if self.collective in ROOTED:
            return [root]
        ranks = self.topology.ranks
        return np.unique(orbits(ranks, [pi[:ranks] for pi in generators])).tolist()

    def forest(self, root: int, generators: Sequence[np.ndarray]) -> Forest:
        """One tree for each orbit of roots, or for the one root. Raises InfeasibleError where a rank cannot be
        reached."""
        topology, ranks = self.topology, self.topology.ranks
        rooted = self.collective in ROOTED
        group = () if rooted else tuple(generators)
        roots = self._roots(root, group)
        parents, via = np.full((len(roots), ranks), -1, np.int32), np.full((len(roots), ranks), -1, np.int32)
        paths: dict[tuple[int, ...], int] = {}
        for k, start in enumerate(roots):
            for rank, (parent, links) in self._tree(start).items():
                parents[k, rank] = parent
                via[k, rank] = paths.setdefault(links, len(paths))
        ends = ranks + len(topology.switches)
        return Forest(
            topology,
            self.collective,
            root if rooted else None,
            Fraction(1),
            1,
            np.array(roots, np.int32),
            np.ones(len(roots), np.int64),
            parents,
            via,
            tuple(paths),
            tuple(pi[:ends] for pi in group),
            "breadth-first trees",
        )

    def _tree(self, start: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Rank → (parent, links in the order data takes them)."""
        check()
        if not self.topology.switches:
            return self._straight(start)
        far = self._distances(start)
        wanted = self.topology.ranks - 1
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        level = [start]
        while wanted:
            options: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
            for u in level:
                for v, way in self._hops(u):
                    if far[v] == far[u] + 1:
                        options.setdefault(v, []).append((u, way))
            for v, ways in sorted(options.items(), key=lambda item: (len(item[1]), item[0])):
                u, way = min(ways, key=lambda item: max(self.load[i] for i in item[1]))
                for i in way:
                    self.load[i] += 1
                found[v] = u, way[::-1] if self.turned else way
            level = list(options)
            wanted -= len(level)
        return found

    def _straight(self, start: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """As `_tree` where links join ranks alone: a link leads to one rank, so all ranks of a level choose at once."""
        far = np.zeros(self.topology.ranks, bool)
        far[start] = True
        level, found = np.array([start]), {}
        while len(level):
            count = self.starts[level + 1] - self.starts[level]
            at = np.repeat(self.starts[level] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
            links, parents = self.order[at], np.repeat(level, count)
            fresh = ~far[self.enters[links]]
            links, parents = links[fresh], parents[fresh]
            ends = self.enters[links]
            names, first = np.unique(ends, return_index=True)
            order = np.lexsort((self.load[links], ends))  # stable: of equals the first
            chosen = order[np.searchsorted(ends[order], names)]
            self.load[links[chosen]] += 1
            far[names] = True
            found |= {
                v: (u, (i,))
                for v, u, i in zip(names.tolist(), parents[chosen].tolist(), links[chosen].tolist(), strict=True)
            }
            level = names[np.argsort(first)]
        if not far.all():
            lost = int(np.flatnonzero(~far)[0])
            raise InfeasibleError(f"{self.topology.name}: no way between rank {start} and rank {lost}")
        return found

    def _distances(self, start: int) -> list[int]:
        """Ranks entered on the way from `start` to each rank. Raises InfeasibleError where one cannot be reached."""
        ranks = self.topology.ranks
        far = [-1] * (len(self.starts) - 1)
        far[start] = 0
        queue, done, wanted = deque([start]), set(), ranks - 1
        while queue and wanted:  # by growing distance: what is found once a rank is left to find is found at its least
            u = queue.popleft()
            if u in done:
                continue
            done.add(u)
            for _, v in self._out(u):
                cost = int(v < ranks)
                if far[v] < 0 or far[v] > far[u] + cost:
                    wanted -= v < ranks and far[v] < 0
                    far[v] = far[u] + cost
                    (queue.append if cost else queue.appendleft)(v)
        if wanted:
            lost = next(r for r in range(ranks) if far[r] < 0)
            raise InfeasibleError(f"{self.topology.name}: no way between rank {start} and rank {lost}")
        return far[:ranks]

    def _hops(self, rank: int) -> list[tuple[int, tuple[int, ...]]]:
        """(rank, links) of each link to a rank, and beside it of the shortest ways through switches; through each
        switch by one way."""
        found, ranks = [], self.topology.ranks
        queue: deque[tuple[int, tuple[int, ...]]] = deque([(rank, ())])
        seen, least = {rank}, {}
        while queue:
            u, way = queue.popleft()
            for i, v in self._out(u):
                if v >= ranks:
                    if v not in seen:
                        seen.add(v)
                        queue.append((v, (*way, i)))
                elif not way or least.setdefault(v, len(way)) == len(way):
                    found.append((v, (*way, i)))
        return found

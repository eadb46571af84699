"""The forest of fewest steps on any fabric: a breadth-first tree from each rank, the least loaded way at each branch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from synth.errors import InfeasibleError
from synth.flows.automorphisms import orbits
from synth.forest import ROOTED, TURNED, Forest
from synth.topology import Topology


class Shallow:
    """Ways from rank to rank over links and through switches; data spreads along them (against them for reductions)."""

    def __init__(self, topology: Topology, collective: str) -> None:
        self.topology, self.collective = topology, collective
        nodes = topology.ranks + len(topology.switches)
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.turned = collective in TURNED
        for i, k in enumerate(topology.links):
            self.out[k.dst if self.turned else k.src].append(i)
        self.load = [0] * len(topology.links)

    def forest(self, root: int, generators: Sequence[np.ndarray]) -> Forest:
        """One tree for each orbit of roots, or for the one root. Raises InfeasibleError where a rank cannot be reached."""
        topology, ranks = self.topology, self.topology.ranks
        rooted = self.collective in ROOTED
        group = () if rooted else tuple(generators)
        roots = [root] if rooted else np.unique(orbits(ranks, [pi[:ranks] for pi in group])).tolist()
        parents, via = np.full((len(roots), ranks), -1, np.int32), np.full((len(roots), ranks), -1, np.int32)
        paths: dict[tuple[int, ...], int] = {}
        for k, start in enumerate(roots):
            for rank, (parent, links) in self._tree(start).items():
                parents[k, rank] = parent
                via[k, rank] = paths.setdefault(links, len(paths))
        ends = ranks + len(topology.switches)
        return Forest(
            topology, self.collective, root if rooted else None, Fraction(1), 1, np.array(roots, np.int32), np.ones(len(roots), np.int64),
            parents, via, tuple(paths), tuple(pi[:ends] for pi in group), "breadth-first trees",
        )  # fmt: skip

    def _tree(self, start: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Rank → (parent, links in the order data takes them)."""
        ranks, far = self.topology.ranks, self._distances(start)
        lost = next((r for r in range(ranks) if far[r] < 0), None)
        if lost is not None:
            raise InfeasibleError(f"{self.topology.name}: no way between rank {start} and rank {lost}")
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        level = [start]
        while level:
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
        return found

    def _end(self, link: int) -> int:
        k = self.topology.links[link]
        return k.src if self.turned else k.dst

    def _distances(self, start: int) -> list[int]:
        far = [-1] * len(self.out)
        far[start] = 0
        queue = deque([start])
        done = set()
        while queue:
            u = queue.popleft()
            if u in done:
                continue
            done.add(u)
            for i in self.out[u]:
                v = self._end(i)
                cost = int(v < self.topology.ranks)
                if far[v] < 0 or far[v] > far[u] + cost:
                    far[v] = far[u] + cost
                    (queue.append if cost else queue.appendleft)(v)
        return far

    def _hops(self, rank: int) -> list[tuple[int, tuple[int, ...]]]:
        """(rank, links) of each way that passes no other rank, through each switch once."""
        found, ranks = [], self.topology.ranks
        queue: deque[tuple[int, tuple[int, ...]]] = deque([(rank, ())])
        seen = {rank}
        while queue:
            u, way = queue.popleft()
            for i in self.out[u]:
                v = self._end(i)
                if v < ranks:
                    found.append((v, (*way, i)))
                elif v not in seen:
                    seen.add(v)
                    queue.append((v, (*way, i)))
        return found

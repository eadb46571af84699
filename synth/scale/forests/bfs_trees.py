"""The forest with the fewest steps on any topology: breadth-first trees over the least loaded paths."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from synth.errors import InfeasibleError
from synth.model.link_table import ends
from synth.model.scale_collectives import REVERSED, ROOTED
from synth.model.topology import Topology
from synth.scale.fabric.automorphisms import orbits
from synth.scale.fabric.graphs import hops_from
from synth.scale.forests.spanning_forest import SpanningForest
from synth.solvers.deadline import check_deadline


class BreadthFirstTrees:
    """Breadth-first trees for a collective, over links and through switches.

    For reductions all links are taken in the opposite direction. `load` counts the hops over each link in the trees so
    far.
    """

    def __init__(self, topology: Topology, collective: str) -> None:
        self.topology, self.collective = topology, collective
        src, dst = ends(topology.links)
        leaves, self.enters = (dst, src) if collective in REVERSED else (src, dst)
        self.reversed = collective in REVERSED
        nodes = topology.ranks + len(topology.switches)
        self.order = np.argsort(leaves, kind="stable")
        self.starts = np.searchsorted(leaves[self.order], np.arange(nodes + 1))
        self.known: dict[int, list[tuple[int, int]]] = {}
        self.load = np.zeros(len(src), np.int64)

    def _out(self, node: int) -> list[tuple[int, int]]:
        """Return (link, node at its end) for the links over which data leaves a node."""
        if node not in self.known:
            links = self.order[self.starts[node] : self.starts[node + 1]]
            self.known[node] = list(zip(links.tolist(), self.enters[links].tolist(), strict=True))
        return self.known[node]

    def height(self, root: int, generators: Sequence[np.ndarray], most: int | None = None) -> int:
        """Return the height of `forest` without building it, or that of its first `most` trees."""
        return max((d for start in self._roots(root, generators)[:most] for d in self._distances(start)), default=0)

    def _roots(self, root: int, generators: Sequence[np.ndarray]) -> list[int]:
        """Return the root of a rooted collective, else one rank of each orbit."""
        if self.collective in ROOTED:
            return [root]
        ranks = self.topology.ranks
        return np.unique(orbits(ranks, [pi[:ranks] for pi in generators])).tolist()

    def forest(self, root: int, generators: Sequence[np.ndarray]) -> SpanningForest:
        """Return one tree for each orbit of roots, or for the single root.

        `generators` generate a free group of symmetries; it is not used for rooted collectives. Raises InfeasibleError
        where a rank cannot be reached.
        """
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
        nodes = ranks + len(topology.switches)
        return SpanningForest(
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
            tuple(pi[:nodes] for pi in group),
            "breadth-first trees",
        )

    def _tree(self, start: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Return rank → (parent, links in the order in which data takes them).

        At each level the ranks with the fewest paths to choose from come first.
        """
        check_deadline()
        if not self.topology.switches:
            return self._tree_without_switches(start)
        distance = self._distances(start)
        missing = self.topology.ranks - 1
        tree: dict[int, tuple[int, tuple[int, ...]]] = {}
        level = [start]
        while missing:
            options: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
            for u in level:
                for v, path in hops_from(u, self.topology.ranks, self._out):
                    if distance[v] == distance[u] + 1:
                        options.setdefault(v, []).append((u, path))
            for v, paths in sorted(options.items(), key=lambda item: (len(item[1]), item[0])):
                u, path = min(paths, key=lambda item: max(self.load[i] for i in item[1]))
                for i in path:
                    self.load[i] += 1
                tree[v] = u, path[::-1] if self.reversed else path
            level = list(options)
            missing -= len(level)
        return tree

    def _tree_without_switches(self, start: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Return the tree as `_tree` does. A link leads to a single rank, so all ranks of a level choose at once."""
        reached = np.zeros(self.topology.ranks, bool)
        reached[start] = True
        level, tree = np.array([start]), {}
        while len(level):
            count = self.starts[level + 1] - self.starts[level]
            at = np.repeat(self.starts[level] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
            links, parents = self.order[at], np.repeat(level, count)
            fresh = ~reached[self.enters[links]]
            links, parents = links[fresh], parents[fresh]
            ends = self.enters[links]
            names, first = np.unique(ends, return_index=True)
            order = np.lexsort((self.load[links], ends))  # stable: the first of equally loaded links
            chosen = order[np.searchsorted(ends[order], names)]
            self.load[links[chosen]] += 1
            reached[names] = True
            for v, u, i in zip(names.tolist(), parents[chosen].tolist(), links[chosen].tolist(), strict=True):
                tree[v] = u, (i,)
            level = names[np.argsort(first)]
        if not reached.all():
            lost = int(np.flatnonzero(~reached)[0])
            raise InfeasibleError(f"{self.topology.name}: no path between rank {start} and rank {lost}")
        return tree

    def _distances(self, start: int) -> list[int]:
        """Return the distance from `start` to each rank, counted in ranks entered. Raises InfeasibleError where one
        cannot be reached.
        """
        ranks = self.topology.ranks
        distance = [-1] * (len(self.starts) - 1)
        distance[start] = 0
        queue, done, missing = deque([start]), set(), ranks - 1
        # 0-1 breadth-first search: the first distance of the last missing rank is final, as nodes come by distance.
        while queue and missing:
            u = queue.popleft()
            if u in done:
                continue
            done.add(u)
            for _, v in self._out(u):
                cost = int(v < ranks)
                if distance[v] < 0 or distance[v] > distance[u] + cost:
                    missing -= v < ranks and distance[v] < 0
                    distance[v] = distance[u] + cost
                    (queue.append if cost else queue.appendleft)(v)
        if missing:
            lost = next(r for r in range(ranks) if distance[r] < 0)
            raise InfeasibleError(f"{self.topology.name}: no path between rank {start} and rank {lost}")
        return distance[:ranks]

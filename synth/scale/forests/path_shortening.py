"""Move hops of trees that make a detour through switches onto shortest paths, which schedules may take
(`synth.scale.fabric.shortest_paths`).

Negotiated congestion (McMurchie and Ebeling, "PathFinder", FPGA 1995): where no shortest path has capacity for a hop,
the hop takes one nevertheless, and hops that exceed the capacity are removed and routed again. The price of an edge
rises each time that it is overloaded.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.partial_trees import Branch, BranchForest
from synth.solvers.deadline import check_deadline

# Limit on the partial paths that the search for one path extends.
MOST_PARTIAL = 20_000
# Limit on the hops that are routed, for each hop that has to move.
MOST_MOVED = 16

Hop = tuple[int, int]  # tree, rank
Path = tuple[int, ...]


def shorten_paths(fabric: Fabric, grown: BranchForest, capacity: np.ndarray) -> BranchForest | None:
    """Return the same trees over shortest paths, where edge e carries up to `capacity[e]` of their weight.

    None where the search finds no such routing.
    """
    long = [
        (k, y)
        for k, row in enumerate(grown.branches)
        for y, branch in row.items()
        if fabric.links_of(branch.path) is None
    ]
    return grown if not long else _Router(fabric, grown, capacity).run(long)


class _Router:
    """Paths of all hops. `left[e]` is the remaining capacity of edge e, `users[e]` the hops on it, oldest first."""

    def __init__(self, fabric: Fabric, grown: BranchForest, capacity: np.ndarray) -> None:
        self.fabric, self.grown, self.left = fabric, grown, capacity.tolist()
        self.rows = [dict(row) for row in grown.branches]
        self.price = [1] * len(self.left)
        self.users: list[dict[Hop, None]] = [{} for _ in self.left]
        for k, row in enumerate(self.rows):
            for y, branch in row.items():
                self._put((k, y), branch.path)

    def run(self, long: list[Hop]) -> BranchForest | None:
        """Route the hops of `long` on shortest paths, and again the hops that they displace."""
        for hop in long:
            self._remove(hop)
        queue = deque(sorted(long, key=lambda hop: -self.grown.weights[hop[0]]))
        for _ in range(MOST_MOVED * len(long)):
            if not queue:
                return BranchForest(self.grown.weight, self.grown.roots, self.grown.weights, self.rows)
            check_deadline()
            hop = queue.popleft()
            path = self._cheapest_path(hop)
            if path is None:
                return None
            self._put(hop, path)
            for e in path:
                self.price[e] += self.left[e] < 0
                # A hop of a single edge has no other path.
                movable = [other for other in self.users[e] if other != hop and len(self._path(other)) > 1]
                others = iter(movable)
                while self.left[e] < 0:
                    other = next(others, None)
                    if other is None:
                        return None
                    self._remove(other)
                    queue.append(other)
        return None

    def _path(self, hop: Hop) -> Path:
        return self.rows[hop[0]][hop[1]].path

    def _put(self, hop: Hop, path: Path) -> None:
        k, y = hop
        self.rows[k][y] = Branch(self.rows[k][y].parent, path)
        for e in path:  # a path may use an edge twice
            self.left[e] -= self.grown.weights[k]
            self.users[e][hop] = None

    def _remove(self, hop: Hop) -> None:
        for e in self._path(hop):
            self.left[e] += self.grown.weights[hop[0]]
            self.users[e].pop(hop, None)

    def _cheapest_path(self, hop: Hop) -> Path | None:
        """Return the first shortest path with capacity for the hop, else the one with the least price of full edges."""
        start, weight = self.rows[hop[0]][hop[1]].parent, self.grown.weights[hop[0]]
        best: tuple[float, Path | None] = (math.inf, None)
        partial: list[tuple[int, Path]] = [(0, ())]
        for _ in range(MOST_PARTIAL):
            if not partial or not best[0]:
                break
            cost, path = partial.pop()
            at = int(self.fabric.dst[path[-1]]) if path else start
            if cost >= best[0] or (path and self.fabric.hub[at] < 0 and self.fabric.links_of(path) is None):
                continue
            if at == hop[1]:
                best = cost, path
            elif not path or at >= self.fabric.ranks:
                passed = {start, *self.fabric.src[list(path)].tolist()} if path else {start}
                onward = [e for e in self.fabric.leaving[at] if int(self.fabric.dst[e]) not in passed]
                rows = [(cost + self.price[e] * (self.left[e] < weight), (*path, e)) for e in onward]
                partial += sorted(rows, key=lambda row: (-row[0], self.left[row[1][-1]]))
        return best[1]

"""Trees whose hops go round through switches, put onto shortest ways: what schedules may take
(`synth.scale.fabric.shortest_paths`).

A hop that finds no room on any of them takes one all the same, and those that it crowds out are put elsewhere in their
turn; edges that were fought over are the dearer (McMurchie and Ebeling, "PathFinder", FPGA 1995).
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.partial_trees import Branch, Grown
from synth.solvers.processes.deadline import check

# Ways begun in search of one; hops that are moved for each that must be.
MOST_BEGUN, MOST_MOVED = 20_000, 16

Hop = tuple[int, int]  # tree, rank
Path = tuple[int, ...]


def shortened(fabric: Fabric, grown: Grown, room: np.ndarray) -> Grown | None:
    """The same trees over shortest ways alone, where edge e carries up to `room[e]` of their weight; None where that is
    not found."""
    long = [
        (k, y)
        for k, row in enumerate(grown.branches)
        for y, branch in row.items()
        if fabric.links_of(branch.path) is None
    ]
    return grown if not long else _Router(fabric, grown, room).run(long)


class _Router:
    def __init__(self, fabric: Fabric, grown: Grown, room: np.ndarray) -> None:
        self.fabric, self.grown, self.left = fabric, grown, room.tolist()
        self.rows = [dict(row) for row in grown.branches]
        self.price = [1] * len(room)
        self.riders: list[dict[Hop, None]] = [{} for _ in self.left]
        self.leaving: list[list[int]] = [[] for _ in range(fabric.nodes)]
        for e, a in enumerate(fabric.src.tolist()):
            self.leaving[a].append(e)
        for k, row in enumerate(self.rows):
            for y, branch in row.items():
                self._put((k, y), branch.path)

    def run(self, long: list[Hop]) -> Grown | None:
        """With these hops moved, and others where these need their room."""
        for hop in long:
            self._lift(hop)
        queue = deque(sorted(long, key=lambda hop: -self.grown.weights[hop[0]]))
        for _ in range(MOST_MOVED * len(long)):
            if not queue:
                return Grown(self.grown.weight, self.grown.roots, self.grown.weights, self.rows)
            check()
            hop = queue.popleft()
            path = self._best(hop)
            if path is None:
                return None
            self._put(hop, path)
            for e in path:
                self.price[e] += self.left[e] < 0
                others = iter([other for other in self.riders[e] if other != hop and len(self._path(other)) > 1])
                while self.left[e] < 0:
                    other = next(others, None)
                    if other is None:
                        return None
                    self._lift(other)
                    queue.append(other)
        return None

    def _path(self, hop: Hop) -> Path:
        return self.rows[hop[0]][hop[1]].path

    def _put(self, hop: Hop, path: Path) -> None:
        k, y = hop
        self.rows[k][y] = Branch(self.rows[k][y].parent, path)
        for e in path:  # some of them perhaps twice
            self.left[e] -= self.grown.weights[k]
            self.riders[e][hop] = None

    def _lift(self, hop: Hop) -> None:
        for e in self._path(hop):
            self.left[e] += self.grown.weights[hop[0]]
            self.riders[e].pop(hop, None)

    def _best(self, hop: Hop) -> Path | None:
        """The first shortest way with capacity for the whole hop, else the shortest way whose full edges are
        cheapest."""
        start, weight = self.rows[hop[0]][hop[1]].parent, self.grown.weights[hop[0]]
        best: tuple[float, Path | None] = (math.inf, None)
        begun: list[tuple[int, Path]] = [(0, ())]
        for _ in range(MOST_BEGUN):
            if not begun or not best[0]:
                break
            cost, path = begun.pop()
            at = int(self.fabric.dst[path[-1]]) if path else start
            if cost >= best[0] or (path and self.fabric.hub[at] < 0 and self.fabric.links_of(path) is None):
                continue
            if at == hop[1]:
                best = cost, path
            elif not path or at >= self.fabric.ranks:
                passed = {start, *self.fabric.src[list(path)].tolist()} if path else {start}
                onward = [e for e in self.leaving[at] if int(self.fabric.dst[e]) not in passed]
                rows = [(cost + self.price[e] * (self.left[e] < weight), (*path, e)) for e in onward]
                begun += sorted(rows, key=lambda row: (-row[0], self.left[row[1][-1]]))
        return best[1]

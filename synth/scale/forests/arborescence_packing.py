"""Spanning trees packed into a fabric at its optimal rate: every rank's shard down its own trees, no link over its
share.

After the switches are split off, trees grow one rank at a time (Bérczi and Frank, "Packing arborescences", 2009;
Tarjan, "A good algorithm for edge-disjoint branching", 1974): a rank joins a tree over a link as long as every set of
ranks keeps enough capacity into it for all shards that it still lacks, which one maximum flow decides. A set that has
just enough stays so for ever; those found are remembered, and links that may not enter them are passed over without a
flow.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from synth.errors import SynthError
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.edge_splitting import Ends, Logical, split
from synth.scale.forests.partial_trees import Branch, Grown
from synth.scale.forests.path_shortening import shortened
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import check

# Links tried for one that takes the whole of a tree before the tree is parted.
WHOLE_FIRST = 4
MOST_TIGHT = 96


def pack(fabric: Fabric, time: Fraction, shards: np.ndarray) -> Grown | None:
    """Trees that move shard r (where `shards[r]` is 1) to all in `time` per unit; None where the switches cannot be
    split off.

    Edges run as data spreads. Raises SynthError where `time` is less than the fabric's bound.
    """
    p, q = time.numerator, time.denominator
    common = math.gcd(q, *(p * int(c) for c in np.unique(fabric.cap)))
    weight = q // common
    scaled = replace(fabric, cap=fabric.cap * p // common)
    for graph in (
        replace(scaled, shortest=None),
        scaled,
    ):  # any ways, put onto shortest ones after; else those alone from the first
        logical = split(graph, 1, shards * weight)
        if logical is None:
            break
        grown = shortened(scaled, _Packing(logical, weight).run(), scaled.cap)
        if grown is not None:
            return grown
    return None


@dataclass
class _Tree:
    """A part of a shard on its way: whom it has reached, from where, and how far from its root."""

    root: int
    weight: int
    reached: int  # bits
    parent: dict[int, int]
    depth: dict[int, int]


class _Packing:
    def __init__(self, logical: Logical, weight: int) -> None:
        self.logical, self.weight = logical, weight
        self.ranks = logical.ranks
        self.left = logical.capacity
        self.leaving: list[list[int]] = [[] for _ in range(self.ranks)]
        for a, b in sorted(self.left):
            self.leaving[a].append(b)
        self.pending = logical.starts.copy()
        self.tight: dict[int, None] = {}
        self.open: list[_Tree] = []
        self.all = (1 << self.ranks) - 1

    def run(self) -> Grown:
        """Grows the trees of every root in turn."""
        done: list[_Tree] = []
        for root in np.flatnonzero(self.logical.starts).tolist():
            start = int(self.pending[root])
            self.pending[root] = 0
            self.open = [_Tree(root, start, 1 << root, {}, {root: 0})]
            while self.open:
                tree = self.open.pop()
                self._complete(tree)
                done.append(tree)
        return self._grown(done)

    def _complete(self, tree: _Tree) -> None:
        """Grows until all ranks are reached; parts that cannot follow are left open."""
        check()
        self._arcs()
        heap: list[tuple[int, int, int, int]] = []

        def push(x: int) -> None:
            for y in self.leaving[x]:
                if not tree.reached >> y & 1 and self.left[x, y]:
                    heapq.heappush(heap, (tree.depth[x], -self.left[x, y], x, y))

        for x in tree.depth:
            push(x)
        while tree.reached != self.all:
            best, tried = (0, -1, -1), []
            while heap and len(tried) < WHOLE_FIRST:
                row = heapq.heappop(heap)
                x, y = row[2:]
                if tree.reached >> y & 1:
                    continue
                units = self._room(tree, x, y)
                if not units:
                    continue
                tried.append(row)
                if units > best[0]:
                    best = (units, x, y)
                if units == tree.weight:
                    break
            units, x, y = best
            if not units:
                raise SynthError(f"no link extends a tree of rank {tree.root}: the time asked for is below the bound")
            for row in tried:
                if row[2:] != (x, y):
                    heapq.heappush(heap, row)
            self._take(tree, x, y, units)
            push(y)

    def _take(self, tree: _Tree, x: int, y: int, units: int) -> None:
        self.left[x, y] -= units
        self.flow.set_one(self.arc[x, y], self.left[x, y])
        if units < tree.weight:
            rest = _Tree(tree.root, tree.weight - units, tree.reached, dict(tree.parent), dict(tree.depth))
            self.open.append(rest)
            tree.weight = units
            self._arcs()
        tree.reached |= 1 << y
        tree.parent[y], tree.depth[y] = x, tree.depth[x] + 1

    def _arcs(self) -> None:
        """The flow network: links that are left, shards not begun, and one node for each tree left open."""
        source = self.ranks
        ends = [e for e, units in self.left.items() if units]
        tail, head, cap = [a for a, _ in ends], [b for _, b in ends], [self.left[e] for e in ends]
        self.arc = {e: i for i, e in enumerate(ends)}
        self.first = len(ends)
        tail += [source] * self.ranks
        head += range(self.ranks)
        cap += self.pending.tolist()
        big = sum(cap) + sum(t.weight for t in self.open) + 1
        for i, tree in enumerate(self.open):
            node = source + 1 + i
            members = [r for r in range(self.ranks) if tree.reached >> r & 1]
            tail += [source, *[node] * len(members)]
            head += [node, *members]
            cap += [tree.weight, *[big] * len(members)]
        self.big = big
        self.others = int(self.pending.sum()) + sum(t.weight for t in self.open)
        self.flow = MaxFlow(tail, head)
        self.flow.set(np.array(cap, np.int64))

    def _room(self, tree: _Tree, x: int, y: int) -> int:
        """How much of the tree may take the link from x to y."""
        bit_x, bit_y = 1 << x, 1 << y
        units = min(self.left[x, y], tree.weight)
        if not units or any(z & bit_y and not z & bit_x and z & tree.reached for z in self.tight):
            return 0
        arc = self.first + x
        self.flow.set_one(arc, self.big)
        room = self.flow.value(self.ranks, y) - self.others
        self.flow.set_one(arc, int(self.pending[x]))
        if room <= units:
            outside = self.flow.inside(self.ranks)
            if room <= 0:
                self._remember(outside)
                return 0
        return min(units, room)

    def _remember(self, outside: np.ndarray) -> None:
        bits = self.all
        for r in np.flatnonzero(outside).tolist():
            bits &= ~(1 << r)
        self.tight.pop(bits, None)
        self.tight[bits] = None
        if len(self.tight) > MOST_TIGHT:
            del self.tight[next(iter(self.tight))]

    def _grown(self, done: list[_Tree]) -> Grown:
        """Gives each tree its part of the paths of the links it uses; a tree is cut where a link changes its path."""
        queues: dict[Ends, list[tuple[int, tuple[int, ...]]]] = {
            e: list(parts)[::-1] for e, parts in self.logical.pieces.items()
        }
        roots, weights, rows = [], [], []
        for tree in done:
            cuts = {0, tree.weight}
            ends: dict[int, list[tuple[int, Branch]]] = {}
            for y, x in tree.parent.items():
                at, parts, queue = 0, [], queues[x, y]
                while at < tree.weight:
                    units, path = queue.pop()
                    part = min(units, tree.weight - at)
                    if units > part:
                        queue.append((units - part, path))
                    at += part
                    cuts.add(at)
                    parts.append((at, Branch(x, path)))
                ends[y] = parts
            for start, end in pairwise(sorted(cuts)):
                roots.append(tree.root)
                weights.append(end - start)
                rows.append({y: next(branch for to, branch in parts if to > start) for y, parts in ends.items()})
        return Grown(self.weight, roots, weights, rows)

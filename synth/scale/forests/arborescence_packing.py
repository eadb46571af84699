"""Arborescence packing: spanning trees for the shard of every rank at the optimal rate of a fabric.

After the switches are split off, trees grow one rank at a time (Bérczi and Frank, "Packing arborescences", 2009;
Tarjan, "A good algorithm for edge-disjoint branching", 1974). A rank may join a tree over a link if the remaining
capacity into every set of ranks still suffices for all shards that the set lacks. One maximum flow decides this. A set
whose capacity just suffices is *tight*, and stays tight for the rest of the packing. Tight sets are remembered: a link
that must not enter one is rejected without a flow.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from synth.errors import SynthError
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.edge_splitting import Ends, RankNetwork, split
from synth.scale.forests.partial_trees import Branch, BranchForest
from synth.scale.forests.path_shortening import shorten_paths
from synth.solvers.deadline import check_deadline
from synth.solvers.max_flow import MaxFlow

# Links that are tried in search of one with capacity for the whole weight of a tree, before the tree is split.
WHOLE_FIRST = 4
# Tight sets that are remembered; each candidate link is compared with all of them.
MOST_TIGHT = 96


def pack(fabric: Fabric, time: Fraction, shards: np.ndarray) -> BranchForest | None:
    """Return trees that broadcast the shard of each rank r with ``shards[r] == 1`` in `time` per unit of data.

    The edges of the fabric have the direction in which data spreads. None where the switches cannot be split off.
    Raises SynthError where `time` is less than the fabric's bound.
    """
    p, q = time.numerator, time.denominator
    common = math.gcd(q, *(p * int(c) for c in np.unique(fabric.cap)))
    weight = q // common
    scaled = replace(fabric, cap=fabric.cap * p // common)
    # First split off the switches over any paths, and move hops to shortest paths afterwards. Where that fails, admit
    # only shortest paths from the beginning.
    for graph in (replace(scaled, shortest=None), scaled):
        logical = split(graph, 1, shards * weight)
        if logical is None:
            break
        grown = shorten_paths(scaled, _Packing(logical, weight).run(), scaled.cap)
        if grown is not None:
            return grown
    return None


@dataclass
class _Tree:
    """A growing arborescence. `reached` is a bit set of ranks; `parent` and `depth` are by rank."""

    root: int
    weight: int
    reached: int
    parent: dict[int, int]
    depth: dict[int, int]


class _Packing:
    """State of the packing: `left` is the remaining capacity by pair of ranks, `pending` the weight of the roots to
    come.
    """

    def __init__(self, logical: RankNetwork, weight: int) -> None:
        self.logical, self.weight = logical, weight
        self.ranks = logical.ranks
        self.left = logical.capacity
        self.leaving: list[list[int]] = [[] for _ in range(self.ranks)]
        for a, b in sorted(self.left):
            self.leaving[a].append(b)
        self.pending = logical.starts.copy()
        self.tight: dict[int, None] = {}
        self.incomplete: list[_Tree] = []
        self.all = (1 << self.ranks) - 1

    def run(self) -> BranchForest:
        """Grow the trees of one root after the other."""
        done: list[_Tree] = []
        for root in np.flatnonzero(self.logical.starts).tolist():
            start = int(self.pending[root])
            self.pending[root] = 0
            self.incomplete = [_Tree(root, start, 1 << root, {}, {root: 0})]
            while self.incomplete:
                tree = self.incomplete.pop()
                self._complete(tree)
                done.append(tree)
        return self._grown(done)

    def _complete(self, tree: _Tree) -> None:
        """Grow a tree until it reaches all ranks. A part of its weight that no link can take is split off as another
        incomplete tree.
        """
        check_deadline()
        self._build_flow_network()
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
                units = self._admissible(tree, x, y)
                if not units:
                    continue
                tried.append(row)
                if units > best[0]:
                    best = (units, x, y)
                if units == tree.weight:
                    break
            units, x, y = best
            if not units:
                raise SynthError(f"no link extends a tree of rank {tree.root}: the requested time is below the bound")
            for row in tried:
                if row[2:] != (x, y):
                    heapq.heappush(heap, row)
            self._extend(tree, x, y, units)
            push(y)

    def _extend(self, tree: _Tree, x: int, y: int, units: int) -> None:
        """Add the link from x to y to `units` of the tree's weight."""
        self.left[x, y] -= units
        self.flow.set_capacity(self.arc[x, y], self.left[x, y])
        if units < tree.weight:
            rest = _Tree(tree.root, tree.weight - units, tree.reached, dict(tree.parent), dict(tree.depth))
            self.incomplete.append(rest)
            tree.weight = units
            self._build_flow_network()
        tree.reached |= 1 << y
        tree.parent[y], tree.depth[y] = x, tree.depth[x] + 1

    def _build_flow_network(self) -> None:
        """Build the network of `_admissible`.

        A source feeds each pending root with its shard, and one node for each incomplete tree with the tree's weight;
        this node reaches all ranks of the tree. The other arcs are the links with their remaining capacity.
        """
        source = self.ranks
        ends = [e for e, units in self.left.items() if units]
        tail = [a for a, _ in ends]
        head = [b for _, b in ends]
        cap = [self.left[e] for e in ends]
        self.arc = {e: i for i, e in enumerate(ends)}
        self.first = len(ends)
        tail += [source] * self.ranks
        head += range(self.ranks)
        cap += self.pending.tolist()
        big = sum(cap) + sum(t.weight for t in self.incomplete) + 1
        for i, tree in enumerate(self.incomplete):
            node = source + 1 + i
            members = [r for r in range(self.ranks) if tree.reached >> r & 1]
            tail += [source, *[node] * len(members)]
            head += [node, *members]
            cap += [tree.weight, *[big] * len(members)]
        self.big = big
        self.others = int(self.pending.sum()) + sum(t.weight for t in self.incomplete)
        self.flow = MaxFlow(tail, head)
        self.flow.set_capacities(np.array(cap, np.int64))

    def _admissible(self, tree: _Tree, x: int, y: int) -> int:
        """Return the part of the tree's weight that may take the link from x to y.

        The arc from the source to x is made unlimited. Then the maximum flow to y exceeds the weight of all other
        trees by the largest amount that every set of ranks with y and without x can spare.
        """
        bit_x, bit_y = 1 << x, 1 << y
        units = min(self.left[x, y], tree.weight)
        if not units or any(z & bit_y and not z & bit_x and z & tree.reached for z in self.tight):
            return 0
        arc = self.first + x
        self.flow.set_capacity(arc, self.big)
        spare = self.flow.value(self.ranks, y) - self.others
        self.flow.set_capacity(arc, int(self.pending[x]))
        if spare <= units:
            outside = self.flow.source_side(self.ranks)
            if spare <= 0:
                self._remember(outside)
                return 0
        return min(units, spare)

    def _remember(self, outside: np.ndarray) -> None:
        """Keep the ranks that are not `outside` as a set into which no link has capacity to spare, so that later links
        into it are refused without a maximum flow. Of more than `MOST_TIGHT` sets the oldest is dropped."""
        bits = self.all
        for r in np.flatnonzero(outside).tolist():
            bits &= ~(1 << r)
        self.tight.pop(bits, None)
        self.tight[bits] = None
        if len(self.tight) > MOST_TIGHT:
            del self.tight[next(iter(self.tight))]

    def _grown(self, done: list[_Tree]) -> BranchForest:
        """Return the trees over edges of the fabric.

        Each link from rank to rank consists of pieces of fabric paths, which the trees over the link take in order. A
        tree is cut in two where the path of one of its links changes.
        """
        queues: dict[Ends, list[tuple[int, tuple[int, ...]]]] = {
            e: list(parts)[::-1] for e, parts in self.logical.pieces.items()
        }
        forest = BranchForest(self.weight, [], [], [])
        for tree in done:
            parts: dict[int, list[tuple[int, Branch]]] = {}
            for y, x in tree.parent.items():
                at, parts[y], queue = 0, [], queues[x, y]
                while at < tree.weight:
                    units, path = queue.pop()
                    part = min(units, tree.weight - at)
                    if units > part:
                        queue.append((units - part, path))
                    at += part
                    parts[y].append((at, Branch(x, path)))
            forest.add(tree.root, tree.weight, parts)
        return forest

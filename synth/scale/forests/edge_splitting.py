"""Edge splitting: remove the switches of a fabric so that the ranks can still be served at the same rate.

Splitting off a pair of edges (a, switch) and (switch, b) replaces capacity on both by the same capacity on (a, b)
(Mader, Frank and Jackson; for collectives: ForestColl, arXiv 2402.06787). The capacity of a switch is first spread over
all pairs at once, and maximum flows to all ranks check the result. If a rank is no longer served, the pairs of the
switch are split one after the other, each with all the capacity that it can take. What a cut then lacks is given back
to the pair: every cut that a pair crosses loses either all of the capacity that was split, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.scale.fabric.fabric import Fabric
from synth.solvers.deadline import check_deadline
from synth.solvers.max_flow import MaxFlow, check_capacity_sum

# Neighbours over which the capacity from each neighbour of a switch is spread. More give shallower trees, fewer give
# trees that need not be cut.
SPREAD = 8

Ends = tuple[int, int]
Piece = tuple[int, tuple[int, ...]]


@dataclass(eq=False)
class RankNetwork:
    """A network of ranks alone: ``pieces[a, b]`` lists (units, path of fabric edges) from rank a to rank b.

    `starts[r]`: units that rank r broadcasts.
    """

    ranks: int
    starts: np.ndarray
    pieces: dict[Ends, list[Piece]] = field(default_factory=dict)

    @property
    def capacity(self) -> dict[Ends, int]:
        """Units from rank to rank, by (source, destination)."""
        return {ends: _total(parts) for ends, parts in self.pieces.items()}


def split(fabric: Fabric, scale: int, starts: np.ndarray) -> RankNetwork | None:
    """Return the network of ranks that still carries `starts[r]` units from each rank r to all others.

    Capacities are those of the fabric times `scale`. None where a switch cannot be removed. This cannot happen where
    the capacity into each node equals the capacity out of it and schedules may take every path through a switch.
    """
    check_capacity_sum(scale * int(fabric.cap.sum()) + int(starts.sum()), fabric.name)
    state = _State(fabric, scale, starts)
    for node in state.order():
        if not state.remove(node):
            return None
    state.logical.pieces = {ends: parts for ends, parts in state.pieces.items() if parts}
    return state.logical


class _State:
    """The network while switches are removed; `pieces` as in `RankNetwork`, between all nodes that remain."""

    def __init__(self, fabric: Fabric, scale: int, starts: np.ndarray) -> None:
        self.fabric, self.starts = fabric, starts
        self.total = int(starts.sum())
        self.logical = RankNetwork(fabric.ranks, starts)
        self.pieces: dict[Ends, list[Piece]] = {}
        for e, (a, b, cap) in enumerate(
            zip(fabric.src.tolist(), fabric.dst.tolist(), fabric.cap.tolist(), strict=True)
        ):
            self.pieces.setdefault((a, b), []).append((cap * scale, (e,)))
        self.sinks = list(range(fabric.ranks))
        self.shard = int(starts.max())

    def order(self) -> list[int]:
        """Return the switches by number of neighbours: ports and NICs before the switches that they lead to."""
        near = np.bincount(np.r_[self.fabric.src, self.fabric.dst], minlength=self.fabric.nodes)
        return sorted(range(self.fabric.ranks, self.fabric.nodes), key=lambda n: (near[n], n))

    def remove(self, node: int) -> bool:
        """Split off all pairs at `node`, then drop its remaining edges. False where a rank is not served without
        them.
        """
        entering = [a for a, b in self.pieces if b == node and self.pieces[a, b]]
        leaving = [b for a, b in self.pieces if a == node and self.pieces[a, b]]
        before = {ends: list(parts) for ends, parts in self.pieces.items()}
        moved = 1
        while moved:  # a round leaves capacity over where quotas differ; the edges dropped in the end only led back
            moved = 0
            for a, b, units in self._spread(node, entering, leaving):
                moved += self._split_off(a, node, b, units)
        if self._drop(node):
            return True
        self.pieces = before
        for d in range(len(leaving)):
            for a, b in self._pairs_at_distance(entering, leaving, d):
                if a != b:
                    self._split_off_most(a, node, b)
        return self._drop(node)

    def _pairs_at_distance(self, entering: Sequence[int], leaving: Sequence[int], d: int) -> list[Ends]:
        """Return the pairs that are d positions apart in `leaving`; they contain each neighbour about once."""
        position = {n: i for i, n in enumerate(leaving)}
        return [(a, leaving[(position.get(a, i) + d) % len(leaving)]) for i, a in enumerate(entering)]

    def _spread(self, node: int, entering: Sequence[int], leaving: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (a, b, units) for pairs of neighbours: the capacity from each a evenly over at most `SPREAD` of the b.

        Where possible the units of a pair are a multiple of a shard.
        """
        supply = {a: self._units(a, node) for a in entering}
        demand = {b: self._units(node, b) for b in leaving}
        rounds = [self._pairs_at_distance(entering, leaving, d) for d in _bit_reversed(len(leaving))]
        allowed = {(a, b) for pairs in rounds for a, b in pairs if a != b and self._has_path(a, node, b)}
        quota: dict[int, int] = {}
        for a in entering:
            targets = min(SPREAD, sum((a, b) in allowed for b in leaving))
            if targets:
                quota[a] = max(1, -(-supply[a] // (targets * self.shard)) * self.shard)
        plan = []
        for pairs in rounds:
            for a, b in pairs:
                units = min(supply[a], demand[b], quota[a]) if (a, b) in allowed else 0
                if units:
                    plan.append((a, b, units))
                    supply[a] -= units
                    demand[b] -= units
        return plan

    def _units(self, a: int, b: int) -> int:
        return _total(self.pieces.get((a, b), ()))

    def _outside_gadgets(self, a: int, b: int) -> bool:
        return self.fabric.hub[a] < 0 and self.fabric.hub[b] < 0

    def _has_path(self, a: int, node: int, b: int) -> bool:
        """Return True if schedules may take a path from a through the node to b.

        Also True where an end is a node of a gadget, because the links of the path are not known yet.
        """
        if not self._outside_gadgets(a, b):
            return True
        halves = [(p, q) for _, p in self.pieces[a, node] for _, q in self.pieces[node, b]]
        return any(self.fabric.links_of((*p, *q)) is not None for p, q in halves)

    def _split_off(self, a: int, node: int, b: int, units: int) -> int:
        """Move up to `units` from (a, node) and (node, b) to (a, b). Return the units moved."""
        check_deadline()
        first, second, decided = self.pieces[a, node], self.pieces[node, b], self._outside_gadgets(a, b)
        pieces = self.pieces.setdefault((a, b), [])
        moved = i = 0
        while i < len(first) and moved < units:
            j = 0
            while i < len(first) and j < len(second) and moved < units:
                (m, p), (n, q) = first[i], second[j]
                if decided and self.fabric.links_of((*p, *q)) is None:
                    j += 1
                    continue
                part = min(m, n, units - moved)
                pieces.append((part, (*p, *q)))
                moved += part
                first[i], second[j] = (m - part, p), (n - part, q)
                if n == part:
                    del second[j]
                if m == part:
                    del first[i]
                    j = 0
            i += 1
        return moved

    def _split_off_most(self, a: int, node: int, b: int) -> None:
        """Split off the maximum capacity of the pair (a, node), (node, b) with which all ranks are still served."""
        units = min(self._units(a, node), self._units(node, b))
        if not units or not self._has_path(a, node, b):
            return
        before = {ends: list(self.pieces.get(ends, ())) for ends in ((a, node), (node, b), (a, b))}
        moved = self._split_off(a, node, b, units)
        lacking = self._deficit(moved)
        if lacking:
            self.pieces.update(before)
            self._split_off(a, node, b, moved - lacking)

    def _drop(self, node: int) -> bool:
        """Remove the remaining edges of the node if all ranks are served without them; return True if so."""
        rest = {ends: parts for ends, parts in self.pieces.items() if node in ends}
        for ends in rest:
            del self.pieces[ends]
        if self._deficit(1) == 0:
            return True
        self.pieces.update(rest)
        return False

    def _deficit(self, maximum: int) -> int:
        """Return the units that the worst served rank lacks. `maximum` is an upper bound, at which the search ends."""
        ends = [e for e, parts in self.pieces.items() if parts]
        sources = np.flatnonzero(self.starts)
        source = self.fabric.nodes
        tail, head = np.array(ends, np.int64).reshape(-1, 2).T
        flow = MaxFlow(np.r_[tail, np.full(len(sources), source)], np.r_[head, sources])
        flow.set_capacities(np.r_[[self._units(*e) for e in ends], self.starts[sources]].astype(np.int64))
        worst = 0
        for i, sink in enumerate(self.sinks):
            lacks = self.total - flow.value(source, sink)
            if lacks > worst:
                worst = lacks
                self.sinks[0], self.sinks[i] = sink, self.sinks[0]  # the next failure is likely at the same rank
                if worst >= maximum:
                    return worst
        return worst


def _total(pieces: Sequence[Piece]) -> int:
    return sum(units for units, _ in pieces)


def _bit_reversed(count: int) -> list[int]:
    """Return 0..count-1 in bit-reversal order: 0, then a half, then quarters, so that early numbers lie far apart."""
    bits = max(1, (count - 1).bit_length())
    order = sorted(range(1 << bits), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return sorted(range(count), key=lambda d: order[d * (1 << bits) // count])

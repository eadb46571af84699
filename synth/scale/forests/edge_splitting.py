"""Switches out of a fabric: what enters one is joined to what leaves it, so that ranks can still be served at the same
rate.

Edge splitting after Mader, Frank and Jackson, as ForestColl uses it (arXiv 2402.06787), *optimistically*: the capacity
of a switch is spread over all pairs at once and checked by a maximum flow to each rank; where that falls short, pair by
pair, each gets as much as fits, and what a cut then lacks is refunded: a cut loses all of what was split or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.scale.fabric.fabric import Fabric
from synth.solvers.max_flow import MaxFlow, checked
from synth.solvers.processes.deadline import check

# Over how many others each neighbour of a switch is spread: more make shallower trees, fewer make trees that need not
# be cut.
SPREAD = 8

Ends = tuple[int, int]
Piece = tuple[int, tuple[int, ...]]


@dataclass(eq=False)
class Logical:
    """Capacities from rank to rank, and for each the paths of fabric edges that it is made of: (units, path)."""

    ranks: int
    starts: np.ndarray
    pieces: dict[Ends, list[Piece]] = field(default_factory=dict)

    @property
    def capacity(self) -> dict[Ends, int]:
        """Units from rank to rank."""
        return {ends: sum(units for units, _ in parts) for ends, parts in self.pieces.items()}


def split(fabric: Fabric, scale: int, starts: np.ndarray) -> Logical | None:
    """The fabric without its switches, capacities times `scale`, that can still carry `starts[r]` units from each rank
    r to all.

    None where that is not found; it always is when the fabric carries as much into each node as out of it and every way
    through a switch is one that the topology has.
    """
    checked(scale * int(fabric.cap.sum()) + int(starts.sum()), fabric.name)
    state = _State(fabric, scale, starts)
    for node in state.order():
        if not state.remove(node):
            return None
    state.logical.pieces = {ends: parts for ends, parts in state.pieces.items() if parts}
    return state.logical


class _State:
    def __init__(self, fabric: Fabric, scale: int, starts: np.ndarray) -> None:
        self.fabric, self.starts = fabric, starts
        self.total = int(starts.sum())
        self.logical = Logical(fabric.ranks, starts)
        self.pieces: dict[Ends, list[Piece]] = {}
        for e, (a, b, cap) in enumerate(
            zip(fabric.src.tolist(), fabric.dst.tolist(), fabric.cap.tolist(), strict=True)
        ):
            self.pieces.setdefault((a, b), []).append((cap * scale, (e,)))
        self.sinks = list(range(fabric.ranks))
        self.whole = int(starts.max())

    def order(self) -> list[int]:
        """Switches with few neighbours first: ports and NICs, then what they lead to."""
        near = np.bincount(np.r_[self.fabric.src, self.fabric.dst], minlength=self.fabric.nodes)
        return sorted(range(self.fabric.ranks, self.fabric.nodes), key=lambda n: (near[n], n))

    def remove(self, node: int) -> bool:
        """Joins all that enters `node` to what leaves it; what is left over is dropped. False where ranks are cut off
        by that."""
        entering = [a for a, b in self.pieces if b == node and self.pieces[a, b]]
        leaving = [b for a, b in self.pieces if a == node and self.pieces[a, b]]
        before = {ends: list(parts) for ends, parts in self.pieces.items()}
        moved = 1
        while moved:  # what one round left over by turns is for the next; what is dropped in the end only led back
            moved = sum(self._join(a, node, b, units) for a, b, units in self._spread(node, entering, leaving))
        if self._dropped(node):
            return True
        self.pieces = before
        pairs = [(a, b) for d in range(len(leaving)) for a, b in self._turned(entering, leaving, d) if a != b]
        for a, b in pairs:
            self._optimistic(a, node, b)
        return self._dropped(node)

    def _turned(self, entering: Sequence[int], leaving: Sequence[int], d: int) -> list[Ends]:
        """Pairs d places apart, so that every turn uses each end about once."""
        place = {n: i for i, n in enumerate(leaving)}
        return [(a, leaving[(place.get(a, i) + d) % len(leaving)]) for i, a in enumerate(entering)]

    def _spread(self, node: int, entering: Sequence[int], leaving: Sequence[int]) -> list[tuple[int, int, int]]:
        """Units for pairs: even, but to no more than `SPREAD` each and in parts that carry whole shards where they
        can."""
        left = {a: self._units(a, node) for a in entering}
        room = {b: self._units(node, b) for b in leaving}
        turns = [self._turned(entering, leaving, d) for d in _apart(len(leaving))]
        allowed = {(a, b) for turn in turns for a, b in turn if a != b and self._fits(a, node, b)}
        targets = {a: min(SPREAD, sum((a, b) in allowed for b in leaving)) for a in entering}
        quota = {a: max(1, -(-left[a] // (targets[a] * self.whole)) * self.whole) for a in entering if targets[a]}
        plan = []
        for turn in turns:
            for a, b in turn:
                units = min(left[a], room[b], quota[a]) if (a, b) in allowed else 0
                if units:
                    plan.append((a, b, units))
                    left[a] -= units
                    room[b] -= units
        return plan

    def _units(self, a: int, b: int) -> int:
        return sum(units for units, _ in self.pieces.get((a, b), ()))

    def _real(self, a: int, b: int) -> bool:
        return self.fabric.hub[a] < 0 and self.fabric.hub[b] < 0

    def _fits(self, a: int, node: int, b: int) -> bool:
        """Whether some way from a through the node to b is one that the topology has, as far as that is known yet."""
        if not self._real(a, b):
            return True
        ways = [(p, q) for _, p in self.pieces[a, node] for _, q in self.pieces[node, b]]
        return any(self.fabric.links_of((*p, *q)) is not None for p, q in ways)

    def _join(self, a: int, node: int, b: int, units: int) -> int:
        """Moves up to `units` from (a, node) and (node, b) to (a, b); how many it moved."""
        check()
        first, second, real = self.pieces[a, node], self.pieces[node, b], self._real(a, b)
        made = self.pieces.setdefault((a, b), [])
        moved = i = 0
        while i < len(first) and moved < units:
            j = 0
            while i < len(first) and j < len(second) and moved < units:
                (m, p), (n, q) = first[i], second[j]
                if real and self.fabric.links_of((*p, *q)) is None:
                    j += 1
                    continue
                part = min(m, n, units - moved)
                made.append((part, (*p, *q)))
                moved += part
                first[i], second[j] = (m - part, p), (n - part, q)
                if n == part:
                    del second[j]
                if m == part:
                    del first[i]
                    j = 0
            i += 1
        return moved

    def _optimistic(self, a: int, node: int, b: int) -> None:
        """As much as fits from a through the node to b."""
        units = min(self._units(a, node), self._units(node, b))
        if not units or not self._fits(a, node, b):
            return
        before = {ends: list(self.pieces.get(ends, ())) for ends in ((a, node), (node, b), (a, b))}
        moved = self._join(a, node, b, units)
        lacking = self._deficit(moved)
        if lacking:
            self.pieces.update(before)
            self._join(a, node, b, moved - lacking)

    def _dropped(self, node: int) -> bool:
        """Takes away all that is left at the node, if the ranks do without."""
        rest = {ends: parts for ends, parts in self.pieces.items() if node in ends}
        for ends in rest:
            del self.pieces[ends]
        if self._deficit(1) == 0:
            return True
        self.pieces.update(rest)
        return False

    def _deficit(self, most: int) -> int:
        """How much the least served rank lacks; the search ends at `most`, as no more can be lacking."""
        ends = [e for e, parts in self.pieces.items() if parts]
        sources = np.flatnonzero(self.starts)
        source = self.fabric.nodes
        flow = MaxFlow(np.r_[[a for a, _ in ends], np.full(len(sources), source)], np.r_[[b for _, b in ends], sources])
        flow.set(np.r_[[self._units(*e) for e in ends], self.starts[sources]].astype(np.int64))
        worst = 0
        for i, sink in enumerate(self.sinks):
            lacks = self.total - flow.value(source, sink)
            if lacks > worst:
                worst = lacks
                self.sinks[0], self.sinks[i] = sink, self.sinks[0]  # the next failure is likely at the same rank
                if worst >= most:
                    return worst
        return worst


def _apart(count: int) -> list[int]:
    """0..count-1, halves first, then quarters, and so on: the first few are far from one another."""
    bits = max(1, (count - 1).bit_length())
    order = sorted(range(1 << bits), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return sorted(range(count), key=lambda d: order[d * (1 << bits) // count])

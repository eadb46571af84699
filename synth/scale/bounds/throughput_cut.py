"""Throughput cuts: exact bounds on allgather, reduce-scatter, broadcast and reduce, by Newton's method on cuts.

The time of one shard byte per unit of bandwidth is x* = max over cuts S that leave a rank out of
(shards that start in S) / (capacity out of S) (Zhao et al., "ForestColl", arXiv 2402.06787; for one root Edmonds 1973).
The search starts with the cut around each rank. For x = p/q, maximum flows with capacities p·cap from sources of q
units for each shard either reach every rank in full, or show a cut with a greater ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from synth.errors import InfeasibleError, UsageError
from synth.model.documents.int_ranges import runs
from synth.scale.fabric.automorphisms import orbits, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.solvers.deadline import TimeUp
from synth.solvers.max_flow import MaxFlow, check_capacity_sum

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce")
REVERSED = ("reduce-scatter", "reduce")
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True, eq=False)
class Throughput:
    """A lower bound: no schedule of `collective` moves a shard in less than `time` seconds per byte, where one unit of
    bandwidth is one byte per second.

    `inside` marks the nodes of the cut, on `fabric` in the direction in which data spreads (reversed for reductions).
    `shards[r]` start at rank r. `flows` counts the maximum flows of the search. `proof` is the certificate if it needs
    more than this cut. `whole` is False where a time limit ended the search. Then a higher bound may exist.
    """

    fabric: Fabric
    collective: str
    root: int
    shards: np.ndarray
    time: Fraction
    inside: np.ndarray
    flows: int
    proof: dict | None = None
    whole: bool = True

    @property
    def bandwidth(self) -> Fraction:
        """Algorithmic bandwidth in GB/s: the bytes of all shards over the time of the collective."""
        return int(self.shards.sum()) * self.fabric.unit / self.time

    @cached_property
    def certificate(self) -> dict:
        """Return the cut in terms of the topology, which `synth.checker.certificates.throughput_cuts.check`
        verifies."""
        if self.proof is not None:
            return self.proof
        from synth.checker.certificates.throughput_cuts import digest

        fabric, inside = self.fabric, self.inside
        crossing = inside[fabric.src] & ~inside[fabric.dst]
        ends = fabric.ranks + len(fabric.topology.switches)
        limits = np.unique(fabric.limit[crossing])
        return {
            "kind": "throughput-cut",
            "topology": digest(fabric.topology),
            "collective": self.collective,
            "root": self.root if self.collective in ROOTED else None,
            "inside": runs(np.flatnonzero(inside[:ends]).tolist()),
            "limits": limits[limits >= 0].tolist(),
        }


def throughput(
    fabric: Fabric, collective: str = "allgather", root: int = 0, generators: Sequence[np.ndarray] | None = None
) -> Throughput:
    """Return the bound of the cut with the greatest ratio.

    `generators`: symmetries of the fabric, by default the result of `symmetries`; one rank of each orbit is examined.
    Raises InfeasibleError where data cannot reach a rank, UsageError for another collective or root. When a time limit
    (see `synth.solvers.deadline`) ends the search, the result is the best cut so far.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"{collective}: cuts bound the throughput of {', '.join(COLLECTIVES)}")
    if not 0 <= root < fabric.ranks:
        raise UsageError(f"root {root} is none of the {fabric.ranks} ranks")
    graph = fabric.reversed() if collective in REVERSED else fabric
    shards = np.zeros(fabric.nodes, np.int64)
    shards[root if collective in ROOTED else slice(fabric.ranks)] = 1
    moves = symmetries(fabric) if generators is None else generators
    preserving = [pi for pi in moves if (shards[pi] == shards).all()]
    label = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in preserving])
    sinks = np.flatnonzero(label == np.arange(fabric.ranks)).tolist()
    return _Newton(graph, shards, collective, root).run(sinks)


class _Newton:
    """Newton's method on `graph`, with the maximum flow from all shards."""

    def __init__(self, graph: Fabric, shards: np.ndarray, collective: str, root: int) -> None:
        self.graph, self.shards, self.collective, self.root = graph, shards, collective, root
        sources = np.flatnonzero(shards)
        source = graph.nodes
        self.flow = MaxFlow(np.r_[graph.src, np.full(len(sources), source)], np.r_[graph.dst, sources])
        self.starts, self.source = shards[sources], source
        self.total = int(shards.sum())

    def run(self, sinks: list[int]) -> Throughput:
        time, inside = self._first()
        self._set(time)
        whole = True
        try:
            for sink in sinks:
                while self.flow.value(self.source, sink) < self.total * time.denominator:
                    inside = self.flow.source_side(self.graph.nodes)
                    time = self._ratio(inside)
                    self._set(time)
        except TimeUp:
            whole = False
        shards = self.shards[: self.graph.ranks]
        graph = self.graph
        return Throughput(graph, self.collective, self.root, shards, time, inside, self.flow.calls, whole=whole)

    def _set(self, time: Fraction) -> None:
        check_capacity_sum(time.numerator * int(self.graph.cap.sum()) + time.denominator * self.total, self.graph.name)
        self.flow.set_capacities(np.r_[self.graph.cap * time.numerator, self.starts * time.denominator])

    def _ratio(self, inside: np.ndarray) -> Fraction:
        """Return (shards inside) / (capacity out). Raises InfeasibleError where no capacity leads out."""
        leaving = int(self.graph.cap[inside[self.graph.src] & ~inside[self.graph.dst]].sum())
        if not leaving:
            outside = int(np.flatnonzero(~inside[: self.graph.ranks])[0])
            raise InfeasibleError(
                f"{self.graph.name}: no link leads {self._direction(outside)} from where {self._sources(inside)}"
            )
        return Fraction(int(self.shards[inside].sum()), leaving)

    def _direction(self, rank: int) -> str:
        return f"out of rank {rank}" if self.graph.flipped else f"to rank {rank}"

    def _sources(self, inside: np.ndarray) -> str:
        ranks = np.flatnonzero(self.shards[: self.graph.ranks] * inside[: self.graph.ranks])
        if len(ranks) == 1:
            return f"rank {int(ranks[0])} is"
        return f"{len(ranks)} ranks are, such as rank {int(ranks[0])}"

    def _first(self) -> tuple[Fraction, np.ndarray]:
        """Return the ratio and nodes of the cut around the rank with the most missing shards per capacity into it."""
        into = np.zeros(self.graph.nodes, np.int64)
        np.add.at(into, self.graph.dst, self.graph.cap)
        best, rank = Fraction(-1), 0
        missing = self.total - self.shards[: self.graph.ranks]
        for b, m in {(int(b), int(m)) for b, m in zip(into, missing, strict=False)}:
            if m and (b == 0 or Fraction(m, b) > best):
                rank = int(np.flatnonzero((into[: self.graph.ranks] == b) & (missing == m))[0])
                best = Fraction(m, b) if b else best
                if not b:
                    break
        inside = np.arange(self.graph.nodes) != rank
        return self._ratio(inside), inside

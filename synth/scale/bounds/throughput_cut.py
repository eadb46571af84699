"""How fast allgather, reduce-scatter, broadcast and reduce can be on a fabric: Newton's method on cuts, exact.

The time of one shard byte per unit of bandwidth is x* = max over cuts S that leave a rank out of
(shards that start in S) / (capacity that leaves S) (Zhao et al., "ForestColl", arXiv 2402.06787, and for one root
Edmonds 1973). Start with the cut around each rank; a maximum flow of capacities p·cap from sources of q shards each
shows, for x = p/q, that every rank can be served, or a cut with a greater ratio.
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
from synth.solvers.max_flow import MaxFlow, checked
from synth.solvers.processes.deadline import TimeUp

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce")
TURNED = ("reduce-scatter", "reduce")
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True, eq=False)
class Throughput:
    """No schedule of `collective` moves a shard in less than `time` seconds per byte, at one byte per second a unit.

    `inside` marks the nodes of the cut that says so, on `fabric` as data spreads (turned for reductions); `shards[r]`
    start at rank r. `flows` is how many maximum flows it took. `proof`: the certificate, where more than this one cut
    proves the time.
    `whole` is False where a time limit ended the search: the cut proves what it says, and another may prove more.
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
        """The cut in terms of the topology, for `synth.checker.certificates.throughput_cuts.check`."""
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
    """The greatest ratio of a cut, with that cut.

    `generators`: symmetries of the fabric as `symmetries` returns them (the default); one flow for each orbit of ranks.
    Raises InfeasibleError where data cannot reach a rank, UsageError for another collective or root. A time limit (see
    `synth.solvers.processes.deadline`) ends it with the worst cut so far.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"{collective}: cuts bound the throughput of {', '.join(COLLECTIVES)}")
    if not 0 <= root < fabric.ranks:
        raise UsageError(f"root {root} is none of the {fabric.ranks} ranks")
    graph = fabric.reversed() if collective in TURNED else fabric
    shards = np.zeros(fabric.nodes, np.int64)
    shards[root if collective in ROOTED else slice(fabric.ranks)] = 1
    moves = symmetries(fabric) if generators is None else generators
    kept = [pi for pi in moves if (shards[pi] == shards).all()]
    label = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in kept])
    sinks = np.flatnonzero(label == np.arange(fabric.ranks)).tolist()
    return _Newton(graph, shards, collective, root).run(sinks)


class _Newton:
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
                    inside = self.flow.inside(self.graph.nodes)
                    time = self._ratio(inside)
                    self._set(time)
        except TimeUp:
            whole = False
        shards = self.shards[: self.graph.ranks]
        graph = self.graph
        return Throughput(graph, self.collective, self.root, shards, time, inside, self.flow.calls, whole=whole)

    def _set(self, time: Fraction) -> None:
        checked(time.numerator * int(self.graph.cap.sum()) + time.denominator * self.total, self.graph.name)
        self.flow.set(np.r_[self.graph.cap * time.numerator, self.starts * time.denominator])

    def _ratio(self, inside: np.ndarray) -> Fraction:
        leaving = int(self.graph.cap[inside[self.graph.src] & ~inside[self.graph.dst]].sum())
        if not leaving:
            outside = int(np.flatnonzero(~inside[: self.graph.ranks])[0])
            raise InfeasibleError(
                f"{self.graph.name}: no link leads {self._way(outside)} from where {self._held(inside)}"
            )
        return Fraction(int(self.shards[inside].sum()), leaving)

    def _way(self, rank: int) -> str:
        return f"out of rank {rank}" if self.graph.flipped else f"to rank {rank}"

    def _held(self, inside: np.ndarray) -> str:
        ranks = np.flatnonzero(self.shards[: self.graph.ranks] * inside[: self.graph.ranks])
        return (
            f"rank {int(ranks[0])} is" if len(ranks) == 1 else f"{len(ranks)} ranks are, such as rank {int(ranks[0])}"
        )

    def _first(self) -> tuple[Fraction, np.ndarray]:
        """The cut around the rank that takes longest to hear from all others."""
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

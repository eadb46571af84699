"""Throughput cuts: exact bounds on allgather, reduce-scatter, broadcast and reduce, by Newton's method on cuts.

The time of one shard byte per unit of bandwidth is x* = max over cuts S that leave a rank out of
(shards that start in S) / (capacity out of S) (Zhao et al., "ForestColl", arXiv 2402.06787; for one root Edmonds 1973).
The search starts with the cut around each rank. For x = p/q, maximum flows with capacities p·cap from sources of q
units for each shard either reach every rank in full, or show a cut with a greater ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from synth.errors import InfeasibleError, UsageError
from synth.model.documents.int_ranges import runs
from synth.model.scale_collectives import REVERSED, ROOTED
from synth.scale.fabric.automorphisms import orbits, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.solvers.deadline import TimeUp
from synth.solvers.max_flow import MaxFlow, check_capacity_sum

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce")


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
        from synth.checker.certificates.machine_digest import digest

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
    sources, source, total = np.flatnonzero(shards), graph.nodes, int(shards.sum())
    flow = MaxFlow(np.r_[graph.src, np.full(len(sources), source)], np.r_[graph.dst, sources])

    def ratio(inside: np.ndarray) -> Fraction:
        """Return (shards inside) / (capacity out), and set the flow's capacities by it."""
        leaving = int(graph.cap[inside[graph.src] & ~inside[graph.dst]].sum())
        starts = np.flatnonzero(shards[: graph.ranks] * inside[: graph.ranks])
        if not leaving:
            outside = int(np.flatnonzero(~inside[: graph.ranks])[0])
            where = f"out of rank {outside}" if graph.flipped else f"to rank {outside}"
            held = f"rank {starts[0]} is" if len(starts) == 1 else f"{len(starts)} ranks are, such as rank {starts[0]}"
            raise InfeasibleError(f"{graph.name}: no link leads {where} from where {held}")
        time = Fraction(int(shards[inside].sum()), leaving)
        check_capacity_sum(time.numerator * int(graph.cap.sum()) + time.denominator * total, graph.name)
        flow.set_capacities(np.r_[graph.cap * time.numerator, shards[sources] * time.denominator])
        return time

    # the cut around the rank that misses the most shards for the capacity into it
    into = np.zeros(graph.nodes, np.int64)
    np.add.at(into, graph.dst, graph.cap)
    into, missing = into[: graph.ranks], total - shards[: graph.ranks]
    needs = sorted({(m, b) for m, b in zip(missing.tolist(), into.tolist(), strict=True) if m})
    m, b = max(needs, key=lambda need: Fraction(*need) if need[1] else math.inf, default=(0, 0))
    inside = np.arange(graph.nodes) != np.argmax((missing == m) & (into == b))

    # Newton's method: a cut that a flow cannot pass has a greater ratio
    time, whole = ratio(inside), True
    try:
        for sink in np.flatnonzero(label == np.arange(fabric.ranks)).tolist():
            while flow.value(source, sink) < total * time.denominator:
                inside = flow.source_side(graph.nodes)
                time = ratio(inside)
    except TimeUp:
        whole = False
    return Throughput(graph, collective, root, shards[: graph.ranks], time, inside, flow.calls, whole=whole)

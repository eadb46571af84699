"""Points of a frontier at scale: pipelined forests, and breadth-first broadcasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import lcm

import numpy as np

from synth.model.compressed_schedule import CompressedSchedule
from synth.scale.candidate import Candidate
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests import bfs_broadcast, pipelining
from synth.scale.forests.pipelining import Pipeline
from synth.solvers.deadline import check_deadline

# Pipelining depths that are tried, in this order.
DEPTHS = tuple(1 << k for k in range(13))
# A greater depth is offered only if it reduces R / C by at least this fraction of the bound.
WORTH = Fraction(1, 500)
# Limit on the sends of a point: its schedule must be small enough to be listed.
MOST_SENDS = 1 << 26


def pipelined_points(lines: Sequence[Pipeline], engine: str, bound: Fraction) -> Iterator[Candidate]:
    """Yield the schedules of a forest at growing pipelining depths, until R / C improves too little.

    Two forests, of a reduce-scatter and an allgather, make allreduces; none where their symmetries differ. `engine`
    names the method, `bound` is the lower bound on R / C.
    """
    forests = [line.forest for line in lines]
    first, last = forests[0].generators, forests[-1].generators
    if len(first) != len(last) or not all(map(np.array_equal, first, last)):
        return
    ranks = forests[0].topology.ranks if len(lines) > 1 else 1  # a shard of an allreduce is a part of its unit
    weight = lcm(*(forest.weight for forest in forests))
    before = None
    for depth in DEPTHS:
        check_deadline()
        # depths at which all forests cut a shard into the same number of chunks
        depths = [depth * weight // forest.weight for forest in forests]
        if sum(line.sends(own) for line, own in zip(lines, depths, strict=True)) > MOST_SENDS:
            return
        steps, rates = zip(*(line.rate(own) for line, own in zip(lines, depths, strict=True)), strict=True)
        rounds_per_chunk = sum(rates, Fraction(0)) / ranks
        if before is not None and before - rounds_per_chunk < WORTH * bound:
            return
        before = rounds_per_chunk
        make = partial(_pipelined, lines, depths)
        yield Candidate(sum(steps), rounds_per_chunk, weight * depth * ranks, f"{engine} x {depth}", make)


def _pipelined(lines: Sequence[Pipeline], depths: Sequence[int]) -> CompressedSchedule:
    schedules = [line.schedule(depth) for line, depth in zip(lines, depths, strict=True)]
    return schedules[0] if len(schedules) == 1 else pipelining.scatter_then_gather(*schedules)


def broadcast_points(graph: Fabric, collective: str) -> Iterator[Candidate]:
    """Yield breadth-first broadcasts, on machines without switches; a reduce-scatter is one backwards."""
    if not bfs_broadcast.applies(graph):
        return
    broadcast = bfs_broadcast.BreadthFirstBroadcast(graph.reversed() if collective == "reduce-scatter" else graph)
    for chunks in sorted({1, 2, 4, broadcast.chunks}):
        check_deadline()
        if chunks * graph.ranks * len(broadcast.copies.representatives) <= MOST_SENDS and chunks <= 64:
            yield Candidate.of(broadcast.schedule(chunks), "breadth-first broadcast")

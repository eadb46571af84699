"""Points of a frontier at scale: pipelined forests, quick greedy schedules, allreduce on spanning trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import lcm

import numpy as np

from synth.encodings import spanning_tree_packing
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule, over_links
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.scale.candidate import Candidate
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests import pipelining
from synth.scale.forests.pipelining import Pipeline
from synth.scale.greedy import bfs_broadcast
from synth.solvers.deadline import check_deadline

# Pipelining depths that are tried, in this order.
DEPTHS = tuple(1 << k for k in range(11))
# A greater depth is offered only if it reduces R / C by at least this fraction of the bound.
WORTH = Fraction(1, 500)
# Limit on the sends of a point: its schedule must be small enough to be listed.
MOST_SENDS = 1 << 26
# Limit on the number of depths of allreduce on packed trees, whose schedules are listed to determine their rate.
FEW_DEPTHS = 7
# Limit on the ranks for which spanning trees are packed for allreduce.
PACKED = 16


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


def greedy_points(graph: Fabric, collective: str, progress: Callable[[str], None]) -> Iterator[Candidate]:
    """Yield breadth-first broadcasts, on machines without switches; a reduce-scatter is one backwards."""
    if bfs_broadcast.applies(graph):
        progress("breadth-first broadcast")
        broadcast = bfs_broadcast.BreadthFirstBroadcast(graph.reversed() if collective == "reduce-scatter" else graph)
        for chunks in sorted({1, 2, 4, broadcast.chunks}):
            check_deadline()
            if chunks * graph.ranks * len(broadcast.copies.representatives) <= MOST_SENDS and chunks <= 64:
                yield Candidate.of(broadcast.schedule(chunks), "breadth-first broadcast")


def has_equal_reverse_links(topology: Topology) -> bool:
    """Return True if every link has a reverse link of equal bandwidth, and no two links are parallel."""
    width = {(k.src, k.dst): k.bandwidth for k in topology.links}
    return len(width) == len(topology.links) and all(width.get((b, a)) == w for (a, b), w in width.items())


def spanning_tree_points(graph: Fabric) -> Iterator[Candidate]:
    """Yield allreduces on packed spanning trees, up and then down each tree, at growing pipelining depths.

    Only for small machines without switches and limits whose links have equal reverse links.
    """
    topology = graph.topology
    if graph.ranks > PACKED or topology.switches or topology.limits or not has_equal_reverse_links(topology):
        return
    network = graph.topology.network()
    if not spanning_tree_packing.applies(network):
        return
    from synth.model.collective import collective

    forest, allreduce = spanning_tree_packing.forest(network), collective("allreduce", network.ranks)
    for depth in DEPTHS[:FEW_DEPTHS]:
        check_deadline()
        packed = spanning_tree_packing.schedule(forest, allreduce, len(forest.trees) * depth)
        yield Candidate.of(compressed(graph.topology, packed), f"spanning trees x {depth}")


def compressed(topology: Topology, schedule: Schedule) -> CompressedSchedule:
    """Return `schedule` with its sends in columns, on a topology without switches and parallel links."""
    link_of = {(k.src, k.dst): i for i, k in enumerate(topology.links)}
    rows: list[tuple[int, int, int, int]] = []
    for t, step in enumerate(schedule.steps):
        for send in step.sends:
            kind = REDUCE if send.kind == "reduce" else COPY
            rows.append((t, send.chunk, link_of[send.src, send.dst], kind))
    table = np.array(rows, np.int64).reshape(-1, 4)
    rounds = np.array([step.rounds for step in schedule.steps], np.int64)
    root = schedule.collective.roots[0] if schedule.collective.roots else None
    return over_links(topology, schedule.collective.name, root, schedule.chunks, rounds, table)

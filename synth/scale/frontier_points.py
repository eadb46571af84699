"""Points of a frontier at scale: pipelined forests, quick greedy schedules, allreduce on spanning trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
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


def pipelined_points(line: Pipeline, engine: str, bound: Fraction) -> Iterator[Candidate]:
    """Yield the schedules of a forest at growing pipelining depths, until R / C improves too little.

    `engine` names the forest, `bound` is the lower bound on R / C.
    """
    before = None
    for depth in DEPTHS:
        check_deadline()
        if line.sends(depth) > MOST_SENDS:
            return
        steps, rounds_per_chunk = line.rate(depth)
        if before is not None and before - rounds_per_chunk < WORTH * bound:
            return
        before = rounds_per_chunk
        yield Candidate(
            steps, rounds_per_chunk, line.forest.weight * depth, f"{engine} x {depth}", schedule_at_depth(line, depth)
        )


def schedule_at_depth(line: Pipeline, depth: int) -> Callable[[], CompressedSchedule]:
    """Return a function that constructs the schedule of a forest at a depth."""
    return lambda: line.schedule(depth)


def greedy_points(graph: Fabric, collective: str, progress: Callable[[str], None]) -> Iterator[Candidate]:
    """Yield breadth-first broadcasts, on machines without switches.

    A reduce-scatter is the allgather reversed in time, which needs equal links in both directions.
    """
    is_reversed = collective == "reduce-scatter"
    if is_reversed and not has_equal_reverse_links(graph.topology):
        return
    if bfs_broadcast.applies(graph):
        progress("breadth-first broadcast")
        broadcast = bfs_broadcast.BreadthFirstBroadcast(graph)
        for chunks in sorted({1, 2, 4, broadcast.chunks}):
            check_deadline()
            if chunks * graph.ranks * len(broadcast.copies.representatives) <= MOST_SENDS and chunks <= 64:
                schedule = broadcast.schedule(chunks)
                yield _point(
                    "breadth-first broadcast", pipelining.reversed_in_time(schedule) if is_reversed else schedule
                )


def _point(engine: str, schedule: CompressedSchedule) -> Candidate:
    return Candidate(schedule.step_count, schedule.rounds_per_chunk, schedule.chunks, engine, constant(schedule))


def constant(made: CompressedSchedule) -> Callable[[], CompressedSchedule]:
    """Return a function that returns this schedule."""
    return lambda: made


def has_equal_reverse_links(topology: Topology) -> bool:
    """Return True if every link has a reverse link of equal bandwidth, and no two links are parallel."""
    width = {(k.src, k.dst): k.bandwidth for k in topology.links}
    return len(width) == len(topology.links) and all(width.get((b, a)) == w for (a, b), w in width.items())


def scatter_gather_points(graph: Fabric, first: Pipeline, second: Pipeline, bound: Fraction) -> Iterator[Candidate]:
    """Yield allreduces at growing pipelining depths: the forest of a reduce-scatter, then that of an allgather.

    Nothing is yielded where their symmetries differ.
    """
    generators, others = first.forest.generators, second.forest.generators
    if len(generators) != len(others) or not all((a == b).all() for a, b in zip(generators, others, strict=True)):
        return
    weight = lcm(first.forest.weight, second.forest.weight)
    before = None
    for depth in DEPTHS:
        check_deadline()
        # Depths at which both forests cut a shard into the same number of chunks.
        first_depth, second_depth = depth * weight // first.forest.weight, depth * weight // second.forest.weight
        if first.sends(first_depth) + second.sends(second_depth) > MOST_SENDS:
            return
        first_steps, first_rate = first.rate(first_depth)
        second_steps, second_rate = second.rate(second_depth)
        rounds_per_chunk = (first_rate + second_rate) / graph.ranks
        if before is not None and before - rounds_per_chunk < WORTH * bound:
            return
        before = rounds_per_chunk
        engine = f"reduce-scatter + allgather, {second.forest.method} x {depth}"

        def make(first_depth: int = first_depth, second_depth: int = second_depth) -> CompressedSchedule:
            return pipelining.scatter_then_gather(first.schedule(first_depth), second.schedule(second_depth))

        yield Candidate(first_steps + second_steps, rounds_per_chunk, weight * depth * graph.ranks, engine, make)


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
        schedule = compressed(graph.topology, packed)
        yield _point(f"spanning trees x {depth}", schedule)


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

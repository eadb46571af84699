"""Points of a large frontier: forests at pipelining depths, breadth-first broadcast and rarest-first, trees up and
down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import lcm

import numpy as np

from synth.encodings import spanning_tree_packing
from synth.model.compressed_schedule import COPY, REDUCE, Bulk, over_links
from synth.model.scale_frontier import LargePoint
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.scale.allreduce import paired_arborescences
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests import pipelining
from synth.scale.forests.pipelining import Pipeline
from synth.scale.greedy import bfs_broadcast, rarest_first
from synth.solvers.processes.deadline import check

DEPTHS = tuple(1 << k for k in range(11))
# A pipelining depth is offered while it improves R / C by this part of the bound, and its sends can be listed.
WORTH = Fraction(1, 500)
MOST_SENDS = 1 << 26
FEW_DEPTHS, FEW_SENDS = 7, 1 << 21  # of packed trees up and down, which are written out to be measured
# Ranks up to which trees are packed for allreduce, and the greedy runs where nothing is symmetric.
PACKED, GREEDY = 16, 600


def depths(line: Pipeline, engine: str, bound: Fraction) -> Iterator[LargePoint]:
    """A forest at each pipelining depth, while a greater one is worth its steps."""
    before = None
    for depth in DEPTHS:
        check()
        if line.sends(depth) > MOST_SENDS:
            return
        steps, bandwidth = line.rate(depth)
        if before is not None and before - bandwidth < WORTH * bound:
            return
        before = bandwidth
        yield LargePoint(steps, bandwidth, line.forest.weight * depth, f"{engine} x {depth}", later(line, depth))


def later(line: Pipeline, depth: int) -> Callable[[], Bulk]:
    """What makes the schedule of a forest at a depth."""
    return lambda: line.bulk(depth)


def direct(graph: Fabric, collective: str, progress: Callable[[str], None]) -> Iterator[LargePoint]:
    """Breadth-first broadcast and rarest-first, where ranks are joined by links alone; backwards for reduce-scatter."""
    turned = collective == "reduce-scatter"
    if turned and not even(graph.topology):
        return
    finish = pipelining.turned if turned else (lambda made: made)
    if bfs_broadcast.applies(graph):
        progress("breadth-first broadcast")
        found = bfs_broadcast.Breadth(graph)
        for chunks in sorted({1, 2, 4, found.chunks}):
            check()
            if chunks * graph.ranks * len(found.copies.reps) <= MOST_SENDS and chunks <= 64:
                made = finish(found.schedule(chunks))
                yield LargePoint(made.steps, made.bandwidth, made.chunks, "breadth-first broadcast", kept(made))
    if rarest_first.applies(graph) and (graph.ranks <= GREEDY or free_group(symmetries(graph), graph.ranks)):
        progress("rarest first")
        made = finish(rarest_first.schedule(graph))
        yield LargePoint(made.steps, made.bandwidth, made.chunks, "rarest first", kept(made))


def kept(made: Bulk) -> Callable[[], Bulk]:
    """What makes a schedule that is made already."""
    return lambda: made


def even(topology: Topology) -> bool:
    """Whether every link has its like in the other direction, and no two have the same ends."""
    width = {(k.src, k.dst): k.bandwidth for k in topology.links}
    return len(width) == len(topology.links) and all(width.get((b, a)) == w for (a, b), w in width.items())


def joined(graph: Fabric, first: Pipeline, second: Pipeline, bound: Fraction) -> Iterator[LargePoint]:
    """An allreduce at each pipelining depth: a reduce-scatter's forest, then an allgather's; none where their
    symmetries differ."""
    one, two = first.forest.generators, second.forest.generators
    if len(one) != len(two) or not all((a == b).all() for a, b in zip(one, two, strict=True)):
        return
    whole = lcm(first.forest.weight, second.forest.weight)
    before = None
    for depth in DEPTHS:
        check()
        one, two = depth * whole // first.forest.weight, depth * whole // second.forest.weight
        if first.sends(one) + second.sends(two) > MOST_SENDS:
            return
        (s, r), (t, q) = first.rate(one), second.rate(two)
        bandwidth = (r + q) / graph.ranks
        if before is not None and before - bandwidth < WORTH * bound:
            return
        before = bandwidth
        engine = f"reduce-scatter + allgather, {second.forest.method} x {depth}"

        def make(one: int = one, two: int = two) -> Bulk:
            return pipelining.composed(first.bulk(one), second.bulk(two))

        yield LargePoint(s + t, bandwidth, whole * depth * graph.ranks, engine, make)


def up_and_down(graph: Fabric) -> Iterator[LargePoint]:
    """An allreduce on packed trees, up and then down each, at each pipelining depth; small machines of equal links both
    ways alone."""
    topology = graph.topology
    if graph.ranks > PACKED or topology.switches or topology.limits or not even(topology):
        return
    network = graph.topology.network()
    if not spanning_tree_packing.applies(network):
        return
    from synth.model.collective import collective

    forest, task = spanning_tree_packing.forest(network), collective("allreduce", network.ranks)
    for depth in DEPTHS[:FEW_DEPTHS]:
        check()
        made = written(graph.topology, spanning_tree_packing.schedule(forest, task, depth))
        yield LargePoint(made.steps, made.bandwidth, made.chunks, f"trees up and down x {depth}", kept(made))


def in_and_out(graph: Fabric) -> Iterator[LargePoint]:
    """An allreduce up trees to each rank and down others from it, at each pipelining depth; small machines of unlike
    directions alone."""
    if even(graph.topology) or not paired_arborescences.applies(graph):
        return
    pairs, before = paired_arborescences.pairs(graph), None

    def again(depth: int) -> Callable[[], Bulk]:
        return lambda: paired_arborescences.bulk(graph, pairs, depth)

    for depth in DEPTHS[: FEW_DEPTHS + 2] if pairs else ():
        check()
        if paired_arborescences.sends(graph, pairs, depth) > FEW_SENDS:
            return
        made = paired_arborescences.bulk(graph, pairs, depth)
        if before is not None and before - made.bandwidth < WORTH * made.bandwidth:
            return
        before = made.bandwidth
        yield LargePoint(made.steps, made.bandwidth, made.chunks, f"trees in and out x {depth}", again(depth))


def written(topology: Topology, schedule: Schedule) -> Bulk:
    """An ordinary schedule of a topology without switches as a bulk one."""
    where = {(k.src, k.dst): i for i, k in enumerate(topology.links)}
    rows = [
        (t, s.chunk, where[s.src, s.dst], REDUCE if s.kind == "reduce" else COPY)
        for t, step in enumerate(schedule.steps)
        for s in step.sends
    ]
    table = np.array(rows, np.int64).reshape(-1, 4)
    rounds = np.array([step.rounds for step in schedule.steps], np.int64)
    root = schedule.collective.roots[0] if schedule.collective.roots else None
    return over_links(topology, schedule.collective.name, root, schedule.chunks, rounds, table)

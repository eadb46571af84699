"""The frontier at scale: a certified bound, and points from the latency end to the bandwidth end by every method that applies.

engine                     for                                   gives
breadth-first trees        any fabric                            fewest steps
breadth-first broadcast    links from rank to rank               fewest steps, balanced
rarest first               the same                              one-chunk greedy
forest x depth             any fabric                            the optimal rate, pipelined: between the ends
trees up and down          allreduce on equal links both ways    the tree-packing rate, pipelined
flows                      alltoall                              least congestion, spread over steps
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import lcm

import numpy as np

from synth.bulk import COLLECTIVES, COPY, REDUCE, Bulk
from synth.errors import InfeasibleError, UndecidedError, UsageError
from synth.flows import alltoall, breadth, parts, pipeline, rarest, tau
from synth.flows.automorphisms import free_group, symmetries
from synth.flows.cuts import throughput
from synth.flows.fabric import Fabric, fabric
from synth.flows.forests import build
from synth.flows.pipeline import Pipeline
from synth.flows.shallow import Shallow
from synth.flows.sharper import sharpened
from synth.flows.slots import Alltoall, roomy
from synth.forest import ROOTED
from synth.large import Large, LargePoint
from synth.lengthcheck import check as check_lengths
from synth.schedule import Schedule
from synth.topology import Topology

DEPTHS = tuple(1 << k for k in range(11))
# A pipelining depth is offered while it improves R / C by this part of the bound, and its sends can be listed.
WORTH = Fraction(1, 500)
MOST_SENDS = 1 << 26
# Ranks up to which trees are packed for allreduce, and the greedy runs where nothing is symmetric.
PACKED, GREEDY = 16, 600


def frontier(topology: Topology, collective: str, root: int = 0, *, progress: Callable[[str], None] = lambda text: None) -> Large:
    """The bound and the points. Raises InfeasibleError where a rank cannot be reached, UsageError for other collectives."""
    if collective not in COLLECTIVES:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
    begun, topology = time.perf_counter(), topology.live()
    progress("reading the fabric")
    graph = fabric(topology)
    moves = symmetries(graph)
    group = free_group(moves, graph.ranks)
    notes: list[str] = list(topology.notes)
    progress("bound")
    bound, certificate, points = _KINDS[collective](graph, collective, root, group, notes, progress)
    least = _least_steps(graph, collective, root, group)
    kept = _pareto(points)
    at = root if collective in ROOTED else None
    return Large(topology, collective, at, bound, certificate, least, kept, time.perf_counter() - begun, tuple(notes))


def bound(topology: Topology, collective: str, root: int = 0) -> Large:
    """As `frontier`, without points: the bound, its certificate and the least number of steps."""
    if collective not in COLLECTIVES:
        raise UsageError(f"flow methods bound {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
    begun, topology = time.perf_counter(), topology.live()
    graph = fabric(topology)
    group = free_group(symmetries(graph), graph.ranks)
    if collective == "alltoall":
        certificate = alltoall.flows(graph, group).certificate()
        value = check_lengths(certificate, topology) * graph.unit
    elif collective == "allreduce":
        value, certificate = parts.bound(graph)
    else:
        limit, _ = sharpened(throughput(graph, collective, root))
        value, certificate = limit.time, limit.certificate
    at = root if collective in ROOTED else None
    least = _least_steps(graph, collective, root, group)
    return Large(topology, collective, at, value, certificate, least, (), time.perf_counter() - begun, topology.notes)


def _pareto(points: list[LargePoint]) -> tuple[LargePoint, ...]:
    kept: list[LargePoint] = []
    for point in sorted(points, key=lambda p: (p.steps, p.bandwidth, p.chunks)):
        if not kept or point.bandwidth < kept[-1].bandwidth:
            kept.append(point)
    return tuple(kept)


def _least_steps(graph: Fabric, collective: str, root: int, group: tuple[np.ndarray, ...]) -> int:
    """The greatest distance that data must go: in ranks entered."""
    name = {"allreduce": "allgather", "alltoall": "allgather"}.get(collective, collective)
    return Shallow(graph.topology, name, (graph.tail, graph.head)).height(root, group)


def _trees(
    graph: Fabric, collective: str, root: int, group: tuple[np.ndarray, ...], notes: list[str], progress: Callable[[str], None]
) -> tuple[Fraction, dict, list[LargePoint]]:  # fmt: skip
    """Points of allgather, reduce-scatter, broadcast and reduce."""
    progress("forest")
    points: list[LargePoint] = []
    try:
        built = build(graph, collective, root, progress=progress)
        limit = built.bound
        if built.gap:
            notes.append(f"the best forest found is {float(built.gap):.1%} slower than the bound")
        points += _depths(Pipeline(built.forest), f"{built.forest.method} forest", limit.time)
    except UndecidedError as error:
        limit = throughput(graph, collective, root)
        notes.append(str(error))
    if collective in ("allgather", "reduce-scatter"):
        points += _direct(graph, collective, progress)
    progress("breadth-first trees")
    shallow = Pipeline(Shallow(graph.topology, collective, (graph.tail, graph.head)).forest(root, group))
    points += _depths(shallow, "breadth-first trees", limit.time)
    return limit.time, limit.certificate, points


def greedy(topology: Topology, collective: str, root: int = 0) -> Iterator[LargePoint]:
    """Points that take neither flows nor a packing: breadth-first and rarest-first, and the least steps by breadth-first trees."""
    topology = topology.live()
    graph = fabric(topology)
    if collective in ("allgather", "reduce-scatter"):
        yield from _direct(graph, collective, lambda text: None)
    group = () if collective in ROOTED else free_group(symmetries(graph), graph.ranks)
    line = Pipeline(Shallow(topology, collective, (graph.tail, graph.head)).forest(root, group))
    steps, bandwidth = line.rate(1)
    yield LargePoint(steps, bandwidth, line.forest.weight, "breadth-first trees", _later(line, 1))


def _depths(line: Pipeline, engine: str, bound: Fraction) -> Iterator[LargePoint]:
    before = None
    for depth in DEPTHS:
        if line.sends(depth) > MOST_SENDS:
            return
        steps, bandwidth = line.rate(depth)
        if before is not None and before - bandwidth < WORTH * bound:
            return
        before = bandwidth
        yield LargePoint(steps, bandwidth, line.forest.weight * depth, f"{engine} x {depth}", _later(line, depth))


def _later(line: Pipeline, depth: int) -> Callable[[], Bulk]:
    return lambda: line.bulk(depth)


def _direct(graph: Fabric, collective: str, progress: Callable[[str], None]) -> Iterator[LargePoint]:
    """Breadth-first broadcast and rarest-first, where ranks are joined by links alone; backwards for reduce-scatter."""
    turned = collective == "reduce-scatter"
    if turned and not _even(graph.topology):
        return
    finish = pipeline.turned if turned else (lambda made: made)
    if breadth.applies(graph):
        progress("breadth-first broadcast")
        found = breadth.Breadth(graph)
        for chunks in sorted({1, 2, 4, found.chunks}):
            if chunks * graph.ranks * len(found.copies.reps) <= MOST_SENDS and chunks <= 64:
                made = finish(found.schedule(chunks))
                yield LargePoint(made.steps, made.bandwidth, made.chunks, "breadth-first broadcast", _kept(made))
    if rarest.applies(graph) and (graph.ranks <= GREEDY or free_group(symmetries(graph), graph.ranks)):
        progress("rarest first")
        made = finish(rarest.schedule(graph))
        yield LargePoint(made.steps, made.bandwidth, made.chunks, "rarest first", _kept(made))


def _kept(made: Bulk) -> Callable[[], Bulk]:
    return lambda: made


def _even(topology: Topology) -> bool:
    """Whether every link has its like in the other direction, and no two have the same ends."""
    width = {(k.src, k.dst): k.bandwidth for k in topology.links}
    return len(width) == len(topology.links) and all(width.get((b, a)) == w for (a, b), w in width.items())


def _allreduce(
    graph: Fabric, collective: str, root: int, group: tuple[np.ndarray, ...], notes: list[str], progress: Callable[[str], None]
) -> tuple[Fraction, dict, list[LargePoint]]:  # fmt: skip
    del collective, root
    bound, certificate = parts.bound(graph)
    points: list[LargePoint] = []
    progress("reduce-scatter and allgather")
    halves = [_lines(graph, name, group, notes, progress) for name in ("reduce-scatter", "allgather")]
    for first in halves[0]:
        for second in halves[1]:
            same = all((a == b).all() for a, b in zip(first.forest.generators, second.forest.generators, strict=False))
            if first.forest.method == second.forest.method and same and len(first.forest.generators) == len(second.forest.generators):
                points += _joined(graph, first, second, bound)
    if graph.ranks <= PACKED and not graph.topology.switches and not graph.topology.limits and _even(graph.topology):
        points += _up_and_down(graph, progress)
    return bound, certificate, points


def _lines(
    graph: Fabric, name: str, group: tuple[np.ndarray, ...], notes: list[str], progress: Callable[[str], None]
) -> list[Pipeline]:  # fmt: skip
    lines = [Pipeline(Shallow(graph.topology, name, (graph.tail, graph.head)).forest(0, group))]
    try:
        lines.append(Pipeline(build(graph, name, progress=progress).forest))
    except UndecidedError as error:
        notes.append(str(error))
    return lines


def _joined(graph: Fabric, first: Pipeline, second: Pipeline, bound: Fraction) -> Iterator[LargePoint]:
    whole = lcm(first.forest.weight, second.forest.weight)
    before = None
    for depth in DEPTHS:
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
            return pipeline.composed(first.bulk(one), second.bulk(two))

        yield LargePoint(s + t, bandwidth, whole * depth * graph.ranks, engine, make)


def _up_and_down(graph: Fabric, progress: Callable[[str], None]) -> Iterator[LargePoint]:
    network = graph.topology.network()
    if not tau.applies(network):
        return
    from synth.collective import collective

    progress("trees up and down")
    forest, task = tau.forest(network), collective("allreduce", network.ranks)
    for depth in (1, 2, 4, 8, 16, 32, 64):
        made = written(graph.topology, tau.schedule(forest, task, depth))
        yield LargePoint(made.steps, made.bandwidth, made.chunks, f"trees up and down x {depth}", _kept(made))


def written(topology: Topology, schedule: Schedule) -> Bulk:
    """An ordinary schedule of a topology without switches as a bulk one."""
    where = {(k.src, k.dst): i for i, k in enumerate(topology.links)}
    rows = [
        (t, s.chunk, where[s.src, s.dst], REDUCE if s.kind == "reduce" else COPY)
        for t, step in enumerate(schedule.steps)
        for s in step.sends
    ]
    table = np.array(rows, np.int64).reshape(-1, 4)
    used, path = np.unique(table[:, 2], return_inverse=True)
    rounds = np.array([step.rounds for step in schedule.steps], np.int64)
    root = schedule.collective.roots[0] if schedule.collective.roots else None
    paths = tuple((int(i),) for i in used)
    return Bulk(topology, schedule.collective.name, root, schedule.chunks, rounds, table[:, 0], table[:, 1], path, table[:, 3], paths)


def _alltoall(
    graph: Fabric, collective: str, root: int, group: tuple[np.ndarray, ...], notes: list[str], progress: Callable[[str], None]
) -> tuple[Fraction, dict, list[LargePoint]]:  # fmt: skip
    del collective, root
    progress("least congestion")
    made = alltoall.flows(graph, group)
    certificate = made.certificate()
    bound = check_lengths(certificate, graph.topology) * graph.unit
    if not bound:
        raise InfeasibleError(f"{graph.name}: nothing limits the alltoall")
    points = []
    kinds = [("least congestion", made)]
    if len(made.sources) * len(graph.src) <= alltoall.SMALL:
        kinds.insert(0, ("shortest ways", alltoall.flows(graph, group, shortest=True)))
    for engine, flows in kinds:
        progress(f"ways of {engine}")
        for ways in _unlike(Alltoall(flows), roomy(flows)):
            for steps in sorted({ways.longest, ways.longest + 2, 2 * ways.longest, 4 * ways.longest}):
                bulk = ways.schedule(steps)
                points.append(LargePoint(bulk.steps, bulk.bandwidth, bulk.chunks, f"flows, {engine}", _kept(bulk)))
    if made.method != "linear program":
        notes.append(f"flows by {made.method}: within {made.congestion / float(bound) - 1:.2%} of the bound")
    return bound, certificate, points


def _unlike(one: Alltoall, other: Alltoall) -> list[Alltoall]:
    return [one] if one.chunks == other.chunks else [one, other]


_KINDS = {**dict.fromkeys(("allgather", "reduce-scatter", "broadcast", "reduce"), _trees), "allreduce": _allreduce, "alltoall": _alltoall}

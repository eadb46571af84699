"""The frontier at scale: a certified bound, and points from the latency end to the bandwidth end by every method that
applies.

engine                     for                                   gives
breadth-first trees        any fabric                            fewest steps
breadth-first broadcast    links from rank to rank               fewest steps, balanced
rarest first               the same                              one-chunk greedy
forest x depth             any fabric                            the optimal rate, pipelined: between the ends
trees up and down          allreduce on equal links both ways    the tree-packing rate, pipelined
trees in and out           allreduce on unlike directions        up to some rank and back from it, pipelined
flows                      alltoall                              least congestion, spread over steps
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np

from synth.checker.certificates.path_lengths import check as check_lengths
from synth.errors import InfeasibleError, UndecidedError, UsageError
from synth.model.scale_frontier import COLLECTIVES, Large, LargePoint
from synth.model.spanning_forest import ROOTED
from synth.model.topology import Topology
from synth.scale import frontier_points
from synth.scale.alltoall import concurrent_flow
from synth.scale.alltoall.flow_decomposition import chunks_of
from synth.scale.alltoall.step_assignment import Alltoall, roomy
from synth.scale.bounds import allreduce_partition
from synth.scale.bounds.multi_cut_lp import multi_cut_bound
from synth.scale.bounds.throughput_cut import Throughput, throughput
from synth.scale.bounds.unreachability import proved
from synth.scale.fabric.automorphisms import free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric, fabric
from synth.scale.forests.bfs_trees import Shallow
from synth.scale.forests.build import build
from synth.scale.forests.pipelining import Pipeline
from synth.scale.search_state import Found
from synth.solvers.processes.deadline import TimeUp, endless, left, until

Group = tuple[np.ndarray, ...]
SEARCH = "a sharper bound"
# What the search for the bound (of an alltoall its flows too) may take of a time limit; the rest is for schedules.
SEARCHED = 0.6
# About the seconds that checking the certificate of an alltoall takes for each link and rank that it looks from.
CHECKED = 2e-8
# Links times ranks that distances are counted from under a time limit: half a second.
HURRIED = 300_000


def frontier(
    topology: Topology, collective: str, root: int = 0, *, progress: Callable[[str], None] = lambda text: None,
    time_limit: float | None = None,
) -> Large:  # fmt: skip
    """The bound and the points. Raises InfeasibleError where a rank cannot be reached, UsageError for other
    collectives.

    After `time_limit` seconds, and on Ctrl-C once there is a bound, it ends with what it has: `Large.open` says what is
    left.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
    begun, topology = time.perf_counter(), topology.live()
    with proved(topology, collective, root), until(time_limit):
        progress("reading the fabric")
        graph = fabric(topology)
        group = free_group(symmetries(graph), graph.ranks)
        found = Found(progress, topology.notes)
        progress("bound")
        _KINDS[collective](graph, collective, root, group, found)
        return _large(graph, collective, root, group, found, begun)


def bound(
    topology: Topology,
    collective: str,
    root: int = 0,
    *,
    time_limit: float | None = None,
    read: dict[str, Fabric] | None = None,
) -> Large:
    """As `frontier`, without points: the bound, its certificate and the least number of steps.

    `read`: the fabric of this topology, by its name, where several bounds are asked for: read by the first, for the
    others.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"flow methods bound {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
    begun, topology = time.perf_counter(), topology.live()
    with proved(topology, collective, root), until(time_limit):
        graph = None if read is None else read.get(topology.name)
        if graph is None:
            graph = fabric(topology)
            if read is not None:
                read[topology.name] = graph
        group = free_group(symmetries(graph), graph.ranks)
        found = Found(lambda text: None, topology.notes)
        if collective == "alltoall":
            _congestion(graph, group, found)
        elif collective == "allreduce":
            _parts(graph, found)
        else:
            limit = _cut(graph, collective, root, found)

            def sharper() -> None:
                best, _ = multi_cut_bound(limit)
                found.bound = best.time, best.certificate

            found.stage(SEARCH, sharper)
        if found.interrupted:
            raise KeyboardInterrupt
        return _large(graph, collective, root, group, found, begun)


def _large(graph: Fabric, collective: str, root: int, group: Group, found: Found, begun: float) -> Large:
    least = _least_steps(graph, collective, root, group, found.interrupted or left() is not None)
    at = root if collective in ROOTED else None
    spent = time.perf_counter() - begun
    return Large(
        graph.topology,
        collective,
        at,
        *found.bound,
        least,
        found.points(),
        spent,
        tuple(found.notes),
        tuple(found.open),
        found.interrupted,
    )


def _least_steps(graph: Fabric, collective: str, root: int, group: Group, hurry: bool) -> int:
    """The greatest distance that data must go: in ranks entered. In a `hurry` from fewer ranks, the same ones whatever
    the clock says."""
    name = {"allreduce": "allgather", "alltoall": "allgather"}.get(collective, collective)
    most = max(1, HURRIED // max(1, len(graph.tail))) if hurry else None
    return Shallow(graph.topology, name, (graph.tail, graph.head)).height(root, group, most)


def _part() -> AbstractContextManager[None]:
    time = left()
    return until(None if time is None else time * SEARCHED)


def _cut(graph: Fabric, collective: str, root: int, found: Found):
    limit = throughput(graph, collective, root)
    found.bound = limit.time, limit.certificate
    if not limit.whole:
        found.cut(SEARCH, "ended by the time limit")
    return limit


def _trees(graph: Fabric, collective: str, root: int, group: Group, found: Found) -> None:
    """Points of allgather, reduce-scatter, broadcast and reduce: quick methods first, so that a time limit leaves
    something."""
    with _part():
        limit = _cut(graph, collective, root, found)

    def shallow() -> None:
        line = Pipeline(Shallow(graph.topology, collective, (graph.tail, graph.head)).forest(root, group))
        found.add(frontier_points.depths(line, "breadth-first trees", limit.time), 2)

    def sharper(held: Throughput) -> None:
        found.bound = held.time, held.certificate

    def forest() -> None:
        try:
            built = build(graph, collective, root, progress=found.progress, bound=limit, sharper=sharper)
        except TimeUp:
            raise
        except UndecidedError as error:
            found.notes.append(str(error))
            return
        sharper(built.bound)
        if built.gap:
            found.notes.append(f"the best forest found is {float(built.gap):.1%} slower than the bound")
        found.add(frontier_points.depths(Pipeline(built.forest), f"{built.forest.method} forest", built.bound.time), 0)

    found.stage("breadth-first trees", shallow)
    if collective in ("allgather", "reduce-scatter"):
        found.stage(
            "sends from rank to rank", lambda: found.add(frontier_points.direct(graph, collective, found.progress), 1)
        )
    found.stage("forest", forest)


def greedy(topology: Topology, collective: str, root: int = 0) -> Iterator[LargePoint]:
    """Points that take neither flows nor a packing: breadth-first and rarest-first, and the least steps by
    breadth-first trees."""
    topology = topology.live()
    graph = fabric(topology)
    if collective in ("allgather", "reduce-scatter"):
        yield from frontier_points.direct(graph, collective, lambda text: None)
    group = () if collective in ROOTED else free_group(symmetries(graph), graph.ranks)
    line = Pipeline(Shallow(topology, collective, (graph.tail, graph.head)).forest(root, group))
    steps, bandwidth = line.rate(1)
    yield LargePoint(steps, bandwidth, line.forest.weight, "breadth-first trees", frontier_points.later(line, 1))


def _parts(graph: Fabric, found: Found) -> None:
    value, certificate, short = allreduce_partition.bound(graph)
    found.bound = value, certificate
    if short:
        found.cut(SEARCH, short)


def _allreduce(graph: Fabric, collective: str, root: int, group: Group, found: Found) -> None:
    del collective, root
    with _part():
        _parts(graph, found)
    limit = found.bound[0]

    def shallow() -> None:
        first, second = (
            Pipeline(Shallow(graph.topology, name, (graph.tail, graph.head)).forest(0, group))
            for name in ("reduce-scatter", "allgather")
        )
        found.add(frontier_points.joined(graph, first, second, limit))

    def forests() -> None:
        lines = []
        for name in ("reduce-scatter", "allgather"):
            try:
                lines.append(Pipeline(build(graph, name, progress=found.progress).forest))
            except TimeUp:
                raise
            except UndecidedError as error:
                found.notes.append(str(error))
        if len(lines) == 2 and lines[0].forest.method == lines[1].forest.method:
            found.add(frontier_points.joined(graph, lines[0], lines[1], limit))

    found.stage("reduce-scatter and allgather by breadth-first trees", shallow)
    found.stage("reduce-scatter and allgather by forests", forests)
    found.stage("trees up and down", lambda: found.add(frontier_points.up_and_down(graph)))
    found.stage("trees in and out", lambda: found.add(frontier_points.in_and_out(graph)))


def _congestion(graph: Fabric, group: Group, found: Found) -> concurrent_flow.Flows:
    """Flows of least congestion, whose certificate becomes the bound; where the time is over before, plain lengths, and
    no flows."""
    try:
        with until(_spared(graph, group)):
            made = concurrent_flow.flows(graph, group)
    except (TimeUp, KeyboardInterrupt) as error:
        found.interrupted = isinstance(error, KeyboardInterrupt)
        with endless():
            apart = concurrent_flow.cut_off(graph)
            if apart.certificate is not None:  # a pair that no way joins
                raise apart from None
            made = concurrent_flow.plain(graph, group)
        found.cut(SEARCH, error.ended if isinstance(error, TimeUp) else "interrupted")
    if not made.whole:
        found.cut(SEARCH, "ended by the time limit")
    certificate = made.certificate()
    found.bound = check_lengths(certificate, graph.topology) * graph.unit, certificate
    if not found.bound[0]:
        raise InfeasibleError(f"{graph.name}: nothing limits the alltoall")
    return made


def _spared(graph: Fabric, group: Group) -> float | None:
    """The time that is left but for checking a certificate, which looks at every link from one rank of each orbit."""
    time = left()
    starts = len(np.unique(orbits(graph.ranks, [pi[: graph.ranks] for pi in group])))
    return None if time is None else max(0.0, time - CHECKED * starts * len(graph.tail))


def _alltoall(graph: Fabric, collective: str, root: int, group: Group, found: Found) -> None:
    del collective, root
    found.progress("least congestion")
    with _part():
        made = _congestion(graph, group, found)

    def spread(engine: str, order: int, flows: Callable[[], concurrent_flow.Flows]) -> None:
        chosen = flows()
        for ways in _unlike(chosen):
            for steps in sorted({ways.longest, ways.longest + 2, 2 * ways.longest, 4 * ways.longest}):
                bulk = ways.schedule(steps)
                found.add(
                    [
                        LargePoint(
                            bulk.steps, bulk.bandwidth, bulk.chunks, f"flows, {engine}", frontier_points.kept(bulk)
                        )
                    ],
                    order,
                )

    searched = bool(made.flow.any())
    if searched:
        found.stage("ways of least congestion", lambda: spread("least congestion", 1, lambda: made))
    else:
        found.cut("ways of least congestion", "not tried")
    if len(made.sources) * len(graph.src) <= concurrent_flow.SMALL:
        found.stage(
            "shortest ways",
            lambda: spread("shortest ways", 0, lambda: concurrent_flow.flows(graph, group, shortest=True)),
        )
    if searched and made.method != "linear program":
        found.notes.append(
            f"flows by {made.method}: within {made.congestion / float(found.bound[0]) - 1:.2%} of the bound"
        )


def _unlike(made: concurrent_flow.Flows) -> Iterator[Alltoall]:
    """Ways with few chunks, then, where that is another number, with many; where time is short first those of one
    chunk."""
    if left() is not None and chunks_of(made) > 1:
        yield Alltoall(made, 1)
    one = Alltoall(made)
    yield one
    other = roomy(made, one)
    if other.chunks != one.chunks:
        yield other


_KINDS = {
    **dict.fromkeys(("allgather", "reduce-scatter", "broadcast", "reduce"), _trees),
    "allreduce": _allreduce,
    "alltoall": _alltoall,
}

"""The frontier at scale: a certified bound, and points from fewest steps to least R / C by every applicable method.

engine                     applies to                                   result
phases over boxes          several boxes, no switches                   pipelined phases, groups of chunks by an LP
breadth-first trees        any fabric                                   fewest steps
breadth-first broadcast    links from rank to rank                      fewest steps, balanced loads
rarest first               links from rank to rank                      greedy schedule of one chunk
forest x depth             any fabric                                   optimal rate as the pipelining depth grows
spanning trees          allreduce, equal links in both directions    rate of the spanning-tree packing, pipelined
paired arborescences           allreduce, unequal directions                paired in- and out-arborescences, pipelined
flows                      alltoall                                     least congestion, paths assigned to steps
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
from synth.scale.alltoall.flow_decomposition import chunk_count
from synth.scale.alltoall.step_assignment import AlltoallPaths, with_more_chunks
from synth.scale.bounds import allreduce_partition
from synth.scale.bounds.multi_cut_lp import multi_cut_bound
from synth.scale.bounds.throughput_cut import Throughput, throughput
from synth.scale.bounds.unreachability import with_certificate
from synth.scale.composition.compose import composed_points
from synth.scale.fabric.automorphisms import free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric, fabric
from synth.scale.forests.bfs_trees import BreadthFirstTrees
from synth.scale.forests.build import build
from synth.scale.forests.pipelining import Pipeline
from synth.scale.search_state import SearchState
from synth.solvers.processes.deadline import Deadline, TimeUp, current_deadline, no_time_limit, time_limited

Group = tuple[np.ndarray, ...]
# Name of the stage that searches for a better lower bound.
SEARCH = "a higher bound"
# Fraction of a time limit for the search for the bound, and for the flows of an alltoall. The rest is for schedules.
BOUND_SHARE = 0.6
# Estimated seconds for the check of an alltoall certificate, for each (link, first rank of an orbit).
CHECK_SECONDS = 2e-8
# Limit on the sends of a schedule composed of phases, of which one of each orbit is listed.
MOST_COMPOSED_SENDS = 1 << 24
# Limit on (links) x (ranks that distances are computed from) under a time limit: about half a second.
MOST_DISTANCE_WORK = 300_000


def frontier(
    topology: Topology, collective: str, root: int = 0, *, progress: Callable[[str], None] = lambda text: None,
    time_limit: float | None = None, most_sends: int = MOST_COMPOSED_SENDS,
) -> Large:  # fmt: skip
    """Return the frontier: a certified bound and points.

    `most_sends`: limit on the sends of schedules whose numbers of chunks can be chosen, images included.

    After `time_limit` seconds, and on Ctrl-C once there is a bound, the search ends with its result so far. Then
    `Large.open` lists the stages that were cut short. Raises InfeasibleError where a rank cannot be reached, UsageError
    for other collectives.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
    begun, topology = time.perf_counter(), topology.live()
    with with_certificate(topology, collective, root), time_limited(Deadline.after(time_limit)):
        progress("reading the fabric")
        graph = fabric(topology)
        group = free_group(symmetries(graph), graph.ranks)
        state = SearchState(progress, topology.notes, most_sends)
        progress("bound")
        _KINDS[collective](graph, collective, root, group, state)
        return _large(graph, collective, root, group, state, begun)


def bound(
    topology: Topology,
    collective: str,
    root: int = 0,
    *,
    time_limit: float | None = None,
    read: dict[str, Fabric] | None = None,
) -> Large:
    """Return the frontier without points: the bound, its certificate and the least number of steps.

    `read`: a cache of fabrics by the name of their topology, for callers that compute several bounds. Raises the errors
    of `frontier`.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"flow methods bound {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
    begun, topology = time.perf_counter(), topology.live()
    with with_certificate(topology, collective, root), time_limited(Deadline.after(time_limit)):
        graph = None if read is None else read.get(topology.name)
        if graph is None:
            graph = fabric(topology)
            if read is not None:
                read[topology.name] = graph
        group = free_group(symmetries(graph), graph.ranks)
        state = SearchState(lambda text: None, topology.notes)
        if collective == "alltoall":
            _congestion(graph, group, state)
        elif collective == "allreduce":
            _parts(graph, state)
        else:
            limit = _cut(graph, collective, root, state)

            def improve() -> None:
                best, _ = multi_cut_bound(limit)
                state.bound = best.time, best.certificate

            state.stage(SEARCH, improve)
        if state.interrupted:
            raise KeyboardInterrupt
        return _large(graph, collective, root, group, state, begun)


def _large(graph: Fabric, collective: str, root: int, group: Group, state: SearchState, begun: float) -> Large:
    least = _least_steps(graph, collective, root, group, state.interrupted or current_deadline().limited)
    at = root if collective in ROOTED else None
    spent = time.perf_counter() - begun
    return Large(
        graph.topology,
        collective,
        at,
        *state.bound,
        least,
        state.points(),
        spent,
        tuple(state.notes),
        tuple(state.open),
        state.interrupted,
    )


def _least_steps(graph: Fabric, collective: str, root: int, group: Group, hurry: bool) -> int:
    """Return the greatest distance between ranks that the collective joins, counted in ranks entered.

    In a `hurry` distances from fewer ranks are computed. Their choice does not depend on the clock.
    """
    name = "allgather" if collective in ("allreduce", "alltoall") else collective
    most = max(1, MOST_DISTANCE_WORK // max(1, len(graph.tail))) if hurry else None
    return BreadthFirstTrees(graph.topology, name, (graph.tail, graph.head)).height(root, group, most)


def _part() -> AbstractContextManager[None]:
    """Return the deadline of the search for the bound."""
    return time_limited(current_deadline().share(BOUND_SHARE))


def _cut(graph: Fabric, collective: str, root: int, state: SearchState) -> Throughput:
    """Store the throughput-cut bound in the state, and return it."""
    limit = throughput(graph, collective, root)
    state.bound = limit.time, limit.certificate
    if not limit.whole:
        state.mark_open(SEARCH, "ended by the time limit")
    return limit


def _composed(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    """Search for schedules composed of phases over the boxes."""
    generators = () if collective in ROOTED else group

    def compose() -> None:
        limits = {"same_bits": True, "most_sends": state.most_sends}
        state.add_points(composed_points(graph.topology, collective, root, generators, **limits), 0)

    state.stage("phases over boxes", compose)


def _trees(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    """Search for allgather, reduce-scatter, broadcast and reduce. Quick methods come first, in case of a time limit."""
    with _part():
        limit = _cut(graph, collective, root, state)

    def shallow() -> None:
        line = Pipeline(BreadthFirstTrees(graph.topology, collective, (graph.tail, graph.head)).forest(root, group))
        state.add_points(frontier_points.pipelined_points(line, "breadth-first trees", limit.time), 2)

    def set_bound(better: Throughput) -> None:
        state.bound = better.time, better.certificate

    def forest() -> None:
        try:
            built = build(graph, collective, root, progress=state.progress, bound=limit, on_bound=set_bound)
        except TimeUp:
            raise
        except UndecidedError as error:
            state.notes.append(str(error))
            return
        set_bound(built.bound)
        if built.gap:
            state.notes.append(f"the best forest state is {float(built.gap):.1%} slower than the bound")
        state.add_points(
            frontier_points.pipelined_points(Pipeline(built.forest), f"{built.forest.method} forest", built.bound.time),
            0,
        )

    _composed(graph, collective, root, group, state)
    state.stage("breadth-first trees", shallow)
    if collective in ("allgather", "reduce-scatter"):
        state.stage(
            "sends from rank to rank",
            lambda: state.add_points(frontier_points.greedy_points(graph, collective, state.progress), 1),
        )
    state.stage("forest", forest)


def quick_points(topology: Topology, collective: str, root: int = 0) -> Iterator[LargePoint]:
    """Yield the points of the quick methods: breadth-first broadcast, rarest first and breadth-first trees."""
    topology = topology.live()
    graph = fabric(topology)
    if collective in ("allgather", "reduce-scatter"):
        yield from frontier_points.greedy_points(graph, collective, lambda text: None)
    group = () if collective in ROOTED else free_group(symmetries(graph), graph.ranks)
    line = Pipeline(BreadthFirstTrees(topology, collective, (graph.tail, graph.head)).forest(root, group))
    steps, rounds_per_chunk = line.rate(1)
    yield LargePoint(
        steps, rounds_per_chunk, line.forest.weight, "breadth-first trees", frontier_points.schedule_at_depth(line, 1)
    )


def _parts(graph: Fabric, state: SearchState) -> None:
    value, certificate, short = allreduce_partition.bound(graph)
    state.bound = value, certificate
    if short:
        state.mark_open(SEARCH, short)


def _allreduce(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    with _part():
        _parts(graph, state)
    limit = state.bound[0]

    def shallow() -> None:
        first, second = (
            Pipeline(BreadthFirstTrees(graph.topology, name, (graph.tail, graph.head)).forest(0, group))
            for name in ("reduce-scatter", "allgather")
        )
        state.add_points(frontier_points.scatter_gather_points(graph, first, second, limit))

    def forests() -> None:
        lines = []
        for name in ("reduce-scatter", "allgather"):
            try:
                lines.append(Pipeline(build(graph, name, progress=state.progress).forest))
            except TimeUp:
                raise
            except UndecidedError as error:
                state.notes.append(str(error))
        if len(lines) == 2 and lines[0].forest.method == lines[1].forest.method:
            state.add_points(frontier_points.scatter_gather_points(graph, lines[0], lines[1], limit))

    _composed(graph, collective, root, group, state)
    state.stage("reduce-scatter and allgather by breadth-first trees", shallow)
    state.stage("reduce-scatter and allgather by forests", forests)
    state.stage("spanning trees", lambda: state.add_points(frontier_points.spanning_tree_points(graph)))
    state.stage("paired arborescences", lambda: state.add_points(frontier_points.paired_arborescence_points(graph)))


def _congestion(graph: Fabric, group: Group, state: SearchState) -> concurrent_flow.ConcurrentFlow:
    """Return flows of least congestion and store their bound in the state.

    Where the time is over before, the result has no flows, and the bound is that of lengths without a search.
    """
    try:
        with time_limited(_spared(graph, group)):
            flows = concurrent_flow.least_congestion_flows(graph, group)
    except (TimeUp, KeyboardInterrupt) as error:
        state.interrupted = isinstance(error, KeyboardInterrupt)
        with no_time_limit():
            unreachable = concurrent_flow.unreachable_error(graph)
            if unreachable.certificate is not None:  # one rank cannot reach another
                raise unreachable from None
            flows = concurrent_flow.capacity_lengths(graph, group)
        state.mark_open(SEARCH, error.ended if isinstance(error, TimeUp) else "interrupted")
    if not flows.whole:
        state.mark_open(SEARCH, "ended by the time limit")
    certificate = flows.certificate()
    state.bound = check_lengths(certificate, graph.topology) * graph.unit, certificate
    if not state.bound[0]:
        raise InfeasibleError(f"{graph.name}: nothing limits the alltoall")
    return flows


def _spared(graph: Fabric, group: Group) -> Deadline:
    """Return the ambient deadline, less the seconds for the check of the certificate.

    The check computes distances over all links from one rank of each orbit.
    """
    deadline = current_deadline()
    starts = len(np.unique(orbits(graph.ranks, [pi[: graph.ranks] for pi in group])))
    return Deadline(deadline.end - CHECK_SECONDS * starts * len(graph.tail))


def _alltoall(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    state.progress("least congestion")
    with _part():
        congestion_flows = _congestion(graph, group, state)
    _composed(graph, collective, root, group, state)

    def add(engine: str, order: int, flows: Callable[[], concurrent_flow.ConcurrentFlow]) -> None:
        for paths in _path_sets(flows()):
            for steps in sorted({paths.longest, paths.longest + 2, 2 * paths.longest, 4 * paths.longest}):
                schedule = paths.schedule(steps)
                make = frontier_points.constant(schedule)
                state.add_points(
                    [LargePoint(schedule.steps, schedule.rounds_per_chunk, schedule.chunks, f"flows, {engine}", make)],
                    order,
                )

    searched = bool(congestion_flows.flow.any())
    if searched:
        state.stage("paths of least congestion", lambda: add("least congestion", 1, lambda: congestion_flows))
    else:
        state.mark_open("paths of least congestion", "not tried")
    if len(congestion_flows.sources) * len(graph.src) <= concurrent_flow.SMALL:
        state.stage(
            "shortest paths",
            lambda: add(
                "shortest ways", 0, lambda: concurrent_flow.least_congestion_flows(graph, group, shortest=True)
            ),
        )
    if searched and congestion_flows.method != "linear program":
        gap = congestion_flows.congestion / float(state.bound[0]) - 1
        state.notes.append(f"flows by {congestion_flows.method}: within {gap:.2%} of the bound")


def _path_sets(flows: concurrent_flow.ConcurrentFlow) -> Iterator[AlltoallPaths]:
    """Yield paths of the flows with few chunks, then with many. Under a time limit paths of one chunk come first."""
    if current_deadline().limited and chunk_count(flows) > 1:
        yield AlltoallPaths(flows, 1)
    few = AlltoallPaths(flows)
    yield few
    many = with_more_chunks(flows, few)
    if many.chunks != few.chunks:
        yield many


_KINDS = {
    **dict.fromkeys(("allgather", "reduce-scatter", "broadcast", "reduce"), _trees),
    "allreduce": _allreduce,
    "alltoall": _alltoall,
}

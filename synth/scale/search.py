"""The frontier at scale: a certified bound, and points from fewest steps to least R / C by every applicable method.

construction               applies to                                   result
phases over boxes          several boxes                                pipelined phases and trees, shares by an LP
trees by column generation allreduce in one box, limits or switches     paired in- and out-trees placed in the steps
breadth-first trees        any fabric                                   fewest steps
breadth-first broadcast    links from rank to rank                      fewest steps, balanced loads
forest x depth             any fabric                                   optimal rate as the pipelining depth grows
spanning trees             allreduce, equal links in both directions    rate of the spanning-tree packing, pipelined
flows                      alltoall                                     least congestion, paths assigned to steps
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction

import numpy as np

from synth.checker.certificates.path_lengths import check as check_lengths
from synth.errors import InfeasibleError, UndecidedError, UsageError
from synth.model.compressed_schedule import CompressedSchedule
from synth.model.frontier import Frontier, LowerBound
from synth.model.scale_collectives import COLLECTIVES, ScaleCollective
from synth.model.topology import Topology
from synth.scale.alltoall import concurrent_flow
from synth.scale.alltoall.flow_decomposition import chunk_count
from synth.scale.alltoall.multiplicative_weights import by_weights
from synth.scale.alltoall.step_assignment import AlltoallPaths, with_more_chunks
from synth.scale.bounds import allreduce_partition
from synth.scale.bounds.multi_cut_lp import multi_cut_bound
from synth.scale.bounds.throughput_cut import Throughput, throughput
from synth.scale.bounds.unreachability import with_certificate
from synth.scale.candidate import Candidate
from synth.scale.composition.compose import STEPS, composed_points
from synth.scale.fabric.automorphisms import free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric, fabric
from synth.scale.forests.bfs_trees import BreadthFirstTrees
from synth.scale.forests.build import BoundedForest, build
from synth.scale.forests.pipelining import Pipeline
from synth.scale.forests.spanning_forest import ROOTED, SpanningForest
from synth.scale.frontier_points import greedy_points, pipelined_points, spanning_tree_points
from synth.scale.search_state import OnCandidate, SearchState
from synth.solvers.deadline import NEVER, Deadline, TimeUp, current_deadline, no_time_limit, time_limited

Group = tuple[np.ndarray, ...]
# Name of the stage that searches for a better lower bound.
SEARCH = "a higher bound"


# Fraction of a time limit for the search for the bound, and for the flows of an alltoall. The rest is for schedules.
BOUND_SHARE = 0.6
# Estimated seconds for the check of an alltoall certificate, for each (link, first rank of an orbit). They are kept
# free at the end of a time limit.
CHECK_SECONDS = 2e-8
# Limit on the sends of a schedule composed of phases, of which one of each orbit is listed.
COMPOSED_SENDS = 1 << 25
# The same in one box, whose few ranks need no more chunks to come within about 0.1% of the bound.
ONE_BOX_SENDS = 200_000
# The same for the first such schedules, which are found and replayed within a second.
FIRST_COMPOSED_SENDS = 40_000
# Limit on their steps: in more steps forests are as good, and linear programs take seconds.
FIRST_COMPOSED_STEPS = 12
# Composed schedules of the most steps come before those of fewer where all schedules so far are above the bound by
# more than this fraction.
LONG_FIRST = Fraction(1, 4)
# Phases of multiplicative weights for the first rows of an alltoall, whose bound is then mostly within 5% of the
# best.
QUICK_PHASES = 16
# Limit on (edges) x (sources of flows) of these phases, which take less than a second.
QUICK_FLOWS = 200_000
# Numbers of ranks from and to which forests, built within a second or two, come before phases over boxes. On fewer
# ranks exact synthesis finds better schedules in the time that writing out theirs would take.
FOREST_FIRST = (17, 128)
# Limit on (links) x (ranks that distances are computed from) under a time limit: about half a second.
DISTANCE_WORK = 300_000


class ScaleSearch:
    """The search for the frontier of a collective at scale. It may pause after its quick stages and continue later."""

    def __init__(
        self, topology: Topology, collective: str, root: int = 0, progress: Callable[[str], None] = lambda text: None,
        *, most_sends: int = COMPOSED_SENDS, same_bits: bool = True,
        on_candidate: OnCandidate = lambda bound, candidate: None,
    ) -> None:  # fmt: skip
        """Prepare the search.

        `most_sends`: limit on the sends of schedules whose numbers of chunks can be chosen, images included.
        `same_bits`: only schedules count that leave the same floating-point sums on all ranks. `on_candidate`: called
        with each candidate and the bound so far. Raises UsageError for a collective that flow methods do not know.
        """
        if collective not in COLLECTIVES:
            raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
        self.topology, self.collective, self.root = topology.live(), collective, root
        self.state = SearchState(progress, self.topology.notes, most_sends, same_bits, on_candidate)
        self._graph: Fabric | None = None
        self._group: Group = ()
        self._seconds, self._limited = 0.0, False

    @property
    def bounded(self) -> bool:
        """True once the machine is read and there is a bound."""
        return self._graph is not None and bool(self.state.bound[1] or self.state.pending)

    def advance(self, deadline: Deadline = NEVER) -> None:
        """Run the remaining stages, and those that an earlier deadline ended.

        At the deadline, and on Ctrl-C once there is a bound, it ends with its result so far. Raises InfeasibleError
        where a rank cannot be reached.
        """
        with self._running(deadline):
            self.state.resume()
            while self.state.pending:
                self.state.advance()

    def advance_quickly(self) -> bool:
        """Compute the bound; from the second call on, run the next stage if it is quick, and return False if it is not.

        It is False at the ambient deadline, too. Raises InfeasibleError where a rank cannot be reached.
        """
        bounded = self._graph is not None
        with self._running(NEVER):
            if not bounded:
                return True
            if current_deadline().over or not self.state.pending or not self.state.pending[0].quick:
                return False
            self.state.advance()
        return True

    @contextmanager
    def _running(self, deadline: Deadline) -> Iterator[None]:
        """Count the seconds of the block, which ends at the deadline. The bound is computed before, if it is not yet.

        The stages are planned with it.
        """
        begun, self._limited = time.perf_counter(), self._limited or deadline.limited
        with with_certificate(self.topology, self.collective, self.root), time_limited(deadline):
            if self._graph is None:
                self.state.progress("reading the fabric")
                self._graph = fabric(self.topology)
                self._group = free_group(symmetries(self._graph), self._graph.ranks)
                self.state.progress("a bound for any number of steps")
                _KINDS[self.collective](self._graph, self.collective, self.root, self._group, self.state)
            yield
        self._seconds += time.perf_counter() - begun

    def frontier(self) -> Frontier:
        """Return the frontier of the stages so far. `Frontier.unfinished` lists those that were cut short."""
        assert self._graph is not None  # `advance` has read it
        with with_certificate(self.topology, self.collective, self.root):
            return _large(
                self._graph, self.collective, self.root, self._group, self.state, self._seconds, self._limited
            )


def frontier(
    topology: Topology, collective: str, root: int = 0, *, progress: Callable[[str], None] = lambda text: None,
    time_limit: float | None = None, on_candidate: OnCandidate = lambda bound, candidate: None,
) -> Frontier:  # fmt: skip
    """Return the frontier: a certified bound and points.

    `on_candidate`: called with each candidate and the bound so far.

    After `time_limit` seconds, and on Ctrl-C once there is a bound, the search ends with its result so far. Then
    `Frontier.unfinished` lists the stages that were cut short. Raises InfeasibleError where a rank cannot be
    reached, UsageError for other collectives.
    """
    search = ScaleSearch(topology, collective, root, progress, on_candidate=on_candidate)
    search.advance(Deadline.after(time_limit))
    return search.frontier()


def bound(topology: Topology, collective: str, root: int = 0, *, time_limit: float | None = None) -> Frontier:
    """Return the frontier without points: the bound, its certificate and the least number of steps.

    Raises the errors of `frontier`.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"flow methods bound {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
    begun, topology = time.perf_counter(), topology.live()
    with with_certificate(topology, collective, root), time_limited(Deadline.after(time_limit)):
        graph = fabric(topology)
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
        limited = current_deadline().limited
        return _large(graph, collective, root, group, state, time.perf_counter() - begun, limited)


def _large(
    graph: Fabric, collective: str, root: int, group: Group, state: SearchState, spent: float, limited: bool
) -> Frontier:
    # the greatest distance between ranks that the collective joins; in a hurry from fewer ranks, not by the clock
    most = max(1, DISTANCE_WORK // max(1, len(graph.tail))) if state.interrupted or limited else None
    name = "allgather" if collective in ("allreduce", "alltoall") else collective
    least = BreadthFirstTrees(graph.topology, name).height(root, group, most)
    task = ScaleCollective(collective, graph.topology.ranks, root if collective in ROOTED else None)
    return Frontier.at_scale(
        graph.topology, task, state.points(), LowerBound(*state.bound), least, spent, state.notes, state.open,
        state.interrupted,
    )  # fmt: skip


def _part() -> AbstractContextManager[None]:
    """Return the deadline of the search for the bound."""
    return time_limited(current_deadline().share(BOUND_SHARE))


def _cut(graph: Fabric, collective: str, root: int, state: SearchState) -> Throughput:
    """Store the throughput-cut bound in the state, and return it."""
    limit = throughput(graph, collective, root)
    state.bound = limit.time, limit.certificate
    state.side = frozenset(np.flatnonzero(limit.inside[: graph.ranks]).tolist())
    if not limit.whole:
        state.mark_open(SEARCH, "ended by the time limit")
    return limit


def _plan_composition(graph: Fabric, collective: str, root: int, group: Group, state: SearchState, first: bool) -> None:
    """Plan schedules composed of phases over the boxes: the `first` ones of few chunks, or those of more chunks.

    In one box the latter are trees by column generation.
    """
    one_box = len(set(graph.topology.nodes)) < 2
    few = min(state.most_sends, FIRST_COMPOSED_SENDS)
    if (one_box and (first or collective != "allreduce")) or (not first and few == state.most_sends):
        return
    more = min(state.most_sends, ONE_BOX_SENDS) if one_box else state.most_sends
    step_counts = [steps for steps in STEPS if not first or steps <= FIRST_COMPOSED_STEPS]

    def tried() -> Iterator[int]:
        while step_counts:
            yield step_counts[0]
            del step_counts[0]  # if a time limit ends the search, it goes on after the last one that was done

    def compose() -> None:
        most = STEPS[-1]
        if not first and not one_box and most in step_counts and state.gap(most) > LONG_FIRST:
            step_counts.remove(most)
            step_counts.insert(0, most)
        points = composed_points(
            graph.topology, collective, root, () if collective in ROOTED else group, same_bits=state.same_bits,
            most_sends=few if first else more, priced=not first, step_counts=tried(), bound=state.bound[0],
        )  # fmt: skip
        state.add_points(points)

    name = "phases over boxes" if first else "phases over boxes, in more chunks"
    state.plan("trees by column generation" if one_box else name, compose, quick=first)


def _trees(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    """Search for allgather, reduce-scatter, broadcast and reduce. Quick methods come first, in case of a time limit."""
    with _part():
        limit = _cut(graph, collective, root, state)

    def shallow() -> None:
        line = Pipeline(BreadthFirstTrees(graph.topology, collective).forest(root, group))
        state.add_points(pipelined_points([line], "breadth-first trees", limit.time), 2)

    def set_bound(better: Throughput) -> None:
        state.bound = better.time, better.certificate

    def add_forest(built: BoundedForest) -> None:
        name = f"{built.forest.method} forest"
        state.add_points(pipelined_points([Pipeline(built.forest)], name, built.bound.time))

    def forest() -> None:
        try:
            built = build(
                graph, collective, root, progress=state.progress, bound=limit, on_bound=set_bound, on_forest=add_forest
            )
        except TimeUp:
            raise
        except UndecidedError as error:
            state.notes.append(str(error))
            return
        set_bound(built.bound)
        if built.gap:
            state.notes.append(f"the best forest state is {float(built.gap):.1%} slower than the bound")
        add_forest(built)

    quick = FOREST_FIRST[0] <= graph.ranks <= FOREST_FIRST[1]
    state.plan("breadth-first trees", shallow, quick=True)
    if quick:
        state.plan("forest", forest, quick=True)
    if collective in ("allgather", "reduce-scatter"):
        state.plan(
            "sends from rank to rank",
            lambda: state.add_points(greedy_points(graph, collective, state.progress), 1),
            quick=True,
        )
    for first in (True, False):
        _plan_composition(graph, collective, root, group, state, first)
    if not quick:
        state.plan("forest", forest)


def _parts(graph: Fabric, state: SearchState) -> None:
    value, certificate, short = allreduce_partition.bound(graph)
    state.bound = value, certificate
    if short:
        state.mark_open(SEARCH, short)


def _allreduce(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    with _part():
        _parts(graph, state)
    halves = ("reduce-scatter", "allgather")

    def add(forests: Sequence[SpanningForest]) -> None:
        name = f"reduce-scatter + allgather, {forests[1].method}"
        state.add_points(pipelined_points(list(map(Pipeline, forests)), name, state.bound[0]))

    def shallow() -> None:
        trees = [BreadthFirstTrees(graph.topology, name) for name in halves]
        add([tree.forest(0, group) for tree in trees])

    def forests() -> None:
        found = []
        for name in halves:
            try:
                found.append(build(graph, name, progress=state.progress).forest)
            except TimeUp:
                raise
            except UndecidedError as error:
                state.notes.append(str(error))
        if len(found) == 2 and found[0].method == found[1].method:
            add(found)

    quick = FOREST_FIRST[0] <= graph.ranks <= FOREST_FIRST[1]
    one_box = len(set(graph.topology.nodes)) < 2  # the first schedules are those of forests there
    state.plan("reduce-scatter and allgather by breadth-first trees", shallow, quick=True)
    if quick or one_box:
        state.plan("reduce-scatter and allgather by forests", forests, quick=quick)
    for first in (True, False):
        _plan_composition(graph, collective, root, group, state, first)
    if not (quick or one_box):
        state.plan("reduce-scatter and allgather by forests", forests)
    state.plan("spanning trees", lambda: state.add_points(spanning_tree_points(graph)))


def _congestion(graph: Fabric, group: Group, state: SearchState) -> concurrent_flow.ConcurrentFlow:
    """Return flows of least congestion and store their bound in the state.

    Where the time is over before, the result has no flows, and the bound is that of lengths without a search.
    """
    # the check of the certificate computes distances over all links from one rank of each orbit
    starts = len(np.unique(orbits(graph.ranks, [pi[: graph.ranks] for pi in group])))
    end = current_deadline().end - CHECK_SECONDS * starts * len(graph.tail)
    try:
        with time_limited(Deadline(end)):
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
    _raise_bound(flows, state)
    if not state.bound[0]:
        raise InfeasibleError(f"{graph.name}: nothing limits the alltoall")
    return flows


def _raise_bound(flows: concurrent_flow.ConcurrentFlow, state: SearchState) -> None:
    """Store the bound that the lengths of `flows` certify in the state, where it is greater."""
    certificate = flows.certificate()
    value = check_lengths(certificate, flows.fabric.topology) * flows.fabric.unit
    if value > state.bound[0] or not state.bound[1]:
        state.bound = value, certificate


def _alltoall(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    def add(engine: str, order: int, flows: Callable[[], concurrent_flow.ConcurrentFlow]) -> None:
        for paths in _path_sets(flows()):
            for steps in sorted({paths.longest, paths.longest + 2, 2 * paths.longest, 4 * paths.longest}):
                add_schedule(engine, order, paths.schedule(steps))

    def add_schedule(engine: str, order: int, schedule: CompressedSchedule) -> None:
        state.add_points([Candidate.of(schedule, f"flows, {engine}")], order)

    def route_quickly() -> None:
        flows = by_weights(graph, group, sources, QUICK_PHASES)
        _raise_bound(flows, state)
        _raise_bound(concurrent_flow.capacity_lengths(graph, group), state)
        paths = AlltoallPaths(flows, 1)
        for steps in (paths.longest, 2 * paths.longest):
            add_schedule("few phases of multiplicative weights", 2, paths.schedule(steps))

    def search_flows() -> None:
        try:
            state.progress("least congestion")
            with _part():
                flows = _congestion(graph, group, state)
        except KeyboardInterrupt:
            if not state.bound[1]:
                raise
            state.interrupted = True
            state.mark_open(SEARCH, "interrupted")
            return
        searched = bool(flows.flow.any())
        if searched:
            state.plan("paths of least congestion", lambda: add("least congestion", 1, lambda: flows))
        else:
            state.mark_open("paths of least congestion", "not tried")
        if len(flows.sources) * len(graph.src) <= concurrent_flow.SMALL:
            state.plan(
                "shortest paths",
                lambda: add(
                    "shortest ways", 0, lambda: concurrent_flow.least_congestion_flows(graph, group, shortest=True)
                ),
            )
        if searched and flows.method != "linear program":
            gap = flows.congestion / float(state.bound[0]) - 1
            state.notes.append(f"flows by {flows.method}: within {gap:.2%} of the bound")

    sources = np.unique(orbits(graph.ranks, [pi[: graph.ranks] for pi in group]))
    if len(sources) * len(graph.src) <= QUICK_FLOWS:
        state.plan("paths by few phases of multiplicative weights", route_quickly, quick=True)
    _plan_composition(graph, collective, root, group, state, first=True)
    state.plan(None, search_flows)
    _plan_composition(graph, collective, root, group, state, first=False)


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

"""The frontier at scale: a certified bound, and points from fewest steps to least R / C by every applicable method.

construction               applies to                                   result
phases over boxes          several boxes                                pipelined phases and trees, shares by an LP
trees by column generation allreduce in one box, limits or switches     paired in- and out-trees placed in the steps
breadth-first trees        any fabric                                   fewest steps
breadth-first broadcast    links from rank to rank                      fewest steps, balanced loads
forest x depth             any fabric                                   optimal rate as the pipelining depth grows
flows                      alltoall                                     least congestion, paths assigned to steps
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from synth.checker.certificates.path_lengths import check as check_lengths
from synth.errors import UndecidedError, UsageError
from synth.model.frontier import Frontier, LowerBound
from synth.model.scale_collectives import COLLECTIVES, ROOTED, ScaleCollective
from synth.model.topology import Topology
from synth.scale.alltoall import concurrent_flow
from synth.scale.alltoall.multiplicative_weights import by_weights
from synth.scale.alltoall.step_assignment import path_sets
from synth.scale.bounds import allreduce_partition, unreachability
from synth.scale.bounds.multi_cut_lp import multi_cut_bound
from synth.scale.bounds.throughput_cut import Throughput, throughput
from synth.scale.bounds.unreachability import with_certificate
from synth.scale.candidate import Candidate
from synth.scale.composition.compose import STEPS, composed_points
from synth.scale.fabric.automorphisms import free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric, fabric
from synth.scale.forests.bfs_trees import BreadthFirstTrees
from synth.scale.forests.build import build
from synth.scale.forests.pipelining import Pipeline
from synth.scale.forests.spanning_forest import SpanningForest
from synth.scale.frontier_points import broadcast_points, pipelined_points
from synth.scale.search_state import OnCandidate, SearchState
from synth.solvers.deadline import NEVER, Deadline, TimeUp, current_deadline, time_limited

Group = tuple[np.ndarray, ...]
# Name of the stage that searches for a better lower bound.
SEARCH = "a higher bound"

# Fraction of a time limit for the search for the bound, and for the flows of an alltoall. The rest is for schedules.
BOUND_SHARE = 0.6
# Limit on the sends of a schedule composed of phases, of which one of each orbit is listed.
COMPOSED_SENDS = 1 << 25
# The same in one box, whose few ranks need no more chunks to come within about 0.1% of the bound.
ONE_BOX_SENDS = 200_000
# The same for the first such schedules, which are found and replayed within a second.
FIRST_COMPOSED_SENDS = 40_000
# Limit on their steps: in more steps forests are as good, and linear programs take seconds.
FIRST_COMPOSED_STEPS = 12
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
        *, most_sends: int = COMPOSED_SENDS, same_bits: bool = True, bound_alone: bool = False,
        on_candidate: OnCandidate = lambda bound, candidate: None,
    ) -> None:  # fmt: skip
        """Prepare the search.

        `most_sends`: limit on the sends of schedules whose numbers of chunks can be chosen, images included.
        `same_bits`: only schedules count that leave the same floating-point sums on all ranks. `bound_alone`: no
        schedules are searched for. `on_candidate`: called with each candidate and the bound so far. Raises UsageError
        for a collective that flow methods do not know.
        """
        if collective not in COLLECTIVES:
            raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {collective} use --engine exact")
        self.topology, self.collective, self.root = topology.live(), collective, root
        self.state = SearchState(progress, self.topology.notes, most_sends, same_bits, on_candidate)
        self._plan = _plan_alltoall if collective == "alltoall" else _plan_trees
        if bound_alone:
            self._plan = _plan_bound
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
        """Count the seconds of the block, which ends at the deadline. The first block begins with a bound, and with a
        plan of the stages."""
        begun = time.perf_counter()
        with with_certificate(self.topology, self.collective, self.root), time_limited(deadline):
            self._limited |= current_deadline().limited
            if self._graph is None:
                self.state.progress("reading the fabric")
                self._graph = fabric(self.topology)
                self._group = free_group(symmetries(self._graph), self._graph.ranks)
                self.state.progress("a bound for any number of steps")
                self._plan(self._graph, self.collective, self.root, self._group, self.state)
            yield
        self._seconds += time.perf_counter() - begun

    def frontier(self) -> Frontier:
        """Return the frontier of the stages so far. `Frontier.unfinished` lists those that were cut short."""
        graph, state = self._graph, self.state
        assert graph is not None  # `advance` has read it

        # The least number of steps is the greatest distance between ranks that the collective joins. In a hurry it is
        # computed from fewer ranks, whatever the clock says.
        most = max(1, DISTANCE_WORK // max(1, len(graph.tail))) if state.interrupted or self._limited else None
        name = "allgather" if self.collective in ("allreduce", "alltoall") else self.collective
        with with_certificate(self.topology, self.collective, self.root):
            least = BreadthFirstTrees(graph.topology, name).height(self.root, self._group, most)
        root = self.root if self.collective in ROOTED else None
        task = ScaleCollective(self.collective, graph.topology.ranks, root)
        return Frontier.at_scale(
            graph.topology, task, state.points(), LowerBound(*state.bound), least, self._seconds, state.notes,
            state.open, state.interrupted,
        )  # fmt: skip


def frontier(
    topology: Topology, collective: str, root: int = 0, *, progress: Callable[[str], None] = lambda text: None,
    time_limit: float | None = None,
) -> Frontier:  # fmt: skip
    """Return the frontier: a certified bound and points.

    After `time_limit` seconds, and on Ctrl-C once there is a bound, the search ends with its result so far. Then
    `Frontier.unfinished` lists the stages that were cut short. Raises InfeasibleError where a rank cannot be
    reached, UsageError for other collectives.
    """
    search = ScaleSearch(topology, collective, root, progress)
    search.advance(Deadline.after(time_limit))
    return search.frontier()


def bound(topology: Topology, collective: str, root: int = 0, *, time_limit: float | None = None) -> Frontier:
    """Return the frontier without points: the bound, its certificate and the least number of steps.

    Raises the errors of `frontier`, and KeyboardInterrupt.
    """
    search = ScaleSearch(topology, collective, root, bound_alone=True)
    search.advance(Deadline.after(time_limit))
    if search.state.interrupted:
        raise KeyboardInterrupt
    return search.frontier()


def _plan_bound(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    """Compute the bound, and plan the search for a higher one."""
    if collective == "alltoall":
        unreachability.check(graph.topology, collective)
        _raise_bound(concurrent_flow.capacity_lengths(graph, group), state)

        def search_flows() -> None:
            _congestion(graph, group, state)

        state.plan(SEARCH, search_flows)
        return
    limit = _cut(graph, collective, root, state)
    if limit is not None:

        def improve() -> None:
            best, _ = multi_cut_bound(limit)
            state.bound = best.time, best.certificate

        state.plan(SEARCH, improve)


def _cut(graph: Fabric, collective: str, root: int, state: SearchState) -> Throughput | None:
    """Store the bound of a partition for an allreduce, else that of a throughput cut, which is returned."""
    if collective == "allreduce":
        value, certificate, short = allreduce_partition.bound(graph)
        state.bound = value, certificate
        if short:
            state.mark_open(SEARCH, short)
        return None
    limit = throughput(graph, collective, root)
    state.bound = limit.time, limit.certificate
    state.side = frozenset(np.flatnonzero(limit.inside[: graph.ranks]).tolist())
    if not limit.whole:
        state.mark_open(SEARCH, "ended by the time limit")
    return limit


def _plan_trees(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    """Compute the bound of a collective other than alltoall, and plan the stages.

    Quick methods come first, in case of a time limit. An allreduce by forests is a reduce-scatter and an allgather.
    """
    with time_limited(current_deadline().share(BOUND_SHARE)):
        limit = _cut(graph, collective, root, state)
    halves = ("reduce-scatter", "allgather") if collective == "allreduce" else (collective,)

    def add(forests: Sequence[SpanningForest], order: int = 0) -> None:
        method = forests[-1].method
        name = method if method == "breadth-first trees" else f"{method} forest"
        if len(forests) > 1:
            name = f"reduce-scatter + allgather, {method}"
        state.add_points(pipelined_points(list(map(Pipeline, forests)), name, state.bound[0]), order)

    def shallow() -> None:
        add([BreadthFirstTrees(graph.topology, half).forest(root, group) for half in halves], order=2)

    def set_bound(better: Throughput) -> None:
        state.bound = better.time, better.certificate

    def forests() -> None:
        found = []
        for half in halves:
            try:
                built = build(
                    graph, half, root, progress=state.progress, bound=limit,
                    on_bound=set_bound if limit is not None else lambda better: None,
                    on_forest=lambda forest: add([forest]),
                )  # fmt: skip
            except TimeUp:
                raise
            except UndecidedError as error:
                state.notes.append(str(error))
                return
            found.append(built)
        if limit is not None:
            set_bound(found[0].bound)
            if found[0].gap:
                state.notes.append(f"the best forest is {float(found[0].gap):.1%} slower than the bound")
        if found[0].forest.method == found[-1].forest.method != "re-rooted":
            add([built.forest for built in found])

    quick = FOREST_FIRST[0] <= graph.ranks <= FOREST_FIRST[1]
    state.plan("breadth-first trees", shallow, quick=True)
    if quick:
        state.plan("forests", forests, quick=True)
    if collective in ("allgather", "reduce-scatter"):
        state.plan(
            "sends from rank to rank",
            lambda: state.add_points(broadcast_points(graph, collective), 1),
            quick=True,
        )
    _plan_composition(graph, collective, root, group, state, first=True)
    if not quick:
        state.plan("forests", forests)
    _plan_composition(graph, collective, root, group, state, first=False)


def _plan_composition(graph: Fabric, collective: str, root: int, group: Group, state: SearchState, first: bool) -> None:
    """Plan schedules composed of phases over the boxes: the `first` ones of few chunks, or those of more chunks.

    In one box the latter are trees by column generation.
    """
    one_box = len(set(graph.topology.nodes)) < 2
    few = min(state.most_sends, FIRST_COMPOSED_SENDS)
    if (one_box and (first or collective != "allreduce")) or (not first and few == state.most_sends):
        return
    name, most = "phases over boxes, in more chunks", state.most_sends
    if first:
        name, most = "phases over boxes", few
    elif one_box:
        name, most = "trees by column generation", min(most, ONE_BOX_SENDS)
    step_counts = [steps for steps in STEPS if not first or steps <= FIRST_COMPOSED_STEPS]

    def tried() -> Iterator[int]:
        while step_counts:
            yield step_counts[0]
            del step_counts[0]  # if a time limit ends the search, it goes on after the last one that was done

    def compose() -> None:
        points = composed_points(
            graph.topology, collective, root, () if collective in ROOTED else group, same_bits=state.same_bits,
            most_sends=most, priced=not first, step_counts=tried(), bound=state.bound[0],
        )  # fmt: skip
        state.add_points(points)

    state.plan(name, compose, quick=first)


def _plan_alltoall(graph: Fabric, collective: str, root: int, group: Group, state: SearchState) -> None:
    """Compute a first bound of an alltoall, and plan the stages."""
    unreachability.check(graph.topology, collective)
    _raise_bound(concurrent_flow.capacity_lengths(graph, group), state)
    sources = np.unique(orbits(graph.ranks, [pi[: graph.ranks] for pi in group]))
    size = len(sources) * len(graph.src)

    def add(engine: str, order: int, flows: concurrent_flow.ConcurrentFlow, few_chunks: bool = False) -> None:
        for paths in path_sets(flows, few_chunks):
            for steps in sorted({paths.longest, paths.longest + 2, 2 * paths.longest, 4 * paths.longest}):
                state.add_points([Candidate.of(paths.schedule(steps), f"flows, {engine}")], order)

    def route_quickly() -> None:
        flows = by_weights(graph, group, sources, QUICK_PHASES)
        _raise_bound(flows, state)
        add("few phases of multiplicative weights", 2, flows, few_chunks=True)

    def search_flows() -> None:
        with time_limited(current_deadline().share(BOUND_SHARE)):
            flows = _congestion(graph, group, state)
        state.plan("paths of least congestion", lambda: add("least congestion", 1, flows))
        if flows.method != "linear program":
            gap = flows.congestion / float(state.bound[0]) - 1
            state.notes.append(f"flows by {flows.method}: within {gap:.2%} of the bound")

    def route_shortest() -> None:
        add("shortest paths", 0, concurrent_flow.least_congestion_flows(graph, group, shortest=True))

    if size <= QUICK_FLOWS:
        state.plan("paths by few phases of multiplicative weights", route_quickly, quick=True)
    _plan_composition(graph, collective, root, group, state, first=True)
    state.plan(SEARCH, search_flows)
    _plan_composition(graph, collective, root, group, state, first=False)
    if size <= concurrent_flow.SMALL:
        state.plan("shortest paths", route_shortest)


def _congestion(graph: Fabric, group: Group, state: SearchState) -> concurrent_flow.ConcurrentFlow:
    """Return flows of least congestion, and store the bound that their lengths certify."""
    flows = concurrent_flow.least_congestion_flows(graph, group)
    if not flows.whole:
        state.mark_open(SEARCH, "ended by the time limit")
    _raise_bound(flows, state)
    return flows


def _raise_bound(flows: concurrent_flow.ConcurrentFlow, state: SearchState) -> None:
    """Store the bound that the lengths of `flows` certify in the state, where it is greater."""
    certificate = flows.certificate()
    value = check_lengths(certificate, flows.fabric.topology) * flows.fabric.unit
    if value > state.bound[0]:
        state.bound = value, certificate

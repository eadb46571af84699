"""Bounds and rows that need no search: cuts, partitions, direct sends, composed messages, programs of the library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from synth.encodings.bounds.single_cut import single_cut_bound
from synth.encodings.engine import FrontierProblem
from synth.errors import SynthError, UsageError
from synth.model.collective import Collective, collective
from synth.model.frontier import LowerBound, Point
from synth.model.scale_collectives import COLLECTIVES as SCALE_COLLECTIVES
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network, Topology
from synth.pareto.found import Found
from synth.pareto.written_points import FEW_SENDS
from synth.solvers.deadline import Deadline

# Messages are composed until R/C is above the bound by no more than this fraction.
ENOUGH = Fraction(1, 100)
# Ranks up to which programs of the library are tried: scale methods have better rows of more ranks in the time that
# programs of so many sends take.
PROGRAM_RANKS = 16


@dataclass(frozen=True)
class SingleCut:
    """The best of the cuts around a rank, a box, or what symmetries and widths single out."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True."""
        return True

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[LowerBound]:
        """Yield the bound."""
        yield single_cut_bound(problem.network, problem.collective)


@dataclass(frozen=True)
class AllreducePartition:
    """The best partition of the ranks for an allreduce, of one box; flow methods have that of several boxes."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True for an allreduce in one box."""
        return problem.collective.name == "allreduce" and not problem.several_boxes

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[LowerBound]:
        """Yield the bound, if there is one."""
        bound = allreduce_parts_bound(problem.machine, problem.network, problem.collective)
        if bound is not None:
            yield bound


def allreduce_parts_bound(machine: Topology, network: Network, task: Collective) -> LowerBound | None:
    """Return the bound on an allreduce by the best partition of the ranks, which scale methods find.

    None for other collectives, where switches multicast, for machines that scale methods do not take, and where the
    time is over.
    """
    if task.name != "allreduce" or network.ranks < 2 or network.multicast:
        return None
    from synth.scale.bounds.allreduce_partition import partition
    from synth.scale.fabric.fabric import fabric

    try:
        _, certificate, _ = partition(fabric(machine.live()))
    except SynthError:
        return None
    return bound_of_parts(network, task, certificate)


def bound_of_parts(network: Network, task: Collective, certificate: dict) -> LowerBound:
    """Return the bound on an allreduce by the partition of a certificate at scale, whose regions have switches, too."""
    from synth.encodings.bounds.partition import partition_bound

    ranks = frozenset(range(network.ranks))
    parts = [sorted(ranks.intersection(region)) for region in certificate["regions"]]
    return partition_bound(network, task, parts)


@dataclass(frozen=True)
class DirectSends:
    """Direct sends, of collectives of few units and ranks."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True where the schedule is short enough for a first row."""
        return few_sends(problem.collective)

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point]:
        """Yield the point, if there is one."""
        schedule = direct_schedule(problem.network, problem.collective)
        if schedule is not None:
            yield Point.of(schedule, found.floor, "direct sends")


def few_sends(task: Collective) -> bool:
    """Return True where direct sends are few."""
    return sum(map(len, (*task.pre, *task.post))) <= FEW_SENDS


def direct_schedule(network: Network, task: Collective) -> Schedule | None:
    """Return the schedule of one chunk a unit in which every send follows a shortest path.

    Of several shortest paths each send takes that of the least load so far. A collective that sums to one rank a unit
    is the time reversal of one that copies. An allreduce is a reduce-scatter and an allgather, of one chunk a rank.
    None for other sums, and where nothing is to be sent.
    """
    if task.name == "allreduce":
        gathers = collective("allgather", network.ranks)
        sums = Schedule(network, gathers, 1, _shortest_path_steps(network.reversed(), gathers))
        copies = Schedule(network, gathers, 1, _shortest_path_steps(network, gathers))
        if not copies.steps:
            return None
        from synth.pareto.combining.rs_ag_composition import compose

        return compose(sums, copies, task)
    if task.combining and not task.reversible:
        return None
    forwards = (network.reversed(), task.reversed()) if task.combining else (network, task)
    steps = _shortest_path_steps(*forwards)
    if not steps:
        return None
    schedule = Schedule(*forwards, 1, steps)
    if task.combining:
        schedule = Schedule(network, task, 1, schedule.reversed().steps)
    return schedule


def _shortest_path_steps(network: Network, task: Collective) -> tuple[Step, ...]:
    """Return the steps of `task`, which copies: hop h of every path is in step h."""
    sends: list[list[Send]] = []
    loads: Counter[tuple[int, str, int]] = Counter()  # by step and link or limit, in sends
    for unit in range(task.units):
        distances = network.distances_from(sorted(task.pre[unit]))
        reached = set(task.pre[unit])
        for destination in sorted(task.post[unit] - reached, key=lambda rank: -(distances[rank] or 0)):
            rank = destination
            while rank not in reached:
                step = (distances[rank] or 0) - 1
                route = _least_loaded(network, rank, step, distances, loads)
                link = network.routes[route]
                sends += [[] for _ in range(step + 1 - len(sends))]
                sends[step].append(Send(unit, link.src, rank, "copy", link.via))
                loads[step, "link", route] += 1
                loads.update((step, "limit", k) for k in network.caps_of[route])
                reached.add(rank)
                rank = link.src
    rounds = [1] * len(sends)
    for (step, kind, k), load in loads.items():
        units = network.routes[k].units if kind == "link" else network.caps[k].units
        rounds[step] = max(rounds[step], ceil(load / units))
    return tuple(Step(r, tuple(sorted(row))) for r, row in zip(rounds, sends, strict=True))


def _least_loaded(
    network: Network, rank: int, step: int, distances: list[int | None], loads: Counter[tuple[int, str, int]]
) -> int:
    """Return the route into `rank` from one hop nearer to the holders whose load at `step` is least."""

    def load(route: int) -> float:
        link = loads[step, "link", route] / network.routes[route].units
        return max([link, *(loads[step, "limit", k] / network.caps[k].units for k in network.caps_of[route])])

    nearer = [i for i in network.into[rank] if distances[network.routes[i].src] == step]
    return min(nearer, key=load)


@dataclass(frozen=True)
class ComposedMessages:
    """Messages over several boxes; an alltoall of these is one of the flow methods."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True for messages on several boxes."""
        task = problem.collective
        if not problem.several_boxes or task.combining or task.name == "alltoall" or not few_sends(task):
            return False
        return all(len(post - pre) < 2 for pre, post in zip(task.pre, task.post, strict=True))

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point]:
        """Yield points, each of fewer rounds per chunk than those with no more steps, until one is near the bound."""
        enough = found.floor.value / (1 - ENOUGH)
        if any(rate <= enough for _, rate in found.rates):
            return
        from synth.scale.composition.compose import composed_messages

        network, task, machine = problem.network, problem.collective, problem.machine.live()
        known = list(found.rates)
        for candidate in composed_messages(machine, task, most_sends=FEW_SENDS, known=known, enough=enough):
            schedule = Schedule(network, task, candidate.chunks, candidate.make().written_out(task).steps)
            yield Point.of(schedule, found.floor, candidate.construction)


@dataclass(frozen=True)
class LibraryPrograms:
    """The library's programs: on few ranks, and of collectives that flow methods do not know, such as scans.

    Those of an alltoall are direct sends again, in other steps.
    """

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True on few ranks, and for other collectives than those of flow methods."""
        name = problem.collective.name
        few = problem.machine.ranks <= PROGRAM_RANKS and name != "alltoall"
        return few or name not in SCALE_COLLECTIVES

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point]:
        """Yield a point of each program that fits."""
        from synth.language.library import LIBRARY

        task = problem.collective
        try:
            if task != collective(task.name, problem.machine.ranks, task.roots):  # other data than the name says
                return
        except UsageError:
            return
        for program in LIBRARY:
            # packed trees take long to find, and are an engine of their own
            if program.collective != task.name or program.name == "packed-trees":
                continue
            try:
                made = program.schedule(problem.machine, task)
            except UsageError:  # no link, or another shape
                continue
            schedule = Schedule(problem.network, task, made.chunks, made.steps)
            yield Point.of(schedule, found.floor, program.name)

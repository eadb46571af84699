"""The first rows of a frontier, by methods without a solver: a bound by cuts beside replayed schedules.

Machines of several boxes have schedules composed of phases over the boxes. Greedy methods and breadth-first trees make
schedules of machines of any size. List scheduling superposes schedules of
single chunks. Every schedule is replayed, so it proves an upper bound on R/C at its number of steps. Where it meets the
lower bound no solver runs. Elsewhere solvers search for better schedules only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, log
from typing import TYPE_CHECKING

from synth.bounds import steps
from synth.checker.schedule import replay
from synth.errors import SynthError, UndecidedError
from synth.frontiers.direct_sends import direct_schedule
from synth.frontiers.settings import SETTINGS
from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology
from synth.pareto.events import Event, Listener
from synth.solvers.processes.deadline import current_deadline

if TYPE_CHECKING:
    from synth.scale.search import ScaleSearch


@dataclass(frozen=True)
class Incumbents:
    """The first rows: a bound for any number of steps, and (method, schedule) pairs.

    `reached`: the least R/C of the methods at any number of steps, also of schedules too long to be written out; None
    where there is none.
    """

    bound: LowerBound
    schedules: tuple[tuple[str, Schedule], ...] = ()
    reached: Fraction | None = None

    def extended(self, method: str, schedule: Schedule) -> Incumbents:
        """Return these incumbents and a further schedule."""
        rate = schedule.rounds_per_chunk
        reached = rate if self.reached is None else min(self.reached, rate)
        return replace(self, schedules=(*self.schedules, (method, schedule)), reached=reached)

    def point(self, method: str, schedule: Schedule) -> Point:
        """Return the point of a replayed schedule, with the bound for any number of steps."""
        status = "optimal" if schedule.rounds_per_chunk == self.bound.value else "best-known"
        return Point.of(schedule, self.bound, status, method, same_bits(schedule))

    def points(self) -> tuple[Point, ...]:
        """Return the points that no other one dominates, by growing steps."""
        points: list[Point] = []
        for method, schedule in sorted(self.schedules, key=lambda row: (len(row[1].steps), row[1].rounds_per_chunk)):
            if not points or schedule.rounds_per_chunk < points[-1].rounds_per_chunk:
                points.append(self.point(method, schedule))
        return tuple(points)

    def frontier(self, machine: Topology, network: Network, task: Collective) -> Frontier:
        """Return the frontier of these points, with an interval left open where they do not meet the bound."""
        points, least = self.points(), steps(network, task)
        best = points[-1].rounds_per_chunk if points else None
        first = points[0].steps if points else int(least.value)
        interval = Open(first, self.bound.value, best, "interrupted", self.bound.certificate)
        return Frontier(
            network, task, points, () if best == self.bound.value else (interval,),
            bounds=((0, least), (None, self.bound)), notes=machine.notes, labels=machine.labels,
        )  # fmt: skip


def announce(incumbents: Incumbents, listener: Listener, earlier: Incumbents | None = None) -> None:
    """Send the bound and the schedules to the listener, but for those of `earlier` incumbents and dominated ones."""
    bound = incumbents.bound
    if earlier is None or bound.value > earlier.bound.value:
        text = f"no schedule takes fewer than {show(bound.value)} rounds per chunk"
        listener(Event("bound", text, None, bound.value))
    start = 0 if earlier is None else len(earlier.schedules)
    for i, (method, schedule) in enumerate(incumbents.schedules[start:], start):
        before = [s.rounds_per_chunk for _, s in incumbents.schedules[:i] if len(s.steps) <= len(schedule.steps)]
        if before and min(before) <= schedule.rounds_per_chunk:
            continue
        point = incumbents.point(method, schedule)
        text = f"S={point.steps}: {show(point.rounds_per_chunk)} rounds per chunk, by {point.construction}"
        listener(Event("point", text, point.steps, bound.value, point))


def scale_search(
    machine: Topology, task: Collective, progress: Callable[[str], None] = lambda text: None, same_bits: bool = False
) -> ScaleSearch | None:
    """Return the search by scale methods for `task`, not yet begun, or None where they do not know it.

    They know the named collectives of equal sizes with one root at most, on machines that they can read (not where a
    link is in two limits on one side).
    """
    from synth.model.scale_collectives import COLLECTIVES
    from synth.scale.fabric.fabric import fabric

    if task.name not in COLLECTIVES or len(task.roots) > 1:
        return None
    if task != named_collective(task.name, machine.ranks, task.roots):
        return None
    from synth.scale.search import ScaleSearch

    root = task.roots[0] if task.roots else 0
    try:
        fabric(machine.live())
    except SynthError:
        return None
    return ScaleSearch(machine, task.name, root, progress, most_sends=SETTINGS.max_written_sends, same_bits=same_bits)


def find_incumbents(
    network: Network, task: Collective, search: ScaleSearch | None, deterministic: bool = False,
    machine: Topology | None = None,
) -> Iterator[Incumbents]:  # fmt: skip
    """Yield the first rows of `task` on `network`: the bound alone, and then all so far after each further schedule.

    `search`: the search by scale methods, whose quick stages are run unless it has come further. `deterministic`: no
    method ends at a time of its own, so that the result is the same each time. `machine`: the topology of `network`,
    which names its boxes. Raises InfeasibleError where data cannot reach a rank.
    """
    from synth.bounds.single_cut import single_cut_bound

    incumbents = Incumbents(single_cut_bound(network, task))
    yield incumbents
    with suppress(UndecidedError):  # the schedules before the end of the time stay
        for method, schedule in _schedules(network, task, incumbents.bound, deterministic, machine):
            incumbents = incumbents.extended(method, schedule)
            yield incumbents
    parts = None if search is None else allreduce_parts_bound(search.topology, network, task)
    if parts is not None and parts.value > incumbents.bound.value:
        incumbents = replace(incumbents, bound=parts)
        yield incumbents
    if search is None or not (network.ranks > SETTINGS.few_ranks or _has_boxes(search.topology)):
        return
    search.advance(quick=True)
    if search.state.side:
        everyone = frozenset(range(network.ranks))
        bound = single_cut_bound(network, task, (search.state.side, everyone - search.state.side))
        incumbents = replace(incumbents, bound=max(incumbents.bound, bound, key=lambda b: b.value))
    yield from with_written_points(incumbents, search, network, task, SETTINGS.max_sends)


def allreduce_parts_bound(machine: Topology, network: Network, task: Collective) -> LowerBound | None:
    """Return the bound on an allreduce by the best partition of the ranks, which scale methods find.

    None for other collectives, where switches multicast, for machines that scale methods do not take, and where the
    time is over.
    """
    if task.name != "allreduce" or network.ranks < 2 or network.multicast:
        return None
    from synth.bounds.partition import partition_bound
    from synth.scale.bounds.allreduce_partition import partition
    from synth.scale.fabric.fabric import fabric

    try:
        _, certificate, _ = partition(fabric(machine.live()))
    except SynthError:
        return None
    ranks = frozenset(range(network.ranks))  # regions have switches, too
    parts = [sorted(ranks.intersection(region)) for region in certificate["regions"]]
    return partition_bound(network, task, parts)


def _has_boxes(machine: Topology) -> bool:
    """Return True where the machine has several boxes, of which one has several ranks."""
    return 1 < len(set(machine.nodes)) < machine.ranks


def _schedules(
    network: Network, task: Collective, bound: LowerBound, deterministic: bool, machine: Topology | None
) -> Iterator[tuple[str, Schedule]]:
    """Yield (method, replayed schedule) of the methods that need no search at scale."""
    if sum(map(len, (*task.pre, *task.post))) <= SETTINGS.max_sends:
        known = []
        direct = direct_schedule(network, task)
        if direct is not None:
            known.append(direct)
            yield "direct sends", direct
        if network.ranks > SETTINGS.few_ranks:
            from synth.frontiers.balanced_paths import balanced_schedules

            for schedule in balanced_schedules(network, task, known, bound.value):
                known.append(schedule)
                yield "balanced paths", schedule
        if machine is not None and _has_boxes(machine) and task.name != "alltoall":
            yield from _composed_messages(machine, network, task, known, bound.value)
    if task.combining and not task.reversible:
        from synth.encodings.prefix_planning import chunk_assembly

        if chunk_assembly.applies(network, task):
            yield from chunk_assembly.schedules(network, task, whole=deterministic)


def _composed_messages(
    machine: Topology, network: Network, task: Collective, known: Sequence[Schedule], bound: Fraction
) -> Iterator[tuple[str, Schedule]]:
    """Yield (method, replayed schedule) of messages composed over the boxes, until one nearly meets `bound`.

    Each has fewer rounds per chunk than those of `known` and earlier ones with no more steps.
    """
    from synth.scale.composition.compose import composed_messages

    enough = bound / (1 - SETTINGS.message_worth)
    rates = [(len(schedule.steps), schedule.rounds_per_chunk) for schedule in known]
    if rates and min(rate for _, rate in rates) <= enough:
        return
    most = SETTINGS.max_sends
    for candidate in composed_messages(machine.live(), task, most_sends=most, known=rates, enough=enough):
        steps = candidate.make().written_out(task).steps
        schedule = Schedule(network, task, candidate.chunks, steps)
        replay.schedule(schedule)
        yield candidate.construction, schedule


def with_written_points(
    incumbents: Incumbents, search: ScaleSearch, network: Network, task: Collective, max_sends: int
) -> Iterator[Incumbents]:
    """Yield the incumbents after each further point of `search` that improves on them, written out and replayed.

    The point of the greatest improvement per send comes first. Points of more than `max_sends` sends are left out, and
    those that would take longer than the time until the ambient deadline. `reached` counts all of them.
    """
    deadline, points = current_deadline(), list(search.state.points())
    rates = [point.rounds_per_chunk for point in points]
    rates += [schedule.rounds_per_chunk for _, schedule in incumbents.schedules]
    incumbents = replace(incumbents, reached=min(rates, default=None))
    yield incumbents

    def gain(point: Point) -> float:
        known = [s.rounds_per_chunk for _, s in incumbents.schedules if len(s.steps) <= point.steps]
        ratio = float(min(known) / point.rounds_per_chunk) if known else inf
        return log(ratio) / least_sends(point, task) if ratio < inf else inf

    while points:
        point = max(points, key=gain)
        points.remove(point)
        sends = least_sends(point, task)
        if gain(point) <= 0 or sends > max_sends or deadline.remaining() <= SETTINGS.seconds_per_send * sends:
            continue
        with suppress(SynthError):
            schedule = written_out(point, network, task, max_sends)
            if schedule is not None:
                incumbents = incumbents.extended(point.construction, schedule)
                yield incumbents


def written_out(point: Point, network: Network, task: Collective, max_sends: int) -> Schedule | None:
    """Return the replayed schedule of a point at scale, or None where it has more sends or is of another problem."""
    if least_sends(point, task) > max_sends:
        return None
    compressed = point.schedule
    if compressed.sends > max_sends:
        return None
    expansion = compressed.written_out()
    if (expansion.collective.pre, expansion.collective.post) != (task.pre, task.post):
        return None
    schedule = Schedule(network, task, expansion.chunks, expansion.steps)
    replay.schedule(schedule)
    return schedule


def least_sends(point: Point, task: Collective) -> int:
    """Return the minimum number of sends of a schedule with the point's chunks.

    Each chunk reaches every rank that lacks it, and each sum needs all inputs.
    """
    pairs = zip(task.pre, task.post, strict=True)
    if not task.combining:
        return point.chunks * sum(len(post - pre) for pre, post in pairs)
    return point.chunks * sum(len(pre) - 1 + max(0, len(post) - 1) for pre, post in pairs)

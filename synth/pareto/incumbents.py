"""The first rows of a frontier, by methods without a solver: a bound by cuts beside replayed schedules.

Machines of several boxes have schedules composed of phases over the boxes. Greedy methods and breadth-first trees make
schedules of machines of any size. On few ranks, and of collectives that these do not know, such as scans, all programs
of the library that fit the machine are rows. Every schedule is replayed, so it proves an upper bound on R/C at its
number of steps. Where it meets the lower bound no solver runs. Elsewhere solvers search for better schedules only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.encodings.bounds import steps
from synth.errors import SynthError, UndecidedError, UsageError, VerificationError, refused
from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.rational import show
from synth.model.scale_collectives import COLLECTIVES as SCALE_COLLECTIVES
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology
from synth.pareto.combining import unvisited_steps
from synth.pareto.direct_sends import direct_schedule
from synth.pareto.events import Event, Listener
from synth.pareto.settings import SETTINGS
from synth.pareto.written_points import PointWriter
from synth.solvers.deadline import check_deadline, current_deadline, time_limited

if TYPE_CHECKING:
    from synth.scale.search import ScaleSearch


@dataclass(frozen=True)
class Incumbents:
    """The schedules found before any search, as (method, schedule) pairs, and a bound for any number of steps.

    `reached`: the least R/C of all schedules of these methods, also of those too long to be written out; None where
    there are none. `notes`: on schedules whose replay fails.
    """

    bound: LowerBound
    schedules: tuple[tuple[str, Schedule], ...] = ()
    reached: Fraction | None = None
    notes: tuple[str, ...] = ()

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
        """Return the frontier of these points, with an interval left open at each S where they do not meet the bound.

        S goes up to the most steps of a point.
        """
        least = steps(network, task)
        first = int(least.value)
        points, open_intervals = [], []
        for item in unvisited_steps.items(self.points(), first - 1, first, None, self.bound, "interrupted"):
            if isinstance(item, Open):
                open_intervals.append(item)
            else:
                points.append(item)
        return Frontier(
            network, task, tuple(points), tuple(open_intervals), bounds=((0, least), (None, self.bound)),
            notes=(*machine.notes, *self.notes), labels=machine.labels,
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

    They know the named collectives of equal sizes with one root at most, on machines whose capacities fit 64 bits.
    """
    from synth.scale.fabric.fabric import fabric

    if task.name not in SCALE_COLLECTIVES or len(task.roots) > 1:
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
    from synth.encodings.bounds.single_cut import single_cut_bound

    incumbents = Incumbents(single_cut_bound(network, task))
    yield incumbents
    method = "direct sends"
    try:
        for method, schedule in _schedules(network, task, incumbents.bound, deterministic, machine):
            incumbents = incumbents.extended(method, schedule)
            yield incumbents
            check_deadline()
    except UndecidedError:
        pass  # the schedules before the end of the time stay
    except VerificationError as error:  # those before a wrong one, too
        incumbents = replace(incumbents, notes=(refused(f"the method after {method}", error),))
        yield incumbents
    if search is None:
        return
    if network.ranks <= SETTINGS.few_ranks and not has_boxes(search.topology):
        parts = allreduce_parts_bound(search.topology, network, task)
        if parts is not None and parts.value > incumbents.bound.value:
            yield replace(incumbents, bound=parts)
        return
    first = True
    while _advanced_quickly(search):
        if first:
            bounds = incumbents.bound, *_bounds_of_search(search, network, task)
            incumbents, first = replace(incumbents, bound=max(bounds, key=lambda bound: bound.value)), False
        incumbents = yield from with_written_points(incumbents, search, network, task, first=True)


def _advanced_quickly(search: ScaleSearch) -> bool:
    """Let a search compute its bound, or run its next quick stage; return False where there is none.

    Each takes at most a share of the time until the ambient deadline, so that there is time to write out its points.
    """
    with time_limited(current_deadline().share(SETTINGS.search_share)):
        return search.advance_quickly()


def _bounds_of_search(search: ScaleSearch, network: Network, task: Collective) -> Iterator[LowerBound]:
    """Yield bounds from the certificate of a search at scale: that of a single cut, or of a partition."""
    from synth.encodings.bounds.single_cut import single_cut_bound

    everyone = frozenset(range(network.ranks))
    if search.state.side:
        yield single_cut_bound(network, task, (search.state.side, everyone - search.state.side))
    _, certificate = search.state.bound
    if "regions" in certificate and not network.multicast:
        yield _parts_bound(network, task, certificate)


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
    return _parts_bound(network, task, certificate)


def _parts_bound(network: Network, task: Collective, certificate: dict) -> LowerBound:
    """Return the bound on an allreduce by the partition of a certificate at scale, whose regions have switches, too."""
    from synth.encodings.bounds.partition import partition_bound

    ranks = frozenset(range(network.ranks))
    parts = [sorted(ranks.intersection(region)) for region in certificate["regions"]]
    return partition_bound(network, task, parts)


def few_direct_sends(network: Network, task: Collective) -> Schedule | None:
    """Return the replayed schedule of direct sends; None where there is none, or it is too long for a first row."""
    return direct_schedule(network, task) if _few_sends(task) else None


def _few_sends(task: Collective) -> bool:
    return sum(map(len, (*task.pre, *task.post))) <= SETTINGS.max_sends


def has_boxes(machine: Topology) -> bool:
    """Return True where the machine has several boxes, of which one has several ranks."""
    return 1 < len(set(machine.nodes)) < machine.ranks


def _schedules(
    network: Network, task: Collective, bound: LowerBound, deterministic: bool, machine: Topology | None
) -> Iterator[tuple[str, Schedule]]:
    """Yield (method, replayed schedule) of the methods that need no search at scale."""
    known: list[Schedule] = []
    few = _few_sends(task)
    direct = few_direct_sends(network, task)
    if direct is not None:
        known.append(direct)
        yield "direct sends", direct
    if machine is not None:
        messages = not task.combining and all(
            len(post - pre) < 2 for pre, post in zip(task.pre, task.post, strict=True)
        )
        if few and has_boxes(machine) and messages and task.name != "alltoall":
            yield from _composed(machine, network, task, known, bound.value / (1 - SETTINGS.message_worth))
    # Scale methods have better rows of many ranks in the time that programs of so many sends take. On few ranks the
    # programs of an alltoall are direct sends again, in other steps.
    few_ranks = network.ranks <= SETTINGS.quick_ranks and task.name != "alltoall"
    if machine is not None and (few_ranks or task.name not in SCALE_COLLECTIVES):
        yield from _library_schedules(machine, network, task)


def _library_schedules(machine: Topology, network: Network, task: Collective) -> Iterator[tuple[str, Schedule]]:
    """Yield (name, replayed schedule) of every program of the library for `task` that fits the machine."""
    from synth.checker.schedule import column_replay
    from synth.language.library import LIBRARY

    for program in LIBRARY:
        # packed trees take long to find, and are an engine of their own
        if program.collective != task.name or program.name == "packed-trees":
            continue
        with suppress(UsageError, VerificationError):  # no link or another shape, or other data than those of the name
            found = program.schedule(machine, task)
            schedule = Schedule(network, task, found.chunks, found.steps)
            column_replay.schedule(schedule)
            yield program.name, schedule
        check_deadline()


def _composed(
    machine: Topology, network: Network, task: Collective, known: Sequence[Schedule], enough: Fraction
) -> Iterator[tuple[str, Schedule]]:
    """Yield (method, replayed schedule) of messages composed over the boxes, until one has at most `enough` rounds per
    chunk.

    Each has fewer than those of `known` and earlier ones with no more steps.
    """
    from synth.checker.schedule import column_replay
    from synth.scale.composition.compose import composed_messages

    rates = [(len(schedule.steps), schedule.rounds_per_chunk) for schedule in known]
    if rates and min(rate for _, rate in rates) <= enough:
        return
    most = SETTINGS.max_sends
    for candidate in composed_messages(machine.live(), task, most_sends=most, known=rates, enough=enough):
        schedule = Schedule(network, task, candidate.chunks, candidate.make().written_out(task).steps)
        column_replay.schedule(schedule)
        yield candidate.construction, schedule


def with_written_points(
    incumbents: Incumbents, search: ScaleSearch, network: Network, task: Collective, *, first: bool
) -> Generator[Incumbents, None, Incumbents]:
    """Yield the incumbents after each further point of `search` that improves on them, written out and replayed.

    Return the last ones. `first`: only short schedules are written out, and those that improve by much. Points
    that would take longer than the time until the ambient deadline are left out. `reached` counts all of them.
    """
    points = search.state.points()
    known = [(len(schedule.steps), schedule.rounds_per_chunk) for _, schedule in incumbents.schedules]
    rates = [rate for _, rate in known]
    rates += [point.rounds_per_chunk for point in points]
    incumbents = replace(incumbents, reached=min(rates, default=None))
    yield incumbents
    most_sends, worth = SETTINGS.max_written_sends, Fraction(0)
    if first:
        most_sends, worth = SETTINGS.max_sends, SETTINGS.worth
    writer = PointWriter(network, task, current_deadline(), most_sends)
    for point, schedule in writer.improvements(points, known, worth):
        known.append((point.steps, point.rounds_per_chunk))
        incumbents = incumbents.extended(point.construction, schedule)
        yield incumbents
    if writer.refused:
        incumbents = replace(incumbents, notes=(*incumbents.notes, *writer.refused))
        yield incumbents
    return incumbents

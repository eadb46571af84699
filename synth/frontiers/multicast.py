"""The frontier of a machine whose switches multicast and reduce, beside the one without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from synth.bounds.distance import steps as least_steps
from synth.bounds.multicast import bound_at_steps, multicast_bound
from synth.checker.documents.exact_frontier import unproved_intervals
from synth.checker.schedule import replay
from synth.encodings.multicast_mixtures import MixtureSearch
from synth.encodings.multicast_pipelining import COLLECTIVES as PIPELINED
from synth.encodings.multicast_pipelining import MulticastPipelining, whole_switch
from synth.errors import SynthError, VerificationError, refused
from synth.frontiers.settings import SETTINGS as FRONTIER
from synth.frontiers.written_points import least_sends, written_out
from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Open, ParetoFrontier, Point
from synth.model.scale_frontier import ScaleFrontier
from synth.model.schedule import Schedule
from synth.model.topology import MULTICAST_NOTE, Network, Topology
from synth.pareto.events import Options, SweepInterrupted
from synth.scale.composition.switch_pipelining import SETTINGS as PIPELINING
from synth.scale.composition.switch_pipelining import SwitchPipelining
from synth.scale.composition.switch_templates import COLLECTIVES, switch_parts, switch_templates
from synth.solvers.processes.deadline import Deadline, TimeUp, time_limited
from synth.solvers.processes.pool import run_in_process

if TYPE_CHECKING:
    F = TypeVar("F", Frontier, ScaleFrontier)

# Maximum number of ranks of a frontier with multicast, whose network lists all routes.
MOST_RANKS = 128


@dataclass(frozen=True)
class MulticastSettings:
    """Numbers of steps, and time.

    `steps`: numbers of steps of pipelined schedules through one switch. The last one comes within 3% of the bound for
    any number. `steps_of_parts`: the same where several parts of the machine have a switch each. `steps_beyond`: steps
    above the least number up to which few ranks have mixtures, where no limit is given. `share`: of a
    time limit, for this frontier, which comes second. `least_seconds`: for it at least, after a limit that is used up.
    `search_share`: the share of its time that may be searched, before schedules are written out and replayed.
    """

    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
    steps_of_parts: tuple[int, ...] = (*range(3, 9), 10, 12, 16, 24, 32, 48, 64)
    steps_beyond: int = 4
    share: float = 0.3
    least_seconds: float = 0.2
    search_share: float = 0.4


SETTINGS = MulticastSettings()


@dataclass
class _Bounds:
    """Bounds with multicast: `floor` for any number of steps, and what was proved for single ones."""

    network: Network
    collective: Collective
    floor: LowerBound
    proved: dict[int, LowerBound] = field(default_factory=dict)

    def at(self, steps: int) -> LowerBound:
        """Return the greatest known bound on R/C at `steps` steps."""
        known = self.proved.get(steps, self.floor)
        return bound_at_steps(self.network, self.collective, steps, known)


@dataclass(frozen=True)
class _Candidate:
    """A schedule of about so many sends that is made when it is asked for.

    `make` returns None where it is too long to write out. `same_bits`: whether sums have the same bits on all ranks, of
    a schedule that has been replayed, else None. `replayed`: `make` returns schedules that have been replayed.
    """

    steps: int
    rounds_per_chunk: Fraction
    sends: int
    construction: str
    make: Callable[[], Schedule | None]
    same_bits: bool | None = None
    replayed: bool = False


def with_multicast(found: F, machine: Topology, collective: Collective, options: Options) -> F:
    """Return `found`, a frontier of `collective` on `machine`, with the one beside it in which its switches multicast.

    It is `found` itself where there is none, and on more than `MOST_RANKS` ranks. Raises SweepInterrupted, with what
    there is of both, on Ctrl-C.
    """
    if not machine.multicast or machine.ranks > MOST_RANKS:
        return found
    notes = tuple(note for note in found.notes if note != MULTICAST_NOTE)
    try:
        beside = multicast_frontier(machine, collective, found, options)
    except SweepInterrupted as stop:
        beside = stop.frontier
        assert isinstance(beside, Frontier)
        raise SweepInterrupted(replace(found, multicast=beside, notes=notes), None) from None
    except KeyboardInterrupt:
        raise SweepInterrupted(found, None) from None
    return found if beside is None else replace(found, multicast=beside, notes=notes)


def multicast_frontier(
    machine: Topology, collective: Collective, plain: ParetoFrontier, options: Options
) -> Frontier | None:
    """Return the frontier with switch sends: pipelined schedules, mixtures of single-chunk schedules on few ranks, and
    the points of `plain` that they do not beat.

    One switch of `machine` that multicasts has ports for all ranks, or parts of the machine have one each, and the
    collective is of `switch_templates.COLLECTIVES`, or there are few ranks; else the answer is None. Every schedule is
    replayed. Limits on steps, chunks and bits of `options` count, and of its time limit what `plain` left. Raises
    InfeasibleError, and SweepInterrupted with the frontier so far on Ctrl-C.
    """
    start = time.monotonic()
    network = machine.multicast_network()
    whole = whole_switch(network) is not None
    search = MixtureSearch(network, collective, options.max_chunks)
    if not network.multicast:
        return None
    steps = least_steps(network, collective)
    if not steps.value:
        return None
    composed = not whole and collective.name in COLLECTIVES
    if not whole and not composed and not search.applies(int(steps.value)):
        return None
    bound = multicast_bound(network, collective)
    bounds = _Bounds(network, collective, bound)
    deadline = Deadline()
    if options.time_limit is not None:
        deadline = deadline.within(options.time_limit - plain.seconds).at_least(SETTINGS.least_seconds)
    candidates = list(_plain_candidates(plain, network, collective))
    stopped, reason = None, ""
    try:
        if whole:
            candidates += _of_one_switch(network, collective, options)
        if composed:
            for count, candidate in _of_parts(machine, network, collective, options, deadline):
                stopped = count
                if candidate is not None:
                    candidates.append(candidate)
            stopped = None
        with time_limited(deadline.share(SETTINGS.search_share)):
            for count, candidate in _of_few_ranks(search, bounds, int(steps.value), candidates, options):
                stopped = count
                if candidate is not None:
                    candidates.append(candidate)
        stopped = None
    except TimeUp:
        reason = "time"
    except KeyboardInterrupt:
        reason = "interrupted"
    notes: list[str] = []
    points, late = _points(candidates, bounds, options, deadline, notes)
    left_open = sorted({*late} if stopped is None else {stopped, *late})
    value = points[-1].rounds_per_chunk if points else None
    undecided: list[Open] = []
    for count in left_open if value != bound.value else []:
        best = min((point.rounds_per_chunk for point in points if point.steps <= count), default=None)
        undecided.append(Open(count, bound.value, best, reason or "time", bound.certificate))
    listed: list[tuple[int | None, LowerBound]] = [(0, steps), (None, bound)]
    reached = {point.steps for point in points}
    listed[1:1] = [(count, proved) for count, proved in sorted(bounds.proved.items()) if count not in reached]
    complete = not undecided and _complete(points, listed, options.max_steps)
    found = Frontier(
        network,
        collective,
        points,
        tuple(undecided),
        complete=complete,
        max_steps=options.max_steps,
        bounds=tuple(listed),
        notes=tuple(notes),
        labels=machine.labels,
        seconds=time.monotonic() - start,
    )
    if reason == "interrupted":
        raise SweepInterrupted(found, None)
    return found


def _plain_candidates(plain: ParetoFrontier, network: Network, collective: Collective) -> Iterator[_Candidate]:
    """Yield the points of `plain`. Those at scale have to be short enough to be written out."""
    for point in plain.points:

        def make(point: Point = point) -> Schedule | None:
            if isinstance(plain, Frontier):
                return replace(point.schedule, network=network)
            try:
                return written_out(point, network, collective, FRONTIER.max_sends)
            except SynthError:
                return None

        exact = isinstance(plain, Frontier)
        sends = least_sends(point, collective)
        if exact or sends <= FRONTIER.max_sends:
            alike = point.same_bits if exact else None
            yield _Candidate(point.steps, point.rounds_per_chunk, sends, point.construction, make, alike, True)


def _of_one_switch(network: Network, collective: Collective, options: Options) -> Iterator[_Candidate]:
    """Yield the schedules through the switch that all ranks have ports at."""
    if collective.name in PIPELINED:
        wanted = (s for s in SETTINGS.steps if options.max_steps is None or s <= options.max_steps)
        family = MulticastPipelining(network, collective, options.max_chunks, options.same_bits)
        for schedule in filter(None, map(family.schedule, wanted)):
            steps, sends = schedule.step_count, schedule.sends
            yield _Candidate(steps, schedule.rounds_per_chunk, sends, "switch multicast", partial(replace, schedule))


def _of_few_ranks(
    search: MixtureSearch, bounds: _Bounds, least: int, known: Sequence[_Candidate], options: Options
) -> Iterator[tuple[int, _Candidate | None]]:
    """Yield for each number of steps that is left undecided by `known` a mixture of single-chunk schedules.

    It adds to `bounds` what is proved. Before the work at a number of steps the number itself is yielded with None.
    Raises TimeUp at the ambient deadline.
    """
    best = None
    call = run_in_process if options.time_limit is not None else _in_this_process
    for count in range(least, 1 + (options.max_steps or least + SETTINGS.steps_beyond)):
        for row in known:
            if row.steps <= count and (row.same_bits or not options.same_bits):
                best = row.rounds_per_chunk if best is None else min(best, row.rounds_per_chunk)
        bound = bounds.at(count)
        if best == bound.value:
            bounds.proved[count] = bound
        elif search.applies(count):
            yield count, None
            found, higher = call(search.at_steps, count, bound.value)
            bounds.proved[count] = higher or bound
            if found is None or (options.same_bits and not same_bits(found)):
                pass
            elif best is None or found.rounds_per_chunk < best:
                best, construction = found.rounds_per_chunk, "mixture of single-chunk schedules"
                yield count, _Candidate(count, best, found.sends, construction, partial(_same, found))
        else:
            return
        if best == bounds.floor.value:
            return


def _in_this_process(call: Callable, *arguments: object) -> Any:
    return call(*arguments)


def _same(schedule: Schedule) -> Schedule:
    return schedule


def _complete(points: Sequence[Point], bounds: Sequence[tuple[int | None, LowerBound]], max_steps: int | None) -> bool:
    """Return True where every point is optimal, and no other one is possible (up to `max_steps`)."""
    if not points or any(point.status != "optimal" for point in points):
        return False
    values = [(steps, bound.value) for steps, bound in bounds]
    ended = any(steps is None and value == points[-1].rounds_per_chunk for steps, value in values)
    until = points[-1].steps if ended else max_steps
    if until is None or (0, points[0].steps) not in values:
        return False
    return not unproved_intervals([(point.steps, point.rounds_per_chunk) for point in points], values, until)


def _of_parts(
    machine: Topology, network: Network, collective: Collective, options: Options, deadline: Deadline
) -> Iterator[tuple[int, _Candidate | None]]:
    """Yield for each number of steps a composed schedule.

    Groups of one template stand for all numbers of steps before few steps are improved. Before the work at a number of
    steps the number itself is yielded with None. Raises TimeUp after its share of the time until the `deadline`.
    """
    parts = switch_parts(network, machine.nodes)
    root = collective.roots[0] if collective.roots else 0
    templates = switch_templates(machine.live(), parts, collective.name, root)
    composition = SwitchPipelining(network, collective, templates, options.max_chunks)
    counts = [s for s in SETTINGS.steps_of_parts if options.max_steps is None or s <= options.max_steps]
    with time_limited(deadline.share(SETTINGS.search_share)):
        for mixed in (False, True):
            best: Fraction | None = None
            for count in counts:
                if mixed and count > PIPELINING.most_steps_mixed:
                    return
                yield count, None
                found = composition.at_steps(count, mixed=mixed)
                if found is not None and (best is None or found.rounds_per_chunk < best):
                    best = found.rounds_per_chunk
                    sends, construction = composition.sends(found), composition.construction(found)
                    yield count, _Candidate(count, best, sends, construction, partial(composition.schedule, found))


def _points(
    candidates: Iterable[_Candidate], bounds: _Bounds, options: Options, deadline: Deadline, notes: list[str]
) -> tuple[tuple[Point[Schedule], ...], list[int]]:
    """Return the points of replayed schedules that no other one dominates; at equal R/C the first of fewest steps.

    Those of few sends are replayed first. After the `deadline` no more are but one of the least R/C. The second value
    has the numbers of steps of those that are left out. `notes` gets one on each schedule whose replay fails.
    """
    rows = sorted(candidates, key=lambda row: (row.steps, row.rounds_per_chunk))
    made: dict[int, Point[Schedule]] = {}  # by the id of the row
    while True:
        front = _nondominated(rows)
        missing = [i for i in front if id(rows[i]) not in made]
        wanted = missing
        if made and deadline.over:
            wanted = [i for i in missing if i == front[-1] or rows[i].same_bits is not None]
        if not wanted:
            break
        i = min(wanted, key=lambda i: rows[i].sends)
        point = None
        try:
            point = _point(rows[i], bounds, options)
        except VerificationError as error:
            notes.append(refused(rows[i].construction, error))
        if point is None:
            del rows[i]
        else:
            made[id(rows[i])] = point
    points = tuple(made[id(rows[i])] for i in front if id(rows[i]) in made)
    return points, [rows[i].steps for i in missing]


def _nondominated(rows: Sequence[_Candidate]) -> list[int]:
    """Return the indices of rows, which are sorted by steps, of fewer R/C than all before."""
    front: list[int] = []
    for i, row in enumerate(rows):
        if not front or row.rounds_per_chunk < rows[front[-1]].rounds_per_chunk:
            front.append(i)
    return front


def _point(candidate: _Candidate, bounds: _Bounds, options: Options) -> Point[Schedule] | None:
    """Return the point of the candidate's replayed schedule, or None where it is none, or not of the `options`."""
    schedule = candidate.make()
    if schedule is None:
        return None
    alike = candidate.same_bits
    if alike is None:
        alike = same_bits(schedule)
    if not candidate.replayed:
        replay.schedule(schedule)
    if options.same_bits and not alike:
        return None
    bound = bounds.at(schedule.step_count)
    status = "optimal" if schedule.rounds_per_chunk == bound.value else "best-known"
    return Point.of(schedule, bound, status, candidate.construction, alike)

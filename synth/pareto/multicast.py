"""Points of a frontier whose schedules pass switches that multicast and reduce (NVLS, SHARP)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from synth.checker.documents.exact_frontier import unproved_intervals
from synth.checker.schedule import replay
from synth.encodings.bounds.distance import steps as least_steps
from synth.encodings.bounds.multicast import bound_at_steps, multicast_bound
from synth.encodings.multicast_pipelining import COLLECTIVES, MulticastPipelining, whole_switch
from synth.errors import SynthError, VerificationError, refused
from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.scale_frontier import ScaleFrontier
from synth.model.schedule import Schedule
from synth.model.topology import MULTICAST_NOTE, Network, Topology
from synth.pareto.events import Options, SweepInterrupted
from synth.pareto.settings import SETTINGS
from synth.pareto.written_points import least_sends, written_out
from synth.scale.composition.switch_boxes import SwitchBoxes
from synth.solvers.deadline import Deadline

# Maximum number of ranks of a frontier with multicast, whose network lists all routes.
MOST_RANKS = 128
# Numbers of steps of pipelined schedules. The last one comes within 3% of the bound in one box, and within 5% in two.
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
# Share of a time limit for these points, which come last; seconds for them at least, after a limit that is used up.
SHARE, LEAST_SECONDS = 0.3, 0.2
LABEL = "switch: "
NOTE = f"points marked `{LABEL.strip()}` multicast and reduce in switches (NVLS); --no-multicast leaves them out"


class _Row(NamedTuple):
    """A schedule of about so many sends that is made when it is asked for; None where it is too long to write out."""

    steps: int
    rounds_per_chunk: Fraction
    sends: int
    construction: str
    make: Callable[[], Schedule | None]


def applies(machine: Topology, collective: Collective) -> bool:
    """Return True if schedules of the collective pass the switches of `machine`."""
    return bool(machine.multicast) and machine.ranks <= MOST_RANKS and collective.name in COLLECTIVES


def with_multicast(
    found: Frontier | ScaleFrontier, machine: Topology, collective: Collective, options: Options
) -> Frontier | ScaleFrontier:
    """Return the frontier of `collective` on `machine` with the points of `found` and of schedules through switches.

    It is `found` itself where no schedule passes a switch that multicasts. Its bounds hold for schedules with and
    without such sends. Every schedule is replayed. Limits on steps, chunks and bits of `options` count, and of its time
    limit what `found` left. Raises SweepInterrupted, with the points so far, on Ctrl-C.
    """
    if not applies(machine, collective):
        return found
    start = time.monotonic()
    deadline = Deadline()
    if options.time_limit is not None:
        deadline = deadline.within(options.time_limit - found.seconds).at_least(LEAST_SECONDS)
    network = machine.multicast_network()
    try:
        switched = list(_through_switches(machine, network, collective, options))
    except KeyboardInterrupt:
        raise SweepInterrupted(found, None) from None
    if not switched:
        return found
    floor = multicast_bound(network, collective)

    rows = sorted([*_rows(found, network, collective, options), *switched], key=lambda row: row[:2])

    # points at scale that are too long to be written out beside these: the side with the best rate stays
    best = min((point.rounds_per_chunk for point in found.points), default=None)
    if isinstance(found, ScaleFrontier) and best is not None and best < min(row.rounds_per_chunk for row in rows):
        return found

    # replay the rows that no other one dominates, those of few sends first; what fails its replay dominates none
    made: dict[int, Point[Schedule]] = {}  # by the id of the row
    notes, interrupted = [NOTE], False
    while True:
        front: list[_Row] = []
        for row in rows:
            if not front or row.rounds_per_chunk < front[-1].rounds_per_chunk:
                front.append(row)
        missing = [row for row in front if id(row) not in made]
        in_time = [row for row in missing if not made or not deadline.over or row is front[-1]]
        if interrupted or not in_time:
            break
        row = min(in_time, key=lambda row: row.sends)
        try:
            schedule = row.make()
            if schedule is not None:
                replay.schedule(schedule)
                point = _point(schedule, row.construction, floor)
                if point.same_bits or not options.same_bits:
                    made[id(row)] = point
        except VerificationError as error:
            notes.append(refused(row.construction, error))
        except KeyboardInterrupt:
            interrupted = True
        if id(row) not in made:
            rows = [other for other in rows if other is not row]
    points = [made[id(row)] for row in front if id(row) in made]
    late = len(missing)
    if late:
        notes.append(f"the time ended before all points were replayed, {late} of them; a longer --time-limit has more")

    bounds = ((0, least_steps(network, collective)), (None, floor))
    complete = not late and _complete(points, bounds, options.max_steps)
    kept = tuple(note for note in machine.notes if note != MULTICAST_NOTE)  # the others are on bounds of links alone
    result = Frontier(
        network, collective, tuple(points), () if complete else tuple(_open(found, points, floor)), complete,
        options.max_steps, found.seconds + time.monotonic() - start, bounds, (*kept, *notes), machine.labels,
        found.answers if isinstance(found, Frontier) else (),
    )  # fmt: skip
    if interrupted:
        raise SweepInterrupted(result, None)
    return result


def _rows(
    found: Frontier | ScaleFrontier, network: Network, collective: Collective, options: Options
) -> Iterator[_Row]:
    """Yield the points of `found` that `options` allow. Those at scale have to be short enough to be written out."""
    for point in found.points:

        def make(point: Point = point) -> Schedule | None:
            if isinstance(found, Frontier):
                return replace(point.schedule, network=network)
            try:
                return written_out(point, network, collective, SETTINGS.max_sends)
            except SynthError:
                return None

        sends = least_sends(point, collective)
        allowed = options.allows(point.steps, point.rounds, point.chunks)
        if allowed and (isinstance(found, Frontier) or sends <= SETTINGS.max_sends):
            yield _Row(point.steps, point.rounds_per_chunk, sends, point.construction, make)


def _through_switches(machine: Topology, network: Network, collective: Collective, options: Options) -> Iterator[_Row]:
    """Yield schedules through the switch that all ranks have ports at, or through those of several boxes."""
    counts = [steps for steps in STEPS if options.max_steps is None or steps <= options.max_steps]
    if whole_switch(network) is not None:
        family = MulticastPipelining(network, collective, options.max_chunks)
        for schedule in filter(None, map(family.schedule, counts)):
            make = partial(replace, schedule)
            construction = f"{LABEL}sums and multicasts"
            yield _Row(schedule.step_count, schedule.rounds_per_chunk, schedule.sends, construction, make)
    elif network.multicast and collective.name == "allreduce":
        boxes = SwitchBoxes(machine.live(), network, collective, options.max_chunks, options.same_bits)
        for found in filter(None, map(boxes.at_steps, counts)):
            make, construction = partial(boxes.schedule, found), LABEL + found.template.name
            yield _Row(len(found.rounds), found.rounds_per_chunk, found.sends, construction, make)


def _point(schedule: Schedule, construction: str, floor: LowerBound) -> Point[Schedule]:
    bound = bound_at_steps(schedule.network, schedule.collective, schedule.step_count, floor)
    status = "optimal" if schedule.rounds_per_chunk == bound.value else "best-known"
    return Point.of(schedule, bound, status, construction, same_bits(schedule))


def _open(found: Frontier | ScaleFrontier, points: list[Point[Schedule]], floor: LowerBound) -> Iterator[Open]:
    """Yield the intervals that the search for `found` left open, between the bound and the best point of any kind."""
    intervals = [(interval.steps, interval.reason) for interval in found.open]
    if found.unfinished and points:
        intervals.append((points[-1].steps, "time"))
    for steps, reason in intervals:
        best = min((point.rounds_per_chunk for point in points if point.steps <= steps), default=None)
        if best is None or best > floor.value:
            yield Open(steps, floor.value, best, reason, floor.certificate)


def _complete(
    points: list[Point[Schedule]], bounds: tuple[tuple[int | None, LowerBound], ...], max_steps: int | None
) -> bool:
    """Return True where every point is optimal, and no other one is possible (up to `max_steps`)."""
    if not points or any(point.status != "optimal" for point in points):
        return False
    values = [(steps, bound.value) for steps, bound in bounds]
    ended = values[-1][1] == points[-1].rounds_per_chunk
    until = points[-1].steps if ended else max_steps
    if until is None or values[0][1] != points[0].steps:
        return False
    return not unproved_intervals([(point.steps, point.rounds_per_chunk) for point in points], values, until)

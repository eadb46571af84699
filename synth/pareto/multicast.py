"""Schedules that pass switches that multicast and reduce (NVLS, SHARP), as an engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from synth.encodings.bounds.distance import steps as least_steps
from synth.encodings.engine import FrontierProblem
from synth.errors import SynthError
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.schedule import Schedule
from synth.model.topology import MULTICAST_NOTE
from synth.pareto.found import Found
from synth.pareto.written_points import FEW_SENDS, least_sends, written_out
from synth.solvers.deadline import Deadline

# Collectives that pass switches, and the maximum number of ranks, whose network lists all routes.
COLLECTIVES, MOST_RANKS = ("allreduce", "broadcast", "reduce"), 128
# Numbers of steps of pipelined schedules. The last one comes within 1% of the bound in one box, and within 2% in two.
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 128)
# Share of a time limit for these points, which come last.
SHARE = 0.3
LABEL = "switch: "
NOTE = f"points marked `{LABEL.strip()}` multicast and reduce in switches (NVLS); --no-multicast leaves them out"


class _Row(NamedTuple):
    """A schedule of about so many sends that is made when it is asked for; None where it is too long to write out."""

    steps: int
    rounds_per_chunk: Fraction
    sends: int
    construction: str
    make: Callable[[], Schedule | None]


@dataclass(frozen=True)
class SwitchMulticast:
    """Points of `links`, a frontier without multicasts, beside those of schedules through switches."""

    links: Frontier

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True if such points are asked for, on a machine and for a collective that have any."""
        return applies(problem)

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point | LowerBound]:
        """Yield the bound, and the points that no other one dominates, those of few sends first.

        A point whose replay fails dominates none. After the deadline only the sole point, or the one of least R/C, is
        begun.
        """
        from synth.encodings.bounds.multicast import bound_at_steps, multicast_bound

        switched = list(self._through_switches(problem, found))
        if not switched:
            return
        rows = sorted([*self._without(problem, found), *switched], key=lambda row: row[:2])

        # points at scale that are too long to be written out beside these: the side with the best rate stays
        best = min((point.rounds_per_chunk for point in self.links.points), default=None)
        least = min(row.rounds_per_chunk for row in rows)
        if best is not None and best < least:
            return
        yield multicast_bound(found.network, found.collective)
        found.note(NOTE)
        done: set[int] = set()  # by the id of the row
        while True:
            front: list[_Row] = []
            for row in rows:
                if not front or row.rounds_per_chunk < front[-1].rounds_per_chunk:
                    front.append(row)
            missing = [row for row in front if id(row) not in done]
            in_time = [row for row in missing if not done or not deadline.over or row is front[-1]]
            if not in_time:
                break
            row = min(in_time, key=lambda row: row.sends)
            schedule, before = row.make(), found.points
            if schedule is not None:
                bound = bound_at_steps(found.network, found.collective, schedule.step_count, found.floor)
                yield Point.of(schedule, bound, row.construction)
            if found.points is before:  # it was refused
                rows = [other for other in rows if other is not row]
            else:
                done.add(id(row))
        if missing:
            text = f"the time ended before all points were replayed, {len(missing)} of them"
            found.note(f"{text}; a longer --time-limit has more")

    def _without(self, problem: FrontierProblem, found: Found) -> Iterator[_Row]:
        """Yield the points without multicasts that the options allow. Those at scale have to be short enough."""
        for point in self.links.points:
            make = partial(_on_links, point, found)
            sends = least_sends(point, found.collective)
            allowed = problem.options.allows(point.steps, point.rounds, point.chunks)
            if allowed and (not point.compressed or sends <= FEW_SENDS):
                yield _Row(point.steps, point.rounds_per_chunk, sends, point.construction, make)

    def _through_switches(self, problem: FrontierProblem, found: Found) -> Iterator[_Row]:
        """Yield schedules through the switch that all ranks have ports at, or through those of several boxes."""
        from synth.encodings.multicast_pipelining import MulticastPipelining, whole_switch

        options, network, collective = problem.options, found.network, found.collective
        counts = [steps for steps in STEPS if options.max_steps is None or steps <= options.max_steps]
        if whole_switch(network) is not None:
            family = MulticastPipelining(network, collective, options.max_chunks)
            for schedule in filter(None, map(family.schedule, counts)):
                make = partial(replace, schedule)
                construction = f"{LABEL}sums and multicasts"
                yield _Row(schedule.step_count, schedule.rounds_per_chunk, schedule.sends, construction, make)
        elif network.multicast and collective.name == "allreduce":
            from synth.scale.composition.switch_boxes import SwitchBoxes

            boxes = SwitchBoxes(
                problem.machine.live(), network, collective, options.max_chunks, options.same_bits
            )  # fmt: skip
            for made in filter(None, map(boxes.at_steps, counts)):
                make, construction = partial(boxes.schedule, made), LABEL + made.template.name
                yield _Row(len(made.rounds), made.rounds_per_chunk, made.sends, construction, make)


def applies(problem: FrontierProblem) -> bool:
    """Return True if such points are asked for, on a machine and for a collective that have any.

    They join no frontier of a named encoding or of SCCL's sweep.
    """
    machine, options = problem.machine, problem.options
    fits = bool(machine.multicast) and machine.ranks <= MOST_RANKS and problem.task.name in COLLECTIVES
    return fits and options.multicast and not options.alone


def before(problem: FrontierProblem) -> FrontierProblem:
    """Return the problem over links alone, which comes before these points, with its part of a time limit."""
    options = problem.options
    if options.time_limit is None or not applies(problem):
        return problem
    return replace(problem, options=replace(options, time_limit=options.time_limit * (1 - SHARE)))


def _on_links(point: Point, found: Found) -> Schedule | None:
    """Return the schedule of a point without multicasts on the network with them."""
    if isinstance(point.source, Schedule):
        return replace(point.source, network=found.network)
    try:
        return written_out(point, found.network, found.collective, FEW_SENDS)
    except SynthError:
        return None


def widened(links: Frontier, problem: FrontierProblem) -> Found:
    """Return what is found of `problem` with multicasts before there is anything."""
    found = Found(problem.machine.multicast_network(), problem.collective, problem.options)
    # the others are on bounds of links alone
    found.notes = tuple(note for note in problem.machine.notes if note != MULTICAST_NOTE)
    found.labels, found.started = problem.machine.labels, time.monotonic() - links.seconds
    found.answers = list(links.answers)
    return found


def finished(links: Frontier, found: Found) -> Frontier:
    """Return the frontier of what was found, with the intervals that the search for `links` left open.

    It is complete where every point is optimal, and no other one is possible (up to the most steps allowed). It is
    `links` where nothing was found.
    """
    from synth.checker.documents.exact_frontier import unproved_intervals

    if not found.points:
        return links
    found.bounds = [(0, least_steps(found.network, found.collective))]
    found.last = found.options.max_steps
    result, floor = found.frontier(), found.floor
    points = [(point.steps, point.rounds_per_chunk) for point in result.points]
    if not any("before all points were replayed" in note for note in found.notes):
        ended = floor.value == points[-1][1]
        until = points[-1][0] if ended else found.last
        if until is not None and found.bounds[0][1].value == points[0][0]:
            values = [(steps, bound.value) for steps, bound in result.bounds]
            optimal = all(point.status == "optimal" for point in result.points)
            found.complete = optimal and not unproved_intervals(points, values, until)
    if not found.complete:
        intervals = [(interval.steps, interval.reason) for interval in links.open]
        if links.unfinished:
            intervals.append((points[-1][0], "time"))
        for steps, reason in intervals:
            best = found.best(steps)
            if best is None or best > floor.value:
                found.open.append(Open(steps, floor.value, best, reason, floor.certificate))
    return replace(found.frontier(), max_steps=found.options.max_steps)

"""Merge of both engines' points into one frontier, where exact synthesis left an interval open.

Exact synthesis proves the latency end. Forests and flows reach towards the bandwidth end in seconds. Their schedules
are written out and replayed like any other, and take the bounds that exact synthesis computed. So each point says how
far it may be from the best, and an interval whose bound a flow point meets is closed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from synth.checker.certificates import cuts
from synth.errors import SynthError
from synth.model.bitwise_equality import same_bits
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.pareto.events import Options, SweepInterrupted
from synth.pareto.incumbents import Incumbents
from synth.pareto.notes import drop_unproven_bound
from synth.pareto.settings import SETTINGS
from synth.pareto.written_points import PointWriter
from synth.scale.search import ScaleSearch
from synth.solvers.deadline import NEVER, Deadline

LABEL = "flow: "
UNWRITTEN = "flow methods have"  # begins notes on points that are not written out
BESIDE = "points of the flow methods stand beside those of exact synthesis, where that left something open"
ANY = Options()


def merge_scale_points(
    found: Frontier, search: ScaleSearch, incumbents: Incumbents | None = None, options: Options = ANY,
    deadline: Deadline = NEVER,
) -> Frontier:  # fmt: skip
    """Return the frontier `found` with the points of the scale methods that improve on it.

    It is `found` itself where that has no open interval. The remaining stages of `search` are run first. `incumbents`:
    schedules that are written out already. `options`: limits on the points. After the `deadline` a schedule is
    written out only where there is no point yet. Raises SweepInterrupted with the points so far on Ctrl-C.
    """
    floor = next((bound for steps, bound in found.bounds if steps is None), None)
    if not found.open or floor is None:
        return found
    try:
        search.advance(deadline.share(SETTINGS.search_share))
    except SynthError:
        return found  # exact synthesis has already reported what cannot exist
    points, interrupted = list(found.points), search.state.interrupted
    candidates = [p for p in search.state.points() if options.allows(p.steps, p.rounds, p.chunks)]
    writer = PointWriter(found.network, found.collective, deadline, SETTINGS.max_written_sends, search.state.progress)
    known = [(point.steps, point.rounds_per_chunk) for point in points]

    def add(construction: str, schedule: Schedule) -> None:
        point = bounded_point(schedule, LABEL + construction, found, floor)
        if point.same_bits or not options.same_bits:
            points.append(point)
            known.append((point.steps, point.rounds_per_chunk))

    for _, schedule in incumbents.schedules if incumbents is not None else ():
        rate = len(schedule.steps), schedule.rounds_per_chunk
        same = next((p for p in candidates if (p.steps, p.rounds_per_chunk) == rate), None)
        if same is not None and not any(steps <= rate[0] and least <= rate[1] for steps, least in known):
            add(same.construction, schedule)
    try:
        for candidate, schedule in writer.improvements(candidates, known, one_at_least=True):
            add(candidate.construction, schedule)
    except KeyboardInterrupt:
        interrupted = True
    result = _noted(merged(found, points, BESIDE), writer)
    if interrupted:
        raise SweepInterrupted(result, None)
    return result


def with_incumbents(found: Frontier, incumbents: Incumbents) -> Frontier:
    """Return `found`, of exact synthesis that was interrupted, with the incumbents that improve on it.

    Exact synthesis enters an incumbent when it comes to its number of steps.
    """
    floor = next((bound for steps, bound in found.bounds if steps is None), None)
    if floor is None:
        floor = incumbents.bound
        found = replace(found, bounds=(*found.bounds, (None, floor)))
    points = [bounded_point(schedule, method, found, floor) for method, schedule in incumbents.schedules]
    return merged(found, [*found.points, *points], BESIDE)


def _noted(frontier: Frontier, writer: PointWriter) -> Frontier:
    """Return `frontier` with notes of the points that improve on it but were not written out, and how to get them."""
    best = min((p.rounds_per_chunk for p in frontier.points), default=None)
    notes = [*frontier.notes, *writer.refused]
    for unwritten, why in (
        (writer.too_late, "the time limit came before they were written out"),
        (writer.too_long, "too long to be written out beside these"),
    ):
        better = [p for p in unwritten if best is None or p.rounds_per_chunk < best]
        if better:
            least = min(better, key=lambda p: p.rounds_per_chunk)
            many = f"{len(better)} more point{'s' * (len(better) > 1)}"
            down = f"down to {show(least.rounds_per_chunk)} rounds per chunk in {least.steps} steps"
            notes.insert(max(0, len(frontier.notes) - 1), f"{UNWRITTEN} {many}, {down}: {why}; add --engine flow")
    floor = next((bound.value for steps, bound in frontier.bounds if steps is None), None)
    remaining = drop_unproven_bound(notes, best, floor)
    return frontier if remaining == frontier.notes else replace(frontier, notes=remaining)


def bounded_point(schedule: Schedule, construction: str, found: Frontier, floor: LowerBound) -> Point:
    """Return the point of a replayed schedule with the greatest bound of `found` at its number of steps."""
    bound = _bound(len(schedule.steps), found, floor)
    status = "optimal" if bound.value == schedule.rounds_per_chunk else "best-known"
    return Point.of(schedule, bound, status, construction, same_bits(schedule))


def _bound(steps: int, found: Frontier, floor: LowerBound) -> LowerBound:
    """Return the greatest bound at `steps` whose certificate proves it."""
    known = [floor, *(bound for at, bound in found.bounds if at == steps)]
    known += [LowerBound(o.lower, o.certificate) for o in found.open if o.steps == steps and o.certificate]
    proved = [b for b in known if b is floor or _proves(b, steps, found)]
    return max(proved, key=lambda b: b.value)


def _proves(bound: LowerBound, steps: int, found: Frontier) -> bool:
    try:
        return cuts.check(bound.certificate, found.network, found.collective.document, steps=steps) == bound.value
    except SynthError:
        return False


def merged(found: Frontier, points: list[Point], note: str) -> Frontier:
    """Return `found` with the nondominated `points`, the intervals closed whose bounds these meet, and a note."""
    nondominated: list[Point] = []
    for point in sorted(points, key=lambda p: (p.steps, p.rounds_per_chunk)):
        if not nondominated or point.rounds_per_chunk < nondominated[-1].rounds_per_chunk:
            nondominated.append(point)
    if len(nondominated) == len(found.points) and all(a is b for a, b in zip(nondominated, found.points, strict=True)):
        return found
    open_intervals: list[Open] = []
    bounds = list(found.bounds)
    for interval in found.open:
        upper = min((p.rounds_per_chunk for p in nondominated if p.steps <= interval.steps), default=None)
        if upper == interval.lower and interval.certificate:
            bounds.append((interval.steps, LowerBound(Fraction(interval.lower), interval.certificate)))
        else:
            open_intervals.append(replace(interval, upper=upper))
    max_steps = found.max_steps
    if max_steps is not None and nondominated:
        max_steps = max(max_steps, nondominated[-1].steps)
    return replace(
        found,
        points=tuple(nondominated),
        open=tuple(open_intervals),
        bounds=tuple(bounds),
        notes=(*found.notes, note),
        max_steps=max_steps,
    )

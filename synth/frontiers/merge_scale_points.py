"""Merge of both engines' points into one frontier, where exact synthesis left an interval open.

Exact synthesis proves the latency end. Forests and flows reach towards the bandwidth end in seconds. Their schedules
are written out and replayed like any other, and take the bounds that exact synthesis computed. So each point says how
far it may be from the best, and an interval whose bound a flow point meets is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from synth.checker.certificates import cuts
from synth.checker.schedule import replay
from synth.errors import SynthError
from synth.model.bitwise_equality import same_bits
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.rational import show
from synth.model.scale_frontier import LargePoint
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.pareto.events import SweepInterrupted
from synth.pareto.notes import drop_unproven_bound
from synth.solvers.processes.deadline import Deadline

LABEL = "flow: "
# Maximum number of sends of a schedule that is written out beside those of exact synthesis.
MAX_SENDS = 200_000
# Seconds, about, to write out and replay one send on a busy machine.
SECONDS_PER_SEND = 3e-5


def merge_scale_points(
    found: Frontier, machine: Topology, name: str, root: int = 0, *,
    allows: Callable[[int, int, int], bool] = lambda steps, rounds, chunks: True, alike: bool = False,
    progress: Callable[[str], None] = lambda text: None, time_limit: float | None = None,
) -> Frontier:  # fmt: skip
    """Return the frontier of exact synthesis, `found`, with those points of the flow methods that improve on it.

    A point improves if no point with as few steps has as few rounds per chunk. Its schedule is written out, replayed,
    and bounded by `found`'s bounds. Intervals whose bound it meets are closed. `found` is returned unchanged if it has
    no open interval or no bound for every number of steps.

    `machine`, `name`, `root`: the problem. `allows(steps, rounds, chunks)`: False leaves a point out. `alike`: leave
    out schedules that end with different bits on different ranks. `time_limit`: seconds for all this; a schedule in
    work is finished. Raises SweepInterrupted with the points so far on Ctrl-C.
    """
    floor = next((bound for steps, bound in found.bounds if steps is None), None)
    if not found.open or floor is None:
        return found
    from synth.scale.search import frontier

    deadline = Deadline.after(time_limit)
    try:
        large = frontier(machine, name, root, progress=progress, time_limit=time_limit, most_sends=MAX_SENDS)
    except SynthError:
        return found  # exact synthesis has already reported what cannot exist
    points, interrupted, wrote = list(found.points), large.interrupted, False
    late, long = list[LargePoint](), list[LargePoint]()  # improvements that are not written out
    try:
        for candidate in large.points:
            best = min((p.rounds_per_chunk for p in points if p.steps <= candidate.steps), default=None)
            allowed = allows(candidate.steps, candidate.rounds, candidate.chunks)
            if not allowed or (best is not None and candidate.rounds_per_chunk >= best):
                continue
            sends = _sends(candidate, found)
            if sends > MAX_SENDS:
                long.append(candidate)
                continue
            if wrote and deadline.remaining() <= SECONDS_PER_SEND * sends:
                late.append(candidate)
                continue
            progress(f"writing out {candidate.engine}")
            wrote = True
            point = _point(candidate, found, floor)
            if point is not None and (point.same_bits or not alike):
                points.append(point)
            elif point is None:
                long.append(candidate)
    except KeyboardInterrupt:
        interrupted = True
    merged = _noted(_merged(found, points), late, long)
    if interrupted:
        raise SweepInterrupted(merged, None)
    return merged


def _noted(frontier: Frontier, late: list[LargePoint], long: list[LargePoint]) -> Frontier:
    """Return `frontier` with notes of the points that improve on it but were not written out, and how to get them."""
    best = min((p.rounds_per_chunk for p in frontier.points), default=None)
    notes = list(frontier.notes)
    for unwritten, why in (
        (late, "the time limit came before they were written out"),
        (long, "too long to be written out beside these"),
    ):
        better = [p for p in unwritten if best is None or p.rounds_per_chunk < best]
        if better:
            least = min(better, key=lambda p: p.rounds_per_chunk)
            many = f"{len(better)} more point{'s' * (len(better) > 1)}"
            down = f"down to {show(least.rounds_per_chunk)} rounds per chunk in {least.steps} steps"
            notes.insert(max(0, len(frontier.notes) - 1), f"flow methods have {many}, {down}: {why}; add --engine flow")
    floor = next((bound.value for steps, bound in frontier.bounds if steps is None), None)
    remaining = drop_unproven_bound(notes, best, floor)
    return frontier if remaining == frontier.notes else replace(frontier, notes=remaining)


def _sends(candidate: LargePoint, found: Frontier) -> int:
    """Return the minimum number of sends of a schedule with the candidate's chunks.

    Each chunk reaches every rank that lacks it, and each sum needs all inputs.
    """
    collective = found.collective
    pairs = zip(collective.pre, collective.post, strict=True)
    if not collective.combining:
        return candidate.chunks * sum(len(post - pre) for pre, post in pairs)
    return candidate.chunks * sum(len(pre) - 1 + max(0, len(post) - 1) for pre, post in pairs)


def _point(candidate: LargePoint, found: Frontier, floor: LowerBound) -> Point | None:
    """Return the point with its replayed schedule and its bound, or None where it is too long to write out."""
    from synth.scale.greedy.orbit_expansion import ordinary_schedule as expanded

    try:
        compressed = candidate.make()
        if len(compressed.step) * max(1, compressed.topology.ranks if compressed.generators else 1) > MAX_SENDS:
            return None
        expansion = expanded(compressed)
        schedule = Schedule(found.network, found.collective, expansion.chunks, expansion.steps)
        replay.schedule(schedule)
    except SynthError:
        return None
    bound = _bound(len(schedule.steps), found, floor)
    status = "optimal" if bound.value == schedule.rounds_per_chunk else "best-known"
    return Point(schedule, bound, status, LABEL + candidate.engine, same_bits(schedule))


def _bound(steps: int, found: Frontier, floor: LowerBound) -> LowerBound:
    """Return the greatest bound at `steps` whose certificate proves it."""
    known = [floor, *(bound for at, bound in found.bounds if at == steps)]
    known += [LowerBound(o.lower, o.certificate) for o in found.open if o.steps == steps and o.certificate]
    proved = [b for b in known if b is floor or _proves(b, steps, found)]
    return max(proved, key=lambda b: b.value)


def _proves(bound: LowerBound, steps: int, found: Frontier) -> bool:
    try:
        return (
            cuts.check(bound.certificate, found.network.document, found.collective.document, steps=steps) == bound.value
        )
    except SynthError:
        return False


def _merged(found: Frontier, points: list[Point]) -> Frontier:
    """Return `found` with the nondominated `points`, and with the intervals closed whose bounds these meet."""
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
    note = "points of the flow methods stand beside those of exact synthesis, where that left something open"
    return replace(
        found, points=tuple(nondominated), open=tuple(open_intervals), bounds=tuple(bounds), notes=(*found.notes, note)
    )

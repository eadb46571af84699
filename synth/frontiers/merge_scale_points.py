"""Both engines in one frontier: where exact synthesis left something open, the points of the flow methods that improve
on it.

Exact synthesis proves the latency end; forests and flows reach towards the bandwidth end in seconds. Their schedules
are written out and replayed like any other; what bounds them are the bounds that exact synthesis computed, so that each
point says how far it may be from the best, and an interval that a flow point closes is closed.
"""

from __future__ import annotations

import time
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
from synth.pareto import bound_notes
from synth.pareto.events import SweepInterrupted

LABEL = "flow: "
# Sends of a schedule up to which it is written out beside those of exact synthesis.
MOST_SENDS = 200_000
# Seconds that writing out a send and replaying it take, about, on a busy machine.
WRITTEN = 3e-5


def mixed(
    found: Frontier, machine: Topology, name: str, root: int = 0, *,
    allows: Callable[[int, int, int], bool] = lambda steps, rounds, chunks: True, alike: bool = False,
    progress: Callable[[str], None] = lambda text: None, time_limit: float | None = None,
) -> Frontier:  # fmt: skip
    """`found` with the points of the flow methods that improve on it; `found` itself where it has nothing open.

    `allows`: whether a point may have so many steps, rounds and chunks; `alike`: only schedules that leave the same
    bits on all ranks;
    `time_limit`: seconds, after which one more point may be written out.
    Raises SweepInterrupted, with the points that there are by then, on Ctrl-C.
    """
    floor = next((bound for steps, bound in found.bounds if steps is None), None)
    if not found.open or floor is None:
        return found
    from synth.scale.search import frontier

    end = None if time_limit is None else time.monotonic() + time_limit
    try:
        large = frontier(machine, name, root, progress=progress, time_limit=time_limit)
    except SynthError:
        return found  # what exact synthesis has stands; it would have said that nothing exists
    points, interrupted, wrote = list(found.points), large.interrupted, False
    late, long = list[LargePoint](), list[LargePoint]()  # improvements that are not written out
    try:
        for candidate in large.points:
            best = min((p.bandwidth for p in points if p.steps <= candidate.steps), default=None)
            allowed = allows(candidate.steps, candidate.rounds, candidate.chunks)
            if not allowed or (best is not None and candidate.bandwidth >= best):
                continue
            sends = _sends(candidate, found)
            if sends > MOST_SENDS:
                long.append(candidate)
                continue
            if wrote and end is not None and time.monotonic() + WRITTEN * sends >= end:
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
    made = _told(_merged(found, points), late, long)
    if interrupted:
        raise SweepInterrupted(made, None)
    return made


def _told(made: Frontier, late: list[LargePoint], long: list[LargePoint]) -> Frontier:
    """`made` with notes of the points that improve on it but were not written out, and where they are to be had."""
    best = min((p.bandwidth for p in made.points), default=None)
    notes = list(made.notes)
    for left, why in (
        (late, "the time limit came before they were written out"),
        (long, "too long to be written out beside these"),
    ):
        better = [p for p in left if best is None or p.bandwidth < best]
        if better:
            least = min(better, key=lambda p: p.bandwidth)
            many = f"{len(better)} more point{'s' * (len(better) > 1)}"
            down = f"down to {show(least.bandwidth)} rounds per chunk in {least.steps} steps"
            notes.insert(max(0, len(made.notes) - 1), f"flow methods have {many}, {down}: {why}; add --engine flow")
    floor = next((bound.value for steps, bound in made.bounds if steps is None), None)
    told = bound_notes.settled(notes, best, floor)
    return made if told == made.notes else replace(made, notes=told)


def _sends(candidate: LargePoint, found: Frontier) -> int:
    """Sends that a schedule with so many chunks has at least: each chunk reaches whoever lacks it, and each sum is made
    of all inputs."""
    asked = found.collective
    if not asked.combining:
        return candidate.chunks * sum(len(post - pre) for pre, post in zip(asked.pre, asked.post, strict=True))
    return candidate.chunks * sum(
        len(pre) - 1 + max(0, len(post) - 1) for pre, post in zip(asked.pre, asked.post, strict=True)
    )


def _point(candidate: LargePoint, found: Frontier, floor: LowerBound) -> Point | None:
    """The point with its schedule replayed and its bound; None where it is too long to write out."""
    from synth.scale.greedy.bulk_expansion import schedule as expanded

    try:
        bulk = candidate.make()
        if len(bulk.step) * max(1, bulk.topology.ranks if bulk.generators else 1) > MOST_SENDS:
            return None
        made = expanded(bulk)
        schedule = Schedule(found.network, found.collective, made.chunks, made.steps)
        replay.schedule(schedule)
    except SynthError:
        return None
    bound = _bound(len(schedule.steps), found, floor)
    status = "optimal" if bound.value == schedule.bandwidth else "best-known"
    return Point(schedule, bound, status, LABEL + candidate.engine, same_bits(schedule))


def _bound(steps: int, found: Frontier, floor: LowerBound) -> LowerBound:
    """The greatest bound that is known at so many steps."""
    known = [floor, *(bound for at, bound in found.bounds if at == steps)]
    known += [LowerBound(o.lower, o.certificate) for o in found.open if o.steps == steps and o.certificate]
    kept = [b for b in known if b is floor or _proves(b, steps, found)]
    return max(kept, key=lambda b: b.value)


def _proves(bound: LowerBound, steps: int, found: Frontier) -> bool:
    try:
        return (
            cuts.check(bound.certificate, found.network.to_json(), found.collective.to_json(1), steps=steps)
            == bound.value
        )
    except SynthError:
        return False


def _merged(found: Frontier, points: list[Point]) -> Frontier:
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.steps, p.bandwidth)):
        if not kept or point.bandwidth < kept[-1].bandwidth:
            kept.append(point)
    if len(kept) == len(found.points) and all(a is b for a, b in zip(kept, found.points, strict=True)):
        return found
    left: list[Open] = []
    fences = list(found.bounds)
    for interval in found.open:
        upper = min((p.bandwidth for p in kept if p.steps <= interval.steps), default=None)
        if upper == interval.lower and interval.certificate:
            fences.append((interval.steps, LowerBound(Fraction(interval.lower), interval.certificate)))
        else:
            left.append(replace(interval, upper=upper))
    note = "points of the flow methods stand beside those of exact synthesis, where that left something open"
    return replace(found, points=tuple(kept), open=tuple(left), bounds=tuple(fences), notes=(*found.notes, note))

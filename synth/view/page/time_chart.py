"""Charts of time against size: predictions of a frontier, measured times, and the fastest algorithm at each size."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from synth.model.collective import bus_factor
from synth.model.frontier import Frontier
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.view import frontier_text
from synth.view.page import certificate_text
from synth.view.page.frontier_section import Mark, Stairs, Times

MOST_BYTES, MOST_SECONDS = 1 << 53, 1e9  # maximum size and time that a measured document may hold
SIZES = tuple(1 << k for k in range(10, 31))  # bytes: 1 KiB to 1 GiB
Win = tuple[float, float | None, str, int | None]


def stairs(found: Frontier) -> Stairs:
    """Return the staircase of lower bounds by number of steps, and the points above it.

    A bound at S steps holds for fewer steps too. A bound for any number of steps holds for all.
    """
    always = max((b.value for s, b in found.bounds if s is None), default=None)
    least = max((int(b.value) for s, b in found.bounds if s == 0), default=1)
    bounds = [(p.steps, p.bound.value) for p in found.points if p.bound.scope == "any-chunks"]
    bounds += [(s, b.value) for s, b in found.bounds if s]
    bounds += [(o.steps, o.lower) for o in found.open]
    known: dict[int, Fraction] = {}
    for steps, value in bounds:
        known[steps] = max(known.get(steps, value), value, value if always is None else always)
    # (last step, value), from the right, since a bound for many steps holds for fewer
    treads: list[tuple[int, Fraction]] = []
    for steps in sorted(known, reverse=True):
        if not treads or known[steps] > treads[-1][1]:
            treads.append((steps, known[steps]))
    treads.reverse()
    starts = [least, *(last + 1 for last, _ in treads)]
    floor = [(start, float(value), show(value)) for start, (_, value) in zip(starts, treads, strict=False)]
    if always is not None and (not treads or treads[-1][1] > always):
        floor.append((starts[-1], float(always), show(always)))
    end = None if always is not None else max(known, default=0)
    dots = tuple(
        (p.steps, float(p.rounds_per_chunk), show(p.rounds_per_chunk), p.status == "optimal", i)
        for i, p in enumerate(found.points)
    )
    intervals = []
    for interval in found.open:
        upper = None if interval.upper is None else float(interval.upper)
        intervals.append((interval.steps, float(interval.lower), upper))
    return Stairs(tuple(floor), end, dots, tuple(intervals))


def predicted_line(schedule: Schedule) -> tuple[float, float]:
    """Return the seconds of an empty message in synchronous steps, and the seconds per byte."""
    network, share = schedule.network, schedule.collective.unit_share
    slope = schedule.rounds_per_chunk * share / (network.unit * 10**9)
    return len(schedule.steps) * float(network.latency) * 1e-6, float(slope)


def library_mark(name: str, schedule: Schedule) -> Mark:
    """Return the times of `schedule`, which another library runs, by the model of a frontier's lines."""
    seconds, slope = predicted_line(schedule)
    points = tuple(measurement(size, *[seconds + slope * size] * 3) for size in SIZES)
    return Mark(name, points, "NCCL's algorithms as schedules on these links, in synchronous steps", True, library=True)


def of_frontier(found: Frontier, measured: Sequence[dict] = (), libraries: Sequence[Mark] = ()) -> Times:
    """Return predicted lines, the lower bound of every schedule in the cost model, and measured times.

    `libraries`: the times of other libraries' algorithms.
    """
    alpha = float(found.network.latency) * 1e-6
    slopes = [float(frontier_text.seconds_per_byte(found, p)) for p in found.points]
    lines = tuple((i, p.steps * alpha, slope) for i, (p, slope) in enumerate(zip(found.points, slopes, strict=True)))
    names = [point_name(p.steps) for p in found.points]
    wins: list[Win] = []
    for i, span in enumerate(frontier_text.fastest_sizes(found)):
        if span:
            wins.append((float(span[0]), None if span[1] is None else float(span[1]), names[i], i))
    marks = tuple(mark for doc in measured for mark in marks_of(doc, found))
    marks += tuple(libraries)
    notes = []
    if found.points and not found.network.latency:
        notes.append("No latency of this topology is known: the predictions count bandwidth alone.")
    return Times(
        lines,
        _floor(found, stairs(found)),
        tuple(sorted(wins, key=lambda win: win[0])),
        marks,
        tuple(notes),
        bus=bus_bandwidth(found.collective.name, found.network.ranks),
    )


def bus_bandwidth(collective: str, ranks: int) -> float | None:
    """Return nccl-tests' bus bandwidth over size / time; None for collectives that it does not measure."""
    factor = bus_factor(collective, ranks)
    return None if factor is None else float(factor)


def point_name(steps: int) -> str:
    """Return the name of the point with `steps` steps, such as ``3 steps``."""
    return f"{steps} step{'' if steps == 1 else 's'}"


def _floor(found: Frontier, stair: Stairs) -> tuple[tuple[float, float], ...]:
    """Return (seconds, seconds per byte) lines whose minimum is a lower bound on the time of every schedule.

    Every schedule lies on or above some tread of the stairs, and has at least the latencies of the tread's first step.
    This needs a bound for any number of steps: without one, longer schedules could take no time on the links.
    """
    if stair.end is not None:
        return ()
    alpha = float(found.network.latency) * 1e-6
    share = float(found.collective.unit_share / (found.network.unit * 10**9))
    return tuple((start * alpha, value * share) for start, value, _ in stair.floor)


def marks_of(doc: dict, found: Frontier | None = None) -> list[Mark]:
    """Return a mark for each program of a ``synth.measured/1`` document, by its times out of place if it has them.

    `found`: the frontier whose points the programs are matched with.

    Raises KeyError, TypeError, ValueError on a malformed document.
    """
    both = {(row["program"], row["size"], row["in_place"]): row for row in doc["rows"]}
    marks = []
    for k, program in enumerate(doc["programs"]):
        sizes = sorted({size for p, size, _ in both if p == k})
        rows = [both.get((k, size, False)) or both[k, size, True] for size in sizes]
        points = tuple(
            measurement(row["size"], row["seconds"], row["least"], row["most"]) for row in rows if row["seconds"] > 0
        )
        if points:
            marks.append(
                Mark(str(program["label"]), points, str(doc["says"]), bool(doc["modelled"]), _point(program, found))
            )
    return marks


def measurement(size: int, seconds: float, least: float, most: float) -> tuple[int, float, float, float]:
    """Return a point of a `Mark`. Raises ValueError for a size or a time that no machine has."""
    if type(size) is not int or not 0 < size < MOST_BYTES:
        raise ValueError(f"{size!r} is no size in bytes")
    if not all(isinstance(t, int | float) and 0 < t < MOST_SECONDS for t in (seconds, least, most)):
        raise ValueError(f"{seconds!r}, {least!r}, {most!r} are no seconds")
    return size, float(seconds), float(least), float(most)


def _point(program: dict[str, Any], found: Frontier | None) -> int | None:
    """Return the index of the point from which `program` was lowered, or None.

    It is found by its number if steps and R/C agree, else by these alone.
    """
    points: list[tuple[Any, Any]] = []
    if found is not None:
        points = [(p.steps, show(p.rounds_per_chunk)) for p in found.points]
    cost: tuple[Any, Any] = (program.get("steps"), program.get("bandwidth"))
    at = program.get("point")
    if isinstance(at, int) and 0 < at <= len(points) and points[at - 1] == cost:
        return at - 1
    return points.index(cost) if cost in points else None


def scale_stairs(least: int, bound: Fraction, points: Sequence[tuple[int, Fraction]]) -> Stairs:
    """Return one tread from the least number of steps on, and the points above it."""
    dots = tuple(
        (steps, float(rate), certificate_text.fraction_text(rate), rate == bound, i)
        for i, (steps, rate) in enumerate(points)
    )
    return Stairs(((least, float(bound), certificate_text.fraction_text(bound)),), None, dots)


def envelope(lines: Sequence[tuple[int, float, float]], names: Sequence[str]) -> tuple[Win, ...]:
    """Return the sizes where each of the lines (algorithm, seconds, seconds per byte) is the least, by growing size."""
    wins: list[Win] = []
    for k, alpha, slope in lines:
        low, high = 0.0, float("inf")
        for j, other, steep in lines:
            if j == k:
                continue
            if steep == slope:
                if (other, j) < (alpha, k):
                    high = -1.0
            elif steep > slope:
                low = max(low, (alpha - other) / (steep - slope))
            else:
                high = min(high, (other - alpha) / (slope - steep))
        if low < high:
            wins.append((low, None if high == float("inf") else high, names[k], k))
    return tuple(sorted(wins, key=lambda win: win[0]))

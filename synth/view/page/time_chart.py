"""Charts of time against size: predictions of a frontier, measured times, and the fastest algorithm at each size."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from synth.model.collective import bus_factor
from synth.model.frontier import Frontier
from synth.model.rational import counted, show
from synth.model.schedule import Schedule
from synth.view import frontier_text
from synth.view.frontier_text import fraction_text
from synth.view.page.frontier_section import Mark, Stairs, Times

MOST_BYTES, MOST_SECONDS = 1 << 53, 1e9  # maximum size and time that a measured document may hold
SIZES = tuple(1 << k for k in range(10, 31))  # bytes: 1 KiB to 1 GiB
Win = tuple[float, float | None, str, int | None]


def stairs(found: Frontier) -> Stairs:
    """Return the staircase of lower bounds by number of steps, and the points above it.

    A bound at S steps holds for fewer steps too. A bound for any number of steps holds for all.
    """
    always = max((b.value for s, b in found.bounds if s is None), default=Fraction(0))
    least = max((int(b.value) for s, b in found.bounds if s == 0), default=1)
    bounds = [(p.steps, p.bound.value) for p in found.points if p.bound.scope == "any-chunks"]
    bounds += [(s, b.value) for s, b in found.bounds if s]
    bounds += [(o.steps, o.lower) for o in found.open]
    known: dict[int, Fraction] = {}
    for steps, value in bounds:
        known[steps] = max(known.get(steps, always), value)

    # (last step, value) of each tread, from the right, since a bound for many steps holds for fewer
    treads: list[tuple[int, Fraction]] = []
    for steps in sorted(known, reverse=True):
        if not treads or known[steps] > treads[-1][1]:
            treads.append((steps, known[steps]))
    if always and (not treads or treads[0][1] > always):
        treads.insert(0, (max(known, default=0), always))
    floor, start = [], least
    for last, value in reversed(treads):
        floor.append((start, float(value), fraction_text(value)))
        start = last + 1
    end = None if always else max(known, default=0)

    # Points, and the intervals that are open.
    dots = []
    for i, p in enumerate(found.points):
        rate = p.rounds_per_chunk
        dots.append((p.steps, float(rate), fraction_text(rate), p.status == "optimal", i))
    intervals = []
    for interval in found.open:
        upper = None if interval.upper is None else float(interval.upper)
        intervals.append((interval.steps, float(interval.lower), upper))
    return Stairs(tuple(floor), end, tuple(dots), tuple(intervals))


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
    alpha = float(found.latency) * 1e-6
    share = float(found.unit_share / (found.unit * 10**9))
    lines, wins, marks = [], [], []
    for i, (p, span) in enumerate(zip(found.points, frontier_text.fastest_sizes(found), strict=True)):
        lines.append((i, p.steps * alpha, float(p.rounds_per_chunk) * share))
        if span:
            high = None if span[1] is None else float(span[1])
            wins.append((float(span[0]), high, counted(p.steps, "step"), i))
    for doc in measured:
        marks += marks_of(doc, found)

    # Every schedule lies on or above some tread of the stairs, and has at least the latencies of its first step. This
    # needs a bound for any number of steps: without one, longer schedules could take no time on the links.
    stair = stairs(found)
    floor: tuple[tuple[float, float], ...] = ()
    if stair.end is None:
        floor = tuple((start * alpha, value * share) for start, value, _ in stair.floor)
    notes = ()
    if found.points and not found.latency:
        notes = ("No latency of this topology is known: the predictions count bandwidth alone.",)
    bus = bus_bandwidth(found.collective_name, found.machine.ranks)
    wins.sort(key=lambda win: win[0])
    return Times(tuple(lines), floor, tuple(wins), (*marks, *libraries), notes, bus=bus)


def bus_bandwidth(collective: str, ranks: int) -> float | None:
    """Return nccl-tests' bus bandwidth over size / time; None for collectives that it does not measure."""
    factor = bus_factor(collective, ranks)
    return None if factor is None else float(factor)


def marks_of(doc: dict, found: Frontier | None = None) -> list[Mark]:
    """Return a mark for each program of a ``synth.measured/1`` document, by its times out of place if it has them.

    `found`: the frontier whose points the programs are matched with.

    Raises KeyError, TypeError, ValueError on a malformed document.
    """
    # Times out of place come first; a program that has none keeps those in place.
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

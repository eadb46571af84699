"""Time against size: predictions of a frontier, measured documents, and who wins where."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from synth.model.frontier import Frontier
from synth.model.rational import show
from synth.view import frontier_text
from synth.view.page import certificate_text
from synth.view.page.frontier_section import Mark, Stairs, Times

MOST_BYTES, MOST_SECONDS = 1 << 53, 1e9
Win = tuple[float, float | None, str, int | None]


def stairs(found: Frontier) -> Stairs:
    """The points over what is proved at each number of steps. A bound at S steps holds for fewer too, one for any
    number for all."""
    always = max((b.value for s, b in found.bounds if s is None), default=None)
    least = max((int(b.value) for s, b in found.bounds if s == 0), default=1)
    known: dict[int, Fraction] = {}
    for steps, value in [
        *((p.steps, p.bound.value) for p in found.points if p.bound.scope == "any-chunks"),
        *((s, b.value) for s, b in found.bounds if s),
        *((o.steps, o.lower) for o in found.open),
    ]:
        known[steps] = max(known.get(steps, value), value, value if always is None else always)
    treads: list[
        tuple[int, Fraction]
    ] = []  # last step, value: from the right, as what holds for many steps holds for few
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
        (p.steps, float(p.bandwidth), show(p.bandwidth), p.status == "optimal", i) for i, p in enumerate(found.points)
    )
    intervals = tuple((o.steps, float(o.lower), None if o.upper is None else float(o.upper)) for o in found.open)
    return Stairs(tuple(floor), end, dots, intervals)


def of_frontier(found: Frontier, measured: Sequence[dict] = ()) -> Times:
    """Predicted lines, what no schedule can beat in the cost model, and measured times beside them."""
    alpha = float(found.network.latency) * 1e-6
    slopes = [float(frontier_text.slope(found, p)) for p in found.points]
    lines = tuple((i, p.steps * alpha, slope) for i, (p, slope) in enumerate(zip(found.points, slopes, strict=True)))
    names = [name(p.steps) for p in found.points]
    wins = tuple(
        (float(span[0]), None if span[1] is None else float(span[1]), names[i], i)
        for i, span in enumerate(frontier_text.spans(found))
        if span
    )
    marks = tuple(mark for doc in measured for mark in series(doc, found))
    notes = []
    if found.points and not found.network.latency:
        notes.append("No latency of this topology is known: the predictions count bandwidth alone.")
    return Times(
        lines,
        _floor(found, stairs(found)),
        tuple(sorted(wins, key=lambda win: win[0])),
        measured_wins(marks),
        marks,
        tuple(notes),
    )


def name(steps: int) -> str:
    """What a point is called on the page."""
    return f"{steps} step{'' if steps == 1 else 's'}"


def _floor(found: Frontier, stair: Stairs) -> tuple[tuple[float, float], ...]:
    """Whatever its steps, a schedule lies on some tread of the stairs, and its latencies are at least those where the
    tread begins.

    Only where a bound for any number of steps is known: without one more steps might take no time on the wire.
    """
    if stair.end is not None:
        return ()
    alpha = float(found.network.latency) * 1e-6
    share = float(found.collective.unit_share / (found.network.unit * 10**9))
    return tuple((start * alpha, value * share) for start, value, _ in stair.floor)


def series(doc: dict, found: Frontier | None = None) -> list[Mark]:
    """A mark for each program of a ``synth.measured/1`` document; out of place where both were timed.

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
    """A point of a `Mark`. Raises ValueError for a size or a time that no machine has."""
    if type(size) is not int or not 0 < size < MOST_BYTES:
        raise ValueError(f"{size!r} is no size in bytes")
    if not all(isinstance(t, int | float) and 0 < t < MOST_SECONDS for t in (seconds, least, most)):
        raise ValueError(f"{seconds!r}, {least!r}, {most!r} are no seconds")
    return size, float(seconds), float(least), float(most)


def _point(program: dict[str, Any], found: Frontier | None) -> int | None:
    """The place of the point that `program` was made from: by its number, if steps and R/C agree, else by these
    alone."""
    points: list[tuple[Any, Any]] = [] if found is None else [(p.steps, show(p.bandwidth)) for p in found.points]
    said: tuple[Any, Any] = (program.get("steps"), program.get("bandwidth"))
    at = program.get("point")
    if isinstance(at, int) and 0 < at <= len(points) and points[at - 1] == said:
        return at - 1
    return points.index(said) if said in points else None


def measured_wins(marks: Sequence[Mark]) -> tuple[Win, ...]:
    """Runs of sizes, both ends included, at which one of `marks` was the fastest of all that were measured there.

    Modelled times win nothing here; neither does what was measured alone. Times of one document's clock say nothing
    about another's.
    """
    runs: list[Win] = []
    for says in dict.fromkeys(m.says for m in marks if not m.modelled):
        mine = [m for m in marks if m.says == says]
        at: dict[int, list[tuple[float, int]]] = {}
        for k, mark in enumerate(mine):
            for size, seconds, *_ in mark.points:
                at.setdefault(size, []).append((seconds, k))
        before = None
        for size in sorted(at):
            if len(at[size]) < 2:
                before = None
                continue
            best = min(at[size])[1]
            if before == best:
                runs[-1] = (runs[-1][0], float(size), *runs[-1][2:])
            else:
                runs.append((float(size), float(size), mine[best].label, mine[best].of))
            before = best
    return tuple(runs)


def large_stairs(least: int, bound: Fraction, points: Sequence[tuple[int, Fraction]]) -> Stairs:
    """One tread from the least number of steps on, and the points above it."""
    dots = tuple(
        (steps, float(rate), certificate_text.short(rate), rate == bound, i) for i, (steps, rate) in enumerate(points)
    )
    return Stairs(((least, float(bound), certificate_text.short(bound)),), None, dots)


def envelope(lines: Sequence[tuple[int, float, float]], names: Sequence[str]) -> tuple[Win, ...]:
    """Where each of the lines (algorithm, seconds, seconds per byte) is the least, by growing size."""
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

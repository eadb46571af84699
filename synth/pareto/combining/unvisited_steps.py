"""Points and open intervals for the numbers of steps that a search did not reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from synth.model.frontier import LowerBound, Open, Point


def items(
    known: Iterable[Point], last: int, followed: int, best: Fraction | None, floor: LowerBound, reason: str
) -> Iterator[Point | Open]:
    """Yield for every S above `last` its known point, if it improves, and its open interval.

    S goes up to `followed`, or to the last known point that improves. `best`: the least R/C with up to `last` steps.
    `floor`: the bound for any number of steps. `reason`: the reason that stands in the intervals.
    """
    points: dict[int, Point] = {}
    least = best
    for point in sorted(known, key=lambda p: (p.steps, p.rounds_per_chunk)):
        if point.steps > last and (least is None or point.rounds_per_chunk < least):
            points[point.steps], least = point, point.rounds_per_chunk
    for steps in range(last + 1, max([followed, *points]) + 1):
        if steps in points:
            best = points[steps].rounds_per_chunk
            yield replace(points[steps], bound=floor, status="optimal" if best == floor.value else "best-known")
        if best is not None and best <= floor.value:
            return
        yield Open(steps, floor.value, best, reason, floor.certificate)

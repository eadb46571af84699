"""What is said of numbers of steps that a search did not come to: points that were known before, and intervals for all
of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from synth.model.frontier import LowerBound, Open, Point


def items(
    known: Iterable[Point], last: int, followed: int, best: Fraction | None, floor: LowerBound, reason: str
) -> Iterator[Point | Open]:  # fmt: skip
    """Of every S above `last`, up to `followed` or the last of the points that improve: the point, if there is one, and
    what is open.

    `best`: the least R/C of up to `last` steps; `floor`: the bound for any number of steps; `reason`: why no more is
    known of these.
    """
    points: dict[int, Point] = {}
    least = best
    for point in sorted(known, key=lambda p: (p.steps, p.bandwidth)):
        if point.steps > last and (least is None or point.bandwidth < least):
            points[point.steps], least = point, point.bandwidth
    for steps in range(last + 1, max([followed, *points]) + 1):
        if steps in points:
            best = points[steps].bandwidth
            yield replace(points[steps], bound=floor, status="optimal" if best == floor.value else "best-known")
        if best is not None and best <= floor.value:
            return
        yield Open(steps, floor.value, best, reason, floor.certificate)

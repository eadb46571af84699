"""Choice of a frontier's point for each size: by predicted time, among the sizes that are proved safe and divisible.

Sizes are bytes in nccl-tests' sense, whole numbers; the prediction is the frontier's S·α + (R/C)·bytes/β, exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from synth.model.frontier import ParetoFrontier, Point
from synth.program.program import Program


@dataclass(frozen=True)
class PointProgram:
    """Point `number` (from 1, in the order of the frontier) and its program, which has the sizes that it may serve.

    `number` None: the point is not of the frontier.
    """

    number: int | None
    point: Point
    program: Program

    @property
    def text(self) -> str:
        """The point as text, such as ``point 2 (S=3, R=7, C=6)``."""
        name = f"{self.point.construction} beside the frontier" if self.number is None else f"point {self.number}"
        return f"{name} (S={self.point.steps}, R={self.point.rounds}, C={self.point.chunks})"


@dataclass(frozen=True)
class ServedRange:
    """The range `low` <= size <= `high` bytes (None: no end) that `candidate` serves."""

    candidate: PointProgram
    low: int
    high: int | None

    @property
    def program(self) -> Program:
        """The candidate's program for these sizes only."""
        return replace(self.candidate.program, min_bytes=self.low, max_bytes=self.high)


def cost(frontier: ParetoFrontier, point: Point) -> tuple[Fraction, Fraction]:
    """Return the predicted time of `point` as (µs at size 0, µs per byte of the size)."""
    per_byte = point.rounds_per_chunk * frontier.unit_share / (frontier.unit * 1000)
    return point.steps * frontier.latency, per_byte


def ranges(frontier: ParetoFrontier, candidates: Sequence[PointProgram]) -> list[ServedRange]:
    """Return disjoint ranges by growing size, each with the fastest candidate by prediction whose program allows it."""
    costs = [cost(frontier, c.point) for c in candidates]
    marks = {c.program.min_bytes for c in candidates}
    marks |= {c.program.max_bytes + 1 for c in candidates if c.program.max_bytes is not None}
    for i, (a, b) in enumerate(costs):
        for c, d in costs[:i]:
            if b != d and (x := (c - a) / (b - d)) > 0:
                marks |= {ceil(x), floor(x) + 1}
    result: list[ServedRange] = []
    starts = sorted(marks)
    for low, after in zip(starts, [*starts[1:], None], strict=True):
        high = None if after is None else after - 1
        serving = [
            k for k, c in enumerate(candidates) if c.program.min_bytes <= low and _reaches(c.program.max_bytes, low)
        ]
        if not serving:
            continue
        k = min(serving, key=lambda k: (costs[k][0] + costs[k][1] * low, candidates[k].point.steps))
        if result and result[-1].candidate is candidates[k] and result[-1].high == low - 1:
            result[-1] = ServedRange(candidates[k], result[-1].low, high)
        else:
            result.append(ServedRange(candidates[k], low, high))
    return result


def _reaches(limit: int | None, size: int) -> bool:
    return limit is None or size <= limit


def drop_to_fit(
    frontier: ParetoFrontier, candidates: Sequence[PointProgram], maximum: int | None
) -> tuple[list[ServedRange], list[PointProgram]]:
    """Return at most `maximum` ranges (None: any number), and the candidates that were dropped to get there.

    While there are too many ranges, the candidate with the shortest range is dropped. The length of a range is the
    ratio of its ends.
    """
    remaining, dropped = list(candidates), []
    while True:
        served = ranges(frontier, remaining)
        if maximum is None or len(served) <= maximum:
            return served, dropped
        shortest = min(served, key=lambda s: (Fraction((s.high or s.low * 1024 + 1024) + 1, s.low + 1), s.low))
        dropped.append(shortest.candidate)
        remaining = [c for c in remaining if c is not shortest.candidate]


def indivisible(program: Program, size: int, element: int) -> str | None:
    """Return the reason why `size` bytes, in elements of `element` bytes, do not divide into the program's chunks.

    None if they divide.
    """
    if size % element or (size // element) % program.loop_chunks:
        return f"{size} bytes are {Fraction(size, element)} elements, no multiple of {program.loop_chunks}"
    return None


def reason_against(program: Program, size: int, element: int) -> str | None:
    """Return the reason why a call of `size` bytes, of elements of `element` bytes, cannot run `program`, or None."""
    reason = indivisible(program, size, element)
    if reason is None and (size < program.min_bytes or not _reaches(program.max_bytes, size)):
        top = "" if program.max_bytes is None else program.max_bytes
        reason = f"{size} bytes are outside of {program.min_bytes}..{top}"
    return reason


def reasons_against(candidates: Sequence[PointProgram], sizes: Sequence[int], element: int) -> dict[int, list[str]]:
    """Return, for the index of each candidate, the reasons why it cannot serve some of `sizes`."""
    reasons: dict[int, list[str]] = {}
    for k, candidate in enumerate(candidates):
        reasons[k] = [why for size in sizes if (why := reason_against(candidate.program, size, element))]
    return reasons


def best_candidate(
    frontier: ParetoFrontier, candidates: Sequence[PointProgram], sizes: Sequence[int], element: int
) -> PointProgram:
    """Return the candidate that serves most of `sizes`; of equals, the one with the least sum of predicted times."""
    lost = reasons_against(candidates, sizes, element)
    fixed, growing = len(sizes), sum(sizes)

    def key(k: int) -> tuple:
        a, b = cost(frontier, candidates[k].point)
        return len(lost[k]), a * fixed + b * growing, candidates[k].point.steps

    return candidates[min(range(len(candidates)), key=key)]

"""Which point of a frontier serves which sizes: by predicted time, within what is proved safe, where the chunks divide.

Sizes are bytes in nccl-tests' sense, whole numbers; the prediction is the frontier's S·α + (R/C)·bytes/β, exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from synth.model.frontier import Frontier, Point
from synth.program.program import Program


@dataclass(frozen=True)
class Candidate:
    """Point `number` (from 1, in the order of the frontier) and its program, whose range is what it may serve."""

    number: int
    point: Point
    program: Program

    @property
    def text(self) -> str:
        """Such as ``point 2 (S=3, R=7, C=6)``."""
        return f"point {self.number} (S={self.point.steps}, R={self.point.rounds}, C={self.point.chunks})"


@dataclass(frozen=True)
class Served:
    """`low` <= size <= `high` bytes (None: no end) are served by `candidate`."""

    candidate: Candidate
    low: int
    high: int | None

    @property
    def program(self) -> Program:
        """The candidate's program for these sizes only."""
        return replace(self.candidate.program, min_bytes=self.low, max_bytes=self.high)


def cost(frontier: Frontier, point: Point) -> tuple[Fraction, Fraction]:
    """(µs, µs per byte) of the prediction for `point`."""
    per_byte = point.bandwidth * frontier.collective.unit_share / (frontier.network.unit * 1000)
    return point.steps * frontier.network.latency, per_byte


def ranges(frontier: Frontier, candidates: Sequence[Candidate]) -> list[Served]:
    """Disjoint ranges by growing size: everywhere the candidate predicted fastest of those that may serve the size."""
    costs = [cost(frontier, c.point) for c in candidates]
    marks = {c.program.min_bytes for c in candidates}
    marks |= {c.program.max_bytes + 1 for c in candidates if c.program.max_bytes is not None}
    for i, (a, b) in enumerate(costs):
        for c, d in costs[:i]:
            if b != d and (x := (c - a) / (b - d)) > 0:
                marks |= {ceil(x), floor(x) + 1}
    found: list[Served] = []
    starts = sorted(marks)
    for low, after in zip(starts, [*starts[1:], None], strict=True):
        high = None if after is None else after - 1
        able = [
            k for k, c in enumerate(candidates) if c.program.min_bytes <= low and _reaches(c.program.max_bytes, low)
        ]
        if not able:
            continue
        k = min(able, key=lambda k: (costs[k][0] + costs[k][1] * low, candidates[k].point.steps))
        if found and found[-1].candidate is candidates[k] and found[-1].high == low - 1:
            found[-1] = Served(candidates[k], found[-1].low, high)
        else:
            found.append(Served(candidates[k], low, high))
    return found


def _reaches(limit: int | None, size: int) -> bool:
    return limit is None or size <= limit


def fewest(
    frontier: Frontier, candidates: Sequence[Candidate], most: int | None
) -> tuple[list[Served], list[Candidate]]:
    """`ranges` of as many candidates as fit `most` of them, and those that were left out: each time the one with the
    shortest range."""
    left, out = list(candidates), []
    while True:
        served = ranges(frontier, left)
        if most is None or len(served) <= most:
            return served, out
        shortest = min(served, key=lambda s: (Fraction((s.high or s.low * 1024 + 1024) + 1, s.low + 1), s.low))
        out.append(shortest.candidate)
        left = [c for c in left if c is not shortest.candidate]


def indivisible(program: Program, size: int, element: int) -> str | None:
    """Why a call of `size` bytes in elements of `element` bytes cannot be cut into the program's chunks; None where it
    can."""
    if size % element or (size // element) % program.loop_chunks:
        return f"{size} bytes are {Fraction(size, element)} elements, no multiple of {program.loop_chunks}"
    return None


def serves(program: Program, size: int, element: int) -> str | None:
    """None where a call of `size` bytes in elements of `element` bytes can run `program`, else the reason why not."""
    why = indivisible(program, size, element)
    if why is None and (size < program.min_bytes or not _reaches(program.max_bytes, size)):
        why = (
            f"{size} bytes are outside of {program.min_bytes}..{'' if program.max_bytes is None else program.max_bytes}"
        )
    return why


def losses(candidates: Sequence[Candidate], sizes: Sequence[int], element: int) -> dict[int, list[str]]:
    """For each candidate (by its place) the sizes it cannot serve, with the reason."""
    return {k: [why for size in sizes if (why := serves(c.program, size, element))] for k, c in enumerate(candidates)}


def preferred(frontier: Frontier, candidates: Sequence[Candidate], sizes: Sequence[int], element: int) -> Candidate:
    """Of those that serve the most of `sizes` the one with the least predicted time for all of them together."""
    lost = losses(candidates, sizes, element)
    fixed, growing = len(sizes), sum(sizes)

    def key(k: int) -> tuple:
        a, b = cost(frontier, candidates[k].point)
        return len(lost[k]), a * fixed + b * growing, candidates[k].point.steps

    return candidates[min(range(len(candidates)), key=key)]

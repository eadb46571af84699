"""Candidate: a schedule that a method at scale can make, before the search has its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from synth.model.compressed_schedule import CompressedSchedule
from synth.model.frontier import LowerBound, Point


@dataclass(frozen=True, eq=False)
class Candidate:
    """S, R/C and C of a schedule that `make` writes out; `construction` names the method that found it."""

    steps: int
    rounds_per_chunk: Fraction
    chunks: int
    construction: str
    make: Callable[[], CompressedSchedule]

    def point(self, bound: LowerBound) -> Point[CompressedSchedule]:
        """Return the candidate as a point with its bound."""
        rounds = int(self.rounds_per_chunk * self.chunks)
        return Point(self.steps, rounds, self.chunks, bound, self.construction, self.make)

    @classmethod
    def of(cls, schedule: CompressedSchedule, construction: str) -> Candidate:
        """Return the candidate of a schedule that is written out already."""
        return cls(schedule.step_count, schedule.rounds_per_chunk, schedule.chunks, construction, lambda: schedule)

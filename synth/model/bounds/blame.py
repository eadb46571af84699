"""Where the rounds of a schedule go, by the prices of a lower bound's certificate. Exact fractions of rounds.

Blame       bound kind steps lines idle      all parts of all steps come to the schedule's rounds
RoundParts  needed detours idle slack
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from synth.model.rational import show


@dataclass(frozen=True)
class RoundParts:
    """Rounds, split by the prices of a certificate.

    Attributes
    ----------
    needed : the prices that the bound proves that chunks need.
    detours : what the sends of chunks cost beyond that.
    idle : priced bandwidth that no send uses.
    slack : rounds of steps in which little bandwidth is priced: the bound would have put fewer rounds there.
    """

    needed: Fraction = Fraction(0)
    detours: Fraction = Fraction(0)
    idle: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)

    @property
    def rounds(self) -> Fraction:
        """The sum of the parts."""
        return self.needed + self.detours + self.idle + self.slack

    @property
    def lost(self) -> Fraction:
        """All but what is needed."""
        return self.detours + self.idle + self.slack

    def __add__(self, other: RoundParts) -> RoundParts:
        return RoundParts(
            self.needed + other.needed, self.detours + other.detours, self.idle + other.idle, self.slack + other.slack
        )

    def to_json(self) -> dict[str, str]:
        """Return the parts as a JSON document, as texts of exact fractions."""
        return {name: show(getattr(self, name)) for name in ("needed", "detours", "idle", "slack")}


@dataclass(frozen=True)
class IdleLink:
    """Priced bandwidth that a step leaves idle: `rounds` on each of `count` links or limits alike, `name` the first."""

    step: int
    name: str
    count: int
    rounds: Fraction


@dataclass(frozen=True)
class LineParts:
    """Parts of the rounds that the sends of a source line take.

    `line`: "" for sends whose line is not known, and for empty steps.
    """

    line: str
    sends: int
    parts: RoundParts


@dataclass(frozen=True)
class Blame:
    """The split of a schedule's rounds by a certificate.

    Attributes
    ----------
    bound : the certified bound on rounds per chunk.
    kind : of its certificate.
    any_steps : True if the bound is for every number of steps.
    steps : the parts of each step.
    lines : the parts by source line, greatest loss first. Idle bandwidth and slack of a step count for the lines of the
        sends over its busiest links and limits, which make the step so long.
    idle : the idle priced links and limits, most rounds first.
    """

    bound: Fraction
    kind: str
    any_steps: bool
    steps: tuple[RoundParts, ...]
    lines: tuple[LineParts, ...]
    idle: tuple[IdleLink, ...]

    @property
    def total(self) -> RoundParts:
        """The parts of all steps together. Their sum is R."""
        return sum(self.steps, RoundParts())

    def to_json(self) -> dict[str, Any]:
        """Return the blame as a JSON document."""
        lines = [{"line": row.line, "sends": row.sends, **row.parts.to_json()} for row in self.lines]
        idle = [
            {"step": row.step, "link": row.name, "alike": row.count, "rounds": show(row.rounds)} for row in self.idle
        ]
        return {
            "bound": show(self.bound), "certificate": self.kind, "any_steps": self.any_steps,
            "total": self.total.to_json(), "steps": [row.to_json() for row in self.steps], "lines": lines, "idle": idle,
        }  # fmt: skip

"""Results of a query. Only `Unsat` may prune: an interrupted or crashed solve is never "infeasible"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from synth.model.schedule import Schedule

Why = Literal["time", "memory", "interrupted", "crash", "gave-up"]


@dataclass(frozen=True)
class Cost:
    """Cost of a query: the engine that answered, its CPU seconds, and those of all engines that were asked."""

    engine: str = ""
    cpu: float = 0.0
    total_cpu: float = 0.0


@dataclass(frozen=True)
class Sat:
    """A schedule exists. It is not verified yet: the caller replays it."""

    schedule: Schedule
    cost: Cost = Cost()


@dataclass(frozen=True)
class Unsat:
    """Proved: no schedule with this (C, S, R)."""

    reason: str
    cost: Cost = Cost()


@dataclass(frozen=True)
class Unknown:
    """Not decided, with the reason."""

    reason: Why
    detail: str = ""
    cost: Cost = Cost()


Verdict = Sat | Unsat | Unknown

"""What a query ends with. Only `Unsat` may prune: an interrupted or crashed solve is never "infeasible"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from synth.model.schedule import Schedule

Why = Literal["time", "memory", "interrupted", "crash", "gave-up"]


@dataclass(frozen=True)
class Cost:
    """Where the work went: who won, CPU seconds of encode + solve, of everything that raced, and wall seconds."""

    engine: str = ""
    cpu: float = 0.0
    total_cpu: float = 0.0
    wall: float = 0.0
    detail: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Sat:
    """A schedule exists; here it is (unverified: the caller replays it)."""

    schedule: Schedule
    cost: Cost = Cost()


@dataclass(frozen=True)
class Unsat:
    """Proved: no schedule with this (C, S, R). `proof` names a proof file where one was asked for."""

    reason: str
    cost: Cost = Cost()
    proof: str | None = None


@dataclass(frozen=True)
class Unknown:
    """Not decided, and why."""

    reason: Why
    detail: str = ""
    cost: Cost = Cost()


Verdict = Sat | Unsat | Unknown


@dataclass(frozen=True)
class Budget:
    """What one query may spend: wall seconds and bytes of memory (None: no limit), and the seed."""

    seconds: float | None = None
    memory: int | None = 4 << 30
    seed: int = 0
    jobs: int = 2
    deterministic: bool = False

"""Runners: where a job's tasks are carried out. Text in, text out, one answer for each call.

    Call     number text deadline memory
    Answer   number text why detail seconds

    inline      in this process: for looking into one task; nothing is killed
    processes   children of this machine, each with its deadline and memory limit
    cluster     the same children on the workers of a Dask scheduler: a local one, one that runs, or SLURM jobs

Results do not depend on the runner: the work is a function of the call's text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

Why = Literal["", "crash", "time", "memory"]
Work = Callable[[str], str]


class Call(NamedTuple):
    """`work(text)`, ended after `deadline` wall seconds; it and each process it starts may use `memory` bytes (None: no
    limit)."""

    number: int
    text: str
    deadline: float | None = None
    memory: int | None = None


class Answer(NamedTuple):
    """What a call ended with: its text, or None and why: it crashed, or was ended for want of time or memory."""

    number: int
    text: str | None
    why: Why = ""
    detail: str = ""
    seconds: float = 0.0


class Runner(Protocol):
    """Carries calls out."""

    @property
    def slots(self) -> int:
        """How many calls are worth starting at a time."""
        ...

    def start(self, call: Call) -> None:
        """Begin a call."""
        ...

    def wait(self, seconds: float | None) -> list[Answer]:
        """The answers that have come since the last time; waits for one, at most so long."""
        ...

    def close(self) -> None:
        """End whatever still runs."""
        ...

"""Runners carry out the tasks of a job: each call of a function of a text ends as one answer.

    WorkCall     number text deadline memory
    WorkAnswer   number text why detail seconds

    inline      in this process: to debug one task; nothing is killed
    processes   child processes on this machine, each with its deadline and memory limit
    cluster     the same child processes on the workers of a Dask scheduler: a local one, a running one, or SLURM jobs

The result of a call does not depend on the runner: the work is a function of the call's text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

Why = Literal["", "crash", "time", "memory"]
Work = Callable[[str], str]


class WorkCall(NamedTuple):
    """A call of `work(text)`, ended after `deadline` wall seconds. It and each process that it starts may use `memory`
    bytes. None: no limit."""

    number: int
    text: str
    deadline: float | None = None
    memory: int | None = None


class WorkAnswer(NamedTuple):
    """The answer of a call: its text; or None and `why`: "crash", or "time" or "memory" where it was ended for lack of
    it."""

    number: int
    text: str | None
    why: Why = ""
    detail: str = ""
    seconds: float = 0.0


class Runner(Protocol):
    """An executor of calls, several at a time."""

    @property
    def slots(self) -> int:
        """The number of calls that can run at a time."""
        ...

    def start(self, call: WorkCall) -> None:
        """Start a call."""
        ...

    def wait(self, seconds: float | None) -> list[WorkAnswer]:
        """Return the answers since the last call of this method. Waits for one, at most `seconds` (None: without
        limit)."""
        ...

    def close(self) -> None:
        """End every running call."""
        ...

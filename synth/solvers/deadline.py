"""Deadlines: ends of work on a clock, and the ambient one of everything that runs inside `time_limited`.

A function that plans its own time takes a `Deadline`. Numerical code far below it, which has no plan, takes none: it
calls `check_deadline` between small parts of its work, and `pool.run_in_process` for one long call of a C library.
Both obey the ambient deadline, which `time_limited` sets for a block, never later than that of the enclosing block. It
is the only way in which an end reaches code that does not name it.

    with time_limited(Deadline.after(10)):   # seconds of wall time
        check_deadline()                     # raises TimeUp when the time is over
        answer = run_in_process(solve, data) # in a process that Ctrl-C and the deadline kill

A call that raises nothing has finished: a partial answer is never returned as a complete one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from numbers import Real

from synth.errors import ArgumentError, UndecidedError


class TimeUp(UndecidedError):
    """The time limit is over, which refutes nothing. `ended`: words for a search that it ended."""

    ended = "ended by the time limit"

    def __init__(self, message: str = "the time limit is over") -> None:
        super().__init__(message)


class OutOfMemory(TimeUp):
    """The memory of one process is used up, which refutes nothing either."""

    ended = "ended by the memory limit"

    def __init__(self, message: str = "the memory allowed is used up") -> None:
        super().__init__(message)


@dataclass(frozen=True)
class Deadline:
    """An end of work, `end` seconds of a clock (inf: none).

    The clock is the monotonic wall clock, which all processes of a machine share. With `cpu` it is the CPU clock of
    this process: such a deadline is not handed to another process, and other load on the machine does not move it.
    """

    end: float = math.inf
    cpu: bool = False

    @classmethod
    def after(cls, seconds: float | None, cpu: bool = False) -> Deadline:
        """Return the deadline `seconds` from now, or none for None.

        Less than 0 seconds are over. Raises ArgumentError for what is no number, which users of Python may give.
        """
        if seconds is not None and (not isinstance(seconds, Real) or seconds != seconds):
            raise ArgumentError(f"time_limit: {seconds!r:.60} is not a number of seconds, such as 20 or 0.5")
        return cls(cpu=cpu).within(seconds)

    @property
    def now(self) -> float:
        """Seconds of the clock."""
        return time.process_time() if self.cpu else time.monotonic()

    @property
    def limited(self) -> bool:
        """True where there is an end."""
        return self.end < math.inf

    @property
    def over(self) -> bool:
        """True when the deadline has passed."""
        return self.limited and self.now >= self.end

    def remaining(self) -> float:
        """Return the seconds until the deadline: 0 when it has passed, inf without an end."""
        return max(0.0, self.end - self.now) if self.limited else math.inf

    def check(self) -> None:
        """Raise TimeUp when the deadline has passed."""
        if self.over:
            raise TimeUp

    def within(self, seconds: float | None) -> Deadline:
        """Return the deadline `seconds` from now (None: no limit), or this one if that is earlier."""
        return self if seconds is None else replace(self, end=min(self.end, self.now + seconds))

    def share(self, fraction: float) -> Deadline:
        """Return the deadline after `fraction` (0 to 1) of the remaining time, or this one if it has no end."""
        return replace(self, end=self.now + fraction * self.remaining()) if self.limited else self

    def at_least(self, seconds: float) -> Deadline:
        """Return this deadline, or the one `seconds` from now if that is later."""
        return replace(self, end=max(self.end, self.now + seconds))


NEVER = Deadline()
# Bytes that one process may use by default.
MEMORY = 4 << 30


@dataclass(frozen=True)
class Budget:
    """Limits and settings of one search.

    `deadline`: its end on the wall clock. `cpu_seconds`: CPU seconds that it may take of each processor (None: no
    limit). `memory`: bytes that each of its processes may use (None: no limit). `jobs`: number of processes at a time.
    `seed`: the random seed. `deterministic`: no clock decides between its methods.
    """

    deadline: Deadline = NEVER
    cpu_seconds: float | None = None
    memory: int | None = MEMORY
    seed: int = 0
    jobs: int = 2
    deterministic: bool = False

    def cpu_deadline(self) -> Deadline:
        """Return the end of a search that begins now on the CPU clock of this process."""
        seconds = self.deadline.remaining()
        return Deadline(cpu=True).within(seconds if self.cpu_seconds is None else min(seconds, self.cpu_seconds))


UNLIMITED = Budget()
_ambient: ContextVar[Deadline] = ContextVar("ambient", default=NEVER)


def current_deadline() -> Deadline:
    """Return the ambient deadline."""
    return _ambient.get()


@contextmanager
def time_limited(deadline: Deadline) -> Iterator[None]:
    """Make `deadline`, of the wall clock, the ambient deadline of the block, or the enclosing one if that is earlier.

    `check_deadline` and `run_in_process` raise TimeUp inside the block once it has passed.
    """
    token = _ambient.set(min(_ambient.get(), deadline, key=lambda each: each.end))
    try:
        yield
    finally:
        _ambient.reset(token)


@contextmanager
def no_time_limit() -> Iterator[None]:
    """Remove the deadline from the block: for short work that must be completed however late it is."""
    token = _ambient.set(NEVER)
    try:
        yield
    finally:
        _ambient.reset(token)


def check_deadline() -> None:
    """Raise TimeUp when the ambient deadline has passed."""
    _ambient.get().check()

"""The ambient deadline: one end for everything that runs inside `time_limited`, checked between small parts of the
work.

    with until(10):                 # seconds of wall time; the earliest of nested ends holds; None: no end of its own
        check()                     # raises TimeUp when the time is over
        answer = apart(solve, data) # one long call of a C library, in a process that Ctrl-C and the deadline kill

A call that raises nothing has finished: a partial answer is never returned as a complete one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from synth.errors import UndecidedError
from synth.model.outcome import Budget
from synth.solvers.processes import jobs

Result = TypeVar("Result")
_end: ContextVar[float | None] = ContextVar("end", default=None)
# True in a process that `run_in_process` began.
_inside: ContextVar[bool] = ContextVar("inside", default=False)


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


@contextmanager
def time_limited(seconds: float | None) -> Iterator[None]:
    """Set the deadline of the block to `seconds` from now, or to the enclosing deadline if that is earlier.

    `check_deadline` and `run_in_process` raise TimeUp inside the block once it has passed.
    """
    enclosing = _end.get()
    end = None if seconds is None else time.monotonic() + seconds
    ends = [e for e in (enclosing, end) if e is not None]
    token = _end.set(min(ends, default=None))
    try:
        yield
    finally:
        _end.reset(token)


@contextmanager
def no_time_limit() -> Iterator[None]:
    """Remove the deadline from the block: for short work that must be completed however late it is."""
    token = _end.set(None)
    try:
        yield
    finally:
        _end.reset(token)


def remaining_time() -> float | None:
    """Return the seconds until the deadline, 0 when it has passed, None without one."""
    end = _end.get()
    return None if end is None else max(0.0, end - time.monotonic())


def give_up() -> None:
    """Set the deadline of the present `time_limited` to the past.

    After Ctrl-C the current search is lost, the rest is skipped, and the earlier results stay.
    """
    _end.set(-math.inf)


def given_up() -> bool:
    """Return True where `give_up` was called inside this `time_limited`."""
    return _end.get() == -math.inf


def check_deadline() -> None:
    """Raise TimeUp when the deadline has passed."""
    end = _end.get()
    if end is not None and time.monotonic() >= end:
        raise TimeUp


def run_in_process(call: Callable[..., Result], *arguments: object, imports: tuple[str, ...] = ()) -> Result:
    """Return ``call(*arguments)`` from another process, which Ctrl-C and the deadline kill at once.

    It is for long calls of C libraries, which notice neither. `call` is a function of a module. It, the arguments and
    the result are pickled. `imports`: modules that the process imports first, besides that of `call`. A nested call
    runs in the same process. Raises what the call raises, TimeUp at the deadline, and OutOfMemory where it needs more
    memory than one process may have.
    """
    check_deadline()
    if _inside.get():
        return call(*arguments)
    end = _end.get()
    job = jobs.finish(jobs.begin((*imports, call.__module__), _within, (end, call, arguments), Budget()), end)
    if job.result is None and not job.ended:
        raise TimeUp
    if job.result is None:
        if job.over_memory:
            raise OutOfMemory
        raise UndecidedError(f"the process of {call.__name__} died; allow it more memory, or time")
    kind, value = job.result
    if kind == "ok":
        return value
    raise OutOfMemory if isinstance(value, MemoryError) else value


def _within(end: float | None, call: Callable[..., Result], arguments: tuple) -> Result:
    """Run `call` in the process of `run_in_process`. All processes share one monotonic clock, so `end` is valid here,
    too."""
    _end.set(end)
    _inside.set(True)
    return call(*arguments)

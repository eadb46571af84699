"""Until when flow methods may work: one end for all that runs inside `until`, looked at wherever the work is in small
parts.

    with until(10):                 # seconds of wall time; of nested ones the earliest end holds; None: no end of its
                                    own
        check()                     # raises TimeUp when it is over
        answer = apart(solve, data) # one long call of a C library, in a process of its own that Ctrl-C and the end kill

What raises nothing has finished: an answer that was cut short is never returned as if it were whole.
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
# Whether this process is one that `apart` began.
_inside: ContextVar[bool] = ContextVar("inside", default=False)


class TimeUp(UndecidedError):
    """The time limit is over: says nothing about what exists. `ended`: how that is said of a search."""

    ended = "ended by the time limit"

    def __init__(self, message: str = "the time limit is over") -> None:
        super().__init__(message)


class OutOfMemory(TimeUp):
    """The memory that one process may have is used up: like the time limit, it says nothing about what exists."""

    ended = "ended by the memory limit"

    def __init__(self, message: str = "the memory allowed is used up") -> None:
        super().__init__(message)


@contextmanager
def until(seconds: float | None) -> Iterator[None]:
    """What runs inside ends, by `TimeUp`, about so many seconds from now."""
    before = _end.get()
    own = None if seconds is None else time.monotonic() + seconds
    ends = [end for end in (before, own) if end is not None]
    token = _end.set(min(ends, default=None))
    try:
        yield
    finally:
        _end.reset(token)


@contextmanager
def endless() -> Iterator[None]:
    """What runs inside is not cut short: for the little that has to be said however late it is."""
    token = _end.set(None)
    try:
        yield
    finally:
        _end.reset(token)


def left() -> float | None:
    """Seconds until the end, 0 when it has passed, None without one."""
    end = _end.get()
    return None if end is None else max(0.0, end - time.monotonic())


def give_up() -> None:
    """Leaves no time to what is still to come inside this `until`: after Ctrl-C, whose search is lost, what was found
    before is kept."""
    _end.set(-math.inf)


def given_up() -> bool:
    """Whether `give_up` was called inside this `until`."""
    return _end.get() == -math.inf


def check() -> None:
    """Raises TimeUp when the end has passed."""
    end = _end.get()
    if end is not None and time.monotonic() >= end:
        raise TimeUp


def apart(call: Callable[..., Result], *arguments: object, imports: tuple[str, ...] = ()) -> Result:
    """The result of ``call(*arguments)``, which runs in a process of its own: Ctrl-C and the end of the time kill it at
    once.

    For long calls of C libraries, which notice neither. `call` is a function of a module; it, the arguments and the
    result are pickled.
    `imports`: modules that the process has beforehand, besides that of `call`. A call inside another one runs where it
    is. Raises what the call raises, TimeUp at the end, and OutOfMemory where it needs more than one process may have.
    """
    check()
    if _inside.get():
        return call(*arguments)
    end = _end.get()
    job = jobs.finish(jobs.begin((*imports, call.__module__), _within, (end, call, arguments), Budget()), end)
    if job.result is None and not job.ended:
        raise TimeUp
    if job.result is None:
        raise (
            OutOfMemory
            if job.over_memory
            else UndecidedError(f"the process of {call.__name__} died; allow it more memory, or time")
        )
    kind, value = job.result
    if kind == "ok":
        return value
    raise OutOfMemory if isinstance(value, MemoryError) else value


def _within(end: float | None, call: Callable[..., Result], arguments: tuple) -> Result:
    """What the process of `apart` runs: the clock of all processes is the same."""
    _end.set(end)
    _inside.set(True)
    return call(*arguments)

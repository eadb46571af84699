"""Until when flow methods may work: one end for all that runs inside `until`, looked at wherever the work is in small parts.

    with until(10):                 # seconds of wall time; of nested ones the earliest end holds; None: no end of its own
        check()                     # raises TimeUp when it is over
        answer = apart(solve)       # one long call of a C library: Ctrl-C and the end are noticed while it runs

What raises nothing has finished: an answer that was cut short is never returned as if it were whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Thread
from typing import TypeVar

from synth.errors import UndecidedError

Result = TypeVar("Result")
_end: ContextVar[float | None] = ContextVar("end", default=None)
# Seconds between two looks at the clock while another thread works.
LOOK = 0.05


class TimeUp(UndecidedError):
    """The time limit is over: says nothing about what exists."""

    def __init__(self, message: str = "the time limit is over") -> None:
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


def check() -> None:
    """Raises TimeUp when the end has passed."""
    end = _end.get()
    if end is not None and time.monotonic() >= end:
        raise TimeUp


def apart(call: Callable[[], Result]) -> Result:
    """The result of `call`, which runs in a thread of its own: here Ctrl-C is felt, and TimeUp raised, while it still works.

    Only for calls that leave Python's lock alone while they work and change nothing but their result: one that is given up
    goes on until it is done, or looks at the clock itself.
    """
    context, found = copy_context(), list[Result]()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(context.run(call))
        except BaseException as error:
            failed.append(error)

    check()
    thread = Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK)
        if thread.is_alive():
            check()
    if failed:
        raise failed[0]
    return found[0]

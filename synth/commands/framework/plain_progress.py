"""Progress where stderr is no terminal: a plain line every ten seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from synth.commands.framework.output import QUIET, note

EVERY = 10.0  # seconds between two lines: a log of an hour has 360


class PlainProgress:
    """The progress of one piece of work: the present text, the elapsed time, and the time limit where there is one.

    `limit`: seconds of wall time. None: no limit. `now`: a clock in seconds.
    """

    def __init__(self, text: str, limit: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.text, self.limit, self.now = text, limit, now
        self.began = now()

    @property
    def line(self) -> str:
        """The present line, such as ``20 s of 5 min 0 s: S=3: at least 7/6 rounds per chunk``."""
        limit = "" if self.limit is None else f" of {clock(self.limit)}"
        return f"{clock(self.now() - self.began)}{limit}: {self.text}"

    def print_lines(self, ended: Callable[[float], bool]) -> None:
        """Print a line on stderr each time that `ended`, which waits for `EVERY` seconds, returns False."""
        while not ended(EVERY):
            note(self.line)


@contextmanager
def plain_progress(text: str, limit: float | None = None) -> Iterator[PlainProgress]:
    """Print the progress from another thread while the block runs; nothing with --quiet."""
    progress = PlainProgress(text, limit)
    ended = threading.Event()
    if QUIET.get():
        ended.set()
    printer = threading.Thread(target=progress.print_lines, args=(ended.wait,), daemon=True)
    printer.start()
    try:
        yield progress
    finally:
        ended.set()
        printer.join()


def clock(seconds: float) -> str:
    """``3 h 20 min``, ``4 min 5 s``, ``12 s``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"

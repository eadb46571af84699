"""Progress on stderr: the current problem, the bound so far, the elapsed time. Plain lines where it is no terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from synth.commands.framework.output import QUIET, note, printable, terminal
from synth.model.rational import counted, show

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


@contextmanager
def progress(first: str, limit: float | None = None) -> Iterator[Callable[[Any], None]]:
    """A listener for the sweep's events, or for texts, shown while the block runs.

    `limit`: the seconds after which the work ends itself.
    """
    # A log gets plain lines.
    if QUIET.get() or not sys.stderr.isatty():
        with plain_progress(first, limit) as plain:
            yield lambda event: setattr(plain, "text", _text(event))
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # A terminal gets a line that changes, and the points that are found above it.
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()]
    if limit is not None:
        columns.append(TextColumn(f"of {clock(limit)}"))
    with Progress(*columns, console=Console(file=terminal(sys.stderr), highlight=False), transient=True) as bar:
        task = bar.add_task(printable(first), total=None)

        def listen(event: Any) -> None:
            if getattr(event, "point", None) is not None:
                point = event.point
                what = f"{counted(point.steps, 'step')}, {show(point.rounds_per_chunk)} rounds per chunk"
                bar.console.print(
                    f"found: {what} (C={point.chunks}, R={point.rounds}), {point.status}", markup=False
                )  # fmt: skip
            bar.update(task, description=printable(_text(event)))

        yield listen


def _text(event: Any) -> str:
    if isinstance(event, str):
        return event
    return event.text if event.bound is None else f"{event.text} (bound so far {show(event.bound)})"


@contextmanager
def waiting(what: str, limit: float | None = None) -> Iterator[Callable[[str], None]]:
    """Show `what` and the elapsed time while the block runs. Yield a function that shows a further text.

    `limit`: the seconds after which the work ends itself.
    """
    with progress(what, limit) as listen:
        yield lambda text: listen(f"{what}: {text}")


@contextmanager
def job_progress(first: str) -> Iterator[Callable[[Any], None]]:
    """A listener for a batch job's progress: tasks ended, and what runs."""
    with progress(first) as listen:

        def tell(now: Any) -> None:
            more = f" and {len(now.running) - 2} more" if len(now.running) > 2 else ""
            running = ", ".join(now.running[:2]) + more
            listen(f"{now.ended} of {counted(now.total, 'task')} ended; {running}")

        yield tell

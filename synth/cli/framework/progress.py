"""Progress on stderr: the current problem, the bound so far, the elapsed time. Plain lines where it is no terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

from synth.cli.framework.output import QUIET, printable
from synth.cli.framework.plain_progress import clock, plain_progress
from synth.cli.framework.plain_stream import terminal
from synth.model.rational import counted, show

# Seconds after which a command prints its current work.
PATIENCE = 1.0


@contextmanager
def progress(first: str, verbose: bool = False, limit: float | None = None) -> Iterator[Callable[[Any], None]]:
    """A listener for the sweep's events, shown while the block runs.

    `verbose`: all of them, a line each, on any stderr. `limit`: the seconds after which the work ends itself.
    """
    if verbose:
        began = time.monotonic()
        yield lambda event: print(f"{time.monotonic() - began:8.2f} s  {event.text}", file=sys.stderr)
        return
    if QUIET.get() or not sys.stderr.isatty():
        with plain_progress(first, limit) as plain:
            yield lambda event: setattr(plain, "text", _with_bound(event))
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    console = Console(file=terminal(sys.stderr), highlight=False)
    now, bound = (TextColumn(f"{{task.{what}}}", markup=False) for what in ("description", "fields[bound]"))
    with Progress(SpinnerColumn(), now, bound, *_elapsed(limit), console=console, transient=True) as bar:
        task = bar.add_task(printable(first), total=None, bound="")

        def listen(event: Any) -> None:
            if event.point is not None:
                point = event.point
                steps = counted(point.steps, "step")
                what = (
                    f"{steps}, {show(point.rounds_per_chunk)} rounds per chunk (C={point.chunks}, R={point.rounds}), "
                    f"{point.status}"
                )
                bar.console.print(f"found: {what}", markup=False)
            bar.update(task, description=printable(event.text))
            if event.bound is not None:
                bar.update(task, bound=f"(bound so far {show(event.bound)})")

        yield listen


def _with_bound(event: Any) -> str:
    return event.text if event.bound is None else f"{event.text} (bound so far {show(event.bound)})"


def _elapsed(limit: float | None) -> list[Any]:
    """Return the columns of the elapsed time and of the limit."""
    from rich.progress import TextColumn, TimeElapsedColumn

    return [TimeElapsedColumn(), *([] if limit is None else [TextColumn(f"of {clock(limit)}")])]


@contextmanager
def waiting(what: str, limit: float | None = None) -> Iterator[Callable[[str], None]]:
    """Show `what` and the elapsed time while the block runs, on a terminal from its second second on.

    `limit`: the seconds after which the work ends itself. Yield a function that shows a further text.
    """
    if QUIET.get() or not sys.stderr.isatty():
        with plain_progress(what, limit) as plain:
            yield lambda text: setattr(plain, "text", f"{what}: {text}")
        return
    with ExitStack() as shown:
        lock = threading.Lock()
        over = False
        now = what
        listeners: list[Callable[[Any], None]] = []

        def show_it() -> None:
            with lock:
                if not over:
                    listeners.append(shown.enter_context(progress(now, limit=limit)))

        def say(text: str) -> None:
            nonlocal now
            with lock:
                now = f"{what}: {text}"
                for listen in listeners:
                    listen(SimpleNamespace(text=now, point=None, bound=None))

        timer = threading.Timer(PATIENCE, show_it)
        timer.daemon = True
        timer.start()
        try:
            yield say
        finally:
            timer.cancel()
            with lock:
                over = True


@contextmanager
def job_progress(first: str) -> Iterator[Callable[[Any], None]]:
    """A listener for a batch job's progress: tasks ended, and what runs."""
    if QUIET.get() or not sys.stderr.isatty():
        with plain_progress(first) as plain:
            yield lambda now: setattr(
                plain, "text", f"{now.ended} of {counted(now.total, 'task')} ended; {_running(now)}"
            )
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    words = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), BarColumn(20), MofNCompleteColumn(), *_elapsed(None), words)
    with Progress(*columns, console=Console(file=terminal(sys.stderr), highlight=False), transient=True) as bar:
        task = bar.add_task(printable(first), total=None)

        def listen(now: Any) -> None:
            bar.update(task, completed=now.ended, total=now.total, description=printable(_running(now)))

        yield listen


def _running(now: Any) -> str:
    more = f" and {len(now.running) - 2} more" if len(now.running) > 2 else ""
    return ", ".join(now.running[:2]) + more

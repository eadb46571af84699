"""Progress on a terminal's stderr: the current problem, the bound so far, the elapsed time. Silent elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

from synth.model.rational import counted, show

# Seconds after which a command prints its current work.
PATIENCE = 1.0


@contextmanager
def progress(first: str, verbose: bool = False) -> Iterator[Callable[[Any], None]]:
    """A listener for the sweep's events, shown while the block runs. `verbose`: all of them, a line each, on any
    stderr."""
    if verbose:
        began = time.monotonic()
        yield lambda event: print(f"{time.monotonic() - began:8.2f} s  {event.text}", file=sys.stderr)
        return
    if not sys.stderr.isatty():
        yield lambda event: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    now, bound = (TextColumn(f"{{task.{what}}}", markup=False) for what in ("description", "fields[bound]"))
    with Progress(SpinnerColumn(), now, bound, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(first, total=None, bound="")

        def listen(event: Any) -> None:
            if event.point is not None:
                point = event.point
                steps = counted(point.steps, "step")
                what = (
                    f"{steps}, {show(point.rounds_per_chunk)} rounds per chunk (C={point.chunks}, R={point.rounds}), "
                    f"{point.status}"
                )
                bar.console.print(f"found: {what}", markup=False)
            bar.update(task, description=event.text)
            if event.bound is not None:
                bar.update(task, bound=f"(bound so far {show(event.bound)})")

        yield listen


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show `what` and the elapsed time on a terminal while the block runs, from its second second on.

    Yield a function that shows a further text.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with ExitStack() as shown:
        lock = threading.Lock()
        over = False
        now = what
        listeners: list[Callable[[Any], None]] = []

        def show_it() -> None:
            with lock:
                if not over:
                    listeners.append(shown.enter_context(progress(now)))

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


def clock(seconds: float) -> str:
    """``3 h 20 min``, ``4 min 5 s``, ``1.2 s``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.1f} s"


@contextmanager
def job_progress(first: str) -> Iterator[Callable[[Any], None]]:
    """A listener for a batch job's progress: tasks ended, what runs, the time left by the estimates."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    words, left = (TextColumn(f"{{task.{what}}}", markup=False) for what in ("description", "fields[left]"))
    columns = (SpinnerColumn(), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), left, words)
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        task = bar.add_task(first, total=None, left="")

        def listen(now: Any) -> None:
            shown = ", ".join(now.running[:2]) + (f" and {len(now.running) - 2} more" if len(now.running) > 2 else "")
            bar.update(
                task, completed=now.ended, total=now.total, left=f"about {clock(now.left)} left", description=shown
            )

        yield listen

"""Progress on stderr: the current problem, the bound so far, the elapsed time. Plain lines where it is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from synth.commands.framework.output import QUIET, printable
from synth.commands.framework.plain_progress import clock, plain_progress
from synth.commands.framework.plain_stream import terminal
from synth.model.rational import counted, show


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

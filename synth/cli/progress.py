"""Progress on a terminal's stderr: what is being tried, the bound so far, the time so far. Silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from synth.rational import show


@contextmanager
def progress(first: str) -> Iterator[Callable[[Any], None]]:
    """A listener for the sweep's events, shown while the block runs."""
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
                what = f"{point.steps} steps, {show(point.bandwidth)} rounds per chunk (C={point.chunks}, R={point.rounds}), {point.status}"
                bar.console.print(f"found: {what}", markup=False)
            bar.update(task, description=event.text)
            if event.bound is not None:
                bar.update(task, bound=f"(bound so far {show(event.bound)})")

        yield listen

"""Rows of a catalog as tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.catalog.shipped import Origin
    from synth.catalog.store.rows import Choice, EntryRow


Columns = tuple[tuple[str, str], ...]
ENTRIES: Columns = (
    ("id", "left"),
    ("topology", "left"),
    ("collective", "left"),
    ("ranks", "right"),
    ("state", "left"),
    ("points", "right"),
    ("steps", "left"),
    ("seconds", "right"),
    ("options", "left"),
)
SHIPPED: Columns = (
    *ENTRIES[1:7],
    ("commit", "left"),
    ("command", "left"),
)
POINTS: Columns = (
    ("id", "left"),
    ("point", "right"),
    ("steps", "right"),
    ("rounds", "right"),
    ("chunks", "right"),
    ("rounds/chunk", "right"),
    ("status", "left"),
    ("synchronous µs", "right"),
    ("construction", "left"),
)


def print_rows(rows: Sequence[EntryRow]) -> None:
    """Print the rows as `synth catalog ls` does."""
    done = sum(row.state == "done" for row in rows)
    total = f"{counted(len(rows), 'entry')}, {done} done" if rows else "no entries"
    _print(ENTRIES, list(map(_cells, rows)), total, ("options", "seconds", "steps"))


def print_shipped(rows: Sequence[tuple[EntryRow, Origin]]) -> None:
    """Print the entries of the package, each with the commit and the command that made it."""
    cells = []
    for row, origin in rows:
        _, topology, collective, ranks, state, points, steps, *_ = _cells(row)
        cells.append((topology, collective, ranks, state, points, steps, origin.commit, origin.command))
    _print(SHIPPED, cells, f"{counted(len(rows), 'entry')} in the package", ("steps", "points"))


def _cells(row: EntryRow) -> tuple[str, ...]:
    collective = f"{row.collective} from {','.join(map(str, row.roots))}" if row.roots else row.collective
    state = f"{row.state}, {row.intervals} open" if row.intervals else row.state
    notes = _notes(row) if row.like or row.reason else _options(row.options)
    return (
        row.fingerprint[:12], row.topology, collective, str(row.ranks), state, str(row.points), _steps(row.steps),
        f"{row.seconds:.1f}", notes,
    )  # fmt: skip


def _notes(row: EntryRow) -> str:
    like = f"as {row.like[:12]}" if row.like else ""
    reason = f"({row.reason})" if row.reason else ""
    return " ".join(filter(None, (_options(row.options), like, reason)))


@lru_cache(1 << 12)
def _steps(steps: tuple[int, int] | None) -> str:
    if steps is None:
        return ""
    return f"{steps[0]}" if steps[0] == steps[1] else f"{steps[0]}-{steps[1]}"


@lru_cache(1 << 12)
def _options(options: tuple[tuple[str, str], ...]) -> str:
    return " ".join(f"{key}={value}" for key, value in options)


def print_choices(points: Sequence[Choice]) -> None:
    """Print the points as `synth catalog ls --size` does, in their order."""
    rows = []
    for c in points:
        numbers = map(str, (c.point, c.steps, c.rounds, c.chunks))
        time = "" if c.seconds is None else f"{c.seconds * 1e6:.2f}"
        rows.append((c.fingerprint[:12], *numbers, c.rounds_per_chunk, c.status, time, c.construction))
    total = "" if points else "no point of this machine and collective"
    _print(POINTS, rows, total, ("construction", "rounds", "chunks"))


def _print(columns: Columns, rows: Sequence[tuple[str, ...]], sentence: str, optional: tuple[str, ...]) -> None:
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    print_report(Report("", columns, tuple(rows), (sentence,) if sentence else (), optional))

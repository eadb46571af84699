"""Rows of a catalog as plain columns: fast for ten thousand rows, for which tables fitted to a terminal take
seconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from synth.catalog.store.rows import Choice, EntryRow


def print_rows(rows: Sequence[EntryRow]) -> None:
    """Print the rows as `synth catalog ls` does."""
    head = ("id", "topology", "collective", "ranks", "state", "points", "steps", "seconds", "options")
    print_columns(list(zip(head, *map(_cells, rows), strict=True)), right=(3, 5, 7))
    entries = f"{len(rows)} entr{'y' if len(rows) == 1 else 'ies'}"
    done = sum(row.state == "done" for row in rows)
    click.echo(f"{entries}, {done} done" if rows else "no entries")


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
    head = ("id", "point", "steps", "rounds", "chunks", "rounds/chunk", "status", "synchronous µs", "construction")
    rows = []
    for c in points:
        numbers = map(str, (c.point, c.steps, c.rounds, c.chunks))
        time = "" if c.seconds is None else f"{c.seconds * 1e6:.2f}"
        rows.append((c.fingerprint[:12], *numbers, c.rounds_per_chunk, c.status, time, c.construction))
    print_columns(list(zip(head, *rows, strict=True)), right=(1, 2, 3, 4, 5, 7))
    if not points:
        click.echo("no point of this machine and collective")


def print_columns(columns: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print aligned columns, each with its head as the first text; the columns `right` are aligned to the right."""
    padded = []
    for i, column in enumerate(columns):
        width = max(map(len, column))
        justify = str.rjust if i in right else str.ljust
        padded.append([justify(text, width) for text in column])
    print("\n".join([line.rstrip() for line in map("  ".join, zip(*padded, strict=True))]))

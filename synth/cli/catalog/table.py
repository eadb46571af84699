"""Rows of a catalog as plain columns: ten thousand of them in a moment, which tables that fit themselves to a terminal
take seconds for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from synth.catalog.store.rows import Choice, Row


def print_rows(rows: Sequence[Row]) -> None:
    """What `synth catalog ls` prints."""
    columns = [
        ["id", *(row.fingerprint[:12] for row in rows)],
        ["topology", *(row.topology for row in rows)],
        [
            "collective",
            *(
                f"{row.collective} from {','.join(map(str, row.roots))}" if row.roots else row.collective
                for row in rows
            ),
        ],
        ["ranks", *(str(row.ranks) for row in rows)],
        ["state", *(f"{row.state}, {row.intervals} open" if row.intervals else row.state for row in rows)],
        ["points", *(str(row.points) for row in rows)],
        ["steps", *(_steps(row.steps) for row in rows)],
        ["seconds", *(f"{row.seconds:.1f}" for row in rows)],
        ["options", *(_notes(row) if row.like or row.reason else _options(row.options) for row in rows)],
    ]
    print_columns(columns, right=(3, 5, 7))
    entries = f"{len(rows)} entr{'y' if len(rows) == 1 else 'ies'}"
    done = sum(row.state == "done" for row in rows)
    click.echo(f"{entries}, {done} done" if rows else "no entries")


def _notes(row: Row) -> str:
    like = f"as {row.like[:12]}" if row.like else ""
    return " ".join(part for part in (_options(row.options), like, f"({row.reason})" if row.reason else "") if part)


@lru_cache(1 << 12)
def _steps(steps: tuple[int, int] | None) -> str:
    return "" if steps is None else f"{steps[0]}" if steps[0] == steps[1] else f"{steps[0]}-{steps[1]}"


@lru_cache(1 << 12)
def _options(options: tuple[tuple[str, str], ...]) -> str:
    return " ".join(f"{key}={value}" for key, value in options)


def print_choices(found: Sequence[Choice]) -> None:
    """What `synth catalog ls --size` prints: points, the one predicted fastest first."""
    head = ("id", "point", "steps", "rounds", "chunks", "rounds/chunk", "status", "predicted µs", "construction")
    rows = [
        (c.fingerprint[:12], str(c.point), str(c.steps), str(c.rounds), str(c.chunks), c.bandwidth, c.status,
         "" if c.seconds is None else f"{c.seconds * 1e6:.2f}", c.construction)
        for c in found
    ]  # fmt: skip
    print_columns(list(zip(head, *rows, strict=True)), right=(1, 2, 3, 4, 5, 7))
    if not found:
        click.echo("no point of this machine and collective")


def print_columns(columns: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Aligned columns, the first text of each its head."""
    padded = []
    for i, column in enumerate(columns):
        width = max(map(len, column))
        padded.append([text.rjust(width) for text in column] if i in right else [text.ljust(width) for text in column])
    print("\n".join([line.rstrip() for line in map("  ".join, zip(*padded, strict=True))]))

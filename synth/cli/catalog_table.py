"""Rows of a catalog as plain columns: ten thousand of them in a moment, which tables that fit themselves to a terminal take seconds for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from synth.catalog.store_rows import Choice, Row


def print_rows(rows: Sequence[Row]) -> None:
    """What `synth catalog ls` prints."""
    head = ("id", "topology", "collective", "ranks", "state", "points", "steps", "seconds", "options")
    print_columns([head, *map(_row, rows)], right=(3, 5, 7))
    entries = f"{len(rows)} entr{'y' if len(rows) == 1 else 'ies'}"
    done = sum(row.state == "done" for row in rows)
    click.echo(f"{entries}, {done} done" if rows else "no entries")


def _row(row: Row) -> tuple[str, ...]:
    roots = f" from {','.join(map(str, row.roots))}" if row.roots else ""
    steps = "" if row.steps is None else f"{row.steps[0]}" if row.steps[0] == row.steps[1] else f"{row.steps[0]}-{row.steps[1]}"
    state = f"{row.state}, {row.intervals} open" if row.intervals else row.state
    options = " ".join(f"{key}={value}" for key, value in row.options)
    if row.like:
        options = f"{options} as {row.like[:12]}".strip()
    if row.reason:
        options = f"{options} ({row.reason})".strip()
    return row.id, row.topology, row.collective + roots, str(row.ranks), state, str(row.points), steps, f"{row.seconds:.1f}", options


def print_choices(found: Sequence[Choice]) -> None:
    """What `synth catalog ls --size` prints: points, the one predicted fastest first."""
    head = ("id", "point", "steps", "rounds", "chunks", "rounds/chunk", "status", "predicted µs", "construction")
    rows = [
        (c.fingerprint[:12], str(c.point), str(c.steps), str(c.rounds), str(c.chunks), c.bandwidth, c.status,
         "" if c.seconds is None else f"{c.seconds * 1e6:.2f}", c.construction)
        for c in found
    ]  # fmt: skip
    print_columns([head, *rows], right=(1, 2, 3, 4, 5, 7))
    if not found:
        click.echo("no point of this machine and collective")


def print_columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Aligned columns, the first row their heads."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    form = "  ".join(f"{{:{'>' if i in right else '<'}{width}}}" for i, width in enumerate(widths))
    click.echo("\n".join(form.format(*row).rstrip() for row in rows))

"""`synth catalog show`: print an entry, its frontier and its provenance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.catalog.group import db_option
from synth.commands.framework.options import output_options
from synth.commands.framework.output import emit, printable
from synth.commands.root import CONTEXT

if TYPE_CHECKING:
    from synth.catalog.entry import Entry


@click.command(context_settings=CONTEXT, short_help="Print an entry: its frontier and its provenance.")
@click.argument("name", metavar="ID")
@db_option
@output_options
def show(name: str, db: Path, output: str | None, form: str | None) -> None:
    """Print the frontier of entry ID (the first digits are enough) as `synth pareto` does, and its provenance.

    \b
    Example:
      synth catalog show 62a441bf
    """
    from synth.commands.api import catalog

    with catalog.open(db) as store:
        entry = store.get(name)
    emit(lambda: catalog.document(entry), lambda: _print(entry), output, form)


def _print(entry: Entry) -> None:
    from synth.view import tables

    tables.print_frontier(entry.frontier)
    click.echo(printable(f"entry {entry.id}: {entry.state}, found in {entry.seconds:.1f} s"))
    for key, value in (entry.options | entry.provenance).items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {version}" for name, version in value.items())
        if value not in (None, ""):
            click.echo(printable(f"{key}: {value}"))

"""`synth catalog gc`: remove unused content of a catalog."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.catalog.group import db_option
from synth.cli.root import CONTEXT


@click.command(context_settings=CONTEXT, short_help="Remove failed and damaged entries, and rows without an entry.")
@db_option
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
def gc(db: Path, dry_run: bool) -> None:
    """Remove entries that failed or are damaged, programs and measurements of points that are gone, and stray rows;
    free the space.

    \b
    Example:
      synth catalog gc --dry-run
    """
    from synth.api import catalog

    with catalog.open(db) as store:
        removed, less = catalog.gc(store, dry=dry_run)
    for rows in removed:
        click.echo(("would remove " if dry_run else "removed ") + rows.line())
    if not removed:
        click.echo("nothing to remove")
    if less > 0:
        click.echo(f"{db} is {less} bytes smaller")

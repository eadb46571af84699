"""`synth catalog gc`: a catalog without what it need not keep."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.catalog.group import db_option
from synth.cli.root import CONTEXT


@click.command(context_settings=CONTEXT, short_help="Remove failed and damaged entries and what belongs to nothing.")
@db_option
@click.option("--dry-run", is_flag=True, help="Say what would go, remove nothing.")
def gc(db: Path, dry_run: bool) -> None:
    """Remove entries that failed or are damaged, programs and measurements of points that are gone, and stray rows;
    free the space.

    \b
    Example:
      synth catalog gc --dry-run
    """
    from synth.api import catalog

    with catalog.open(db) as store:
        found, less = catalog.gc(store, dry=dry_run)
    for one in found:
        click.echo(("would remove " if dry_run else "removed ") + one.line())
    if not found:
        click.echo("nothing to remove")
    if less > 0:
        click.echo(f"{db} is {less} bytes smaller")

"""`synth catalog import`: measurements come to the entries whose programs they timed."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.catalog.group import db_option
from synth.cli.framework.options import FILE
from synth.cli.root import CONTEXT


@click.command(
    "import", context_settings=CONTEXT, short_help="Attach measurements to the entries whose programs they timed."
)
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@db_option
def import_(files: tuple[Path, ...], db: Path) -> None:
    """Attach the times of `synth bench -o FILE` to the entries whose programs were timed.

    \b
    Example:
      synth catalog export 62a441bf --to frontier -o f.json && synth bench f.json -o measured.json && synth catalog
      import measured.json
    """
    from synth.api import catalog

    with catalog.open(db) as store:
        for file in files:
            for attached in catalog.measured(store, file):
                programs = f"{attached.programs} program{'' if attached.programs == 1 else 's'}"
                state = "attached to" if attached.fresh else "already at"
                click.echo(f"{file}: {state} {attached.fingerprint[:12]}, {programs}")

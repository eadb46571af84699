"""`synth catalog verify`: everything in a catalog, checked again."""

from __future__ import annotations

from pathlib import Path

import click

from synth.commands.catalog.group import db_option
from synth.commands.framework.output import printable
from synth.commands.framework.progress import progress
from synth.commands.root import CONTEXT
from synth.model.rational import counted

FAILED = 5


@click.command(context_settings=CONTEXT, short_help="Replay and re-check every entry, without a solver.")
@db_option
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each claim that was checked.")
def verify(db: Path, verbose: bool) -> int:
    """Replay every schedule and re-check every certificate and claim of a catalog by exact arithmetic; no solver is
    trusted.

    Each entry that is wrong or damaged is named on a line of its own, the others are checked none the less; exit code 5
    then.

    \b
    Example:
      synth catalog verify
    """
    from synth.commands.api import catalog
    from synth.pareto.events import Event

    count = bad = 0
    with catalog.open(db) as store, progress(f"verify {db}") as listen:
        for check in store.verify():
            count += 1
            listen(Event("query", f"entry {count}: {check.fingerprint[:12]}"))
            bad += check.error is not None
            if check.error is not None or verbose:
                click.echo(printable(f"{check.fingerprint[:12]}: {check.error or 'verified'}"))
            for line in check.lines if verbose else ():
                click.echo(printable(f"  {line}"))
    click.echo(f"{db}: {counted(count, 'entry')} checked, {f'{bad} bad' if bad else 'all verified'}")
    return FAILED if bad else 0

"""`synth catalog verify`: everything in a catalog, checked again."""

from __future__ import annotations

from dataclasses import dataclass

import click

from synth.commands.catalog import open
from synth.commands.catalog.group import Database
from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import printable
from synth.commands.framework.progress import progress
from synth.model.rational import counted

FAILED = 5


@dataclass(frozen=True, kw_only=True)
class CatalogVerify(Database):
    """The options of `synth catalog verify`."""

    verbose: bool = option("-v", "--verbose", default=False, help="Print a line for each claim that was checked.")


@command(CatalogVerify, brief="Replay and re-check every entry, without a solver.")
def verify_command(options: CatalogVerify) -> int:
    """Replay every schedule and re-check every certificate and claim of a catalog by exact arithmetic; no solver is
    trusted.

    Each entry that is wrong or damaged is named on a line of its own, the others are checked none the less; exit code 5
    then.

    \b
    Example:
      synth catalog verify
    """
    from synth.pareto.events import Event

    count = bad = 0
    with open(options.db) as store, progress(f"verify {options.db}") as listen:
        # A bad entry ends nothing: all are checked.
        for check in store.verify():
            count += 1
            listen(Event("query", f"entry {count}: {check.fingerprint[:12]}"))
            bad += check.error is not None
            if check.error is not None or options.verbose:
                click.echo(printable(f"{check.fingerprint[:12]}: {check.error or 'verified'}"))
            for line in check.lines if options.verbose else ():
                click.echo(printable(f"  {line}"))
    click.echo(f"{options.db}: {counted(count, 'entry')} checked, {f'{bad} bad' if bad else 'all verified'}")
    return FAILED if bad else 0

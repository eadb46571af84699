"""`synth catalog verify`: everything in a catalog, checked again."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.catalog.group import db_option
from synth.cli.framework.output import printable
from synth.cli.framework.progress import progress
from synth.cli.root import CONTEXT, UNDECIDED

FAILED = 5


@click.command(context_settings=CONTEXT, short_help="Replay and re-check every entry, without a solver.")
@db_option
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each claim that was checked.")
def verify(db: Path, verbose: bool) -> int:
    """Replay every schedule and re-check every certificate, program and claim of a catalog by exact arithmetic; no
    solver is trusted.

    Each entry that is wrong or damaged is named on a line of its own, the others are checked none the less; exit code 5
    then. So are claims that could not be checked, as those of a schedule too large to be kept; exit code 4 then.

    \b
    Example:
      synth catalog verify
    """
    from synth.api import catalog
    from synth.model.documents.json_reader import Unchecked
    from synth.pareto.events import Event

    count = bad = left = 0
    with catalog.open(db) as store, progress(f"verify {db}") as listen:
        whole = len(store)
        for check in catalog.verify(store):
            count += 1
            listen(Event("query", f"{count} of {whole}: {check.name}"))
            bad += check.error is not None
            if check.error is not None:
                click.echo(printable(f"{check.fingerprint[:12]} {check.name}: {check.error}"))
                continue
            open_claims = [line for line in check.lines if isinstance(line, Unchecked)]
            left += bool(open_claims)
            shown = check.lines if verbose else open_claims
            if shown or verbose:
                click.echo(printable(f"{check.fingerprint[:12]} {check.name}"))
            for line in shown:
                click.echo(printable(f"  {line}"))
    result = "all verified"
    if bad or left:
        result = f"{bad} bad" if bad else f"{left} not wholly"
    click.echo(f"{db}: {count} entr{'y' if count == 1 else 'ies'} checked, {result}")
    if bad:
        return FAILED
    return UNDECIDED if left else 0

"""`synth verify`: believe nothing, check everything."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.options import FILE
from synth.cli.piped import announced
from synth.cli.progress import waiting
from synth.cli.root import CONTEXT
from synth.errors import FormatError, VerificationError


@click.command(context_settings=CONTEXT, short_help="Replay schedules and re-check certificates.")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("--proof", type=FILE, metavar="DIR", help="Where the proof files are that the documents name.")
def verify(files: tuple[Path, ...], proof: Path | None) -> None:
    """Replay the schedules and re-check the certificates of FILE (whatever synth wrote) by exact arithmetic; no solver is trusted.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json && synth verify frontier.json
    """
    from synth import api

    for file in files:
        try:
            with waiting(f"verifying {file.name}"), announced(f"verifying {file}"):
                lines = api.verify(file, proof)
        except VerificationError as error:
            raise error.within(str(file)) from error
        except FormatError as error:
            raise error if error.file else FormatError(str(error), str(file)) from error
        for line in lines:
            click.echo(line)
        click.echo(f"{file}: verified")

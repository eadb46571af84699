"""`synth verify`: believe nothing, check everything."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.framework.options import FILE
from synth.cli.framework.output import note
from synth.cli.framework.progress import waiting
from synth.cli.root import CONTEXT, UNDECIDED
from synth.errors import FormatError, VerificationError
from synth.model.rational import counted


@click.command(context_settings=CONTEXT, short_help="Replay schedules and re-check certificates.")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("--proof", type=FILE, metavar="DIR", help="The folder of the proof files that the documents name.")
def verify(files: tuple[Path, ...], proof: Path | None) -> int:
    """Replay the schedules and re-check the certificates of FILE (whatever synth wrote) by exact arithmetic; no solver
    is trusted.

    A line for each claim. Lines that begin "not checked: " name claims that could not be checked: the exit code is 4
    then, and 5 where something is wrong; of several files all are checked.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json && synth verify frontier.json
    """
    from synth import api
    from synth.model.documents.json_reader import Unchecked

    code, wrong = 0, []
    for file in files:
        try:
            with waiting(f"verifying {file}"):
                lines = api.verify(file, proof)
        except VerificationError as error:
            wrong.append(error.within(str(file)))
            continue
        except FormatError as error:
            fault = error if error.file else FormatError(str(error), str(file))
            if file.suffix.lower() == ".xml" and file.exists():
                fault = FormatError("XML has no certificates to verify; `synth lint` checks MSCCL-IR", str(file))
            wrong.append(fault)
            continue
        for line in lines:
            click.echo(line)
        left = sum(isinstance(line, Unchecked) for line in lines)
        click.echo(f"{file}: " + (f"verified but for {counted(left, 'claim')} not checked" if left else "verified"))
        code = UNDECIDED if left else code
    if wrong:
        *others, gravest = sorted(wrong, key=lambda error: (5, 1, 4).index(error.exit_code), reverse=True)
        for error in others:
            note(f"error: {error}")
        raise gravest
    return code

"""`synth verify`: believe nothing, check everything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.framework.options import FILE
from synth.commands.framework.output import note, printable
from synth.commands.framework.progress import waiting
from synth.commands.root import CONTEXT, UNDECIDED
from synth.errors import FormatError, UndecidedError, VerificationError
from synth.model.documents.text_file import files_of
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.model.documents.json_reader import Claims
    from synth.model.topology import Topology

SUFFIXES = (".json", ".npz")  # of the documents in a folder
GRAVITY = (0, UNDECIDED, 1, 5)  # exit codes, the gravest last
CHECKED = (VerificationError, FormatError, UndecidedError)  # errors of a document, which end no other check


@click.command(context_settings=CONTEXT, short_help="Replay schedules and re-check certificates.")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE|DIR...")
def verify(files: tuple[Path, ...]) -> int:
    """Replay the schedules and re-check the certificates of FILE (whatever synth wrote), or of each .json and .npz file
    in DIR, by exact arithmetic; no solver is trusted.

    A line for each claim, and one that names the collective, the machine and the number of ranks; of the files in DIR
    only that one. Lines that begin "not checked: " name claims that could not be checked: the exit code is 4 then, and
    5 where something is wrong; of several files all are checked.

    \b
    Examples:
      synth pareto --topo dgx1 --coll allgather -o frontier.json && synth verify frontier.json
      synth verify algorithms/frontiers
    """
    codes, wrong = [0], []
    for path in files:
        if path.is_dir():
            codes += [_in_folder(file) for file in files_of([path], suffixes=SUFFIXES)]
            continue
        try:
            lines = _claims(path)
        except CHECKED as error:
            wrong.append(error)
            continue
        for line in lines:
            click.echo(printable(line))
        codes.append(_closed(path, lines))
    if wrong:
        *others, gravest = sorted(wrong, key=lambda error: GRAVITY.index(error.exit_code))
        for error in others:
            note(f"error: {error}")
        if GRAVITY.index(gravest.exit_code) >= max(map(GRAVITY.index, codes)):
            raise gravest
        note(f"error: {gravest}")
    return max(codes, key=GRAVITY.index)


def _claims(file: Path) -> Claims:
    from synth.checker.documents.dispatch import check_document  # not through the API, which loads engines

    try:
        with waiting(f"verifying {file}"):
            return check_document(file, _named_machine)
    except VerificationError as error:
        raise error.within(str(file)) from None
    except FormatError as error:
        if file.suffix.lower() == ".xml" and file.exists():
            raise FormatError("XML has no certificates to verify; `synth lint` checks MSCCL-IR", str(file)) from None
        raise error if error.file else FormatError(str(error), str(file)) from None


def _named_machine(name: str) -> Topology | None:
    from synth.topologies import topology_or_none

    return topology_or_none(name)


def _in_folder(file: Path) -> int:
    try:
        return _closed(file, _claims(file))
    except CHECKED as error:
        click.echo(printable(f"not verified: {error}"))
        return error.exit_code


def _closed(file: Path, lines: Claims) -> int:
    from synth.model.documents.json_reader import Unchecked

    left = sum(isinstance(line, Unchecked) for line in lines)
    but = f" but for {counted(left, 'claim')} not checked" if left else ""
    click.echo(printable(f"{file}: verified{but}: {lines.subject}"))
    return UNDECIDED if left else 0

"""`synth verify` and `synth.verify`: believe nothing, check everything."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import note, printable
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import FILE
from synth.commands.root import UNDECIDED
from synth.errors import FormatError, UndecidedError, UsageError, VerificationError
from synth.model.documents.text_file import files_of
from synth.model.frontier import Frontier
from synth.model.rational import counted
from synth.model.schedule import Schedule, SynchronousSchedule

if TYPE_CHECKING:
    from synth.model.documents.json_reader import Claims
    from synth.model.topology import Topology

SUFFIXES = (".json", ".npz")  # of the documents in a folder
GRAVITY = (0, UNDECIDED, 1, 5)  # exit codes, the gravest last
CHECKED = (VerificationError, FormatError, UndecidedError)  # errors of a document, which end no other check


def verify(given: str | Path | dict | Frontier | SynchronousSchedule) -> Claims:
    """Replay the schedules and re-check the certificates of a value or a file.

    Parameters
    ----------
    given : a schedule, a frontier, the document of one of these, or its file.

    Returns
    -------
    A line for each claim that holds, and one for what is assumed; the attribute `subject` of the list is the
    collective, the machine and the number of ranks.

    Raises
    ------
    VerificationError with the place of what is wrong; FormatError for a file that is none of these; UsageError for
    another value.

    Examples
    --------
    >>> import synth
    >>> for line in synth.verify(synth.frontier("ring:4", "allgather").points[0].schedule):
    ...     print(line)
    schedule: C=2 S=2 R=3, 24 sends replayed, postcondition holds
    assumed, not checked: that the machine has these links, bandwidths and latencies
    """
    from synth.checker.documents.dispatch import check_document

    # Values are written as documents first: the checker trusts no object of this process.
    if isinstance(given, str | Path | dict):
        return check_document(given, _named_machine)
    if isinstance(given, Schedule):
        return check_document(given.to_json(), _named_machine)
    if not isinstance(given, Frontier | SynchronousSchedule):
        raise UsageError(f"a {type(given).__name__} is not verified; give a frontier, a schedule, a document or a file")
    from synth.commands.framework.documents import frontier_document, write_schedules

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if isinstance(given, SynchronousSchedule):
            file = folder / f"schedule{given.suffix}"
            given.save(file)
            return check_document(file, _named_machine)
        files = dict(write_schedules(given, folder)) if given.engine == "flow" else {}
        return check_document(frontier_document(given, files), _named_machine, folder)


@dataclass(frozen=True, kw_only=True)
class Verify:
    """The options of `synth verify`."""

    files: tuple[Path, ...] = option("files", type=FILE, nargs=-1, required=True, metavar="FILE|DIR...")


@command(Verify)
def verify_command(options: Verify) -> int:
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
    # Each document of a folder has one line; the claims of a file have theirs.
    codes, wrong = [0], []
    for path in options.files:
        if path.is_dir():
            for file in files_of([path], suffixes=SUFFIXES):
                try:
                    codes.append(_closed(file, _claims(file)))
                except CHECKED as error:
                    click.echo(printable(f"not verified: {error}"))
                    codes.append(error.exit_code)
            continue
        try:
            lines = _claims(path)
        except CHECKED as error:
            wrong.append(error)
            continue
        for line in lines:
            click.echo(printable(line))
        codes.append(_closed(path, lines))
    # The gravest fault ends the command, after a line for each other one.
    if wrong:
        *others, gravest = sorted(wrong, key=lambda error: GRAVITY.index(error.exit_code))
        for error in others:
            note(f"error: {error}")
        if GRAVITY.index(gravest.exit_code) >= max(map(GRAVITY.index, codes)):
            raise gravest
        note(f"error: {gravest}")
    return max(codes, key=GRAVITY.index)


def _claims(file: Path) -> Claims:
    from synth.checker.documents.dispatch import check_document

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


def _closed(file: Path, lines: Claims) -> int:
    from synth.model.documents.json_reader import Unchecked

    left = sum(isinstance(line, Unchecked) for line in lines)
    but = f" but for {counted(left, 'claim')} not checked" if left else ""
    click.echo(printable(f"{file}: verified{but}: {lines.subject}"))
    return UNDECIDED if left else 0

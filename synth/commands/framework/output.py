"""Where results go: tables to stdout, JSON to a file (whole or not at all) or stdout, remarks to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from synth.errors import SynthError
from synth.model.documents.printable_text import printable as printable
from synth.model.documents.whole_file import write as write

if TYPE_CHECKING:
    from synth.view.frontier_text import Report

# True while a command runs with --quiet.
QUIET: ContextVar[bool] = ContextVar("QUIET", default=False)


# What commands print passes a stream that escapes it.
class PlainStream:
    """A text stream that escapes control characters other than ends of lines and tabs: no text of a stranger, of which
    names and notes are full, reaches a terminal as a command. `stream`: the stream that it writes to."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write `text`, and return its number of characters."""
        self.stream.write(printable(text, "\n\t"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def terminal(stream: Any) -> Any:
    """Return the stream below a `PlainStream`, for what this program draws itself."""
    return stream.stream if isinstance(stream, PlainStream) else stream


def emit(document: Callable[[], Any], table: Callable[[], Report | Sequence[Report] | None], options: Any) -> None:
    """Print `table` and/or write `document` as JSON, as ``-o`` and ``--format`` of the `options` ask.

    `table`: returns the tables, or prints and returns None.

    Without ``-o``: one of the two on stdout. ``-o -``: the JSON alone on stdout. ``-o FILE``: the JSON to FILE, the
    table on stdout; with ``--format table`` the table goes to both. Raises SynthError when FILE cannot be written.
    """
    from synth.view.tables import Report, print_report

    def show() -> None:
        content = table()
        if content is not None:
            print_report(*([content] if isinstance(content, Report) else content))

    # A file gets JSON unless a table is asked for; stdout gets the other.
    output = options.output
    form = options.form or ("json" if output else "table")
    if output not in (None, "-"):
        try:
            show()  # first: it is not lost if the file cannot be written
            sys.stdout.flush()
        finally:  # nor is the file if whoever read the table has gone
            write(Path(output), _json(document()) if form == "json" else captured(show))
        wrote(output)
    elif form == "json":
        click.echo(_json(document()), nl=False)
    else:
        show()


def save(path: str | Path, content: str | bytes, what: str = "") -> None:
    """Write a file whole or not at all, and say so; `what`: its content in words. Raises SynthError."""
    write(Path(path), content)
    wrote(path, what)


def wrote(path: object, what: str = "") -> None:
    """Say on stderr that a file, or with `what` its content, was written; nothing with --quiet."""
    if not QUIET.get():
        note(f"wrote {path}{what and f': {what}'}")


def check_writable(*outputs: str | Path | None, folder: bool = False) -> None:
    """Raise SynthError for an output path that cannot be written, before anything is computed.

    Its parent folder must exist and take new files, and unless `folder` says that the outputs are folders, it must not
    be a folder.
    """
    for output in outputs:
        if output in (None, "-"):
            continue
        # The first reason that holds; a pipe or a device is written to as it is.
        path, fault = Path(str(output)), ""
        where = path if path.is_dir() else path.parent
        if not path.parent.is_dir():
            fault = f"the folder {path.parent} does not exist"
        elif path.is_dir() and not folder:
            fault = "it is a folder; name a file in it"
        elif path.is_file() and folder:
            fault = "it is a file; name a folder"
        elif path.exists() and not (path.is_dir() or path.is_file()):  # a pipe or /dev/stdout, written to as it is
            continue
        elif not os.access(where, os.W_OK | os.X_OK):
            fault = f"no permission to write into the folder {where}"
        if fault:
            raise SynthError(f"cannot write {output}: {fault}")


def captured(table: Callable[[], None]) -> str:
    """Return the text that `table` prints."""
    import io

    captured = io.StringIO()
    with contextlib.redirect_stdout(captured):
        table()
    return captured.getvalue()


def note(text: str) -> None:
    """One line on stderr."""
    print(f"synth: {printable(text)}", file=sys.stderr)


def _json(document: Any) -> str:
    import json

    return json.dumps(document, indent=None, separators=(", ", ": ")) + "\n"

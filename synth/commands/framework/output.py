"""Where results go: tables to stdout, JSON to a file (whole or not at all) or stdout, remarks to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import click

from synth.errors import SynthError
from synth.model.documents.printable_text import printable as printable
from synth.model.documents.whole_file import write as write

# True while a command runs with --quiet.
QUIET: ContextVar[bool] = ContextVar("QUIET", default=False)


def emit(document: Callable[[], Any], table: Callable[[], None], options: Any) -> None:
    """Print `table` and/or write `document` as JSON, as ``-o`` and ``--format`` of the `options` ask.

    Without ``-o``: one of the two on stdout. ``-o -``: the JSON alone on stdout. ``-o FILE``: the JSON to FILE, the
    table on stdout; with ``--format table`` the table goes to both. Raises SynthError when FILE cannot be written.
    """
    # A file gets JSON unless a table is asked for; stdout gets the other.
    output = options.output
    form = options.form or ("json" if output else "table")
    if output not in (None, "-"):
        try:
            table()  # first: it is not lost if the file cannot be written
            sys.stdout.flush()
        finally:  # nor is the file if whoever read the table has gone
            write(Path(output), _json(document()) if form == "json" else captured(table))
        wrote(output)
    elif form == "json":
        click.echo(_json(document()), nl=False)
    else:
        table()


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
    return json.dumps(document, indent=None, separators=(", ", ": ")) + "\n"

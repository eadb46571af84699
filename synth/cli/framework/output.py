"""Where results go: tables to stdout, JSON to a file (whole or not at all) or stdout, remarks to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from synth.errors import SynthError


def emit(document: Callable[[], Any], table: Callable[[], None], output: str | None, form: str | None) -> None:
    """Print `table` and/or write `document` as JSON, as ``-o`` and ``--format`` ask.

    Without ``-o``: one of the two on stdout. ``-o -``: the JSON alone on stdout. ``-o FILE``: the JSON to FILE, the
    table on stdout; with ``--format table`` the table goes to both. Raises SynthError when FILE cannot be written.
    """
    form = (form or ("json" if output else "table")).lower()
    if output not in (None, "-"):
        try:
            table()  # first: it is not lost if the file cannot be written
            sys.stdout.flush()
        finally:  # nor is the file if whoever read the table has gone
            write(Path(output), _json(document()) if form == "json" else captured(table))
    elif form == "json":
        click.echo(_json(document()), nl=False)
    else:
        table()


def check_writable(*outputs: str | Path | None) -> None:
    """Refuse, before anything is computed, a file that has no folder to be written into. Raises SynthError."""
    for output in outputs:
        if output not in (None, "-") and not Path(str(output)).parent.is_dir():
            raise SynthError(f"cannot write {output}: No such file or directory")


def captured(table: Callable[[], None]) -> str:
    """Return the text that `table` prints."""
    import io

    captured = io.StringIO()
    with contextlib.redirect_stdout(captured):
        table()
    return captured.getvalue()


def write(path: Path, content: str | bytes) -> None:
    """`content` into `path` through a temporary file beside it: readers see the old file or the new one, never half of
    it."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a pipe or /dev/stdout: there is nothing to rename over
            path.write_bytes(data)
            return
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise SynthError(f"cannot write {path}: {error.strerror or error}") from error


def note(text: str) -> None:
    """One line on stderr."""
    print(f"synth: {text}", file=sys.stderr)


def _json(document: Any) -> str:
    return json.dumps(document, indent=None, separators=(", ", ": ")) + "\n"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

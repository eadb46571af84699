"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from synth.errors import SynthError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to. It becomes `path` at the end of the block, and is removed on an error."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        if path.exists():
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write(path: Path, content: str | bytes) -> None:
    """Write `content` into `path` through a temporary file beside it, so that readers never see half of it.

    Raises SynthError where it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a pipe or /dev/stdout: there is nothing to rename over
            path.write_bytes(data)
            return
        with whole_file(path) as part:
            part.write_bytes(data)
    except OSError as error:
        missing = f"the folder {path.parent} does not exist"
        reason = missing if not path.parent.is_dir() else error.strerror or error
        raise SynthError(f"cannot write {path}: {reason}") from error

"""The one door for files that strangers wrote: regular files or pipes, bounded in size; text is Unicode."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from synth.errors import FormatError, UsageError, unreadable

MAX_BYTES = 8 << 20
SUFFIXES = (".json", ".xml")  # endings of the names of files that are read in a folder
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks: PowerShell's > writes UTF-16


def files_of(
    paths: Iterable[Path], *, below: bool = False, suffixes: tuple[str, str] = SUFFIXES
) -> list[Path]:  # fmt: skip
    """Return the files of `paths`, and of its folders those with `suffixes`; `below`: of all folders in them, too.

    Raises UsageError for a folder that has none.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        names = path.glob("**/*" if below else "*")
        inside = sorted(file for file in names if file.suffix in suffixes and file.is_file())
        if not inside:
            raise UsageError(f"{path} has no {suffixes[0]} and no {suffixes[1]} file")
        files += inside
    return files


def decoded(data: bytes) -> str:
    """Return the text of UTF-8, or of UTF-16 with its byte order mark. Raises UnicodeDecodeError."""
    return data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig")


def bytes_of(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes, at most `limit`, of a regular file or a pipe. Raises FormatError for devices, too."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISFIFO(state.st_mode) and not stat.S_ISDIR(state.st_mode):
            raise FormatError("is not a file", str(path))
        if state.st_size > limit:
            raise FormatError(f"has {state.st_size} bytes; at most {limit} are read", str(path))
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise FormatError(unreadable(error), str(path)) from None
    if len(data) > limit:
        raise FormatError(f"has more than {limit} bytes; at most {limit} are read", str(path))
    return data


def text_of(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the text (UTF-8; UTF-16 with its mark) of a file as `bytes_of` reads it. Raises FormatError."""
    try:
        return decoded(bytes_of(path, limit))
    except UnicodeDecodeError as error:
        raise FormatError(
            f"is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}", str(path)
        ) from None


def head_of(path: Path, count: int) -> bytes:
    """Return the first `count` bytes of a regular file, which tell its kind. Raises FormatError for others."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise FormatError("is not a file", str(path))
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise FormatError(unreadable(error), str(path)) from None

"""Text files that strangers wrote: regular, bounded in size, UTF-8."""

from __future__ import annotations

from pathlib import Path

from synth.errors import FormatError

MAX_BYTES = 8 << 20


def text_of(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the UTF-8 text of a regular file of at most `limit` bytes. Raises FormatError."""
    try:
        if not path.is_file():
            raise FormatError("is not a file" if path.exists() else "does not exist", str(path))
        if path.stat().st_size > limit:
            raise FormatError(f"has {path.stat().st_size} bytes; at most {limit} are read", str(path))
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}", str(path)
        ) from None
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", str(path)) from None

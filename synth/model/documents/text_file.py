"""Text files that strangers wrote: regular, bounded in size, Unicode."""

from __future__ import annotations

from pathlib import Path

from synth.errors import FormatError

MAX_BYTES = 8 << 20
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks: PowerShell's > writes UTF-16


def decoded(data: bytes) -> str:
    """Return the text of UTF-8, or of UTF-16 with its byte order mark. Raises UnicodeDecodeError."""
    return data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig")


def text_of(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the text (UTF-8; UTF-16 with its mark) of a regular file of at most `limit` bytes. Raises FormatError."""
    try:
        if not path.is_file():
            raise FormatError("is not a file" if path.exists() else "does not exist", str(path))
        if path.stat().st_size > limit:
            raise FormatError(f"has {path.stat().st_size} bytes; at most {limit} are read", str(path))
        return decoded(path.read_bytes())
    except UnicodeDecodeError as error:
        raise FormatError(
            f"is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}", str(path)
        ) from None
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", str(path)) from None

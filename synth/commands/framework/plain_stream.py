"""Streams of the command line on which no text of a stranger is a command to the terminal."""

from __future__ import annotations

from typing import Any, TextIO

from synth.model.documents.printable_text import printable


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

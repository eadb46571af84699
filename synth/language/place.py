"""Lines of sources that errors name: the user's, and the library's where the operation is in the library."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import CodeType

from synth.errors import UsageError

_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.join(_HERE, "library")


@dataclass(frozen=True)
class SourceLine:
    """A line of a file. `caller`: the user's line that called the library, where the line is the library's."""

    file: str
    line: int
    caller: SourceLine | None = None

    @property
    def users(self) -> bool:
        """True if it is in a program of the user, or called by one."""
        return self.caller is not None or not self.file.startswith(_LIBRARY)

    def __str__(self) -> str:
        text = f"{short_path(self.file)}:{self.line}"
        return text if self.caller is None else f"{text} ({self.caller})"


class SourceLines:
    """SourceLines of calls. Each is made once, and compared by identity."""

    def __init__(self, root: CodeType) -> None:
        self._root = root
        self._known: dict[tuple, SourceLine] = {}

    def current(self) -> SourceLine:
        """Return the place of the innermost call from outside this package.

        Frames below the function of code `root`, which began the trace, are not looked at.
        """
        # Walk out of this package: the library's line first, then the user's that called it.
        lines: list[tuple[str, int]] = []
        frame = sys._getframe(1)
        while frame is not None and frame.f_code is not self._root:
            file = frame.f_code.co_filename
            in_library = file.startswith(_LIBRARY)
            if in_library or not file.startswith(_HERE):
                if not lines or not in_library:
                    lines.append((file, frame.f_lineno))
                if not in_library:
                    break
            frame = frame.f_back
        key = tuple(lines)
        if key not in self._known:
            caller = SourceLine(*lines[1]) if len(lines) > 1 else None
            self._known[key] = SourceLine(*lines[0], caller) if lines else SourceLine("<program>", 0)
        return self._known[key]


def error_at(place: object, message: str) -> UsageError:
    """Return the error of a program that makes no sense, its line first if it is of use to the user."""
    if isinstance(place, SourceLine) and not place.users:
        return UsageError(message)
    return UsageError(f"{place}: {message}")


def short_path(file: str) -> str:
    """Return the path of a file below the working directory as from there, of another one its name."""
    if file.startswith(_LIBRARY):
        return os.path.basename(file)
    # A path that leads out of the working directory says less than the name.
    near = os.path.relpath(file)
    return os.path.basename(file) if near.startswith(os.pardir) else near

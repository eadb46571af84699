"""Files of the cache folder, which others may share: only the user's own are opened, and no links are followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

OTHERS = stat.S_IWGRP | stat.S_IWOTH  # permission of others to write


def is_own(path: Path) -> bool:
    """Return True for a file or folder, no link, that belongs to the user and that nobody else may write."""
    state = path.lstat()
    return (
        (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)) and _belongs(state) and not state.st_mode & OTHERS
    )


def _belongs(state: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or state.st_uid == os.geteuid()


def open_own(path: Path) -> IO[str]:
    """Open a text file to read and to append to; it is made where there is none.

    Raises OSError for a link, for what is no file, and for a file of another user.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, flags, 0o666)
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode) or not _belongs(state):
        os.close(handle)
        raise OSError(None, "is no file of yours")
    return os.fdopen(handle, "a+", encoding="utf-8", errors="replace")

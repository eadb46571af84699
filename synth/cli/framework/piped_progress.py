"""Progress where stderr is no terminal: one line, once, for long work."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from synth.cli.framework.output import note

# Seconds after which work counts as long.
LONG = 3.0


@contextmanager
def announced(what: str) -> Iterator[None]:
    """A line on stderr if the block takes long and stderr is no terminal."""
    if sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(LONG, note, (f"{what} ...",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

"""A worker that only waits; a module of its own, as what it imports is work of the process that runs it."""

import time
from pathlib import Path


def doze(*_: object) -> None:
    """Sleeps for a minute, whatever it is asked."""
    time.sleep(60)


def doze_until(file: Path, *_: object) -> None:
    """Sleeps until there is such a file."""
    while not file.exists():
        time.sleep(0.01)

"""A worker that only waits; a module of its own, as what it imports is work of the process that runs it."""

import time


def doze(*_: object) -> None:
    """Sleeps for a minute, whatever it is asked."""
    time.sleep(60)


def hold(size: int) -> None:
    """Fills so many bytes and sleeps for a minute."""
    held = b"x" * size
    time.sleep(60)
    del held

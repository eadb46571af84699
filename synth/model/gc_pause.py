"""Python's cycle collector at rest: it would look again and again at millions of small values, none of which is in a
cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Switch the garbage collector off within the block or, as a decorator, within the function; restore it after."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()

"""Python's cycle collector at rest: it would look again and again at millions of small values, none of which is in a
cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """While it lasts (or, as a decorator, while the function runs) nothing is collected; then as it was before."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()

"""Each mend taken back alone, by putting the function that had the fault in the place of the mended one while a campaign runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Patch = tuple[Any, str, Any]  # module or class, name, what stands there instead

MENDS: dict[str, Callable[[], list[Patch]]] = {}


@contextmanager
def without(name: str) -> Iterator[None]:
    """While it lasts the mend is undone; processes that are forked meanwhile lack it too."""
    patches = MENDS[name]()
    before = [(owner, key, getattr(owner, key)) for owner, key, _ in patches]
    for owner, key, value in patches:
        setattr(owner, key, value)
    try:
        yield
    finally:
        for owner, key, value in before:
            setattr(owner, key, value)

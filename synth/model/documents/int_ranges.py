"""Whole numbers that follow each other, as the first and the last of each run: how ranks and nodes are written down."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*")


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return the maximal runs of consecutive numbers, as ``[first, last]``, of ascending `numbers`."""
    found: list[list[int]] = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return found


def read(text: str) -> list[int]:
    """Return the numbers of ``0,1,5-7``, in the order of the text. Raises ValueError for anything else."""
    found: list[int] = []
    for part in text.split(","):
        shape = _PART.fullmatch(part)
        if shape is None or (shape[2] and int(shape[2]) < int(shape[1])):
            raise ValueError(f"{part.strip()[:40]!r} is neither a rank nor a range")
        found += range(int(shape[1]), int(shape[2] or shape[1]) + 1)
    return found

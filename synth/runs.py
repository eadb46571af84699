"""Whole numbers that follow each other, as the first and the last of each run: how ranks and nodes are written down."""

from __future__ import annotations

from collections.abc import Iterable


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as ``[first, last]`` of each run."""
    found: list[list[int]] = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return found

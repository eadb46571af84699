"""Connected components of a graph."""

from __future__ import annotations

from collections.abc import Iterable


def components(ends: Iterable[int], pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return for each end the least end to which pairs join it, directly or through others (union-find)."""
    parent = {end: end for end in ends}

    def root(end: int) -> int:
        while parent[end] != end:
            parent[end] = parent[parent[end]]
            end = parent[end]
        return end

    for a, b in pairs:
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return {end: root(end) for end in parent}

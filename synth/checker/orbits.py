"""Orbits under permutations that generate a group, by union-find of the standard library alone."""

from __future__ import annotations

from collections.abc import Sequence


class Orbits:
    """Orbits of 0..size-1 under the permutations joined so far."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def of(self, x: int) -> int:
        """Return the representative of the orbit of `x`, which may change with the next `join`."""
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def join(self, image: Sequence[int]) -> None:
        """Add the permutation that takes each x to ``image[x]``, so that their orbits become one."""
        for x, y in enumerate(image):
            self.parent[self.of(x)] = self.of(y)

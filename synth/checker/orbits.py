"""Orbits under permutations that generate a group: of a few items in Python, of millions of links in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class Orbits:
    """Orbits of 0..size-1 under the permutations joined so far, by union-find; it loads no numpy."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def of(self, x: int) -> int:
        """Return a number that is the same for all of the orbit of `x`, and for no other orbit."""
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def join(self, image: Sequence[int]) -> None:
        """Add the permutation that takes x to image[x]."""
        for x, y in enumerate(image):
            self.parent[self.of(x)] = self.of(y)


def orbit_labels(size: int, images: Sequence[np.ndarray]) -> np.ndarray:
    """Return the least member of each item's orbit under the permutations `images` of 0..size-1, int64.

    In each pass the labels of an item and its images sink to the lesser one, and then to the label of that label, so
    that a cycle of n items takes about log n passes.
    """
    import numpy as np

    label = np.arange(size)
    while True:
        least = label.copy()
        for image in images:
            np.minimum.at(least, image, label)
            np.minimum(least, label[image], out=least)
        if (least == label).all():
            return label
        label = least[least]

"""Orbits of millions of links or ranks under permutations that generate a group, in NumPy.

Of a few items, and where no numpy may be loaded, `synth.checker.orbits` finds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def orbit_labels(size: int, images: Sequence[np.ndarray]) -> np.ndarray:
    """Return the least member of each item's orbit under the permutations `images` of 0..size-1, int64.

    In each pass the labels of an item and its images sink to the lesser one, and then to the label of that label, so
    that a cycle of n items takes about log n passes.
    """
    label = np.arange(size)
    while True:
        least = label.copy()
        for image in images:
            np.minimum.at(least, image, label)
            np.minimum(least, label[image], out=least)
        if (least == label).all():
            return label
        label = least[least]

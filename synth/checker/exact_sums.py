"""Sums of int64 arrays that cannot wrap: NumPy adds modulo 2^64 without a word, and what adds documents up may not.

Either numbers are shown to be small before arrays are added (`fits`), or a sum is made as a Python integer (`total`).
"""

from __future__ import annotations

import numpy as np

from synth.errors import VerificationError

MAX_SUM = 1 << 62  # a sum of two that are smaller is still an int64
_LOW = (1 << 31) - 1


def fits(most: int, what: str, place: str) -> None:
    """Raises VerificationError unless `most`, a Python integer that no sum of `what` exceeds, leaves room in an
    int64."""
    if most >= MAX_SUM:
        raise VerificationError(f"{what} add up to {most}; sums up to {MAX_SUM - 1} are checked", place)


def total(values: np.ndarray) -> int:
    """The sum of an int64 array of fewer than 2^31 numbers, whatever they are: halves of them are added, which cannot
    wrap."""
    return (int((values >> 31).sum()) << 31) + int((values & _LOW).sum())

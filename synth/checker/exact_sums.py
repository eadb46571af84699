"""Sums of int64 arrays that cannot wrap: NumPy adds modulo 2^64 without a word, and what adds documents up may not.

Either numbers are shown to be small before arrays are added (`check_fits`), or a sum is made as a Python integer
(`exact_sum`).
"""

from __future__ import annotations

import numpy as np

from synth.errors import VerificationError

MAX_SUM = 1 << 62  # a sum of two that are smaller is still an int64
_LOW = (1 << 31) - 1


def check_fits(most: int, what: str, place: str) -> None:
    """Raise VerificationError, with `place`, unless sums fit an int64.

    `most`: an upper bound on every sum, as a Python integer. `what`: the summands, for the message.
    """
    if most >= MAX_SUM:
        raise VerificationError(f"{what} add up to {most}; sums up to {MAX_SUM - 1} are checked", place)


def exact_sum(values: np.ndarray) -> int:
    """Return the exact sum of an int64 array of fewer than 2^31 numbers.

    The upper and the lower halves of the numbers are added apart, which cannot wrap.
    """
    return (int((values >> 31).sum()) << 31) + int((values & _LOW).sum())

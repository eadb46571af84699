"""Exact numbers near floating-point ones: simple fractions, integers of a common scale, whole parts of a total.

The duals of a linear program are floats. A certificate needs fractions or integers near them. Simple ones are tried
first, as they are the exact duals where these are simple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import floor, lcm
from typing import NamedTuple

SHRINK = 1 - 1e-12  # factor before rounding down, more than the error of a float
CLOSE = 1e-9  # a share that falls short of an integer by less is rounded up to it


def simple_fractions(values: Iterable[float], denominator: int) -> list[Fraction]:
    """Return the nearest fractions with denominators up to `denominator`."""
    return [Fraction(float(value)).limit_denominator(denominator) for value in values]


def common_scale(fractions: Iterable[Fraction]) -> int:
    """Return the least integer of which all fractions are multiples of the reciprocal."""
    return lcm(*(fraction.denominator for fraction in fractions))


class Rounding(NamedTuple):
    """A rule that makes integers of floats times `scale`: the nearest ones or, if `down`, those just below."""

    scale: int
    down: bool

    def __call__(self, value: float, total: float = 1.0) -> int:
        """Return the integer for `value`. Rounding down divides it by `total`, where that is above 1."""
        if self.down:
            return int(value * self.scale * (SHRINK / max(1.0, total)))
        return round(value * self.scale)


def roundings(values: Sequence[float], denominators: Sequence[int], largest: int) -> Iterator[Rounding]:
    """Yield the roundings that make `values` simple fractions of denominators up to each of `denominators`.

    Those whose scale would exceed `largest` are left out. The last rounds down at this scale.
    """
    for denominator in denominators:
        scale = common_scale(simple_fractions(values, denominator))
        if scale <= largest:
            yield Rounding(scale, False)
    yield Rounding(largest, True)


def near_integers(values: Sequence[float], denominator: int, largest: int, tolerance: float) -> tuple[int, list[int]]:
    """Return a scale and integers near `values` times it.

    They are the nearest ones if all values are within `tolerance` of fractions with denominators up to `denominator`
    and a common one up to `largest`. Otherwise the scale is `largest`, and values are rounded down.
    """
    fractions = simple_fractions(values, denominator)
    scale = common_scale(fractions)
    close = all(abs(float(fraction) - value) < tolerance for fraction, value in zip(fractions, values, strict=True))
    if close and scale <= largest:
        return scale, [int(fraction * scale) for fraction in fractions]
    return largest, [floor(value * largest) for value in values]


def largest_remainders(shares: Sequence[float], total: int, least: int = 0) -> list[int]:
    """Return integers of sum `total`, in proportion to `shares`, by the method of largest remainders (Hamilton).

    Each is at least `least`, for which `total` must suffice.
    """
    unit = total / sum(shares)
    exact = [max(float(least), share * unit) for share in shares]
    result = [floor(x + CLOSE) for x in exact]
    order = sorted(range(len(result)), key=lambda i: result[i] - exact[i])
    for i in order[: max(0, total - sum(result))]:
        result[i] += 1
    while sum(result) > total:
        reducible = [i for i, n in enumerate(result) if n > least]
        result[max(reducible, key=lambda i: result[i] - exact[i])] -= 1
    return result

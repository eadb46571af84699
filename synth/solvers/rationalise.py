"""Exact numbers near floating-point ones: simple fractions, integers of a common scale, whole parts of a total.

The duals of a linear program are floats. A certificate needs fractions or integers near them. Simple ones are tried
first, as they are the exact duals where these are simple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import floor, lcm
from typing import NamedTuple

# Factor before rounding down, more than the error of a float.
SHRINK = 1 - 1e-12
# A share that falls short of an integer by less is rounded up to it.
CLOSE = 1e-9


def simple_fractions(values: Iterable[float], denominator: int) -> list[Fraction]:
    """Return for each of `values` the nearest fraction with a denominator up to `denominator`."""
    return [Fraction(float(value)).limit_denominator(denominator) for value in values]


def common_denominator(fractions: Iterable[Fraction]) -> int:
    """Return the least common denominator of `fractions`, 1 for none."""
    return lcm(*(fraction.denominator for fraction in fractions))


class Rounding(NamedTuple):
    """A rule that makes integers of floats: times `scale`, to the nearest one or, if `down`, towards zero."""

    scale: int
    down: bool

    def __call__(self, value: float, total: float = 1.0) -> int:
        """Return the integer for `value`.

        `total`: the sum of values that must not exceed 1 after rounding. If it does before, rounding down divides by
        it.
        """
        if self.down:
            return int(value * self.scale * (SHRINK / max(1.0, total)))
        return round(value * self.scale)


def roundings(values: Sequence[float], denominators: Sequence[int], largest: int) -> Iterator[Rounding]:
    """Yield roundings of `values`, from the simplest fractions on.

    For each of `denominators` the scale is the common denominator of the nearest fractions with denominators up to it;
    a scale above `largest` is left out. The last rounding is down, at scale `largest`.
    """
    for denominator in denominators:
        scale = common_denominator(simple_fractions(values, denominator))
        if scale <= largest:
            yield Rounding(scale, False)
    yield Rounding(largest, True)


def near_integers(values: Sequence[float], denominator: int, largest: int, tolerance: float) -> tuple[int, list[int]]:
    """Return (scale, integers), where the integers divided by the scale approximate `values`.

    If all values are within `tolerance` of fractions with denominators up to `denominator`, whose common denominator is
    at most `largest`, these fractions are the approximation. Otherwise the scale is `largest`, and values are rounded
    down.
    """
    fractions = simple_fractions(values, denominator)
    scale = common_denominator(fractions)
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

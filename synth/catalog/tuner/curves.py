"""The time of one algorithm as a function of the size, from measured times where there are any, else from the model.

Between two measured sizes the time is linear in the size, as α + β·bytes is: held-back times of a DGX-1's programs were
met to 2% so, to 10% by a straight line between logarithms, which a knee bends away from. The first and the last line go
on to half and twice the sizes measured, no further, and no steeper than in proportion to the size. A single time scales
the model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from synth.catalog.tuner.measurements import Sample

BEYOND = 2  # times the last measured size that times are carried on to
Predict = Callable[[int], float | None]
Jumps = Callable[[int, int], Sequence[int]]


def no_jumps(low: int, high: int) -> Sequence[int]:
    """Return no sizes: the time is known to be continuous, or nothing is known."""
    return ()


@dataclass(frozen=True)
class Curve:
    """`samples` by growing size, at most one a size; `model` predicts seconds, None where it knows nothing."""

    samples: tuple[Sample, ...] = ()
    model: Predict | None = None

    def seconds(self, size: int) -> float | None:
        """Return the expected seconds of a call of `size` bytes; None where neither times nor a model give them."""
        if not self.samples:
            return self.model(size) if self.model else None
        first, last = self.samples[0], self.samples[-1]
        if size * BEYOND < first.size or size > last.size * BEYOND:
            return None
        if len(self.samples) == 1:
            return first.seconds * self._scale(first.size, size)
        i = min(max(1, bisect_right(self.samples, size, key=lambda s: s.size)), len(self.samples) - 1)
        a, b = self.samples[i - 1 : i + 1]
        slope = (b.seconds - a.seconds) / (b.size - a.size)
        if size < first.size:
            return first.seconds - _tame(slope, first) * (first.size - size)
        if size > last.size:
            return last.seconds + _tame(slope, last) * (size - last.size)
        return a.seconds + slope * (size - a.size)

    def spread(self, size: int) -> float:
        """Return the spread of repeats at `size` as a share of the time: the greater one of the two neighbouring
        samples."""
        if not self.samples:
            return 0.0
        i = bisect_right(self.samples, size, key=lambda s: s.size)
        return max(s.spread / s.seconds for s in self.samples[max(0, i - 1) : i + 1])

    def _scale(self, measured: int, size: int) -> float:
        """Return the model's time at `size` divided by its time at `measured`; 1 without a model."""
        then, now = (self.model(measured), self.model(size)) if self.model else (None, None)
        return now / then if then and now else 1.0


def _tame(slope: float, at: Sample) -> float:
    """Return the slope, limited so that time neither falls with the size nor grows faster than in proportion to it."""
    return min(max(slope, 0.0), at.seconds / at.size)


def cached_seconds(curve: Curve) -> Predict:
    """Return `curve.seconds` with a cache."""
    return cache(curve.seconds)

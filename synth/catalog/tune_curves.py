"""Time against size of one algorithm: by the cost model, by measured times, or by both.

With both, the model gives the shape and the measurements what it misses: log(measured/model) is interpolated linearly in
log(size). Without a model log(time) is. Beyond the measured sizes what was missing at the last one stays; without a model
the last slope goes on, no steeper than in proportion to the size. Neither goes further than twice (half) the last size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import exp, log

from synth.catalog.tune_measured import Sample

BEYOND = 2  # times the last measured size that times are carried on to
Predict = Callable[[int], float | None]


@dataclass(frozen=True)
class Curve:
    """`samples` by growing size, at most one a size; `model` predicts seconds, None where it knows nothing."""

    samples: tuple[Sample, ...] = ()
    model: Predict | None = None

    def seconds(self, size: int) -> float | None:
        """The expected time of a call of `size` bytes; None where nothing says it."""
        if not self.samples:
            return self.model(size) if self.model else None
        if size * BEYOND < self.samples[0].size or size > self.samples[-1].size * BEYOND:
            return None
        found = self._corrected(size)
        return self._interpolated(size) if found is None else found

    def spread(self, size: int) -> float:
        """How far repeats at `size` lie apart, as a share of the time: the greater of the samples on both sides."""
        if not self.samples:
            return 0.0
        i = bisect_right(self.samples, size, key=lambda s: s.size)
        return max(s.spread / s.seconds for s in self.samples[max(0, i - 1) : i + 1])

    @cached_property
    def _missed(self) -> list[tuple[float, float]] | None:
        """(log size, log of measured over predicted) of each sample; None without a model that knows them all."""
        if self.model is None:
            return None
        then = [self.model(sample.size) for sample in self.samples]
        return [(log(s.size), log(s.seconds / t)) for s, t in zip(self.samples, then, strict=True) if t] if all(then) else None

    def _corrected(self, size: int) -> float | None:
        now = self.model(size) if self.model else None
        return None if now is None or self._missed is None else now * exp(_between(self._missed, log(size)))

    def _interpolated(self, size: int) -> float:
        first, last = self.samples[0].size, self.samples[-1].size
        points = [(log(sample.size), log(sample.seconds)) for sample in self.samples]
        if size < first:
            return exp(points[0][1] - _slope(points[:2]) * (points[0][0] - log(size)))
        if size > last:
            return exp(points[-1][1] + _slope(points[-2:]) * (log(size) - points[-1][0]))
        return exp(_between(points, log(size)))


def _slope(points: Sequence[tuple[float, float]]) -> float:
    if len(points) < 2:
        return 0.0
    (x, y), (z, w) = points
    return min(1.0, max(0.0, (w - y) / (z - x)))


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Linear between the two points around x; the last one's value beyond."""
    i = bisect_right(points, x, key=lambda p: p[0])
    if i == 0 or i == len(points):
        return points[0 if i == 0 else -1][1]
    (a, y), (b, z) = points[i - 1], points[i]
    return y + (z - y) * (x - a) / (b - a)


def remembered(curve: Curve) -> Predict:
    """`curve.seconds`, each size worked out once."""
    return cache(curve.seconds)

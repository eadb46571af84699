"""Estimated seconds of a task: from the times of similar entries, else from its collective and its number of ranks.

Only the order of the tasks, and the estimate of a dry run, depend on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

# Measured seconds of each collective on `SETTINGS.ranks` ranks of a machine with direct links.
TYPICAL = {
    "allgather": 0.5,
    "reduce-scatter": 0.5,
    "alltoall": 0.7,
    "alltoallv": 1.5,
    "scatter": 2.0,
    "gather": 2.0,
    "allgatherv": 3.0,
    "reduce-scatterv": 4.0,
    "alltonext": 3.0,
    "sendrecv": 4.0,
    "multi-scatter": 12.0,
    "multi-gather": 12.0,
    "broadcast": 25.0,
    "reduce": 25.0,
    "allreduce": 30.0,
    "scan": 40.0,
    "multi-broadcast": 60.0,
    "multi-reduce": 60.0,
}


@dataclass(frozen=True)
class CostEstimateSettings:
    """Measured seconds from which those of a task are estimated, beside `TYPICAL`.

    Attributes:
        other: Seconds on `ranks` ranks of a collective that is not in `TYPICAL`.
        ranks: Ranks that the seconds of `TYPICAL`, `other` and `flow` are for.
        growth: Power of the number of ranks with which seconds of exact synthesis grow. Those of flow methods grow
            linearly.
        flow: Seconds of flow methods on `ranks` ranks.
        least: Seconds: no estimate and no recorded time is less.
    """

    other: float = 10.0
    ranks: int = 8
    growth: int = 3
    flow: float = 1.0
    least: float = 0.1


SETTINGS = CostEstimateSettings()


class EntryTime(NamedTuple):
    """The wall seconds of one entry, with what they depend on."""

    collective: str
    ranks: int
    engine: str
    seconds: float


class CostEstimator:
    """Estimates for tasks, from the times `taken` by earlier entries."""

    def __init__(self, taken: Iterable[EntryTime] = ()) -> None:
        self._same: dict[tuple[str, int, str], list[float]] = defaultdict(list)
        for time in taken:
            self._same[time.collective, time.ranks, time.engine].append(max(time.seconds, SETTINGS.least))

    def estimate(self, collective: str, ranks: int, engine: str, time_limit: float | None = None) -> float:
        """Return the estimated seconds of a task; a task ends at most 20% after its `time_limit` in seconds."""
        seconds = self._unlimited(collective, ranks, engine)
        return max(SETTINGS.least, seconds if time_limit is None else min(seconds, time_limit * 1.2))

    def _unlimited(self, collective: str, ranks: int, engine: str) -> float:
        same = self._same.get((collective, ranks, engine))
        if same:
            return median(same)
        sizes = [(abs(n - ranks), n) for name, n, kind in self._same if name == collective and kind == engine]
        if sizes:
            nearest = min(sizes)[1]
            return median(self._same[collective, nearest, engine]) * self._growth(ranks, nearest, engine)
        base = SETTINGS.flow if engine == "flow" else TYPICAL.get(collective, SETTINGS.other)
        return base * self._growth(ranks, SETTINGS.ranks, engine)

    @staticmethod
    def _growth(ranks: int, known: int, engine: str) -> float:
        return (ranks / known) ** (1 if engine == "flow" else SETTINGS.growth)

"""What a task will take, in seconds: from what entries of its like took, else from the collective and the number of
ranks.

Only the order of the tasks and the time left that is shown depend on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

# Seconds on eight ranks of a direct-connect machine, as measured; `OTHER` for a collective that is not listed.
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
OTHER, RANKS = 10.0, 8
GROWTH = 3  # power of the number of ranks
FLOW = 1.0  # flow methods on `RANKS` ranks; they grow with the number of ranks
LEAST = 0.1


class Taken(NamedTuple):
    """What one entry took."""

    collective: str
    ranks: int
    engine: str
    seconds: float


class Costs:
    """Estimates from `taken`."""

    def __init__(self, taken: Iterable[Taken] = ()) -> None:
        self._same: dict[tuple[str, int, str], list[float]] = defaultdict(list)
        for one in taken:
            self._same[one.collective, one.ranks, one.engine].append(max(one.seconds, LEAST))

    def estimate(self, collective: str, ranks: int, engine: str, time_limit: float | None = None) -> float:
        """Seconds that such a task will take."""
        found = self._unlimited(collective, ranks, engine)
        return max(LEAST, found if time_limit is None else min(found, time_limit * 1.2))

    def _unlimited(self, collective: str, ranks: int, engine: str) -> float:
        same = self._same.get((collective, ranks, engine))
        if same:
            return median(same)
        near = [(abs(n - ranks), n) for name, n, how in self._same if name == collective and how == engine]
        if near:
            n = min(near)[1]
            return median(self._same[collective, n, engine]) * self._grown(ranks, n, engine)
        base = FLOW if engine == "flow" else TYPICAL.get(collective, OTHER)
        return base * self._grown(ranks, RANKS, engine)

    @staticmethod
    def _grown(ranks: int, known: int, engine: str) -> float:
        return (ranks / known) ** (1 if engine == "flow" else GROWTH)

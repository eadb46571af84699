"""Column generation for fractional mixtures of single-chunk schedules of a combining collective, and schedules of whole
chunks near them.

The restricted master is a linear program: the least R/C of a mixture of the known single-chunk schedules, with the
rounds divided over the steps freely. Its dual values price every link in every step. An incremental SAT solver
(`synth.encodings.chunk_mixtures.incremental_sat`) finds further schedules that avoid expensive places, at these prices
and at means of them over the last turns (smoothing: Wentges, "Weighted Dantzig-Wolfe decomposition for linear
mixed-integer programming", ITOR 1997). Then the whole chunks that the mixture contains are taken, and iterative forward
search (`synth.encodings.chunk_mixtures.iterative_forward_search`) places others around them.

The pricing is heuristic: the schedules are cheap, not the cheapest. So to find none proves nothing. For one unit of
data, and networks without shared limits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import NamedTuple

from synth.encodings.chunk_mixtures.incremental_sat import ChunkSchedule, OneChunk, Place
from synth.encodings.chunk_mixtures.iterative_forward_search import (
    PROPAGATIONS,
    IterativeForwardSearch,
    PlacementResult,
    applies,
)
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.solvers.column_generation import generate_columns
from synth.solvers.linear_program import LinearProgram
from synth.solvers.rationalise import largest_remainders


@dataclass(frozen=True)
class FractionalChunkSettings:
    """Limits of column generation over single-chunk schedules.

    Attributes:
        first: Number of single-chunk schedules at random prices that the master begins with.
        means: Number of prices of one turn: the last ones, and mixtures with their mean over the turns.
        smoothing: Weight of the last prices in that mean.
        finds: Number of new schedules below which a turn counts as idle.
        idle: Number of idle turns in a row that end column generation.
        disturbed: Relative random disturbance of the prices for each idle turn in a row.
        shake: Random price of places that cost nothing, as a share of the greatest price.
        full: Mean rounds of a step for which whole chunks are sought.
        others: Further means, tried if the mixture meets the lower bound.
        exact: Maximum number of chunks at which a mixture is recognised as whole chunks.
        completing: Maximum number of propagations of one iterative forward search.
        sure: Tolerance for float comparisons.
    """

    first: int = 20
    means: int = 5
    smoothing: float = 0.3
    finds: int = 2
    idle: int = 12
    disturbed: float = 0.05
    shake: float = 1e-4
    full: int = 4
    others: tuple[int, ...] = (2, 3, 5, 6)
    exact: int = 200
    completing: int = 4_000_000
    sure: float = 1e-7


SETTINGS = FractionalChunkSettings()


def search_mixture(
    network: Network,
    collective: Collective,
    steps: int,
    least: Fraction,
    below: Fraction | None,
    propagations: int,
    seed: int,
    start: Sequence[Schedule] = (),
) -> PlacementResult:
    """Search for a schedule of `steps` steps with R/C less than `below`.

    Column generation ends after `propagations` propagations of the solver, or when a mixture attains `least`, a lower
    bound. The chunks of the schedules `start`, of at most `steps` steps, are its first columns. Deterministic.
    """
    if not applies(network, collective):
        return PlacementResult(None, 0.0)
    one = OneChunk(network, collective, steps)
    try:
        mixture = _Mixture(one, random.Random(seed), least)
        mixture.learn(propagations, start)
        schedule = mixture.best()
        if schedule is not None and below is not None and schedule.rounds_per_chunk >= below:
            schedule = None
        return PlacementResult(schedule, one.spent / PROPAGATIONS)
    finally:
        one.delete()


class MasterSolution(NamedTuple):
    """Optimal solution of the restricted master: R/C, the price of each place, the share of each known single-chunk
    schedule, and the rounds of each step for one chunk."""

    value: float
    price: dict[Place, float]
    shares: list[float]
    rounds: list[float]


class _Mixture:
    """Restricted master over the known single-chunk schedules, in its dual form, where each schedule is a row."""

    def __init__(self, one: OneChunk, rng: random.Random, least: Fraction) -> None:
        self.one, self.rng, self.least = one, rng, float(least)
        self.places = sorted(one.moves)
        self.index = {at: i for i, at in enumerate(self.places)}
        self.known: list[ChunkSchedule] = []
        self.seen: set[tuple[Place, ...]] = set()
        self.program = LinearProgram([0.0] * len(self.places) + [-1.0])
        units = [route.units for route in one.network.routes]
        rows: list[dict[int, float]] = [{} for _ in range(one.steps)]
        for (r, t), i in self.index.items():
            rows[t][i] = float(units[r])
        self.program.add_rows([(None, row, 1.0) for row in rows])
        self.solution = MasterSolution(float("inf"), {}, [], [])
        self.mean: dict[Place, float] = {}  # exponentially weighted mean of the prices
        self.idle = 0  # turns in a row that found few new schedules

    def learn(self, propagations: int, start: Sequence[Schedule]) -> None:
        """Generate columns: sets `known` and `solution`, of infinite value if no schedule is found."""
        for schedule in start:
            self._add(self.one.chunks_of(schedule))
        first = []
        for _ in range(SETTINGS.first):
            first.append(self._cheap_schedule({at: self.rng.random() for at in self.places}))
        self._add(first)

        def stop() -> bool:
            return (
                self.one.spent >= propagations
                or self.idle >= SETTINGS.idle
                or self.solution.value <= self.least + SETTINGS.sure
            )

        generate_columns(self._solve, stop, [self._price])

    def _price(self) -> bool:
        """Add cheap schedules at the last prices and at mixtures with their mean; return True, as others may follow."""
        last = self.solution.price
        mean = self.mean = {
            at: (1 - SETTINGS.smoothing) * self.mean.get(at, y) + SETTINGS.smoothing * y for at, y in last.items()
        }
        priced = []
        for k in range(SETTINGS.means):
            share = k / SETTINGS.means
            price = {at: share * mean[at] + (1 - share) * last[at] for at in self.places}
            priced.append(self._cheap_schedule(self._disturbed(price, self.idle)))
        self.idle = 0 if self._add(priced) >= SETTINGS.finds else self.idle + 1
        return True  # at prices disturbed further another turn may find more

    def _disturbed(self, price: dict[Place, float], idle: int) -> dict[Place, float]:
        """Return randomly disturbed prices; the disturbance grows with the number of idle turns."""
        greatest, width = max(price.values()), SETTINGS.disturbed * idle
        disturbed: dict[Place, float] = {}
        for at, y in price.items():
            disturbed[at] = y * (1 + width * (self.rng.random() - 0.5)) + SETTINGS.shake * greatest * self.rng.random()
        return disturbed

    def _cheap_schedule(self, price: dict[Place, float]) -> ChunkSchedule | None:
        """Return a single-chunk schedule that avoids expensive places; None if there is no schedule."""
        model = self.one.solve([], -1)
        return None if model is None else self.one.decoded(self.one.avoiding(model, [], price))

    def _add(self, schedules: Sequence[ChunkSchedule | None]) -> int:
        """Add the new ones of these schedules to the master; return their number."""
        rows = []
        for schedule in schedules:
            if schedule is None or schedule.places in self.seen or not self.index.keys() >= set(schedule.places):
                continue
            self.seen.add(schedule.places)
            self.known.append(schedule)
            sent = Counter(self.index[at] for at in schedule.places)
            rows.append((0.0, {**{i: float(n) for i, n in sent.items()}, len(self.places): -1.0}, None))
        self.program.add_rows(rows)
        return len(rows)

    def _solve(self) -> bool:
        """Solve the master over all known schedules: sets `solution`. Return False if there is none."""
        solved = self.program.solve() if self.known else None
        if solved is None:
            return False
        value, x, dual = solved
        steps = self.one.steps
        price = {at: max(0.0, y) for at, y in zip(self.places, x, strict=False)}
        shares = list(map(abs, dual))
        self.solution = MasterSolution(-value, price, shares[steps:], shares[:steps])
        return True

    def best(self) -> Schedule | None:
        """Return the schedule of least R/C of whole chunks that is found; None if not even one chunk has a schedule."""
        if self.solution.value == float("inf"):
            return None
        schedules: list[Schedule] = []
        exact = self._exact_rounds()
        candidates = [mean * self.one.steps for mean in (SETTINGS.full, *SETTINGS.others)]
        if exact and exact >= self.one.steps:
            candidates.insert(0, exact)
        for rounds in candidates:
            schedule = self._whole_chunks(rounds)
            if schedule is not None:
                schedules.append(schedule)
            if schedules:
                least = min(schedule.rounds_per_chunk for schedule in schedules)
                if rounds == exact or least <= self.least + SETTINGS.sure:
                    break
            if rounds == SETTINGS.full * self.one.steps and self.solution.value > self.least + SETTINGS.sure:
                break
        return min(schedules, key=lambda schedule: schedule.rounds_per_chunk, default=None)

    def _exact_rounds(self) -> int | None:
        """Return the least number of rounds at which the mixture has whole chunks and whole rounds of each step; None
        if that takes more than `SETTINGS.exact` chunks."""
        amounts = [share for share in (*self.solution.shares, *self.solution.rounds) if share > SETTINGS.sure]
        for chunks in range(1, SETTINGS.exact + 1):
            if all(abs(chunks * share - round(chunks * share)) < chunks * SETTINGS.sure for share in amounts):
                return round(chunks * self.solution.value)
        return None

    def _whole_chunks(self, rounds: int) -> Schedule | None:
        """Return a schedule of as many whole chunks as are placed in `rounds` rounds; None if none is."""
        maximum = floor(rounds / max(self.solution.value, self.least) + SETTINGS.sure)
        search = IterativeForwardSearch(
            self.one, largest_remainders(self.solution.rounds, rounds, 1), self.rng, SETTINGS.completing
        )
        for k, schedule in enumerate(self._rounded(maximum, search.capacity)):
            search.put(k, schedule)
        search.run(maximum)
        return self.one.schedule(search.best) if search.best else None

    def _rounded(self, chunks: int, capacity: dict[Place, int]) -> list[ChunkSchedule]:
        """Return at most `chunks` whole chunks that fit together: what the mixture contains, then by remainder."""
        total = sum(self.solution.shares)
        queue: list[tuple[float, ChunkSchedule]] = []
        for share, schedule in zip(self.solution.shares, self.known, strict=True):
            if share > SETTINGS.sure:
                count = chunks * share / total
                whole = floor(count + SETTINGS.sure)
                queue += [(1.0 + count - n, schedule) for n in range(1, whole + 1)]
                queue.append((count - whole, schedule))
        free = dict(capacity)
        taken: list[ChunkSchedule] = []
        for _, schedule in sorted(queue, key=lambda item: (-item[0], item[1].places)):
            need = Counter(schedule.places)
            if len(taken) < chunks and all(free[at] >= n for at, n in need.items()):
                taken.append(schedule)
                for at, n in need.items():
                    free[at] -= n
        return taken

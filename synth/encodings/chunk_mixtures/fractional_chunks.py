"""Many chunks of a combining collective at once: what fraction of them goes which way, and whole chunks of that.

Column generation: a linear program finds the least R/C of fractions of the schedules for one chunk that are known, with
rounds divided over the steps as it likes; its dual prices every link in every step. More schedules for one chunk, which
do without what is dear, are asked of a solver (`synth.encodings.chunk_mixtures.incremental_sat`), at those prices and
at means of them over the last turns (smoothing: Wentges, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer
programming", ITOR 1997). Then as many whole chunks as the fractions contain are taken, and others are placed around
them, moving each other out of the way (`synth.encodings.chunk_mixtures.iterative_forward_search`).

The schedules asked for are cheap, not the cheapest: what is not found, here too, says nothing. For one unit of data,
and networks without limits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import NamedTuple

from synth.encodings.chunk_mixtures.incremental_sat import OneChunk, Place, Way
from synth.encodings.chunk_mixtures.iterative_forward_search import PROPAGATIONS, Placed, Search, applies
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.solvers.linear_program import LinearProgram

FIRST = 20  # schedules for one chunk at random prices, to begin with
MEANS = 5  # prices asked at in a turn: the last ones, the mean of many turns, and what lies between
SMOOTHING = 0.3  # how much of the last prices is in that mean
FINDS, IDLE = (
    2,
    12,
)  # new schedules in a turn below which prices are disturbed, and turns in a row with so few that end it
DISTURBED = 0.05  # by how much more after each of these
FULL, OTHERS = 4, (2, 3, 5, 6)  # rounds of each step; and others, where a bound may be met
EXACT = 200  # chunks up to which fractions are looked for that are whole numbers of them
COMPLETING = 4_000_000  # propagations for the chunks that are placed around those taken
SURE = 1e-7
SHAKE = 1e-4


def blend(
    network: Network,
    collective: Collective,
    steps: int,
    least: Fraction,
    below: Fraction | None,
    propagations: int,
    seed: int,
    start: Sequence[Schedule] = (),
) -> Placed:
    """A schedule in `steps` steps with R/C less than `below`, None where none is found.

    Column generation ends after so many `propagations` of the solver, or where fractions attain `least`. Schedules of
    `start`, in as many steps or fewer, say how chunks may go. The same arguments give the same answer.
    """
    if not applies(network, collective):
        return Placed(None, 0.0)
    one = OneChunk(network, collective, steps)
    try:
        made = _Blend(one, random.Random(seed), least)
        made.learn(propagations, start)
        schedule = made.best()
        if schedule is not None and below is not None and schedule.bandwidth >= below:
            schedule = None
        return Placed(schedule, one.spent / PROPAGATIONS)
    finally:
        one.delete()


class Shares(NamedTuple):
    """What fractions of chunks attain: R/C, the price of each place, how much of each schedule, and of each step's
    rounds."""

    value: float
    price: dict[Place, float]
    ways: list[float]
    rounds: list[float]


class _Blend:
    """The schedules for one chunk that are known, and the linear program over them: its dual, where each is a row."""

    def __init__(self, one: OneChunk, rng: random.Random, least: Fraction) -> None:
        self.one, self.rng, self.least = one, rng, float(least)
        self.places = sorted(one.moves)
        self.index = {at: i for i, at in enumerate(self.places)}
        self.ways: list[Way] = []
        self.seen: set[tuple[Place, ...]] = set()
        self.program = LinearProgram([0.0] * len(self.places) + [-1.0])
        units = [route.units for route in one.network.routes]
        step = [{i: float(units[r]) for (r, t), i in self.index.items() if t == at} for at in range(one.steps)]
        self.program.add_rows([(None, row, 1.0) for row in step])

    def learn(self, propagations: int, start: Sequence[Schedule]) -> None:
        """Fills `ways` and `shares`: schedules for one chunk, and what fractions of them attain."""
        for schedule in start:
            self._add(self.one.ways(schedule))
        self._add([way for _ in range(FIRST) if (way := self._ask({at: self.rng.random() for at in self.places}))])
        self.shares = self._solve()
        mean = self.shares.price
        idle = 0
        while self.one.spent < propagations and idle < IDLE and self.shares.value > self.least + SURE:
            last = self.shares.price
            mean = {at: (1 - SMOOTHING) * mean[at] + SMOOTHING * last[at] for at in self.places}
            found = []
            for k in range(MEANS):
                share = k / MEANS
                found.append(
                    self._ask(self._shaken({at: share * mean[at] + (1 - share) * last[at] for at in self.places}, idle))
                )
            new = self._add([way for way in found if way is not None])
            idle = 0 if new >= FINDS else idle + 1
            self.shares = self._solve()

    def _shaken(self, price: dict[Place, float], idle: int) -> dict[Place, float]:
        """Prices disturbed by chance, the more the longer nothing new was found."""
        most, wide = max(price.values()), DISTURBED * idle
        return {
            at: y * (1 + wide * (self.rng.random() - 0.5)) + SHAKE * most * self.rng.random() for at, y in price.items()
        }

    def _ask(self, price: dict[Place, float]) -> Way | None:
        """A schedule for one chunk that does without what is dear."""
        model = self.one.solve([], -1)
        return None if model is None else self.one.way(self.one.sparing(model, [], price))

    def _add(self, ways: Sequence[Way]) -> int:
        """Enters those that are new, and says how many were."""
        rows = []
        for way in ways:
            if way.places in self.seen or any(at not in self.index for at in way.places):
                continue
            self.seen.add(way.places)
            self.ways.append(way)
            sent = Counter(self.index[at] for at in way.places)
            rows.append((0.0, {**{i: float(n) for i, n in sent.items()}, len(self.places): -1.0}, None))
        self.program.add_rows(rows)
        return len(rows)

    def _solve(self) -> Shares:
        """The linear program over all that is known."""
        solved = self.program.solve() if self.ways else None
        if solved is None:
            return Shares(float("inf"), dict.fromkeys(self.places, 1.0), [0.0] * len(self.ways), [1.0] * self.one.steps)
        value, x, dual = solved
        steps = self.one.steps
        price = {at: max(0.0, y) for at, y in zip(self.places, x, strict=False)}
        return Shares(-value, price, [abs(y) for y in dual[steps:]], [abs(y) for y in dual[:steps]])

    def best(self) -> Schedule | None:
        """The schedule with the least R/C that whole chunks are found for; None where there is not even one chunk."""
        if not self.ways or self.shares.value == float("inf"):
            return None
        found: list[Schedule] = []
        exact = self._exact()
        for rounds in [
            *([exact] if exact and exact >= self.one.steps else []),
            *(each * self.one.steps for each in (FULL, *OTHERS)),
        ]:
            made = self._whole(rounds)
            found += [made] if made is not None else []
            met = min(schedule.bandwidth for schedule in found) if found else None
            if met is not None and (rounds == exact or met <= self.least + SURE):
                break
            if rounds == FULL * self.one.steps and self.shares.value > self.least + SURE:
                break
        return min(found, key=lambda schedule: schedule.bandwidth, default=None)

    def _exact(self) -> int | None:
        """The least number of rounds for which the fractions are whole chunks and whole rounds of each step; None for
        more than `EXACT`."""
        some = [share for share in (*self.shares.ways, *self.shares.rounds) if share > SURE]
        for chunks in range(1, EXACT + 1):
            if all(abs(chunks * share - round(chunks * share)) < chunks * SURE for share in some):
                return round(chunks * self.shares.value)
        return None

    def _whole(self, rounds: int) -> Schedule | None:
        """As many whole chunks as are found room for in so many rounds."""
        most = floor(rounds / max(self.shares.value, self.least) + SURE)
        search = Search(self.one, self._room(rounds), self.rng, COMPLETING)
        for k, way in enumerate(self._rounded(most, search.capacity)):
            search.put(k, way)
        search.run(most)
        return self.one.schedule(search.best) if search.best else None

    def _room(self, rounds: int) -> list[int]:
        """Whole rounds for each step, near the fractions, one at least: `rounds` are no fewer than the steps."""
        share = [max(1.0, rounds * r / sum(self.shares.rounds)) for r in self.shares.rounds]
        room = [floor(r) for r in share]
        while sum(room) < rounds:
            room[max(range(len(room)), key=lambda t: share[t] - room[t])] += 1
        while sum(room) > rounds:
            room[max((t for t in range(len(room)) if room[t] > 1), key=lambda t: room[t] - share[t])] -= 1
        return room

    def _rounded(self, chunks: int, capacity: dict[Place, int]) -> list[Way]:
        """Whole chunks: what the fractions contain, then by their remainders, where each fits beside those before
        it."""
        total = sum(self.shares.ways)
        wanted = [
            (chunks * share / total, way)
            for share, way in zip(self.shares.ways, self.ways, strict=True)
            if share > SURE
        ]
        queue = [(1.0 + count - n, way) for count, way in wanted for n in range(1, floor(count + SURE) + 1)]
        queue += [(count - floor(count + SURE), way) for count, way in wanted]
        left = dict(capacity)
        taken: list[Way] = []
        for _, way in sorted(queue, key=lambda item: (-item[0], item[1].places)):
            need = Counter(way.places)
            if len(taken) < chunks and all(left[at] >= n for at, n in need.items()):
                taken.append(way)
                for at, n in need.items():
                    left[at] -= n
        return taken

"""Queries worth asking at one S: which engine, on which symmetric shape, with how many representatives and rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, gcd, lcm

from synth.encodings.round_variables import counting
from synth.encodings.translated_chunks import Translation
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto.combining.symmetry_candidates import Shape, shapes
from synth.solvers.processes.deadline import check

REPRESENTATIVES = 6  # at most, per orbit of units
MIXED, MIXED_CHUNKS = 32, 600  # representatives of a mixture of hubs, at least; its chunks, at most
EFFORT = 300_000  # the largest cost of a formula: about its clauses
# clauses that count the rounds of one, and chunks at the ranks of its schedule: more take longer to write than to solve
COUNTED = 100_000
LITTLE = 30_000  # that of one with more representatives: what takes longer is found by other engines before
LOOSEST = 10  # times the bound: rounds for a first schedule


@dataclass(frozen=True, eq=False)
class Candidate:
    """One engine on one translation with S steps and R rounds; `cost` grows with the formula for one chunk of each
    representative,
    `loads` are the orbits of routes and limits."""

    engine: str
    translation: Translation
    steps: int
    rounds: int
    cost: int
    loads: int

    @property
    def value(self) -> Fraction:
        """R / C."""
        return Fraction(self.rounds, self.translation.chunks)

    @property
    def fits(self) -> bool:
        """Whether its formula and its schedule are small enough to be asked for: both grow with R where bandwidths are
        uneven."""
        asked = self.translation
        chunks = asked.chunks * asked.collective.units * asked.network.ranks
        return chunks + counting(asked.loads, 2 * len(asked.representatives), self.steps, self.rounds) <= COUNTED

    @property
    def complete(self) -> bool:
        """Whether every schedule with its C, S and R is among those asked about: each chunk is a representative of its
        own."""
        asked = self.translation
        return self.engine == "direct" and len(asked.moves) == 1 and asked.copies == 1 and not asked.inner

    @property
    def rank(self) -> tuple[bool, int, int]:
        """What to try first: hubs; then small formulas whose loads are averaged over few orbits; then few chunks."""
        return self.engine != "hub", self.cost * self.loads, self.translation.chunks


@dataclass(eq=False)
class Frame:
    """A candidate whose rounds are still to be found, by halving once it has had a schedule.

    Fewer than `least` rounds are refuted or below the bound; fewer than `now` were given up with the present effort.
    With `most` rounds there is room for whatever may be sent: more would change nothing.
    """

    base: Candidate
    least: int
    most: int
    now: int = 0
    alive: bool = False

    def next(self, upper: Fraction | None) -> Candidate | None:
        """What to ask so as to get below `upper`; None when nothing is left."""
        low = max(self.least, self.now)
        high = LOOSEST * self.least if upper is None else ceil(upper * self.base.translation.chunks) - 1
        high = min(high, self.most)
        if high < low:
            return None
        found = replace(self.base, rounds=(low + high) // 2 if self.alive else high)
        return found if found.fits else None


class Candidates:
    """All candidates of a network and a collective. Under a time limit (`synth.solvers.processes.deadline`) they may
    end in TimeUp."""

    def __init__(self, network: Network, collective: Collective, seed: int) -> None:
        self.network, self.collective, self.seed = network, collective, seed
        self._singles: dict[tuple[int, bool], Translation] = {}

    def meeting(self, steps: int, bound: Fraction) -> list[Candidate]:
        """Those whose R/C is `bound`, the most promising first."""
        made = []
        for engine, shape, count in self._frames(steps):
            fine = self._fine(shape)
            for copies in dict.fromkeys((1, fine)):
                chunks = self._chunks(shape, count) * copies
                if (bound * chunks).denominator > 1:
                    continue
                more = max(1, ceil(steps / (bound * chunks)))
                made.append(self._candidate(engine, shape, chunks * more, copies * more, steps, bound * chunks * more))
        return sorted((c for c in made or self._larger(steps, bound) if c.fits), key=lambda c: c.rank)

    def _larger(self, steps: int, bound: Fraction) -> Iterator[Candidate]:
        """Of each shape the one of fewest representatives whose R/C is `bound`, where that takes more of them than
        elsewhere."""
        for shape in self._shapes:
            each = bound * self._chunks(shape, 1)
            count = each.denominator * max(1, ceil(steps / each.numerator))
            if self._cost("direct", shape, count, steps) <= LITTLE:
                yield self._candidate("direct", shape, self._chunks(shape, count), 1, steps, each * count)

    def mixture(self, steps: int, bound: Fraction) -> Candidate | None:
        """A mixture of hubs whose R/C is `bound`; None where that engine does not apply."""
        from synth.encodings.hubs.symmetric_column_generation import Ways, rounds_of

        shape = next((s for s in self._shapes if not s.inner), None)
        if shape is None or self.hub_steps is None or steps < self.hub_steps or not Ways.fits(self.network):
            return None
        each = 2 * self._chunks(shape, 1)  # two representatives: one is the other read backwards
        for chunks in range(each, MIXED_CHUNKS + 1, each):
            rounds = bound * chunks
            enough = chunks >= MIXED * each // 2 and rounds.denominator == 1 and rounds >= steps
            if enough and (steps % 2 == 0 or rounds_of(int(rounds), steps)[steps // 2] % 2 == 0):
                return self._candidate("mixture", shape, chunks, 1, steps, rounds)
        return None

    def sharing(self, steps: int) -> Candidate | None:
        """Any mixture of ways through hubs; None where that engine does not apply."""
        from synth.encodings.hubs.exchanges import Ways

        if self.hub_steps is None or self.collective.units != 1 or not Ways.fits(self.network):
            return None
        return self._candidate("shares", self._shapes[-1], 1, 1, steps, 0)

    def placing(self, steps: int, chunks: int, rounds: int) -> Candidate | None:
        """So many chunks placed one by one; None where that engine does not apply."""
        from synth.encodings.chunk_mixtures import iterative_forward_search as placing

        if not placing.applies(self.network, self.collective):
            return None
        return self._candidate("placing", self._shapes[-1], chunks, 1, steps, rounds)

    def exactly(self, steps: int, chunks: int, rounds: int) -> list[Candidate]:
        """Those with C, S and R as given, the most promising first; the complete one is always among them."""
        made = []
        for shape in self._shapes:
            whole, left = self._chunks(shape, 1), Fraction(chunks)
            left /= whole
            alone = len(shape.moves) == 1 and not shape.inner
            counts = [n for n in range(1, REPRESENTATIVES + 1) if left % n == 0] + (
                [chunks] if alone and chunks > REPRESENTATIVES else []
            )
            for count in counts:
                for engine in ("hub", "direct"):
                    complete = alone and engine == "direct" and count == chunks
                    if complete or (
                        self._allows(engine, shape, steps) and self._cost(engine, shape, count, steps) <= EFFORT
                    ):
                        made.append(self._candidate(engine, shape, chunks, int(left / count), steps, rounds))
        return sorted(made, key=lambda c: c.rank)

    def frames(self, steps: int, bound: Fraction) -> list[Frame]:
        """Every engine, shape and number of representatives, with coarse and with the finest rounds, the most promising
        first."""
        made = []
        for engine, shape, count in self._frames(steps):
            for copies in {1, self._fine(shape)}:
                chunks = self._chunks(shape, count) * copies
                more = max(1, ceil(steps / (bound * chunks)))
                base = self._candidate(engine, shape, chunks * more, copies * more, steps, 0)
                least = max(steps, ceil(bound * chunks * more))
                if replace(base, rounds=least).fits:
                    made.append(Frame(base, least, steps * _room(base.translation)))
        return sorted(made, key=lambda f: f.base.rank)

    def _frames(self, steps: int) -> Iterator[tuple[str, Shape, int]]:
        for shape in self._shapes:
            for count in range(1, REPRESENTATIVES + 1):
                for engine in ("hub", "direct"):
                    if self._allows(engine, shape, steps) and self._cost(engine, shape, count, steps) <= EFFORT:
                        yield engine, shape, count

    def _allows(self, engine: str, shape: Shape, steps: int) -> bool:
        return engine == "direct" or (self.hub_steps is not None and steps >= self.hub_steps and not shape.inner)

    def _candidate(
        self, engine: str, shape: Shape, chunks: int, copies: int, steps: int, rounds: Fraction | int
    ) -> Candidate:
        translation = Translation(self.network, self.collective, shape.moves, chunks, copies, shape.inner)
        cost = self._cost(engine, shape, len(translation.representatives), steps)
        return Candidate(
            engine, translation, steps, int(rounds), cost, len(self._single(shape, bool(shape.inner)).loads)
        )

    def _cost(self, engine: str, shape: Shape, count: int, steps: int) -> int:
        routes, ranks = len(self.network.routes), self.network.ranks
        if engine != "direct":
            return 4 * routes * steps * count
        degree = 1 + routes // ranks
        return ranks * routes * steps * count * (1 + degree // 2) // shape.order

    @cached_property
    def _shapes(self) -> tuple[Shape, ...]:
        return shapes(self.network, self.collective, self.seed)

    def _single(self, shape: Shape, inner: bool = False) -> Translation:
        """One chunk a unit with that shape, or its moves alone: its loads take a while."""
        check()
        key = id(shape), inner
        if key not in self._singles:
            self._singles[key] = Translation(
                self.network, self.collective, shape.moves, 1, 1, shape.inner if inner else ()
            )
        return self._singles[key]

    def _chunks(self, shape: Shape, count: int) -> int:
        """C with `count` representatives for the unit that the most moves keep."""
        return lcm(*self._single(shape).stabilizers.values()) * count

    def _fine(self, shape: Shape) -> int:
        """Copies with which every send takes a whole number of rounds of each load: the finest choice of rounds."""
        return lcm(*(load.units // gcd(load.units, load.divisor) for load in self._single(shape).loads))

    @cached_property
    def hub_steps(self) -> int | None:
        """The least S of the hub encoding; None where it does not apply."""
        everyone = frozenset(range(self.network.ranks))
        if self.collective.wants is not None or any(
            x != everyone for x in (*self.collective.pre, *self.collective.post)
        ):
            return None
        ranks = range(self.network.ranks)
        far = [[d for d in row if d is not None] for row in self.network.distances]
        if any(len(row) < self.network.ranks for row in far):
            return None
        alone = min(max(far[n][r] for n in ranks) + max(far[r]) for r in ranks)
        both = {(r.src, r.dst) for r in self.network.routes}
        swaps = [
            max(min(far[n][a], far[n][b]) for n in ranks) + 1 + max(min(far[a][n], far[b][n]) for n in ranks)
            for a, b in both if (b, a) in both
        ]  # fmt: skip
        return min([alone, *swaps])


def _room(translation: Translation) -> int:
    """Rounds of a step in which every representative may send twice on every route: what it holds, and its rank's
    input."""
    sends = 2 * len(translation.representatives)
    return max(
        1,
        *(
            ceil(Fraction(sends * sum(w for _, w in load.weights) * load.divisor, load.units))
            for load in translation.loads
        ),
    )


def construction(engine: str, schedule: Schedule) -> str:
    """What to call it: "two hubs" where the sum of some chunk is completed by a swap between two roots."""
    if engine != "hub":
        return "mixture of hubs" if engine == "mixture" else engine
    for step in schedule.steps:
        sums = {(s.chunk, s.src, s.dst) for s in step.sends if s.kind == "reduce"}
        if any((c, b, a) in sums for c, a, b in sums):
            return "two hubs"
    return "hub"

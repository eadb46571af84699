"""Candidate attempts at one S: the engine, the symmetries, the number of representatives and of rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, gcd, lcm

from synth.encodings.round_variables import estimate_clauses
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto.combining.symmetry_candidates import SymmetryCandidate, symmetry_candidates
from synth.solvers.processes.deadline import check_deadline


@dataclass(frozen=True)
class CandidateSettings:
    """Sizes up to which candidates are tried.

    Attributes:
        representatives: Maximum number of representatives per orbit of units.
        mixed: Minimum number of representatives of a mixture of hubs.
        mixed_chunks: Maximum number of chunks of a mixture of hubs.
        effort: Maximum cost of a formula, which is about its number of clauses.
        counted: Maximum number of clauses that count the rounds of a formula, plus chunks at the ranks of its
            schedule. Larger formulas take longer to write than to solve.
        little: Maximum cost of a formula with more than `representatives` of them. Other engines find schedules
            sooner than larger ones.
        loosest: Rounds allowed for a first schedule, as a multiple of the bound.
    """

    representatives: int = 6
    mixed: int = 32
    mixed_chunks: int = 600
    effort: int = 300_000
    counted: int = 100_000
    little: int = 30_000
    loosest: int = 10


SETTINGS = CandidateSettings()


@dataclass(frozen=True, eq=False)
class CombiningCandidate:
    """One engine on one translation with S steps and R rounds.

    `cost`: about the number of clauses for one chunk of each representative. `loads`: number of orbits of routes and
    limits.
    """

    engine: str
    translation: TranslatedChunks
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
        """True where formula and schedule are small enough (`SETTINGS.counted`).

        Both grow with R where bandwidths differ.
        """
        translation = self.translation
        chunks = translation.chunks * translation.collective.units * translation.network.ranks
        clauses = estimate_clauses(translation.loads, 2 * len(translation.representatives), self.steps, self.rounds)
        return chunks + clauses <= SETTINGS.counted

    @property
    def complete(self) -> bool:
        """True where the formula admits every schedule with its C, S and R: each chunk is its own representative."""
        translation = self.translation
        trivial = len(translation.translations) == 1 and translation.copies == 1 and not translation.stabilizer_group
        return self.engine == "direct" and trivial

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sort key: hubs first, then small formulas whose loads are averaged over few orbits, then few chunks."""
        return self.engine != "hub", self.cost * self.loads, self.translation.chunks


@dataclass(eq=False)
class Frame:
    """A candidate whose number of rounds is searched for, by bisection once it has had a schedule (`alive`).

    Fewer than `least` rounds are refuted or below the bound. Attempts with fewer than `now` gave up at the present
    conflict limit. `most` rounds have capacity for every possible send, so more would admit no further schedule.
    """

    base: CombiningCandidate
    least: int
    most: int
    now: int = 0
    alive: bool = False

    def next(self, upper: Fraction | None) -> CombiningCandidate | None:
        """Return the next candidate whose R/C is below `upper`, or None where none remains."""
        low = max(self.least, self.now)
        high = SETTINGS.loosest * self.least if upper is None else ceil(upper * self.base.translation.chunks) - 1
        high = min(high, self.most)
        if high < low:
            return None
        rounds = (low + high) // 2 if self.alive else high
        candidate = replace(self.base, rounds=rounds)
        return candidate if candidate.fits else None


class Candidates:
    """All candidates of a network and a collective.

    Under a time limit (`synth.solvers.processes.deadline`) every method may raise TimeUp.
    """

    def __init__(self, network: Network, collective: Collective) -> None:
        self.network, self.collective = network, collective
        self._singles: dict[tuple[int, bool], TranslatedChunks] = {}

    def meeting(self, steps: int, bound: Fraction) -> list[CombiningCandidate]:
        """Return the candidates whose R/C is `bound`, the most promising first."""
        candidates = []
        for engine, symmetry, count in self._frames(steps):
            fine = self._fine(symmetry)
            for copies in dict.fromkeys((1, fine)):
                chunks = self._chunks(symmetry, count) * copies
                if (bound * chunks).denominator > 1:
                    continue
                more = max(1, ceil(steps / (bound * chunks)))
                rounds = bound * chunks * more
                candidates.append(self._candidate(engine, symmetry, chunks * more, copies * more, steps, rounds))
        return sorted((c for c in candidates or self._larger(steps, bound) if c.fits), key=lambda c: c.rank)

    def _larger(self, steps: int, bound: Fraction) -> Iterator[CombiningCandidate]:
        """Yield for each symmetry the candidate with fewest representatives whose R/C is `bound`.

        Their number is not limited by `SETTINGS.representatives`, but the cost is by `SETTINGS.little`.
        """
        for symmetry in self._symmetries:
            each = bound * self._chunks(symmetry, 1)
            count = each.denominator * max(1, ceil(steps / each.numerator))
            if self._cost("direct", symmetry, count, steps) <= SETTINGS.little:
                yield self._candidate("direct", symmetry, self._chunks(symmetry, count), 1, steps, each * count)

    def mixture(self, steps: int, bound: Fraction) -> CombiningCandidate | None:
        """Return a mixture of hubs whose R/C is `bound`, or None where that engine does not apply."""
        from synth.encodings.hubs.symmetric_column_generation import SymmetricHubPathPricer, rounds_of

        symmetry = next((s for s in self._symmetries if not s.stabilizer_group), None)
        if (
            symmetry is None
            or self.hub_steps is None
            or steps < self.hub_steps
            or not SymmetricHubPathPricer.fits(self.network)
        ):
            return None
        each = 2 * self._chunks(symmetry, 1)  # two representatives: one is the other read backwards
        for chunks in range(each, SETTINGS.mixed_chunks + 1, each):
            rounds = bound * chunks
            enough = chunks >= SETTINGS.mixed * each // 2 and rounds.denominator == 1 and rounds >= steps
            if enough and (steps % 2 == 0 or rounds_of(int(rounds), steps)[steps // 2] % 2 == 0):
                return self._candidate("mixture", symmetry, chunks, 1, steps, rounds)
        return None

    def sharing(self, steps: int) -> CombiningCandidate | None:
        """Return the candidate of column generation over hub paths, or None where that engine does not apply."""
        from synth.encodings.hubs.exchanges import HubPathPricer

        if self.hub_steps is None or self.collective.units != 1 or not HubPathPricer.fits(self.network):
            return None
        return self._candidate("shares", self._symmetries[-1], 1, 1, steps, 0)

    def single_chunk(self, steps: int) -> CombiningCandidate | None:
        """Return the candidate of column generation over single-chunk schedules, None where that does not apply."""
        from synth.encodings.chunk_mixtures import iterative_forward_search

        if not iterative_forward_search.applies(self.network, self.collective):
            return None
        return self._candidate("blending", self._symmetries[-1], 1, 1, steps, 0)

    def exactly(self, steps: int, chunks: int, rounds: int) -> list[CombiningCandidate]:
        """Return the candidates with these C, S and R, the most promising first. The complete one is among them."""
        candidates = []
        for symmetry in self._symmetries:
            repeats = Fraction(chunks, self._chunks(symmetry, 1))
            alone = len(symmetry.translations) == 1 and not symmetry.stabilizer_group
            counts = [n for n in range(1, SETTINGS.representatives + 1) if repeats % n == 0]
            if alone and chunks > SETTINGS.representatives:
                counts.append(chunks)
            for count in counts:
                for engine in ("hub", "direct"):
                    complete = alone and engine == "direct" and count == chunks
                    if complete or (
                        self._allows(engine, symmetry, steps)
                        and self._cost(engine, symmetry, count, steps) <= SETTINGS.effort
                    ):
                        copies = int(repeats / count)
                        candidates.append(self._candidate(engine, symmetry, chunks, copies, steps, rounds))
        return sorted(candidates, key=lambda c: c.rank)

    def frames(self, steps: int, bound: Fraction) -> list[Frame]:
        """Return a frame for every engine, symmetry and number of representatives, the most promising first.

        Each comes with coarse and with the finest rounds.
        """
        frames = []
        for engine, symmetry, count in self._frames(steps):
            for copies in {1, self._fine(symmetry)}:
                chunks = self._chunks(symmetry, count) * copies
                more = max(1, ceil(steps / (bound * chunks)))
                base = self._candidate(engine, symmetry, chunks * more, copies * more, steps, 0)
                least = max(steps, ceil(bound * chunks * more))
                if replace(base, rounds=least).fits:
                    frames.append(Frame(base, least, steps * _step_capacity(base.translation)))
        return sorted(frames, key=lambda f: f.base.rank)

    def _frames(self, steps: int) -> Iterator[tuple[str, SymmetryCandidate, int]]:
        for symmetry in self._symmetries:
            for count in range(1, SETTINGS.representatives + 1):
                for engine in ("hub", "direct"):
                    if (
                        self._allows(engine, symmetry, steps)
                        and self._cost(engine, symmetry, count, steps) <= SETTINGS.effort
                    ):
                        yield engine, symmetry, count

    def _allows(self, engine: str, symmetry: SymmetryCandidate, steps: int) -> bool:
        return engine == "direct" or (
            self.hub_steps is not None and steps >= self.hub_steps and not symmetry.stabilizer_group
        )

    def _candidate(
        self, engine: str, symmetry: SymmetryCandidate, chunks: int, copies: int, steps: int, rounds: Fraction | int
    ) -> CombiningCandidate:
        translation = TranslatedChunks(
            self.network, self.collective, symmetry.translations, chunks, copies, symmetry.stabilizer_group
        )
        cost = self._cost(engine, symmetry, len(translation.representatives), steps)
        return CombiningCandidate(
            engine,
            translation,
            steps,
            int(rounds),
            cost,
            len(self._single(symmetry, bool(symmetry.stabilizer_group)).loads),
        )

    def _cost(self, engine: str, symmetry: SymmetryCandidate, count: int, steps: int) -> int:
        routes, ranks = len(self.network.routes), self.network.ranks
        if engine != "direct":
            return 4 * routes * steps * count
        degree = 1 + routes // ranks
        return ranks * routes * steps * count * (1 + degree // 2) // symmetry.order

    @cached_property
    def _symmetries(self) -> tuple[SymmetryCandidate, ...]:
        return symmetry_candidates(self.network, self.collective)

    def _single(self, symmetry: SymmetryCandidate, stabilized: bool = False) -> TranslatedChunks:
        """Return the translated chunks with one per unit; with `stabilized`, invariant under the stabilizer group.

        It is cached because its loads take long to compute.
        """
        check_deadline()
        key = id(symmetry), stabilized
        if key not in self._singles:
            self._singles[key] = TranslatedChunks(
                self.network,
                self.collective,
                symmetry.translations,
                1,
                1,
                symmetry.stabilizer_group if stabilized else (),
            )
        return self._singles[key]

    def _chunks(self, symmetry: SymmetryCandidate, count: int) -> int:
        """Return C for `count` representatives of a unit: a multiple of the order of each unit's stabilizer."""
        return lcm(*self._single(symmetry).stabilizers.values()) * count

    def _fine(self, symmetry: SymmetryCandidate) -> int:
        """Return the least number of copies with which every send takes a whole number of rounds of each load."""
        return lcm(*(load.units // gcd(load.units, load.divisor) for load in self._single(symmetry).loads))

    @cached_property
    def hub_steps(self) -> int | None:
        """The least S of the hub encoding, None where it does not apply.

        One hub r takes its greatest distance from any rank plus its greatest distance to any rank. Two hubs joined both
        ways take one step more, the exchange of their sums, but each rank uses the nearer of them.
        """
        everyone = frozenset(range(self.network.ranks))
        if self.collective.wants is not None or any(
            x != everyone for x in (*self.collective.pre, *self.collective.post)
        ):
            return None
        ranks = range(self.network.ranks)
        distances: list[list[int]] = []
        for row in self.network.distances:
            distances.append([d for d in row if d is not None])
            if len(distances[-1]) < self.network.ranks:
                return None
        inward = [max(column) for column in zip(*distances, strict=True)]
        least = min(inward[r] + max(distances[r]) for r in ranks)
        links = {(r.src, r.dst) for r in self.network.routes}
        for a, b in links:
            if (b, a) in links:
                reduction = max(min(distances[n][a], distances[n][b]) for n in ranks)
                broadcast = max(min(distances[a][n], distances[b][n]) for n in ranks)
                least = min(least, reduction + 1 + broadcast)
        return least


def _step_capacity(translation: TranslatedChunks) -> int:
    """Return the rounds of a step in which every representative may send twice on every route.

    These two sends are the value that it holds, and its rank's input.
    """
    sends = 2 * len(translation.representatives)
    capacity = 1
    for load in translation.loads:
        weight = sum(w for _, w in load.weights)
        capacity = max(capacity, ceil(Fraction(sends * weight * load.divisor, load.units)))
    return capacity


def construction(engine: str, schedule: Schedule) -> str:
    """Return the name of a schedule's construction.

    It is "two hubs" where the sum of some chunk is completed by an exchange between two roots.
    """
    if engine != "hub":
        return "mixture of hubs" if engine == "mixture" else engine
    for step in schedule.steps:
        sums = {(s.chunk, s.src, s.dst) for s in step.sends if s.kind == "reduce"}
        if any((c, b, a) in sums for c, a, b in sums):
            return "two hubs"
    return "hub"

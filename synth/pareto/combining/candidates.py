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
from synth.pareto.combining.symmetry_candidates import Group, symmetry_candidates
from synth.solvers.deadline import check_deadline

# Representatives of each orbit of units, at most.
REPRESENTATIVES = 6
# Greatest cost of a formula, which is about its number of clauses.
EFFORT = 300_000
# Greatest number of clauses that count rounds, plus chunks at ranks: more take long to write.
COUNTED = 100_000
# Greatest cost of a formula with more than REPRESENTATIVES.
LITTLE = 30_000
# Representatives of a mixture of hubs, at least, and its chunks, at most.
MIXED, MIXED_CHUNKS = 32, 600
# Rounds allowed for a first schedule, as a multiple of the bound.
LOOSEST = 10


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
        """True where formula and schedule are small enough. Both grow with R where bandwidths differ."""
        translation = self.translation
        chunks = translation.chunks * translation.collective.units * translation.network.ranks
        clauses = estimate_clauses(translation.loads, 2 * len(translation.representatives), self.steps, self.rounds)
        return chunks + clauses <= COUNTED

    @property
    def complete(self) -> bool:
        """True where the formula admits every schedule with its C, S and R: each chunk is its own representative."""
        return self.engine == "direct" and len(self.translation.translations) == self.translation.copies == 1

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

    def at(self, rounds: int) -> CombiningCandidate:
        """Return the candidate with so many rounds."""
        return replace(self.base, rounds=rounds)

    def next(self, upper: Fraction | None) -> CombiningCandidate | None:
        """Return the next candidate whose R/C is below `upper`, or None where none remains."""
        low = max(self.least, self.now)
        high = LOOSEST * self.least if upper is None else ceil(upper * self.base.translation.chunks) - 1
        high = min(high, self.most)
        if high < low:
            return None
        candidate = self.at((low + high) // 2 if self.alive else high)
        return candidate if candidate.fits else None


class Candidates:
    """All candidates of a network and a collective.

    Under a time limit (`synth.solvers.deadline`) every method may raise TimeUp.
    """

    def __init__(self, network: Network, collective: Collective) -> None:
        self.network, self.collective = network, collective
        self._singles: dict[Group, TranslatedChunks] = {}

    def frames(self, steps: int, bound: Fraction) -> list[Frame]:
        """Return a frame for every engine, group and number of representatives, the most promising first.

        Each comes with coarse and with the finest rounds. Where none meets `bound` with whole rounds, each group has
        one with more representatives that does, unless its formula is large.
        """
        frames: list[Frame] = []
        for group in self._groups:
            single = self._single(group)
            fine = lcm(*(load.units // gcd(load.units, load.divisor) for load in single.loads))
            for count in range(1, REPRESENTATIVES + 1):
                for engine in self._engines(group, count, steps):
                    for copies in {1, fine}:
                        chunks = self._chunks(group, count) * copies
                        more = max(1, ceil(steps / (bound * chunks)))
                        frames += self._frame(engine, group, chunks * more, copies * more, steps, bound)
        if not any(meets(frame, bound) for frame in frames):
            for group in self._groups:
                each = bound * self._chunks(group, 1)
                count = each.denominator * max(1, ceil(steps / each.numerator))
                if self._cost("direct", count, steps) <= LITTLE:
                    frames += self._frame("direct", group, self._chunks(group, count), 1, steps, bound)
        return sorted(frames, key=lambda frame: frame.base.rank)

    def _frame(
        self, engine: str, group: Group, chunks: int, copies: int, steps: int, bound: Fraction
    ) -> Iterator[Frame]:
        """Yield the frame with so many chunks, unless its formula is too large."""
        base = self._candidate(engine, group, chunks, copies, steps, 0)
        least = max(steps, ceil(bound * chunks))
        if replace(base, rounds=least).fits:
            yield Frame(base, least, steps * _step_capacity(base.translation))

    def exactly(self, steps: int, chunks: int, rounds: int) -> list[CombiningCandidate]:
        """Return the candidates with these C, S and R, the most promising first. The complete one is among them."""
        candidates = []
        for group in self._groups:
            repeats = Fraction(chunks, self._chunks(group, 1))
            for count in range(1, REPRESENTATIVES + 1):
                for engine in self._engines(group, count, steps) if repeats % count == 0 else ():
                    candidates.append(self._candidate(engine, group, chunks, int(repeats / count), steps, rounds))
        if not any(candidate.complete for candidate in candidates):
            candidates.append(self._candidate("direct", self._groups[-1], chunks, 1, steps, rounds))
        return sorted(candidates, key=lambda c: c.rank)

    def mixture(self, steps: int, bound: Fraction) -> CombiningCandidate | None:
        """Return a mixture of hubs whose R/C is `bound`, or None where that engine does not apply, or has no use for
        want of symmetry."""
        from synth.encodings.hubs.annealing import rounds_of
        from synth.encodings.hubs.exchanges import HubPathPricer

        group = self._groups[0]
        few = self.hub_steps is None or steps < self.hub_steps
        if few or len(group) == 1 or not HubPathPricer.fits(self.network):
            return None
        each = 2 * self._chunks(group, 1)  # two representatives: one is the other read backwards
        for chunks in range(MIXED * each // 2, MIXED_CHUNKS + 1, each):
            rounds = bound * chunks
            whole = rounds.denominator == 1 and rounds >= steps
            if whole and (steps % 2 == 0 or rounds_of(int(rounds), steps)[steps // 2] % 2 == 0):
                return self._candidate("mixture", group, chunks, 1, steps, int(rounds))
        return None

    def columns(self) -> TranslatedChunks | None:
        """Return the chunks of column generation over hub paths, of the group with the fewest orbits.

        None where that engine does not apply.
        """
        from synth.encodings.hubs.exchanges import HubPathPricer

        if self.hub_steps is None or self.collective.units != 1 or not HubPathPricer.fits(self.network):
            return None
        return self._single(self._groups[0])

    def _engines(self, group: Group, count: int, steps: int) -> Iterator[str]:
        """Yield the engines that apply to so many representatives, and whose formulas are not too large."""
        if self.hub_steps is not None and steps >= self.hub_steps and self._cost("hub", count, steps) <= EFFORT:
            yield "hub"
        if self._cost("direct", count, steps) <= EFFORT:
            yield "direct"

    def _candidate(
        self, engine: str, group: Group, chunks: int, copies: int, steps: int, rounds: int
    ) -> CombiningCandidate:
        translation = TranslatedChunks(self.network, self.collective, group, chunks, copies)
        cost = self._cost(engine, len(translation.representatives), steps)
        return CombiningCandidate(engine, translation, steps, rounds, cost, len(self._single(group).loads))

    def _cost(self, engine: str, count: int, steps: int) -> int:
        routes, ranks = len(self.network.routes), self.network.ranks
        if engine != "direct":
            return 4 * routes * steps * count
        return ranks * routes * steps * count * (1 + (1 + routes // ranks) // 2)

    @cached_property
    def _groups(self) -> list[Group]:
        return symmetry_candidates(self.network, self.collective)

    def _single(self, group: Group) -> TranslatedChunks:
        """Return the translated chunks with one per unit, cached because its loads take long to compute."""
        check_deadline()
        if group not in self._singles:
            self._singles[group] = TranslatedChunks(self.network, self.collective, group, 1)
        return self._singles[group]

    def _chunks(self, group: Group, count: int) -> int:
        """Return C for `count` representatives of a unit: a multiple of the order of each unit's stabilizer."""
        return lcm(*self._single(group).stabilizers.values()) * count

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


def meets(frame: Frame, bound: Fraction) -> bool:
    """Return True where the least rounds of a frame are exactly those of the bound."""
    return frame.least == bound * frame.base.translation.chunks


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
        return "mixture of hubs" if engine in ("columns", "mixture") else engine
    for step in schedule.steps:
        sums = {(s.chunk, s.src, s.dst) for s in step.sends if s.kind == "reduce"}
        if any((c, b, a) in sums for c, a, b in sums):
            return "two hubs"
    return "hub"

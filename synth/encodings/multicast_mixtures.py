"""Schedules of few ranks whose switches multicast: mixtures of single-chunk schedules, with their lower bound.

Chunks share bandwidth and nothing else, so a schedule of many chunks is a mixture of single-chunk schedules. The least
R/C of a mixture is a linear program over all of them, which column generation solves with CaDiCaL as its pricer
(`synth.bounds.single_chunk`). Where it ends with a proof that no cheaper single-chunk schedule exists, the mixture is
optimal for every number of chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from synth.bounds.single_chunk import MixtureGeneration
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.model.topology import Network
from synth.solvers.rationalise import common_denominator, largest_remainders, simple_fractions


@dataclass(frozen=True)
class MixtureSettings:
    """Limits of the search.

    Attributes:
        most_variables: Maximum number of variables of one chunk, without auxiliary ones (an allreduce of three ranks in
            three steps: 172, of four ranks in two: 193). More take minutes.
        units: Maximum number of units, for each of which there are single-chunk schedules.
        columns: Maximum number of rounds of column generation.
        conflicts: Conflict limit of one query.
        denominator: Largest denominator of the share of a single-chunk schedule.
        exact_chunks: Maximum number of chunks of a mixture whose shares are exact.
        rounded_chunks: Maximum number of chunks of one whose shares are rounded.
    """

    most_variables: int = 200
    units: int = 16
    columns: int = 150
    conflicts: int = 20_000
    denominator: int = 1_000
    exact_chunks: int = 2_000
    rounded_chunks: int = 64


SETTINGS = MixtureSettings()


class MixtureSearch:
    """The search for schedules of `collective` on `network` with at most `max_chunks` chunks per unit (None: any)."""

    def __init__(self, network: Network, collective: Collective, max_chunks: int | None = None) -> None:
        self.network, self.collective, self.max_chunks = network, collective, max_chunks

    def applies(self, steps: int) -> bool:
        """Return True where the switches of the machine multicast, and one chunk has few enough variables.

        Chunks that are copied begin on one rank.
        """
        pre = self.collective.pre
        if not self.network.multicast or len(pre) > SETTINGS.units:
            return False
        return (self.collective.combining or all(len(ranks) == 1 for ranks in pre)) and self._fits(steps)

    def _fits(self, steps: int) -> bool:
        """Return True if the formula of `steps` steps of one chunk has few enough variables."""
        contents = (steps + 1) * self.network.ranks * max(map(len, self.collective.pre), default=0)
        if contents > SETTINGS.most_variables:
            return False
        generation = MixtureGeneration(self.network, self.collective, steps, 0, 0)
        most = max((next(names.fresh) - 1 for names in generation.names.values()), default=0)
        return most <= SETTINGS.most_variables

    def at_steps(self, steps: int, above: Fraction) -> tuple[Schedule | None, LowerBound | None]:
        """Return a schedule of `steps` steps, and a bound greater than `above` on R/C of all such schedules.

        The schedule is None where no mixture is known, or none of so few chunks. The bound is None where it was not
        proved, or is `above` at most. Raises TimeUp at the ambient deadline.
        """
        generation = MixtureGeneration(self.network, self.collective, steps, SETTINGS.columns, SETTINGS.conflicts)
        bound = generation.run(above)
        return (self._mixture(generation) if generation.shares else None), bound

    def _mixture(self, generation: MixtureGeneration) -> Schedule | None:
        """Return the schedule of the least R/C, and of these the one of the fewest chunks."""
        best: tuple[Fraction, int, list[int], list[int]] | None = None
        for chunks, counts in self._counts(generation):
            rounds = self._rounds(generation, counts)
            if best is None or (Fraction(sum(rounds), chunks), chunks) < best[:2]:
                best = Fraction(sum(rounds), chunks), chunks, counts, rounds
        if best is None:
            return None
        _, chunks, counts, rounds = best
        sends: list[list[Send]] = [[] for _ in rounds]
        switched: list[list[SwitchSend]] = [[] for _ in rounds]
        used = Counter({unit: unit * chunks for unit in generation.names})
        for column, count in zip(generation.columns, counts, strict=True):
            for chunk in range(used[column.unit], used[column.unit] + count):
                for t, row in enumerate(column.steps):
                    for send in row:
                        if isinstance(send, SwitchSend):
                            switched[t].append(send._replace(chunk=chunk))
                        else:
                            sends[t].append(send._replace(chunk=chunk))
            used[column.unit] += count
        steps = []
        for number, links, groups in zip(rounds, sends, switched, strict=True):
            steps.append(Step(number, tuple(sorted(links)), tuple(sorted(groups))))
        return Schedule(self.network, self.collective, chunks, tuple(steps))

    def _counts(self, generation: MixtureGeneration) -> Iterator[tuple[int, list[int]]]:
        """Yield numbers of chunks per unit, each with the number of chunks of each column."""
        shares = simple_fractions(generation.shares, SETTINGS.denominator)
        most = SETTINGS.exact_chunks if self.max_chunks is None else min(SETTINGS.exact_chunks, self.max_chunks)
        totals = dict.fromkeys(generation.names, Fraction(0))
        for column, share in zip(generation.columns, shares, strict=True):
            totals[column.unit] += share
        chunks = common_denominator(shares)
        if set(totals.values()) == {1} and chunks <= most:
            whole = [int(share * chunks) for share in shares]
            factor = common_denominator(self._fractional_rounds(generation, whole))
            if chunks * factor <= most:
                yield chunks * factor, [count * factor for count in whole]
        for chunks in range(1, min(most, SETTINGS.rounded_chunks) + 1):
            counts = [0] * len(shares)
            for unit in generation.names:
                own = [c for c, column in enumerate(generation.columns) if column.unit == unit]
                rounded = largest_remainders([max(generation.shares[c], 0.0) for c in own], chunks)
                for c, count in zip(own, rounded, strict=True):
                    counts[c] = count
            yield chunks, counts

    def _fractional_rounds(self, generation: MixtureGeneration, counts: list[int]) -> list[Fraction]:
        """Return for each step the rounds that so many chunks of each column take, as fractions."""
        rounds = []
        for t in range(generation.steps):
            busiest = Fraction(0)
            for k, (_, units) in enumerate(generation.resources):
                load = sum(count * column.loads[k][t] for column, count in zip(generation.columns, counts, strict=True))
                busiest = max(busiest, Fraction(load, units))
            rounds.append(busiest)
        return rounds

    def _rounds(self, generation: MixtureGeneration, counts: list[int]) -> list[int]:
        """Return the rounds of each step, at least one."""
        return [max(1, -(-load // 1)) for load in self._fractional_rounds(generation, counts)]

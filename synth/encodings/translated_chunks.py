"""Symmetry-reduced formulation: chunks as images of a few representatives under a group, for collectives whose chunks
of one unit are all alike.

An automorphism of the network that maps the collective to itself maps a valid schedule of one chunk to a valid schedule
of another. So a solver searches only one-chunk schedules of `representatives` for each orbit of units. Every element of
a small group H moves each of them, and the result is repeated `copies` times. The images of one representative load a
route as much together as the representative loads all routes of the orbit. So only these sums over orbits are
constrained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.dead_sends import prune
from synth.model.symmetry import Generator
from synth.model.topology import Network


@dataclass(frozen=True)
class Load:
    """A load limit for each step: the sends of the representatives, those on route r counted ``weights[r]`` times, are
    at most ``units * rounds / divisor``."""

    weights: tuple[tuple[int, int], ...]
    units: int
    divisor: int

    def max_count(self, rounds: int) -> int:
        """Return the greatest weighted count that `rounds` rounds allow."""
        return self.units * rounds // self.divisor


@dataclass(frozen=True)
class TranslatedChunks:
    """Chunks of every unit as images of representatives.

    Attributes:
        translations: automorphisms, one for each image of a representative: a group.
        chunks: number of chunks of each unit.
        copies: number of times that each image occurs.
    """

    network: Network
    collective: Collective
    translations: tuple[Generator, ...]
    chunks: int
    copies: int = 1

    @cached_property
    def stabilizers(self) -> dict[int, int]:
        """Order of the stabilizer of the first unit of each orbit, by that unit."""
        seen: set[int] = set()
        orders: dict[int, int] = {}
        for u in range(self.collective.units):
            if u not in seen:
                seen.update(m.units[u] for m in self.translations)
                orders[u] = sum(m.units[u] == u for m in self.translations)
        return orders

    @property
    def fits(self) -> bool:
        """Return True if `chunks` gives a whole number of representatives for every unit."""
        return all(self.chunks % (order * self.copies) == 0 for order in self.stabilizers.values())

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """Unit of each representative."""
        units: list[int] = []
        for u, order in self.stabilizers.items():
            units += [u] * (self.chunks // (order * self.copies))
        return tuple(units)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Load limits on representatives: one for each orbit of routes and of shared limits."""
        tightest: dict[tuple, tuple[int, int]] = {}
        resources = [((i,), r.units) for i, r in enumerate(self.network.routes)]
        resources += [(c.routes, c.units) for c in self.network.caps]
        back = [sorted(range(len(m.routes)), key=m.routes.__getitem__) for m in self.translations]
        for routes, units in resources:
            weight: dict[int, int] = {}
            for inverse in back:
                for r in routes:
                    weight[inverse[r]] = weight.get(inverse[r], 0) + 1
            common = math.gcd(*weight.values())
            key = tuple(sorted((r, w // common) for r, w in weight.items()))
            divisor = common * self.copies
            if key not in tightest or units * tightest[key][1] < tightest[key][0] * divisor:
                tightest[key] = (units, divisor)
        return tuple(Load(key, units, divisor) for key, (units, divisor) in tightest.items())

    def expand(self, steps: Sequence[Mapping[int, Sequence[tuple[int, str]]]]) -> Schedule:
        """Return the schedule of all chunks from ``steps[t][representative] = [(route, kind), ...]``, pruned, with as
        few copies as keep R/C.

        A route -1 - n stands for rank n itself, which adds its input to the sum that it holds.
        """
        schedule = self._all_images(steps)
        factor = math.gcd(self.copies, *(step.rounds for step in schedule.steps))
        if factor == 1:
            return schedule
        return replace(self, chunks=self.chunks // factor, copies=self.copies // factor)._all_images(steps)

    def _all_images(self, steps: Sequence[Mapping[int, Sequence[tuple[int, str]]]]) -> Schedule:
        sends: list[list[Send]] = [[] for _ in steps]
        used_chunks = [0] * self.collective.units
        for rep, unit in enumerate(self.representatives):
            for m in self.translations * self.copies:
                target = m.units[unit]
                chunk = target * self.chunks + used_chunks[target]
                used_chunks[target] += 1
                for t, step in enumerate(steps):
                    for r, kind in step.get(rep, ()):
                        if r < 0:
                            sends[t].append(Send(chunk, m.ranks[-1 - r], m.ranks[-1 - r], kind))
                            continue
                        route = self.network.routes[m.routes[r]]
                        sends[t].append(Send(chunk, route.src, route.dst, kind, route.via))
        rows = tuple(Step(1, tuple(sorted(row))) for row in sends)
        return prune(Schedule(self.network, self.collective, self.chunks, rows))

"""Chunks as translates of a few representatives, for collectives whose chunks of one unit are all alike.

An automorphism of the network that maps the collective to itself maps a right schedule of one chunk to a right
schedule of another. So a solver is asked for `representatives` one-chunk schedules per orbit of units only; every
element of a small group H moves each of them, and `copies` repeats the whole. A route then carries, of one
representative, as much as all routes of its orbit together, and only these averaged loads are constrained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from synth.model.collective import Collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step
from synth.model.symmetry import Generator
from synth.model.topology import Network

Perm = tuple[int, ...]


@dataclass(frozen=True)
class Load:
    """`weights[r]` sends of the representatives on route r make up at most ``units * rounds / divisor``, per step."""

    weights: tuple[tuple[int, int], ...]
    units: int
    divisor: int

    def most(self, rounds: int) -> int:
        """The greatest weighted count that `rounds` rounds allow."""
        return self.units * rounds // self.divisor


@dataclass(frozen=True)
class Classes:
    """What a representative that is invariant under some automorphisms does alike, each named by its least member."""

    ranks: Perm
    routes: Perm
    pairs: Mapping[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Translation:
    """How the `chunks` chunks of every unit are made from representatives under `moves`, each `copies` times.

    `moves` is a group, or for a collective of one unit any list of automorphisms. `inner`: generators under which
    each representative is to be invariant itself (collectives of one unit only).
    """

    network: Network
    collective: Collective
    moves: tuple[Generator, ...]
    chunks: int
    copies: int = 1
    inner: tuple[Generator, ...] = ()

    @cached_property
    def classes(self) -> Classes:
        """The orbits of ranks, routes and (rank, rank) pairs under `inner`."""
        n = self.network.ranks
        pairs = _orbits(n * n, [tuple(m.ranks[x // n] * n + m.ranks[x % n] for x in range(n * n)) for m in self.inner])
        return Classes(
            _orbits(n, [m.ranks for m in self.inner]),
            _orbits(len(self.network.routes), [m.routes for m in self.inner]),
            {(x // n, x % n): (rep // n, rep % n) for x, rep in enumerate(pairs)},
        )

    @cached_property
    def stabilizers(self) -> dict[int, int]:
        """The first unit of each orbit, with how many moves keep it."""
        seen: set[int] = set()
        found: dict[int, int] = {}
        for u in range(self.collective.units):
            if u not in seen:
                seen.update(m.units[u] for m in self.moves)
                found[u] = sum(m.units[u] == u for m in self.moves)
        return found

    @property
    def fits(self) -> bool:
        """Whether C is a whole number of representatives for every unit."""
        return all(self.chunks % (stays * self.copies) == 0 for stays in self.stabilizers.values())

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """The unit of each representative."""
        return tuple(u for u, stays in self.stabilizers.items() for _ in range(self.chunks // (stays * self.copies)))

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """One constraint per orbit of routes and caps, on the first route of each class of `inner`."""
        found: dict[tuple, tuple[int, int]] = {}
        resources = [((i,), r.units) for i, r in enumerate(self.network.routes)] + [
            (c.routes, c.units) for c in self.network.caps
        ]
        back = [sorted(range(len(m.routes)), key=m.routes.__getitem__) for m in self.moves]
        for routes, units in resources:
            weight: dict[int, int] = {}
            for inverse in back:
                for r in routes:
                    alike = self.classes.routes[inverse[r]]
                    weight[alike] = weight.get(alike, 0) + 1
            common = math.gcd(*weight.values())
            key = tuple(sorted((r, w // common) for r, w in weight.items()))
            divisor = common * self.copies
            if key not in found or units * found[key][1] < found[key][0] * divisor:
                found[key] = (units, divisor)
        return tuple(Load(key, units, divisor) for key, (units, divisor) in found.items())

    def expand(self, steps: Sequence[Mapping[int, Sequence[tuple[int, str]]]]) -> Schedule:
        """The whole schedule from ``steps[t][representative] = [(route, kind), ...]``, pruned, with as few copies as
        keep R/C.

        A route -1 - n stands for rank n itself, which adds its input to what it holds.
        """
        whole = self._laid_out(steps)
        spare = math.gcd(self.copies, *(step.rounds for step in whole.steps))
        if spare == 1:
            return whole
        return replace(self, chunks=self.chunks // spare, copies=self.copies // spare)._laid_out(steps)

    def _laid_out(self, steps: Sequence[Mapping[int, Sequence[tuple[int, str]]]]) -> Schedule:
        made: list[list[Send]] = [[] for _ in steps]
        taken = [0] * self.collective.units
        for rep, unit in enumerate(self.representatives):
            for m in self.moves * self.copies:
                target = m.units[unit]
                chunk = target * self.chunks + taken[target]
                taken[target] += 1
                for t, step in enumerate(steps):
                    for r, kind in step.get(rep, ()):
                        if r < 0:
                            made[t].append(Send(chunk, m.ranks[-1 - r], m.ranks[-1 - r], kind))
                            continue
                        route = self.network.routes[m.routes[r]]
                        made[t].append(Send(chunk, route.src, route.dst, kind, route.via))
        done = tuple(Step(1, tuple(sorted(sends))) for sends in made)
        return prune(Schedule(self.network, self.collective, self.chunks, done))


def _orbits(size: int, perms: Sequence[Perm]) -> Perm:
    rep = [-1] * size
    for start in range(size):
        stack = [] if rep[start] >= 0 else [start]
        while stack:
            x = stack.pop()
            if rep[x] < 0:
                rep[x] = start
                stack.extend(p[x] for p in perms)
    return tuple(rep)

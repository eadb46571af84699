"""Iterative forward search: chunks of a combining collective are placed one after another, and a chunk that does not
fit ejects another one.

An incremental SAT solver holds the formula of all schedules for one chunk (`synth.encodings.contributions`). The places
(route, step) that the placed chunks fill are assumed to be closed. If that leaves no schedule for the next chunk, the
solver's core names closed places of which the chunk needs one. A chunk there is ejected and placed again later. Places
that occur in many cores become expensive, and every chunk avoids expensive places where it can. The choice of what to
eject by conflict statistics is that of Müller, Barták and Rudová, "Iterative forward search algorithm: combining local
search with maintaining arc consistency and a conflict-based statistics", CP 2004 workshops.

To find none proves nothing. For one unit of data, and networks without shared limits.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from synth.encodings.chunk_mixtures.incremental_sat import ChunkSchedule, OneChunk, Place
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network

CONFLICTS = 2_000  # conflict limit of the query for a place for one chunk
PROPAGATIONS = 6e6  # propagations in a second of a core, about, as in `synth.solvers.cadical`


class PlacementResult(NamedTuple):
    """A schedule, None if none was found, and the work, as in `synth.solvers.boolean_model.Answer`."""

    schedule: Schedule | None
    work: float


def applies(network: Network, collective: Collective) -> bool:
    """Return True for collectives whose chunks are all alike, on networks that only links limit."""
    return collective.combining and collective.units == 1 and not network.caps


@dataclass
class IterativeForwardSearch:
    """State of the search.

    Attributes:
        one: the formula of one chunk.
        rounds: rounds of each step.
        rng: source of all random choices.
        propagations: maximum number of further propagations of the solver.
        placed: the schedule of each placed chunk.
        best: the most chunks that were placed together.
    """

    one: OneChunk
    rounds: list[int]
    rng: random.Random
    propagations: int
    placed: dict[int, ChunkSchedule] = field(default_factory=dict)
    best: list[ChunkSchedule] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.propagations += self.one.spent
        units = [route.units for route in self.one.network.routes]
        self.capacity = {(r, t): units[r] * self.rounds[t] for r, t in self.one.moves}
        self.load: Counter[Place] = Counter()
        self.weight = dict.fromkeys(self.one.moves, 1)

    def put(self, chunk: int, schedule: ChunkSchedule) -> None:
        """Place a chunk."""
        self.placed[chunk] = schedule
        self.load.update(schedule.places)
        if len(self.placed) > len(self.best):
            self.best = list(self.placed.values())

    def run(self, chunks: int) -> bool:
        """Place all chunks; return False if the propagations are spent or a single chunk does not fit."""
        waiting = [k for k in range(chunks) if k not in self.placed]
        while waiting and self.one.spent < self.propagations:
            chunk = waiting.pop(self.rng.randrange(len(waiting)))
            closed = self._closed_places()
            model = self.one.solve(closed, CONFLICTS)
            if model is not None:
                self.put(chunk, self.one.decoded(self.one.avoiding(model, closed, self._prices())))
                continue
            waiting.append(chunk)
            ejected = self._chunk_to_eject()
            if ejected is None:
                return False
            self.load.subtract(self.placed.pop(ejected).places)
            waiting.append(ejected)
        return not waiting

    def _closed_places(self) -> list[int]:
        """Return assumptions, in random order, that close the places that the placed chunks fill."""
        assumptions = []
        for at, sends in self.one.moves.items():
            free = self.capacity[at] - self.load[at]
            if free <= 0:
                assumptions += [-x for x in sends]
            elif free == 1 and at in self.one.once:
                assumptions.append(self.one.once[at])
        self.rng.shuffle(assumptions)
        return assumptions

    def _prices(self) -> dict[Place, float]:
        """Return a price for each place, which grows with the cores that it occurred in and with its load."""
        return {
            at: w * w * (0.5 + self.rng.random()) * (1 + self.load[at] / self.capacity[at])
            for at, w in self.weight.items()
        }

    def _chunk_to_eject(self) -> int | None:
        """Return a chunk at a place of the last core, preferably a place of few earlier cores; any chunk if the core is
        empty; None if there is no chunk to eject."""
        places = {self.one.place_of[abs(x)] for x in self.one.core}
        for at in places:
            self.weight[at] += 1
        chunks_at: dict[Place, list[int]] = {}
        for at in sorted(places):
            chunks = [k for k, schedule in self.placed.items() if at in schedule.places]
            if chunks:
                chunks_at[at] = chunks
        price = {at: self.weight[at] * (0.7 + 0.6 * self.rng.random()) for at in chunks_at}
        if price:
            return self.rng.choice(chunks_at[min(price, key=price.__getitem__)])
        return self.rng.choice(sorted(self.placed)) if self.placed and not places else None

"""Chunks of a combining collective put into a schedule one after another; one that finds no room moves others out of
its way.

What a schedule for one chunk is says one formula (`synth.encodings.contributions`), kept in an incremental solver. That
the chunks already placed have filled some links in some steps is assumed. If that leaves no schedule for the next
chunk, the solver's core names full places of which it needs one; a chunk that is there is taken out and placed again
later. Places that stand in the way often become dear, and every chunk is kept from dear places where it can do without.
Moving out what is in the way, chosen by how often it was, is iterative forward search (Müller, Barták and Rudová,
"Iterative forward search algorithm: combining local search with maintaining arc consistency and a conflict-based
statistics", CP 2004 workshops).

That no schedule is found says nothing. For one unit of data, and networks without limits.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from synth.encodings.chunk_mixtures.incremental_sat import OneChunk, Place, Way
from synth.encodings.translated_chunks import Translation
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network

CONFLICTS = 2_000  # of the question whether there is room
PROPAGATIONS = 6e6  # a second, about: as for `synth.solvers.cadical`


class Placed(NamedTuple):
    """The schedule, None where the calls did not do; `work`: as of `synth.solvers.boolean_model.Answer`."""

    schedule: Schedule | None
    work: float


def applies(network: Network, collective: Collective) -> bool:
    """Whether chunks can be placed one by one: they are all alike, and only links limit them."""
    return collective.combining and collective.units == 1 and not network.caps


def place(translation: Translation, steps: int, rounds: int, propagations: int, seed: int) -> Placed:
    """A schedule of all chunks of `translation` (of which only their number counts) in R rounds, as even as can be over
    the steps.

    Gives up after so many `propagations` of the solver. The same arguments give the same answer.
    """
    network, collective = translation.network, translation.collective
    if rounds < steps or not applies(network, collective):
        return Placed(None, 0.0)
    room = [rounds // steps + (t < rounds % steps) for t in range(steps)]
    one = OneChunk(network, collective, steps)
    try:
        search = Search(one, room, random.Random(seed), propagations)
        done = search.run(translation.chunks)
        return Placed(one.schedule(search.best) if done else None, one.spent / PROPAGATIONS)
    finally:
        one.delete()


@dataclass
class Search:
    """The chunks placed so far, into so many `rounds` of each step, with `propagations` of the solver to spend."""

    one: OneChunk
    rounds: list[int]
    rng: random.Random
    propagations: int
    placed: dict[int, Way] = field(default_factory=dict)
    best: list[Way] = field(default_factory=list)  # the most that were placed together

    def __post_init__(self) -> None:
        self.propagations += self.one.spent
        units = [route.units for route in self.one.network.routes]
        self.capacity = {(r, t): units[r] * self.rounds[t] for r, t in self.one.moves}
        self.load: Counter[Place] = Counter()
        self.weight = dict.fromkeys(self.one.moves, 1)

    def put(self, chunk: int, way: Way) -> None:
        """Place a chunk."""
        self.placed[chunk] = way
        self.load.update(way.places)
        if len(self.placed) > len(self.best):
            self.best = list(self.placed.values())

    def run(self, chunks: int) -> bool:
        """Place them all; False when the propagations are spent, or one chunk alone finds no room."""
        waiting = [k for k in range(chunks) if k not in self.placed]
        while waiting and self.one.spent < self.propagations:
            chunk = waiting.pop(self.rng.randrange(len(waiting)))
            full = self._full()
            model = self.one.solve(full, CONFLICTS)
            if model is not None:
                self.put(chunk, self.one.way(self.one.sparing(model, full, self._prices())))
                continue
            waiting.append(chunk)
            goes = self._in_the_way()
            if goes is None:
                return False
            self.load.subtract(self.placed.pop(goes).places)
            waiting.append(goes)
        return not waiting

    def _full(self) -> list[int]:
        """What the chunks placed rule out, as assumptions, in random order."""
        found = []
        for at, some in self.one.moves.items():
            left = self.capacity[at] - self.load[at]
            if left <= 0:
                found += [-x for x in some]
            elif left == 1 and at in self.one.once:
                found.append(self.one.once[at])
        self.rng.shuffle(found)
        return found

    def _prices(self) -> dict[Place, float]:
        """Of each place, by how often it stood in the way and how full it is."""
        return {
            at: w * w * (0.5 + self.rng.random()) * (1 + self.load[at] / self.capacity[at])
            for at, w in self.weight.items()
        }

    def _in_the_way(self) -> int | None:
        """A chunk at a full place that is needed and seldom was; any one where the solver names no place; None where
        nobody is."""
        places = {self.one.of[abs(x)] for x in self.one.core}
        for at in places:
            self.weight[at] += 1
        taken = {at: [k for k, way in self.placed.items() if at in way.places] for at in sorted(places)}
        price = {at: self.weight[at] * (0.7 + 0.6 * self.rng.random()) for at, some in taken.items() if some}
        if price:
            return self.rng.choice(taken[min(price, key=price.__getitem__)])
        return self.rng.choice(sorted(self.placed)) if self.placed and not places else None

"""Chunks of a combining collective put into a schedule one after another; one that finds no room moves others out of its way.

What a schedule for one chunk is says one formula (`synth.encodings.direct`), kept in an incremental solver. That the chunks
already placed have filled some links in some steps is assumed. If that leaves no schedule for the next chunk, the
solver's core names full places of which it needs one; a chunk that is there is taken out and placed again later. Places that
stand in the way often become dear, and every chunk is kept from dear places where it can do without. Moving out what is in the way,
chosen by how often it was, is iterative forward search (Müller, Barták and Rudová, "Iterative forward search
algorithm: combining local search with maintaining arc consistency and a conflict-based statistics", CP 2004 workshops).

That no schedule is found says nothing. For one unit of data, and networks without limits.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from synth.collective import Collective
from synth.encodings import direct
from synth.encodings.model import Model
from synth.encodings.translate import Translation
from synth.errors import MissingDependencyError
from synth.liveness import prune
from synth.schedule import Schedule, Send, Step
from synth.symmetry import Generator
from synth.topology import Network

CONFLICTS, FEW_CONFLICTS = 2_000, 200  # of the question whether there is room, and of those that keep a chunk from dear places
PROPAGATIONS = 6e6  # a second, about: as for `synth.encodings.solvers.cadical`

Place = tuple[int, int]  # a route and a step, from 0


class Placed(NamedTuple):
    """The schedule, None where the calls did not do; `work`: as of `synth.encodings.model.Answer`."""

    schedule: Schedule | None
    work: float


def applies(network: Network, collective: Collective) -> bool:
    """Whether chunks can be placed one by one: they are all alike, and only links limit them."""
    return collective.combining and collective.units == 1 and not network.caps


def place(translation: Translation, steps: int, rounds: int, propagations: int, seed: int) -> Placed:
    """A schedule of all chunks of `translation` (of which only their number counts) in R rounds, as even as can be over the steps.

    Gives up after so many `propagations` of the solver. The same arguments give the same answer.
    """
    network, collective = translation.network, translation.collective
    if rounds < steps or not applies(network, collective):
        return Placed(None, 0.0)
    room = [rounds // steps + (t < rounds % steps) for t in range(steps)]
    search = _Search(network, collective, room, random.Random(seed), propagations)
    try:
        done = search.run(translation.chunks)
        return Placed(search.schedule() if done else None, search.spent / PROPAGATIONS)
    finally:
        search.solver.delete()


@dataclass
class _Search:
    """The chunks placed so far: of each the true variables of the formula."""

    network: Network
    collective: Collective
    rounds: list[int]
    rng: random.Random
    propagations: int
    placed: dict[int, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            from pysat.solvers import MinisatGH
        except ImportError:
            raise MissingDependencyError("placing chunks needs python-sat; run: pip install 'python-sat==1.9.dev17'") from None
        same = Generator(tuple(range(self.network.ranks)), tuple(range(len(self.network.routes))), (0,))
        self.single = Translation(self.network, self.collective, (same,), 1)
        model, steps = Model(), len(self.rounds)
        self.chunk = direct.encode_chunk(model, self.single, 0, steps)
        self.moves: dict[Place, list[int]] = {}
        for table in (self.chunk.total, self.chunk.raw):
            for at, x in table.items():
                self.moves.setdefault(at, []).append(x)
        self.sends = {x: at for at, some in self.moves.items() for x in some}
        self.once = {at: model.var() for at, some in self.moves.items() if len(some) > 1}  # this chunk sends there once at most
        for at, x in self.once.items():
            model.clause([-x, *(-y for y in self.moves[at])])
        self.of = self.sends | {x: at for at, x in self.once.items()}
        self.solver: Any = MinisatGH(bootstrap_with=model.clauses)
        self.capacity = {(r, t): self.network.routes[r].units * self.rounds[t] for r, t in self.moves}
        self.load: Counter[Place] = Counter()
        self.weight = dict.fromkeys(self.moves, 1)

    @property
    def spent(self) -> int:
        """Propagations so far."""
        return (self.solver.accum_stats() or {}).get("propagations", 0)

    def run(self, chunks: int) -> bool:
        """Place them all; False when the propagations are spent, or one chunk alone finds no room."""
        waiting = list(range(chunks))
        while waiting and self.spent < self.propagations:
            chunk = waiting.pop(self.rng.randrange(len(waiting)))
            full = self._full()
            answer = self._solve(full, CONFLICTS)
            if answer is not None:
                self.placed[chunk] = self._sparing(answer, full)
                self.load.update(self._places(chunk))
                continue
            waiting.append(chunk)
            goes = self._in_the_way()
            if goes is None:
                return False
            self.load.subtract(self._places(goes))
            del self.placed[goes]
            waiting.append(goes)
        return not waiting

    def schedule(self) -> Schedule:
        """All chunks together."""
        made: list[list[Send]] = [[] for _ in self.rounds]
        for k, true in self.placed.items():
            one = direct.decode(self.single, [self.chunk], len(self.rounds), true)
            for sends, step in zip(made, one.steps, strict=True):
                sends += [send._replace(chunk=k) for send in step.sends]
        steps = tuple(Step(1, tuple(sorted(sends))) for sends in made)
        return prune(Schedule(self.network, self.collective, len(self.placed), steps))

    def _places(self, chunk: int) -> list[Place]:
        """Where a placed chunk is sent, as often as it is."""
        return [at for x, at in self.sends.items() if x in self.placed[chunk]]

    def _full(self) -> list[int]:
        """What the chunks placed rule out, as assumptions, in random order."""
        found = []
        for at, some in self.moves.items():
            left = self.capacity[at] - self.load[at]
            if left <= 0:
                found += [-x for x in some]
            elif left == 1 and at in self.once:
                found.append(self.once[at])
        self.rng.shuffle(found)
        return found

    def _solve(self, assumed: list[int], conflicts: int) -> set[int] | None:
        """The true variables of a schedule for one chunk; None where there is none, with the core, or where none was found soon."""
        self.solver.conf_budget(conflicts)
        answer = self.solver.solve_limited(assumptions=assumed)
        self.core = (self.solver.get_core() or []) if answer is False else []
        return {x for x in self.solver.get_model() if x > 0} if answer else None

    def _sparing(self, true: set[int], assumed: list[int]) -> set[int]:
        """Another schedule for the chunk that does without places as dear as possible, the dearest first."""
        price = {
            at: w * w * (0.5 + self.rng.random()) * (1 + self.load[at] / self.capacity[at]) for at, w in self.weight.items()
        }  # fmt: skip
        for at in sorted(self.moves, key=price.__getitem__, reverse=True):
            for x in self.moves[at]:
                if x in true:
                    without = self._solve([*assumed, -x], FEW_CONFLICTS)
                    if without is None:
                        continue
                    true = without
                assumed.append(-x)
        return true

    def _in_the_way(self) -> int | None:
        """A chunk at a full place that is needed and seldom was; any one where the solver names no place; None where nobody is."""
        places = {self.of[abs(x)] for x in self.core}
        for at in places:
            self.weight[at] += 1
        taken = {at: [k for k, true in self.placed.items() if any(x in true for x in self.moves[at])] for at in sorted(places)}
        price = {at: self.weight[at] * (0.7 + 0.6 * self.rng.random()) for at, some in taken.items() if some}
        if price:
            return self.rng.choice(taken[min(price, key=price.__getitem__)])
        return self.rng.choice(sorted(self.placed)) if self.placed and not places else None

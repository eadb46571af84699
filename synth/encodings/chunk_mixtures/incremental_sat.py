"""Schedules for one chunk of a combining collective, asked one after another of an incremental solver.

The formula is that of `synth.encodings.contributions` for one chunk, without any limit on what the links carry; what
the other chunks leave, or prices of bandwidth, come with each question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from synth.encodings import contributions
from synth.encodings.translated_chunks import Translation
from synth.errors import MissingDependencyError
from synth.model.collective import Collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step
from synth.model.symmetry import Generator
from synth.model.topology import Network
from synth.solvers.boolean_model import Model

Place = tuple[int, int]  # a route and a step, from 0

FEW_CONFLICTS = 20  # of a question that keeps a chunk from a dear place
A_CALL = 300  # propagations that would take as long as a call besides its own, about


class Way(NamedTuple):
    """A schedule for one chunk: the places it is sent at, as often as it is, in order, and the sends of each step."""

    places: tuple[Place, ...]
    steps: tuple[tuple[Send, ...], ...]


class OneChunk:
    """Schedules of `steps` steps for one chunk. `delete` frees the solver."""

    def __init__(self, network: Network, collective: Collective, steps: int) -> None:
        try:
            from pysat.solvers import MinisatGH
        except ImportError:
            raise MissingDependencyError(
                "placing chunks needs python-sat; run: pip install 'python-sat==1.9.dev17'"
            ) from None
        same = Generator(tuple(range(network.ranks)), tuple(range(len(network.routes))), (0,))
        self.network, self.collective, self.steps = network, collective, steps
        self.single = Translation(network, collective, (same,), 1)
        self.model = Model()
        self.chunk = contributions.encode_chunk(self.model, self.single, 0, steps, collective.wants is not None)
        self.moves: dict[Place, list[int]] = {}
        for table in (self.chunk.total, self.chunk.raw):
            for at, x in table.items():
                self.moves.setdefault(at, []).append(x)
        self.once = {
            at: self.model.var() for at, some in self.moves.items() if len(some) > 1
        }  # is sent there once at most
        for at, x in self.once.items():
            self.model.clause([-x, *(-y for y in self.moves[at])])
        self.of = {x: at for at, some in self.moves.items() for x in some} | {x: at for at, x in self.once.items()}
        self.solver: Any = MinisatGH(bootstrap_with=self.model.clauses)
        self.core: list[int] = []
        self.calls = 0

    def delete(self) -> None:
        """Free the solver."""
        self.solver.delete()

    @property
    def spent(self) -> int:
        """Propagations so far, with those that stand for calls."""
        return (self.solver.accum_stats() or {}).get("propagations", 0) + A_CALL * self.calls

    def solve(self, assumed: list[int], conflicts: int) -> list[int] | None:
        """A model (variable x stands at x - 1); None where there is none, with its `core`, or where none was found
        soon."""
        self.calls += 1
        self.solver.conf_budget(conflicts)
        answer = self.solver.solve_limited(assumptions=assumed)
        self.core = (self.solver.get_core() or []) if answer is False else []
        return self.solver.get_model() if answer else None

    def sparing(self, model: list[int], assumed: list[int], price: Mapping[Place, float]) -> list[int]:
        """Another model that does without places as dear as possible, the dearest first. `assumed` grows."""
        for at in sorted(self.moves, key=price.__getitem__, reverse=True):
            for x in self.moves[at]:
                assumed.append(-x)
                if model[x - 1] > 0:
                    without = self.solve(assumed, FEW_CONFLICTS)
                    if without is None:
                        assumed.pop()
                    else:
                        model = without
        return model

    def way(self, model: list[int]) -> Way:
        """What a model says, without what nothing comes of."""
        made = prune(contributions.decode(self.single, [self.chunk], self.steps, {x for x in model if x > 0}))
        return self._of(tuple(step.sends for step in made.steps))

    def ways(self, schedule: Schedule) -> list[Way]:
        """How the chunks of a schedule go that has as many steps or fewer; of one that has fewer each with a pause
        anywhere."""
        found: dict[Way, None] = {}
        idle = self.steps - len(schedule.steps)
        for k in range(schedule.chunks):
            sent = [tuple(send._replace(chunk=0) for send in step.sends if send.chunk == k) for step in schedule.steps]
            for t in range(len(sent) + 1 if idle else 1):
                found[self._of((*sent[:t], *[()] * idle, *sent[t:]))] = None
        return list(found)

    def schedule(self, ways: Sequence[Way]) -> Schedule:
        """All these chunks together, in as few rounds as they take."""
        made = [
            tuple(sorted(send._replace(chunk=k) for k, way in enumerate(ways) for send in way.steps[t]))
            for t in range(self.steps)
        ]
        return prune(Schedule(self.network, self.collective, len(ways), tuple(Step(1, sends) for sends in made)))

    @cached_property
    def _index(self) -> dict[tuple, int]:
        return {(r.src, r.dst, r.via): i for i, r in enumerate(self.network.routes)}

    def _of(self, steps: tuple[tuple[Send, ...], ...]) -> Way:
        places = [(self._index[s.src, s.dst, s.via], t) for t, sends in enumerate(steps) for s in sends if not s.local]
        return Way(tuple(sorted(places)), steps)

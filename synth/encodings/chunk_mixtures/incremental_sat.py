"""Schedules for one chunk of a combining collective, from an incremental SAT solver.

The formula is that of `synth.encodings.contributions` for one chunk, without any limit on loads. Each query adds
assumptions: the places that other chunks have filled, or the places that are too expensive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from synth.encodings import contributions
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.collective import Collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step
from synth.model.symmetry import Generator
from synth.model.topology import Network
from synth.solvers.boolean_model import Model
from synth.solvers.minicard import incremental_minisat

Place = tuple[int, int]  # (route, step): the index of a route, and a step counted from 0

FEW_CONFLICTS = 20  # conflict limit of a query that avoids one expensive place; there are many such queries
A_CALL = 300  # propagations that take about as long as the overhead of one call of the solver


class ChunkSchedule(NamedTuple):
    """A schedule for one chunk: the sorted places of its sends, with repetition, and the sends of each step."""

    places: tuple[Place, ...]
    steps: tuple[tuple[Send, ...], ...]


class OneChunk:
    """Incremental SAT formula of all schedules of `steps` steps for one chunk. `delete` frees the solver."""

    def __init__(self, network: Network, collective: Collective, steps: int) -> None:
        identity = Generator(tuple(range(network.ranks)), tuple(range(len(network.routes))), (0,))
        self.network, self.collective, self.steps = network, collective, steps
        self.single = TranslatedChunks(network, collective, (identity,), 1)
        self.model = Model()
        self.chunk = contributions.encode_chunk(self.model, self.single, 0, steps, collective.wants is not None)
        self.moves: dict[Place, list[int]] = {}
        for table in (self.chunk.total, self.chunk.raw):
            for at, x in table.items():
                self.moves.setdefault(at, []).append(x)
        # A place with two possible sends (a sum and an input) has a variable for "at most one of them".
        self.once = {at: self.model.var() for at, sends in self.moves.items() if len(sends) > 1}
        for at, x in self.once.items():
            self.model.clause([-x, *(-y for y in self.moves[at])])
        self.place_of: dict[int, Place] = {}
        for at, sends in self.moves.items():
            self.place_of |= dict.fromkeys(sends, at)
        self.place_of |= {x: at for at, x in self.once.items()}
        self.solver: Any = incremental_minisat(self.model.clauses)
        self.core: list[int] = []
        self.calls = 0

    def delete(self) -> None:
        """Free the solver."""
        self.solver.delete()

    @property
    def spent(self) -> int:
        """Work so far in propagations, with `A_CALL` for each call."""
        return (self.solver.accum_stats() or {}).get("propagations", 0) + A_CALL * self.calls

    def solve(self, assumed: list[int], conflicts: int) -> list[int] | None:
        """Return a model, with the literal of variable x at x - 1; None if there is none or the conflicts are spent.

        If there is none, `core` is a set of `assumed` literals that together are impossible; otherwise it is empty.
        """
        self.calls += 1
        self.solver.conf_budget(conflicts)
        answer = self.solver.solve_limited(assumptions=assumed)
        self.core = (self.solver.get_core() or []) if answer is False else []
        return self.solver.get_model() if answer else None

    def avoiding(self, model: list[int], assumed: list[int], price: Mapping[Place, float]) -> list[int]:
        """Return a model without the most expensive places that it can avoid, found greedily.

        `price`: of a send at each place. The literals that exclude places are appended to `assumed`.
        """
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

    def decoded(self, model: list[int]) -> ChunkSchedule:
        """Return the schedule of a model, without dead sends."""
        schedule = prune(contributions.decode(self.single, [self.chunk], self.steps, {x for x in model if x > 0}))
        return self._with_places(tuple(step.sends for step in schedule.steps))

    def chunks_of(self, schedule: Schedule) -> list[ChunkSchedule]:
        """Return the distinct chunk schedules of a schedule of at most `steps` steps; if it has fewer, each chunk with
        the idle steps inserted anywhere."""
        result: dict[ChunkSchedule, None] = {}
        idle = self.steps - len(schedule.steps)
        for k in range(schedule.chunks):
            sends: list[tuple[Send, ...]] = []
            for step in schedule.steps:
                sends.append(tuple(send._replace(chunk=0) for send in step.sends if send.chunk == k))
            for t in range(len(sends) + 1 if idle else 1):
                result[self._with_places((*sends[:t], *[()] * idle, *sends[t:]))] = None
        return list(result)

    def schedule(self, chunks: Sequence[ChunkSchedule]) -> Schedule:
        """Return the schedule of all these chunks together, in as few rounds as they take."""
        steps = []
        for t in range(self.steps):
            sends = sorted(send._replace(chunk=k) for k, chunk in enumerate(chunks) for send in chunk.steps[t])
            steps.append(Step(1, tuple(sends)))
        return prune(Schedule(self.network, self.collective, len(chunks), tuple(steps)))

    def _with_places(self, steps: tuple[tuple[Send, ...], ...]) -> ChunkSchedule:
        places = [
            (self.network.route_index[s.src, s.dst, s.via], t)
            for t, sends in enumerate(steps)
            for s in sends
            if not s.local
        ]
        return ChunkSchedule(tuple(sorted(places)), steps)

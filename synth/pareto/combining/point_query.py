"""One query (C, S, R) for a combining collective that is no reversal of a copying one: allreduce, scan, custom ones.

The engines are those of the frontier (`synth.pareto.combining.combining_frontier`): the hub and the direct encoding on
symmetric chunks, with conflict limits that grow, and, after a first round of these, spanning trees and reduce-scatter +
allgather. A query on symmetric chunks can only find schedules. With a chunk for every representative and no symmetry
the direct encoding is complete, and refutes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from fractions import Fraction

from synth.model.outcome import Cost, Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem, Schedule, Send, Step
from synth.pareto.combining.attempts import Attempt, AttemptPool
from synth.pareto.combining.candidates import Candidates, CombiningCandidate
from synth.pareto.combining.constructions import Constructions
from synth.solvers.processes.deadline import Budget


@dataclass(frozen=True)
class PointQuerySettings:
    """Efforts for one C, S and R of a combining collective.

    Attributes:
        few: Number of candidates that are tried before the complete one at the same conflict limit.
        conflicts: Conflict limit of each attempt, round by round. The last round has none.
    """

    few: int = 16
    conflicts: tuple[int | None, ...] = (2_000, 40_000, 400_000, None)


SETTINGS = PointQuerySettings()


def solve(problem: Problem, budget: Budget) -> Verdict:
    """Return Sat with exactly C chunks per unit, S steps and R rounds, Unsat from the complete encoding, or Unknown.

    The caller checks lower bounds first. With `budget.deterministic` attempts run one after the other.
    """
    began = time.monotonic()
    pool = AttemptPool(1 if budget.deterministic else budget.jobs, budget.memory)

    def cost(engine: str = "") -> Cost:
        return Cost(engine, pool.cpu, pool.cpu, time.monotonic() - began)

    candidates = Candidates(problem.network, problem.collective)
    constructions = Constructions(problem.network, problem.collective, budget)
    try:
        undecided = candidates.exactly(problem.steps, problem.chunks, problem.rounds)
        for turn, conflicts in enumerate(SETTINGS.conflicts):
            # Without a conflict limit only the complete candidate runs: it decides in the end.
            undecided = [c for c in undecided if c.complete or conflicts is not None]
            seed = budget.seed + turn
            attempts: dict[Attempt, CombiningCandidate] = {}
            for place, c in enumerate(undecided):
                if place < SETTINGS.few or c.complete:
                    attempt = Attempt(c.engine, c.translation, problem.steps, c.rounds, conflicts, seed, c.complete)
                    attempts[attempt] = c
            outcomes = pool.run(iter(attempts), budget.deadline)
            try:
                for attempt, outcome in outcomes:
                    candidate = attempts[attempt]
                    if (
                        outcome.schedule is not None
                        and (fitting := fit_to_query(outcome.schedule, problem)) is not None
                    ):
                        return Sat(fitting, cost(candidate.engine))
                    if outcome.status == "unsat":
                        if candidate.complete:
                            return Unsat("by the complete direct encoding", cost("direct"))
                        undecided.remove(candidate)
            finally:
                outcomes.close()
            if budget.deadline.over:
                return Unknown("time", "", cost())
            if turn == 0 and candidates.hub_steps is not None and problem.collective.units == 1:
                for schedule, name in constructions.schedules(
                    problem.steps, Fraction(problem.rounds + 1, problem.chunks), budget.deadline
                ):
                    if (fitting := fit_to_query(schedule, problem)) is not None:
                        return Sat(fitting, cost(name))
        return Unknown("gave-up", "", cost())
    finally:
        constructions.close()


def fit_to_query(schedule: Schedule, problem: Problem) -> Schedule | None:
    """Return `schedule` repeated and padded to the C and R of `problem`, or None where it does not fit."""
    times, rest = divmod(problem.chunks, schedule.chunks)
    spare = problem.rounds - schedule.rounds * times
    if rest or spare < 0 or len(schedule.steps) != problem.steps:
        return None
    steps = [Step(step.rounds * times, tuple(sorted(_copies(step.sends, times)))) for step in schedule.steps]
    steps[-1] = Step(steps[-1].rounds + spare, steps[-1].sends)
    return replace(schedule, chunks=problem.chunks, steps=tuple(steps))


def _copies(sends: tuple[Send, ...], times: int) -> list[Send]:
    """Return the sends of every chunk i repeated for chunks i·times to i·times + times - 1.

    Chunk ids are unit-major, so this is the same for all units.
    """
    return [send._replace(chunk=send.chunk * times + j) for send in sends for j in range(times)]

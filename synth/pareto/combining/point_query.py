"""One question (C, S, R) about a combining collective that is no reversal of a copying one: allreduce, scan, custom
ones.

The engines are those of the frontier (`synth.pareto.combining.combining_frontier`): hubs and the direct encoding on
symmetric shapes, with conflict limits that grow, and, after a first round of these, spanning trees and reduce-scatter +
allgather. Symmetric shapes can only find schedules; with a chunk for every representative and no symmetry the direct
encoding is complete, and refutes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

from synth.encodings.prefix_planning import chunk_assembly
from synth.model.outcome import Budget, Cost, Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem, Schedule, Send, Step
from synth.pareto.combining.attempts import Desk, Try
from synth.pareto.combining.candidates import Candidate, Candidates
from synth.pareto.combining.constructions import Built
from synth.solvers.processes.deadline import until

WOVEN = 0.5  # of the time: what planning without a solver may take
FEW = 16  # candidates that are tried before the complete one has had as many conflicts
CONFLICTS = (2_000, 40_000, 400_000, None)  # of each try, effort by effort; the last one is not given up


def solve(problem: Problem, budget: Budget) -> Verdict:
    """Sat with exactly C chunks per unit, S steps and R rounds; Unsat from the complete encoding; else Unknown.

    Lower bounds are the caller's to ask first. `budget.deterministic` asks one engine after the other.
    """
    began = time.monotonic()
    until = began + (float("inf") if budget.seconds is None else budget.seconds)
    limit = None if budget.seconds is None else until
    with Desk(1 if budget.deterministic else budget.jobs, budget.memory) as desk:

        def cost(engine: str = "") -> Cost:
            return Cost(engine, desk.cpu, desk.cpu, time.monotonic() - began)

        if (planned := _woven(problem, budget.seconds)) is not None:
            return Sat(planned, cost("woven"))
        candidates = Candidates(problem.network, problem.collective, budget.seed)
        built = Built(problem.network, problem.collective, budget)
        try:
            left = candidates.exactly(problem.steps, problem.chunks, problem.rounds)
            for turn, conflicts in enumerate(CONFLICTS):
                left = [c for c in left if c.complete or conflicts is not None]  # to the end only what decides
                some = [c for k, c in enumerate(left) if k < FEW or c.complete]
                asked = {
                    Try(c.engine, c.translation, problem.steps, c.rounds, conflicts, budget.seed + turn, c.complete): c
                    for c in some
                }
                outcomes = desk.run(iter(asked), limit)
                try:
                    for query, outcome in outcomes:
                        candidate: Candidate = asked[query]
                        if outcome.schedule is not None and (fitting := fitted(outcome.schedule, problem)) is not None:
                            return Sat(fitting, cost(candidate.engine))
                        if outcome.status == "unsat":
                            if candidate.complete:
                                return Unsat("by the complete direct encoding", cost("direct"))
                            left.remove(candidate)
                finally:
                    outcomes.close()
                if time.monotonic() >= until:
                    return Unknown("time", "", cost())
                if turn == 0 and candidates.hub_steps is not None and problem.collective.units == 1:
                    for made, name in built.schedules(
                        problem.steps, Fraction(problem.rounds + 1, problem.chunks), limit
                    ):
                        if (fitting := fitted(made, problem)) is not None:
                            return Sat(fitting, cost(name))
            return Unknown("gave-up", "", cost())
        finally:
            built.close()


def _woven(problem: Problem, seconds: float | None) -> Schedule | None:
    """A schedule that is planned without a solver, where there are many ranks and one does."""
    if not chunk_assembly.applies(problem.network, problem.collective):
        return None
    weaving = chunk_assembly.Weaving(problem.network, problem.collective)
    with until(None if seconds is None else seconds * WOVEN):
        for way in weaving.ways:
            if (fitting := fitted(way.schedule, problem)) is not None:
                return fitting
        made = weaving.together(problem.steps, problem.chunks)
    return None if made is None else fitted(made[1], problem)


def fitted(schedule: Schedule, problem: Problem) -> Schedule | None:
    """`schedule` repeated and padded to the C and R of `problem`; None where it does not go into them."""
    times, rest = divmod(problem.chunks, schedule.chunks)
    spare = problem.rounds - schedule.rounds * times
    if rest or spare < 0 or len(schedule.steps) != problem.steps:
        return None
    steps = [Step(step.rounds * times, tuple(sorted(_copies(step.sends, times)))) for step in schedule.steps]
    steps[-1] = Step(steps[-1].rounds + spare, steps[-1].sends)
    return replace(schedule, chunks=problem.chunks, steps=tuple(steps))


def _copies(sends: tuple[Send, ...], times: int) -> list[Send]:
    """Chunk i of a unit becomes chunks i·times … of it: ids are unit-major, so this is the same for all units."""
    return [send._replace(chunk=send.chunk * times + j) for send in sends for j in range(times)]

"""One query (C, S, R) for a combining collective that is no reversal of a copying one: allreduce, scan, custom ones.

The engines are those of the frontier: the hub and the direct encoding on symmetric chunks, with conflict limits that
grow. A query on symmetric chunks can only find schedules. With a chunk for every representative and no symmetry the
direct encoding is complete, and refutes.
"""

from __future__ import annotations

from dataclasses import replace

from synth.model.outcome import Cost, Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem, Schedule, Step
from synth.pareto.combining.attempts import Attempt, AttemptPool
from synth.pareto.combining.candidates import Candidates, CombiningCandidate
from synth.solvers.deadline import Budget

# Candidates that are tried before the complete one at the same conflict limit.
FEW = 16
# Conflicts of each attempt, round by round; the last round has no limit.
CONFLICTS = (2_000, 40_000, 400_000, None)


def solve(problem: Problem, budget: Budget) -> Verdict:
    """Return Sat with exactly C chunks per unit, S steps and R rounds, Unsat from the complete encoding, or Unknown.

    The caller checks lower bounds first. With `budget.deterministic` attempts run one after the other.
    """
    pool = AttemptPool(1 if budget.deterministic else budget.jobs, budget.memory)

    def cost(engine: str = "") -> Cost:
        return Cost(engine, pool.cpu, pool.cpu)

    candidates = Candidates(problem.network, problem.collective)
    undecided = candidates.exactly(problem.steps, problem.chunks, problem.rounds)
    for turn, conflicts in enumerate(CONFLICTS):
        # Without a conflict limit only the complete candidate runs: it decides in the end.
        undecided = [c for c in undecided if c.complete or conflicts is not None]
        attempts: dict[Attempt, CombiningCandidate] = {}
        for place, c in enumerate(undecided):
            if place < FEW or c.complete:
                seed = budget.seed + turn
                attempts[Attempt(c.engine, c.translation, problem.steps, c.rounds, conflicts, seed, c.complete)] = c
        outcomes = pool.run(iter(attempts), budget.deadline)
        try:
            for attempt, outcome in outcomes:
                candidate = attempts[attempt]
                if outcome.schedule is not None:
                    fitting = fit_to_query(outcome.schedule, problem)
                    if fitting is not None:
                        return Sat(fitting, cost(candidate.engine))
                if outcome.status == "unsat":
                    if candidate.complete:
                        return Unsat("by the complete direct encoding", cost("direct"))
                    undecided.remove(candidate)
        finally:
            outcomes.close()
        if budget.deadline.over:
            return Unknown("time", "", cost())
    return Unknown("gave-up", "", cost())


def fit_to_query(schedule: Schedule, problem: Problem) -> Schedule | None:
    """Return `schedule` repeated and padded to the C and R of `problem`, or None where it does not fit."""
    times, rest = divmod(problem.chunks, schedule.chunks)
    spare = problem.rounds - schedule.rounds * times
    if rest or spare < 0 or len(schedule.steps) != problem.steps:
        return None
    steps = []
    for step in schedule.steps:  # chunk ids are unit-major, so that chunk i of every unit becomes `times` chunks
        sends = [send._replace(chunk=send.chunk * times + j) for send in step.sends for j in range(times)]
        steps.append(Step(step.rounds * times, tuple(sorted(sends))))
    steps[-1] = Step(steps[-1].rounds + spare, steps[-1].sends)
    return replace(schedule, chunks=problem.chunks, steps=tuple(steps))

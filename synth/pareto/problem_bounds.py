"""Lower bounds of one query (C, S, R): a refutation, or the least number of rounds, under a time limit."""

from __future__ import annotations

from typing import NamedTuple

from synth.encodings import bounds
from synth.encodings.bounds import too_few_steps
from synth.errors import InfeasibleError
from synth.model.outcome import Unknown
from synth.model.rational import counted
from synth.model.schedule import Problem
from synth.pareto.portfolio.members import Member
from synth.solvers import pool
from synth.solvers.deadline import Budget
from synth.solvers.pool import MAX_RANKS_IN_PROCESS

# Share of a time limit that bounds may take. The rest is for the search.
SHARE = 0.3


class ProblemBound(NamedTuple):
    """The least R of schedules with these C and S (None: there is none).

    Where the query is refuted, `reason` says why in words and `certificate` proves it.
    """

    least: int | None
    reason: str = ""
    certificate: dict | None = None


def query_bounds(problem: Problem, budget: Budget) -> ProblemBound | None:
    """Return the bound on R of `problem`, or its refutation; None where the time does not suffice."""
    try:
        least = too_few_steps.steps(problem.network, problem.collective)
    except InfeasibleError as error:  # some rank cannot be reached at all
        return ProblemBound(None, str(error), error.certificate)
    if least.value > problem.steps:
        return ProblemBound(None, f"at least {counted(int(least.value), 'step')} are needed", least.certificate)
    if not budget.deadline.limited or problem.network.ranks <= MAX_RANKS_IN_PROCESS:
        return rounds(problem)
    job = pool.submit(Member("tree").imports, rounds, (problem,), budget.memory)
    bound = pool.outcome(job, budget.deadline.share(SHARE))
    return None if isinstance(bound, Unknown) else bound


def rounds(problem: Problem) -> ProblemBound:
    """Return the bound on rounds of a problem with enough steps. It is computed in this process."""
    network, collective = problem.network, problem.collective
    any_chunks = None
    if collective.combining and not collective.reversible:
        any_chunks = bounds.flow(network, collective, problem.steps)
    least, per_chunks = bounds.rounds(network, collective, problem.steps, problem.chunks, any_chunks)
    if least <= problem.rounds:
        return ProblemBound(least)
    reason = (
        f"C={problem.chunks} in {counted(problem.steps, 'step')} needs at least {counted(least, 'round')}, by "
        f"a cut certificate"
    )
    return ProblemBound(least, reason, per_chunks.certificate)

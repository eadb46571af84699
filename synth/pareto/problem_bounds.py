"""What lower bounds say of one question (C, S, R): a refutation, or rounds that are needed at least. A time limit ends
them."""

from __future__ import annotations

from typing import NamedTuple

from synth import bounds
from synth.bounds import single_chunk
from synth.errors import InfeasibleError
from synth.model.outcome import Budget
from synth.model.rational import counted
from synth.model.schedule import Problem
from synth.pareto.portfolio.members import Racer
from synth.solvers.processes import jobs
from synth.solvers.processes.resumable_jobs import LEAST_RANKS

SHARE = 0.3  # of a time limit that bounds may take; the rest is for the search


class Bounded(NamedTuple):
    """The least R that schedules with these C and S need; where that is more than was asked for, in words, with the
    certificate."""

    least: int | None
    reason: str = ""
    certificate: dict | None = None


def ask(problem: Problem, budget: Budget) -> Bounded | None:
    """What the bounds say; None where they are late."""
    try:
        least = single_chunk.steps(problem.network, problem.collective)
    except InfeasibleError as error:  # some rank cannot be reached at all
        return Bounded(None, str(error), error.certificate)
    if least.value > problem.steps:
        return Bounded(None, f"at least {counted(int(least.value), 'step')} are needed", least.certificate)
    if budget.seconds is None or problem.network.ranks <= LEAST_RANKS:
        return rounds(problem)
    job = jobs.alone(Racer("tree").imports, rounds, (problem,), budget, budget.seconds * SHARE)
    if job.result is None or isinstance(job.result[1], MemoryError):
        return None
    if job.result[0] == "error":
        raise job.result[1]
    return job.result[1]


def rounds(problem: Problem) -> Bounded:
    """The same of a problem that has steps enough, in this process."""
    network, task = problem.network, problem.collective
    any_chunks = bounds.allreduce(network, task, problem.steps) if task.combining and not task.reversible else None
    fewest, per_chunks = bounds.rounds(network, task, problem.steps, problem.chunks, any_chunks)
    if fewest <= problem.rounds:
        return Bounded(fewest)
    reason = (
        f"C={problem.chunks} in {counted(problem.steps, 'step')} needs at least {counted(fewest, 'round')}, by "
        f"a cut certificate"
    )
    return Bounded(fewest, reason, per_chunks.certificate)

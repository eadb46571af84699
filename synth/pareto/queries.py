"""How a sweep asks its engines: one problem of the race, one question of the tree engine; what they took counts as
spent."""

from __future__ import annotations

import time
from collections.abc import Callable

from synth.model.frontier import Answer, LowerBound, Point
from synth.model.outcome import Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem, Schedule
from synth.pareto import prefetched_bounds
from synth.pareto.portfolio import race
from synth.pareto.sweep_state import Ledger
from synth.solvers.processes.fork_server import Job

TREE_SECONDS = 30.0  # CPU seconds of the tree engine for one question
PATIENCE = 8.0  # wall seconds that a CPU second may take on a busy machine, where nobody limited the time


def ask(ledger: Ledger, problem: Problem, seconds: float, beside: Job | None = None) -> Sat | Unsat | Unknown:
    """Whether there is a schedule of this problem, from the race in so many seconds or from the log of an earlier run.

    `beside`: as `race.solve`.
    """
    options = ledger.options
    if ledger.log.refuted(problem):
        return Unsat("refuted in an earlier run")
    ledger.tell("query", f"C={problem.chunks} S={problem.steps} R={problem.rounds}", problem.steps)
    verdict = race.solve(
        problem, budget=ledger.budget(seconds), encoding=options.encoding, solver=options.solver, proof=options.proof,
        on_event=lambda text: ledger.tell("query", text, problem.steps),
        patience=1.0 if options.time_limit is not None else PATIENCE, beside=beside, limits=options.limits,
    )  # fmt: skip
    ledger.spent += verdict.cost.total_cpu / options.jobs
    ledger.answered(record(problem, verdict))
    if isinstance(verdict, Unsat):
        ledger.log.append(
            {"kind": "unsat", "query": [problem.chunks, problem.steps, problem.rounds], "engine": verdict.cost.engine}
        )
    return verdict


def record(problem: Problem, verdict: Verdict) -> Answer:
    """The record of a verdict on `problem`, as it stands in a frontier."""
    said = "schedule" if isinstance(verdict, Sat) else "infeasible" if isinstance(verdict, Unsat) else "undecided"
    return Answer(problem.chunks, problem.steps, problem.rounds, said, verdict.cost.engine)


def begin(ledger: Ledger, question: Callable, steps: int, bound: LowerBound, most: int) -> Job:
    """Asks `question`, a function of the tree engine, in a process of its own; `most` chunks per unit at most."""
    return prefetched_bounds.begin(
        question, *ledger.forwards(), steps, bound, most, ledger.budget(TREE_SECONDS * ledger.longer)
    )


def answer(ledger: Ledger, job: Job, steps: int, bound: LowerBound) -> Sat | Unknown:
    """What that has answered, once it has; meanwhile the next bound is computed where there is another processor."""
    options = ledger.options
    if not ledger.few and options.jobs > 1 and steps != options.max_steps and bound.value > ledger.floor:
        ledger.ahead.begin(steps + 1)
    limit = ledger.budget(TREE_SECONDS * ledger.longer).seconds or TREE_SECONDS
    verdict = prefetched_bounds.answer(job, limit * (1.0 if options.time_limit is not None else PATIENCE))
    ledger.spent += verdict.cost.total_cpu / options.jobs
    if not isinstance(verdict, Sat):
        return verdict
    schedule = verdict.schedule.reversed() if ledger.collective.combining else verdict.schedule
    return Sat(Schedule(ledger.network, ledger.collective, schedule.chunks, schedule.steps), verdict.cost)


def point(verdict: Sat, bound: LowerBound, status: str, began: float) -> Point:
    """The point that an answer makes, "optimal" where it meets the bound; searched for since `began` (monotonic
    seconds)."""
    if verdict.schedule.bandwidth == bound.value:
        status = "optimal"
    return Point(verdict.schedule, bound, status, verdict.cost.engine, True, time.monotonic() - began)

"""Queries of a sweep to its engines: one problem to the algorithm portfolio, or one call of the tree engine.

The CPU time of every query is added to `Sweep.spent`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from synth.model.frontier import LowerBound, Point, QueryRecord
from synth.model.outcome import Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem, Schedule
from synth.pareto import prefetched_bounds
from synth.pareto.portfolio import portfolio
from synth.pareto.step_search import StepSearch
from synth.solvers.pool import ProcessJob

# CPU seconds of the tree engine for one query.
TREE_SECONDS = 30.0


def asked(sweep: StepSearch, problem: Problem, decide: Callable[[], Verdict]) -> Verdict:
    """Return the answer of `decide` to a problem, recorded, or that of an earlier run in the log."""
    log = sweep.found.log
    if log.refuted(problem):
        return Unsat("refuted in an earlier run")
    sweep.found.tell("query", f"C={problem.chunks} S={problem.steps} R={problem.rounds}", problem.steps)
    verdict = decide()
    sweep.answered(record(problem, verdict))
    if isinstance(verdict, Unsat):
        query = [problem.chunks, problem.steps, problem.rounds]
        log.append({"kind": "unsat", "query": query, "engine": verdict.cost.engine})
    return verdict


def query_portfolio(sweep: StepSearch, problem: Problem, seconds: float, beside: ProcessJob | None = None) -> Verdict:
    """Decide a problem by the portfolio in `seconds` of each processor, or by the log of an earlier run.

    `beside`: as in `portfolio.solve`.
    """
    options = sweep.options

    def decide() -> Verdict:
        verdict = portfolio.solve(
            problem, budget=sweep.budget(seconds), encoding=options.encoding, solver=options.solver,
            on_event=lambda text: sweep.found.tell("query", text, problem.steps),
            beside=beside,
        )  # fmt: skip
        sweep.spent += verdict.cost.total_cpu / options.jobs
        return verdict

    return asked(sweep, problem, decide)


def record(problem: Problem, verdict: Verdict) -> QueryRecord:
    """Return the record of a verdict on `problem`, as it stands in a frontier."""
    text = "undecided"
    if isinstance(verdict, Sat):
        text = "schedule"
    elif isinstance(verdict, Unsat):
        text = "infeasible"
    return QueryRecord(problem.chunks, problem.steps, problem.rounds, text, verdict.cost.engine)


def begin_tree_query(sweep: StepSearch, query: Callable, steps: int, bound: LowerBound, max_chunks: int) -> ProcessJob:
    """Begin `query`, a function of the tree engine, in another process, with up to `max_chunks` chunks per unit."""
    return prefetched_bounds.submit_tree_query(
        query, *sweep.forwards(), steps, bound, max_chunks, sweep.budget(TREE_SECONDS * sweep.longer)
    )


def finish_tree_query(sweep: StepSearch, job: ProcessJob, steps: int, bound: LowerBound) -> Sat | Unknown:
    """Wait for a query of `begin_tree_query` and return its verdict.

    Meanwhile the bound of the next S is computed where there is another processor.
    """
    options = sweep.options
    if (
        not sweep.exact_pricing
        and options.jobs > 1
        and steps != options.max_steps
        and bound.value > sweep.found.floor.value
    ):
        sweep.prefetched.begin(steps + 1)
    verdict = prefetched_bounds.tree_verdict(job, sweep.budget(TREE_SECONDS * sweep.longer).deadline)
    sweep.spent += verdict.cost.total_cpu / options.jobs
    if not isinstance(verdict, Sat):
        return verdict
    schedule = verdict.schedule.reversed() if sweep.collective.combining else verdict.schedule
    return Sat(Schedule(sweep.network, sweep.collective, schedule.chunks, schedule.steps), verdict.cost)


def point(verdict: Sat, bound: LowerBound, began: float) -> Point:
    """Return the point of a verdict. `began`: start of its search in monotonic seconds."""
    return Point.of(verdict.schedule, bound, verdict.cost.engine, True, time.monotonic() - began)

"""The questions that decide a frontier, asked of z3 again: another solver, and SCCL's encoding beside ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from synth.errors import VerificationError
from synth.model.frontier import Answer, Frontier, Point
from synth.model.outcome import Budget, Sat, Unknown, Unsat, Verdict
from synth.model.rational import counted
from synth.model.schedule import Problem
from synth.pareto.combining.candidates import Candidates
from synth.pareto.portfolio import race
from synth.pareto.portfolio.members import Member
from synth.pareto.queries import record
from synth.solvers.processes import jobs

SECONDS = 20.0  # for each question, where nobody limited the time


def cross_check(frontier: Frontier, budget: Budget, tell: Callable[[str], None] = lambda text: None) -> Frontier:
    """`frontier` with z3's answers to its deciding questions, and a note on how many z3 decided. `budget.seconds` is
    for all of them.

    Each point's (C, S, R) must have a schedule; where the point is optimal (C, S, R - 1) must have none. Raises
    VerificationError where z3 says otherwise. What z3 does not decide in time is noted as undecided.
    """
    deadline = None if budget.seconds is None else time.monotonic() + budget.seconds
    questions = list(_questions(frontier))
    answers: list[Answer] = []
    for i, (problem, expected) in enumerate(questions):
        left = SECONDS if deadline is None else (deadline - time.monotonic()) / (len(questions) - i)
        verdict = _ask(problem, replace(budget, seconds=max(0.1, left)))
        answer = record(problem, verdict)
        answers.append(answer if answer.solver else replace(answer, solver="z3"))
        tell(f"cross-check {i + 1} of {len(questions)}: {answers[-1]}")
        if answer.verdict not in (expected, "undecided"):
            raise VerificationError(
                f"cross-check: z3 says {answers[-1]}; the frontier says {expected}", f"S={problem.steps}"
            )
    undecided = [a for a in answers if a.verdict == "undecided"]
    note = (
        f"cross-check: z3 decided {len(answers) - len(undecided)} of {counted(len(answers), 'question')} as the "
        f"frontier does"
    )
    if undecided:
        note += "; undecided in its time: " + ", ".join(f"(C={a.chunks}, S={a.steps}, R={a.rounds})" for a in undecided)
    return replace(frontier, answers=(*frontier.answers, *answers), notes=(*frontier.notes, note))


def _questions(frontier: Frontier) -> Iterator[tuple[Problem, str]]:
    """What each point decides, and the answer that the frontier gives."""
    for point in frontier.points:
        yield _problem(frontier, point, point.rounds), "schedule"
        if point.status == "optimal" and point.rounds > point.steps:
            yield _problem(frontier, point, point.rounds - 1), "infeasible"


def _problem(frontier: Frontier, point: Point, rounds: int) -> Problem:
    return Problem(frontier.network, frontier.collective, point.chunks, point.steps, rounds)


def _ask(problem: Problem, budget: Budget) -> Verdict:
    """z3's answer: its members where the problem copies or is the reversal of one that does, else the complete direct
    encoding."""
    if not problem.collective.combining or problem.collective.reversible:
        return race.solve(problem, budget=budget, solver="z3")
    job = jobs.alone(Member("step", "z3").imports, _direct, (problem, budget.seed), budget, budget.seconds)
    return (
        job.result[1] if job.result and job.result[0] == "ok" else Unknown("time" if job.result is None else "memory")
    )


def _direct(problem: Problem, seed: int) -> Verdict:
    """The direct encoding of a sum, with a chunk for every representative and no symmetry, decided by z3 in this
    process."""
    from synth.encodings import contributions
    from synth.model.outcome import Cost
    from synth.solvers.z3_sat import Z3Sat

    candidates = Candidates(problem.network, problem.collective, seed).exactly(
        problem.steps, problem.chunks, problem.rounds
    )
    whole = next(candidate for candidate in candidates if candidate.complete)
    model, read = contributions.encode(whole.translation, problem.steps, whole.rounds, True)
    answer, cost = Z3Sat(seed).solve(model), Cost("direct/z3")
    match answer.status:
        case "sat":
            return Sat(read({v for v, holds in enumerate(answer.values) if holds}), cost)
        case "unsat":
            return Unsat("by the complete direct encoding", cost)
        case why:
            return Unknown(why, answer.detail, cost)

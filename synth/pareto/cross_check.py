"""Cross-check of a frontier: z3 answers its deciding queries again, with SCCL's encoding beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from synth.errors import VerificationError
from synth.model.frontier import Frontier, Point, QueryRecord
from synth.model.outcome import Sat, Unknown, Unsat, Verdict
from synth.model.rational import counted
from synth.model.schedule import Problem
from synth.pareto.combining.candidates import Candidates
from synth.pareto.portfolio import portfolio
from synth.pareto.portfolio.members import Member
from synth.pareto.queries import record
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline

# Seconds for each query, without a time limit.
SECONDS = 20.0
# Wall seconds for each query, at least.
LEAST_SECONDS = 0.1


def cross_check(frontier: Frontier, budget: Budget, tell: Callable[[str], None] = lambda text: None) -> Frontier:
    """Return `frontier` with z3's answers to its deciding queries, and a note on how many z3 decided.

    Each point's (C, S, R) must have a schedule. Where the point is optimal, (C, S, R - 1) must have none.
    The deadline of `budget` is for all queries together. Those that z3 does not decide in time are noted as
    undecided. Raises VerificationError where z3 contradicts the frontier.
    """
    queries = list(_queries(frontier))
    answers: list[QueryRecord] = []
    for i, (problem, expected) in enumerate(queries):
        deadline = budget.deadline.share(1 / (len(queries) - i)).at_least(LEAST_SECONDS)
        verdict = _ask(problem, replace(budget, deadline=deadline if deadline.limited else Deadline.after(SECONDS)))
        answer = record(problem, verdict)
        answers.append(answer if answer.solver else replace(answer, solver="z3"))
        tell(f"cross-check {i + 1} of {len(queries)}: {answers[-1]}")
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


def _queries(frontier: Frontier) -> Iterator[tuple[Problem, str]]:
    """Yield (problem, expected answer) for the queries that each point of the frontier decides."""
    for point in frontier.points:
        yield _problem(frontier, point, point.rounds), "schedule"
        if point.status == "optimal" and point.rounds > point.steps:
            yield _problem(frontier, point, point.rounds - 1), "infeasible"


def _problem(frontier: Frontier, point: Point, rounds: int) -> Problem:
    return Problem(frontier.network, frontier.collective, point.chunks, point.steps, rounds)


def _ask(problem: Problem, budget: Budget) -> Verdict:
    """Return z3's answer.

    Its portfolio members decide problems that copy and their reversals, the complete direct encoding the others.
    """
    if not problem.collective.combining or problem.collective.reversible:
        return portfolio.solve(problem, budget=budget, solver="z3")
    job = pool.submit(Member("step", "z3").imports, _direct, (problem, budget.seed), budget.memory)
    return pool.outcome(job, budget.deadline, errors_crash=True)


def _direct(problem: Problem, seed: int) -> Verdict:
    """Decide the direct encoding with a chunk for every representative and no symmetry by z3, in this process."""
    from synth.encodings import contributions
    from synth.model.outcome import Cost
    from synth.solvers.z3_sat import Z3Sat

    candidates = Candidates(problem.network, problem.collective).exactly(problem.steps, problem.chunks, problem.rounds)
    complete = next(candidate for candidate in candidates if candidate.complete)
    model, decode = contributions.encode(complete.translation, problem.steps, complete.rounds, True)
    answer, cost = Z3Sat(seed).solve(model), Cost("direct/z3")
    match answer.status:
        case "sat":
            return Sat(decode({v for v, holds in enumerate(answer.values) if holds}), cost)
        case "unsat":
            return Unsat("by the complete direct encoding", cost)
        case why:
            return Unknown(why, answer.detail, cost)

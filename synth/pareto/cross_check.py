"""z3's second answers: the deciding questions of a frontier, where small in SCCL's encoding, else in ours.

Each point's (C, S, R) must have a schedule; where the point is optimal, (C, S, R - 1) must have none. `ask_small` asks
what takes z3 about a second, in this process; `ask_all` asks everything, in processes with a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

from synth.checker.schedule import replay
from synth.errors import VerificationError
from synth.model.frontier import Frontier, QueryRecord
from synth.model.outcome import Cost, Sat, Unknown, Unsat, Verdict
from synth.model.rational import counted
from synth.model.schedule import Problem, Schedule
from synth.pareto.combining.candidates import Candidates
from synth.pareto.combining.sccl_questions import QuestionsOfParts
from synth.pareto.portfolio import portfolio
from synth.pareto.portfolio.members import Member, run_member, select_members
from synth.pareto.step_search import record
from synth.solvers import pool
from synth.solvers.deadline import NEVER, Budget, Deadline

# Wall seconds for each question of `ask_all`, without a time limit; and at least.
SECONDS, LEAST_SECONDS = 20.0, 0.1
# CPU seconds of `ask_small`, by the estimates below: of all questions, of one in SCCL's encoding, and of one in ours.
SMALL_SECONDS, SCCL_SECONDS, STEP_SECONDS = 2.0, 1.0, 0.5
# Share of these seconds that is planned: the rest is for estimates that are too low.
PLANNED = 0.75
# C * units * routes * S * (R - S + 1) that z3 does in a CPU second in SCCL's encoding, measured on deciding questions
# of eleven machines: with a schedule, without one, and of one unit in four steps and more.
SCHEDULES, REFUTATIONS, LONG_PATHS = 10_000, 5_000, 1_500
# C * units * routes * S that it does in the step encoding; the same times ranks in the encoding of sums with R = S, and
# with more rounds.
STEPS, SUMS, LONG_SUMS = 10_000, 20_000, 10_000
# Seconds of the least of these questions, and the conflicts that end a search: about so many, divided by that size.
LEAST_SECONDS_HERE, CONFLICTS, MOST_CONFLICTS = 0.15, 20_000_000, 20_000
# z3's own steps ("rlimit") in a CPU second. They, and no clock, end a question that takes longer than expected.
WORK = 4_000_000
NOT_ASKED = Unknown("gave-up", "not asked")
# Questions named in the note, at most.
NAMED = 3


@dataclass(frozen=True)
class DecidingQuestion:
    """A problem and what the frontier says of it: "schedule" or "infeasible"."""

    problem: Problem
    expected: str

    def __str__(self) -> str:
        return f"(C={self.problem.chunks}, S={self.problem.steps}, R={self.problem.rounds})"


@dataclass(frozen=True)
class CrossCheck:
    """Answers of z3 to questions of a frontier, all as the frontier has them; `left` are those without an answer.

    `composed`: the number of answers that are a reduce-scatter and an allgather, as SCCL has an allreduce. `seconds`:
    CPU seconds of z3, apart from those of the frontier. `complete`: all questions were asked.
    """

    answers: tuple[QueryRecord, ...]
    left: tuple[DecidingQuestion, ...]
    composed: int
    seconds: float
    complete: bool

    def __str__(self) -> str:
        asked = counted(len(self.answers) + len(self.left), "question")
        if not self.answers and not self.complete:
            return f"z3 decided none of {asked} in the {SMALL_SECONDS:g} s that it has; --cross-check asks all"
        text = f"z3 agrees on {len(self.answers)} of {asked}"
        if self.composed:
            text += f", on {self.composed} as reduce-scatter + allgather"
        if not self.left:
            return text
        names = [str(question) for question in self.left[:NAMED]]
        if len(self.left) > NAMED:
            names.append(f"{len(self.left) - NAMED} more")
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        if self.complete:
            return f"{text}; undecided in its time: {listed}"
        needs = "needs" if len(self.left) == 1 else "need"
        return f"{text}; {listed} {needs} --cross-check"


def ask_small(
    frontier: Frontier, deadline: Deadline = NEVER, tell: Callable[[str], None] = lambda text: None
) -> CrossCheck:
    """Ask z3 the questions that are expected to take 2 CPU seconds together at most, the smallest first.

    Sizes choose them and z3's own counts end them, so that the answers are the same on any machine, but that none is
    asked after the deadline. Raises VerificationError where z3 contradicts the frontier, MissingDependencyError without
    z3, and KeyboardInterrupt.
    """
    questions, guard = list(_questions(frontier)), Deadline.after(SMALL_SECONDS, cpu=True)
    planned, total = set[int](), 0.0
    for seconds, place in sorted((_seconds(question), place) for place, question in enumerate(questions)):
        total += seconds
        if total <= PLANNED * SMALL_SECONDS:
            planned.add(place)

    def decide(place: int) -> Verdict:
        if place not in planned or guard.over or deadline.remaining() < SCCL_SECONDS:
            return NOT_ASKED
        return _ask_small(questions[place], deadline)

    return _answers(questions, decide, tell, complete=False)


def ask_all(frontier: Frontier, budget: Budget, tell: Callable[[str], None] = lambda text: None) -> CrossCheck:
    """Ask z3 all deciding questions, in processes; the deadline of `budget` is for all of them together.

    Raises VerificationError where z3 contradicts the frontier.
    """
    questions = list(_questions(frontier))

    def decide(place: int) -> Verdict:
        question, deadline = questions[place], budget.deadline.share(1 / (len(questions) - place))
        deadline = deadline.at_least(LEAST_SECONDS) if deadline.limited else Deadline.after(SECONDS)
        small = _ask_small(question, deadline) if _seconds(question) <= SCCL_SECONDS else NOT_ASKED
        return _ask(question.problem, replace(budget, deadline=deadline)) if isinstance(small, Unknown) else small

    return _answers(questions, decide, tell, complete=True)


def _questions(frontier: Frontier) -> Iterator[DecidingQuestion]:
    """Yield the questions on which the rows of the frontier rest: is there a schedule as that of each point, and none
    with a round less, if the point is optimal?

    A schedule whose switches multicast gives none: z3 is asked about links.
    """
    for point in frontier.points:
        problem = Problem(frontier.network, frontier.collective, point.chunks, point.steps, point.rounds)
        if not (frontier.network.multicast and any(step.switch_sends for step in point.schedule.steps)):
            yield DecidingQuestion(problem, "schedule")
        if point.status == "optimal" and point.rounds > point.steps:
            yield DecidingQuestion(replace(problem, rounds=point.rounds - 1), "infeasible")


def _answers(
    questions: list[DecidingQuestion], decide: Callable[[int], Verdict], tell: Callable[[str], None], complete: bool
) -> CrossCheck:
    """Ask each question and compare its answer with the frontier's. A schedule is replayed."""
    answers, left, composed, seconds = list[QueryRecord](), list[DecidingQuestion](), 0, 0.0
    for place, question in enumerate(questions):
        verdict = decide(place)
        answer = record(question.problem, verdict)
        seconds += verdict.cost.total_cpu
        if verdict is not NOT_ASKED:
            tell(f"cross-check {place + 1} of {len(questions)}: {answer}, in {verdict.cost.cpu:.2f} s")
        if isinstance(verdict, Unknown):
            if verdict.reason == "interrupted":
                raise KeyboardInterrupt
            left.append(question)
            continue
        if isinstance(verdict, Sat):
            replay.schedule(verdict.schedule)
        if answer.verdict != question.expected:
            steps = f"S={question.problem.steps}"
            raise VerificationError(f"cross-check: z3 says {answer}; the frontier says {question.expected}", steps)
        answers.append(answer)
        composed += verdict.cost.engine.startswith("composed")
    return CrossCheck(tuple(answers), tuple(left), composed, seconds, complete)


def _sccl_seconds(question: DecidingQuestion) -> float:
    """Return the CPU seconds that SCCL's encoding is expected to take; of an allreduce for its parts."""
    problem, units = question.problem, question.problem.collective.units
    chunks, steps, rounds = problem.chunks, problem.steps, problem.rounds
    if problem.collective.name == "allreduce":
        ranks = problem.network.ranks
        if question.expected != "schedule" or chunks % ranks or steps % 2 or rounds % 2:
            return inf
        chunks, steps, rounds, units = chunks // ranks, steps // 2, rounds // 2, ranks
    elif problem.collective.combining and not problem.collective.reversible:
        return inf
    rate = SCHEDULES if question.expected == "schedule" else REFUTATIONS
    if units == 1 and steps >= 4:
        rate = LONG_PATHS
    return chunks * units * len(problem.network.routes) * steps * (rounds - steps + 1) / rate


def _step_size(problem: Problem) -> int:
    """Return about the number of variables of a question in the step encoding, or in that of sums."""
    coll = problem.collective
    size = problem.chunks * coll.units * len(problem.network.routes) * problem.steps
    if coll.combining and not coll.reversible:
        return size * problem.network.ranks
    # a part that one rank wants takes few of the routes
    personal = all(len(end) == 1 for ends in (coll.pre, coll.post) for end in ends)
    return size // 4 if personal else size


def _step_seconds(problem: Problem) -> float:
    """Return the CPU seconds that the step encoding, or that of sums, is expected to take; infinity where too many."""
    rate = STEPS
    if problem.collective.combining and not problem.collective.reversible:
        rate = SUMS if problem.rounds == problem.steps else LONG_SUMS
    seconds = _step_size(problem) / rate
    return max(LEAST_SECONDS_HERE, seconds) if seconds <= STEP_SECONDS else inf


def _seconds(question: DecidingQuestion) -> float:
    """Return the expected CPU seconds of a question that is small in one of the encodings, else infinity."""
    sccl = _sccl_seconds(question)
    return sccl if sccl <= SCCL_SECONDS else _step_seconds(question.problem)


def _ask_small(question: DecidingQuestion, deadline: Deadline) -> Verdict:
    """Return z3's answer in this process: in SCCL's encoding where small, else, or where it gives up, in ours."""
    problem = question.problem
    coll = problem.collective
    verdict: Verdict = Unknown("gave-up", "too large")
    seconds = _sccl_seconds(question)
    if seconds <= SCCL_SECONDS:
        work = int(WORK * max(seconds, SCCL_SECONDS / 4))
        parts = QuestionsOfParts(problem.network, coll, several=False)
        verdict = parts.decide(problem, deadline, work)
        if parts.composed and isinstance(verdict, Unsat):  # other schedules of an allreduce may exist
            verdict = Unknown("gave-up", verdict.reason, verdict.cost)
        elif parts.composed and isinstance(verdict, Sat):
            verdict = Sat(verdict.schedule, replace(verdict.cost, engine=f"composed/{verdict.cost.engine}"))
    if not isinstance(verdict, Unknown) or _step_seconds(problem) == inf:
        return verdict
    conflicts = min(MOST_CONFLICTS, CONFLICTS // max(1, _step_size(problem)))
    if coll.combining and not coll.reversible:
        return _direct(problem, 0, conflicts)

    # the whole formula refutes; formulas of symmetric schedules, which come first, find one sooner
    plain, cpu = problem.reversed() if coll.combining else problem, verdict.cost.cpu
    for member, generators in select_members(plain, "auto", "z3"):
        if not member.solver or (member.encoding != "step" and question.expected == "infeasible"):
            continue
        result = run_member(member, plain, generators, Budget(deadline), conflicts)
        cpu += result.cpu
        cost = Cost(str(member), cpu, cpu)
        if result.status == "sat" and result.steps is not None:
            found = Schedule(plain.network, plain.collective, plain.chunks, result.steps)
            return Sat(problem.of_reversal(found), cost)
        if result.status == "unsat":
            return Unsat(result.detail, cost)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        verdict = Unknown("gave-up", result.detail, cost)
    return verdict


def _ask(problem: Problem, budget: Budget) -> Verdict:
    """Return z3's answer.

    Its portfolio members decide problems that copy and their reversals, the complete direct encoding the others.
    """
    if not problem.collective.combining or problem.collective.reversible:
        return portfolio.solve(problem, budget=budget, solver="z3")
    job = pool.submit(Member("step", "z3").imports, _direct, (problem, budget.seed), budget.memory)
    return pool.outcome(job, budget.deadline, errors_crash=True)


def _direct(problem: Problem, seed: int, conflicts: int | None = None) -> Verdict:
    """Decide the direct encoding with a chunk for every representative and no symmetry by z3, in this process."""
    from synth.encodings import contributions
    from synth.solvers.z3_solvers import Z3Sat

    began = time.process_time()
    candidates = Candidates(problem.network, problem.collective).exactly(problem.steps, problem.chunks, problem.rounds)
    complete = next(candidate for candidate in candidates if candidate.complete)
    model, decode = contributions.encode(complete.translation, problem.steps, complete.rounds, True)
    answer = Z3Sat(seed, conflicts).solve(model)
    cpu = time.process_time() - began
    cost = Cost("direct/z3", cpu, cpu)
    match answer.status:
        case "sat":
            return Sat(decode({v for v, holds in enumerate(answer.values) if holds}), cost)
        case "unsat":
            return Unsat("by the complete direct encoding", cost)
        case why:
            return Unknown(why, answer.detail, cost)

"""The algorithm portfolio: encodings, solvers and subgroups in time slices, in killable processes, under one budget.

The first answer decides: a schedule from any member, a refutation only from a complete encoding. Nothing else ever
counts as "infeasible": a portfolio whose members are killed, crash or run out of time ends as `Unknown` with the
reason.

Combining collectives that are the time reversal of a non-combining one (reduce, reduce-scatter) are answered on the
reversed problem: run a broadcast schedule backwards, on reversed links, with copies turned into additions, and every
contribution reaches its sum exactly once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from signal import SIGCONT, SIGSTOP

from synth.errors import UsageError
from synth.model.outcome import Cost, Sat, Unknown, Unsat, Verdict, Why
from synth.model.schedule import Problem, Schedule
from synth.pareto.portfolio.members import QUICK, Member, MemberResult, run_member, select_members, size
from synth.solvers import pool
from synth.solvers.deadline import Budget
from synth.solvers.pool import ProcessJob

# CPU seconds that the first member has to itself.
HEAD_START = 0.03
# CPU seconds that a member may use before the next one starts, by place in the portfolio, and for all but those of the
# quick solver. Few members share the first seconds, and the others wait for hard problems.
START_DELAYS, QUICK_SECONDS = (0.0, 0.02, 0.1, 0.15, 0.4, 1.5), 0.03
# Seconds between changes of turn at first. The interval grows with the time spent.
SLICE = 0.1
# Conflict limits of the rounds of a deterministic portfolio, in which members run one after another.
DETERMINISTIC_CONFLICTS = (2_000, 20_000, 200_000, None)


def solve(
    problem: Problem, *, budget: Budget, encoding: str = "auto", solver: str = "auto",
    on_event: Callable[[str], None] | None = None, beside: ProcessJob | None = None,
) -> Verdict:  # fmt: skip
    """Decide whether a schedule with these chunks, steps and rounds exists.

    `encoding` names an encoding (``step``, ``quotient@1``, ``sccl``, ``tree``) or a member (``step/cadical``). "auto"
    runs them all. `solver` likewise. `on_event` is called with a line of text when a member starts or ends. The
    portfolio ends at the deadline, and when its members have had `budget.cpu_seconds` of each processor that they use.
    `beside` is a job of the tree
    engine for the same query: while it runs it has a processor and the portfolio has no tree member, and its schedule
    ends the portfolio. Raises
    MissingDependencyError, and UsageError for unknown names and for collectives that neither copy only nor are the
    reversal of one that does.
    """
    coll = problem.collective
    if coll.combining and not coll.reversible:
        instead = f"`synth pareto --coll {coll.name} --max-steps {problem.steps}` finds its frontier"
        raise UsageError(f"{coll.name} is not asked for one (C, S, R); {instead}")
    plain = problem.reversed() if coll.combining else problem
    members = [
        entry for entry in select_members(plain, encoding, solver) if beside is None or entry[0].encoding != "tree"
    ]
    if plain.rounds < plain.steps or plain.steps < 1:
        verdict: Verdict = Unsat("fewer rounds than steps", Cost("rounds"))
    else:
        verdict = _race(plain, members, budget, on_event or (lambda text: None), beside)
    if isinstance(verdict, Sat):
        return Sat(problem.of_reversal(verdict.schedule), verdict.cost)
    return verdict


@dataclass
class _MemberRun:
    """A member at work on a query.

    `ran`: CPU seconds that count for its turns. `seen`: CPU seconds at the last look.
    """

    member: Member
    generators: tuple
    start_delay: float  # CPU seconds that others may use first
    job: ProcessJob | None = None
    running: bool = False
    ran: float = 0.0
    seen: float = 0.0
    finished: bool = False
    why: Why | None = None
    detail: str = ""


def _race(
    problem: Problem,
    members: list[tuple[Member, tuple]],
    budget: Budget,
    tell: Callable[[str], None],
    beside: ProcessJob | None,
) -> Verdict:
    """Run members to the first answer or the end of the budget. Every child is dead when this returns or raises.

    They take turns on `budget.jobs` processors: the least CPU time plus start delay comes next.
    """
    began = time.monotonic()
    delays = start_delays([member for member, _ in members], problem)
    runs = [_MemberRun(*entry, delay) for entry, delay in zip(members, delays, strict=True)]
    groups: list[tuple[list[_MemberRun], int | None]] = [(runs, None)]
    if budget.deterministic and len(members) > 1:
        # no clock decides: one member at a time, with conflict limits that grow from round to round
        groups = []
        entries = [entry for entry in members if entry[0].solver == "cadical"] or members
        for conflicts, entry in itertools.product(DETERMINISTIC_CONFLICTS, entries):
            if conflicts is not None or entry[0].encoding == "step":
                groups.append(([_MemberRun(*entry, 0.0)], conflicts))
        runs = [run for group, _ in groups for run in group]

    used = 0.0  # CPU seconds of each processor in use
    over = answered_beside = False
    winner: tuple[_MemberRun, MemberResult] | None = None
    settled: set[Member] = set()
    try:
        for group, conflicts in groups:
            if winner or over or answered_beside:
                break
            alive = [run for run in group if run.member not in settled]
            while alive and winner is None:
                now = time.monotonic()
                over = budget.deadline.over or (budget.cpu_seconds is not None and used >= budget.cpu_seconds)
                jobs_beside = [beside] if beside and not beside.done else []
                result = beside.result if beside else None
                answered_beside = result is not None and result[0] == "ok" and isinstance(result[1], Sat)
                if over or answered_beside:
                    break

                # stop, continue and start members, so that those whose turn it is have the processors
                head_start = now - began < HEAD_START
                alone = head_start and len(alive) == len(group)
                slots = 1 if alone else max(1, budget.jobs - len(jobs_beside))
                alive.sort(key=lambda run: run.ran + run.start_delay)
                for run in alive[slots:]:
                    if run.running and run.job is not None:
                        run.job.signal(SIGSTOP)
                        run.running = False
                for run in alive[:slots]:
                    if run.job is None:
                        tell(f"{run.member} starts")
                        arguments = (run.member, problem, run.generators, budget, conflicts)
                        run.job = pool.submit(run.member.imports, run_member, arguments, budget.memory)
                    elif not run.running:
                        run.job.signal(SIGCONT)
                    run.running = True

                # let them work for a slice; the head start does not count, or the first would wait first
                active = [(run, run.job) for run in alive if run.running and run.job is not None]
                before = time.monotonic()
                seconds = HEAD_START if head_start else max(SLICE, 0.05 * (now - began))
                pool.wait([job for _, job in active] + jobs_beside, budget.deadline.within(seconds))
                spent = time.monotonic() - before
                total = 0.0
                for run, job in active:
                    cpu = job.cpu_seconds()  # None where the system does not report it
                    work = spent if cpu is None else max(0.0, cpu - run.seen)
                    run.seen = run.seen if cpu is None else cpu
                    run.ran += work if before - began >= HEAD_START else 0.0
                    total += work
                used += total / max(1, len(active))

                # the first answer decides; a member that ended without one says why
                for run, job in active:
                    if winner is not None or not job.done:
                        continue
                    run.finished, run.running = True, False
                    outcome = pool.outcome(job, errors_crash=True)
                    if isinstance(outcome, Unknown):
                        run.why, run.detail = outcome.reason, f"{run.member}: {outcome.detail}"
                        tell(f"{run.member} is out: {run.detail}")
                    elif outcome.status in ("sat", "unsat"):
                        winner = run, outcome
                    else:
                        run.why, run.detail = outcome.status, outcome.detail
                        tell(f"{run.member} gave up: {outcome.detail or outcome.status}")
                alive = [run for run in alive if not run.finished]
            settled |= {run.member for run in group if run.finished and run.detail != "conflicts"}
    finally:
        pool.end([run.job for run in runs if run.job is not None])

    wall = time.monotonic() - began
    cpu = sum(run.job.cpu for run in runs if run.job is not None)
    if winner is not None:
        run, result = winner
        cost = Cost(str(run.member), result.cpu, cpu)
        if result.steps is None:
            return Unsat(result.detail or "refuted", cost)
        return Sat(Schedule(problem.network, problem.collective, problem.chunks, result.steps), cost)
    cost = Cost("", 0.0, cpu)
    if answered_beside:
        return Unknown("interrupted", "another engine has a schedule", cost)
    if over:
        return Unknown("time", f"no answer in {wall:.3g} s", cost)
    for why in ("memory", "interrupted", "crash", "time"):
        for run in runs:
            if run.why == why:
                return Unknown(why, run.detail, cost)
    return Unknown("gave-up", "; ".join(f"{run.member}: {run.detail}" for run in runs if run.detail), cost)


def start_delays(members: Sequence[Member], problem: Problem) -> list[float]:
    """Return the start delay of each member in CPU seconds. Delays grow with the problem, which slows all members."""
    scale = max(1.0, size(problem) / 10_000)
    quick = len(list(itertools.takewhile(lambda member: member.solver == QUICK, members)))
    delays = [QUICK_SECONDS * place / 4 for place in range(quick)]
    first = QUICK_SECONDS if quick else 0
    for place in range(len(members) - quick):
        delays.append(scale * (START_DELAYS[min(place, len(START_DELAYS) - 1)] + first))
    return delays

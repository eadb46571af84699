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
from synth.pareto.portfolio.members import Member, MemberResult, run_member
from synth.pareto.portfolio.selection import QUICK, select_members, size
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
        verdict = _PortfolioRun(plain, members, budget, on_event or (lambda text: None), beside).run()
    if isinstance(verdict, Sat):
        schedule = verdict.schedule.reversed() if coll.combining else verdict.schedule
        return Sat(Schedule(problem.network, coll, problem.chunks, schedule.steps), verdict.cost)
    return verdict


@dataclass
class _MemberRun:
    """A member at work on a query.

    `ran`: CPU seconds that count for its turns. `seen`: CPU seconds at the last call of `worked`.
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

    def turn(self) -> float:
        """Return the sort key for the next turn, the least first."""
        return self.ran + self.start_delay

    def worked(self, wall: float) -> float:
        """Return the CPU seconds since the last call, or `wall` where the system does not report them."""
        cpu = None if self.job is None else self.job.cpu_seconds()
        if cpu is None:
            return wall
        before, self.seen = self.seen, cpu
        return max(0.0, cpu - before)


class _PortfolioRun:
    """One query. Members take turns on `budget.jobs` processors: the least CPU time plus start delay comes next."""

    def __init__(
        self,
        problem: Problem,
        members: list[tuple[Member, tuple]],
        budget: Budget,
        progress: Callable[[str], None],
        beside: ProcessJob | None = None,
    ) -> None:
        self.problem, self.budget, self.progress, self.beside = problem, budget, progress, beside
        delays = start_delays([member for member, _ in members], problem)
        self.runs = [
            _MemberRun(member, generators, delay) for (member, generators), delay in zip(members, delays, strict=True)
        ]
        self.began = time.monotonic()
        self.used = 0.0  # CPU seconds of each processor in use

    def run(self) -> Verdict:
        """Run to the first answer or the end of the budget. Every child is dead when this returns or raises."""
        try:
            if self.budget.deterministic and len(self.runs) > 1:
                winner = self._in_order()
            else:
                winner = self._together(self.runs, None)
        finally:
            pool.end([r.job for r in self.runs if r.job is not None])
        return self._verdict(winner)

    def _together(self, runs: list[_MemberRun], conflicts: int | None) -> tuple[_MemberRun, MemberResult] | None:
        """Give members turns until one decides the query. Return None where none does, or the budget is used up."""
        while any(not r.finished for r in runs):
            now = time.monotonic()
            if self._over or self._answered_beside:
                return None
            self._turns([r for r in runs if not r.finished], now, conflicts)
            before = time.monotonic()
            started = now - self.began > HEAD_START
            seconds = max(SLICE, 0.05 * (now - self.began)) if started else HEAD_START
            active = [r for r in runs if r.running]
            jobs = [r.job for r in active if r.job is not None] + self._jobs_beside
            pool.wait(jobs, self.budget.deadline.within(seconds))
            spent = time.monotonic() - before
            worked = [run.worked(spent) for run in active]
            self.used += sum(worked) / max(1, len(worked))
            for run, work in zip(active, worked, strict=True):
                # The head start does not count, or the first would wait first.
                if before - self.began >= HEAD_START:
                    run.ran += work
                result = self._collect(run)
                if result is not None and result.status in ("sat", "unsat"):
                    return run, result
        return None

    @property
    def _jobs_beside(self) -> list[ProcessJob]:
        """The job beside the portfolio, while it runs."""
        return [self.beside] if self.beside and not self.beside.done else []

    @property
    def _answered_beside(self) -> bool:
        """True when the job beside the portfolio has a schedule."""
        result = self.beside.result if self.beside else None
        return result is not None and result[0] == "ok" and isinstance(result[1], Sat)

    @property
    def _over(self) -> bool:
        """True when the budget is used up."""
        seconds = self.budget.cpu_seconds
        return self.budget.deadline.over or (seconds is not None and self.used >= seconds)

    def _in_order(self) -> tuple[_MemberRun, MemberResult] | None:
        """Run one member at a time, with conflict limits that grow from round to round, so that no clock decides."""
        members = [(r.member, r.generators) for r in self.runs]
        entries = [entry for entry in members if entry[0].solver == "cadical"] or members
        finished: set[Member] = set()
        for conflicts in DETERMINISTIC_CONFLICTS:
            for member, generators in entries:
                if member in finished or (conflicts is None and member.encoding != "step"):
                    continue
                run = _MemberRun(member, generators, 0.0)
                self.runs.append(run)
                winner = self._together([run], conflicts)
                if winner is not None or not run.finished:
                    return winner
                if run.detail != "conflicts":
                    finished.add(member)
        return None

    def _turns(self, alive: list[_MemberRun], now: float, conflicts: int | None) -> None:
        """Stop, continue and start members, so that those whose turn it is have the processors."""
        head_start = now - self.began < HEAD_START and len(alive) == len(self.runs)
        slots = 1 if head_start else max(1, self.budget.jobs - len(self._jobs_beside))
        order = sorted(alive, key=_MemberRun.turn)
        for run in order[slots:]:
            if run.running and run.job is not None:
                run.job.signal(SIGSTOP)
                run.running = False
        for run in order[:slots]:
            if run.running:
                continue
            run.running = True
            if run.job is not None:
                run.job.signal(SIGCONT)
                continue
            self.progress(f"{run.member} starts")
            arguments = (run.member, self.problem, run.generators, self.budget, conflicts)
            run.job = pool.submit(run.member.imports, run_member, arguments, self.budget.memory)

    def _collect(self, run: _MemberRun) -> MemberResult | None:
        """Return the result of a member that has answered; note the reason of one that ended without."""
        if run.job is None or not run.job.done:
            return None
        run.finished, run.running = True, False
        result = pool.outcome(run.job, errors_crash=True)
        if isinstance(result, Unknown):
            run.why, run.detail = result.reason, f"{run.member}: {result.detail}"
            self.progress(f"{run.member} is out: {run.detail}")
            return None
        if result.status not in ("sat", "unsat"):
            run.why, run.detail = result.status, result.detail
            self.progress(f"{run.member} gave up: {result.detail or result.status}")
        return result

    def _verdict(self, winner: tuple[_MemberRun, MemberResult] | None) -> Verdict:
        wall = time.monotonic() - self.began
        total = sum(r.job.cpu for r in self.runs if r.job is not None)
        if winner is None:
            why, detail = self._why()
            return Unknown(why, detail, Cost("", 0.0, total, wall))
        run, result = winner
        cost = Cost(str(run.member), result.cpu, total, wall, result.profile or {})
        if result.steps is None:
            return Unsat(result.detail or "refuted", cost)
        return Sat(Schedule(self.problem.network, self.problem.collective, self.problem.chunks, result.steps), cost)

    def _why(self) -> tuple[Why, str]:
        if self._answered_beside:
            return "interrupted", "another engine has a schedule"
        if any(not r.finished for r in self.runs) and self._over:
            return "time", f"no answer in {time.monotonic() - self.began:.3g} s"
        for why in ("memory", "interrupted", "crash", "time"):
            for run in self.runs:
                if run.why == why:
                    return why, run.detail
        return "gave-up", "; ".join(f"{r.member}: {r.detail}" for r in self.runs if r.detail)


def start_delays(members: Sequence[Member], problem: Problem) -> list[float]:
    """Return the start delay of each member in CPU seconds. Delays grow with the problem, which slows all members."""
    scale = max(1.0, size(problem) / 10_000)
    quick = len(list(itertools.takewhile(lambda member: member.solver == QUICK, members)))
    delays = [QUICK_SECONDS * place / 4 for place in range(quick)]
    first = QUICK_SECONDS if quick else 0
    for place in range(len(members) - quick):
        delays.append(scale * (START_DELAYS[min(place, len(START_DELAYS) - 1)] + first))
    return delays

"""The race: encodings, solvers and subgroups against each other in killable processes, under one budget.

The first answer wins: a schedule from anybody, a refutation only from a complete encoding. Nothing else ever counts as
"infeasible": a racer that is killed, crashes or runs out ends as `Unknown` with the reason.

Combining collectives that are the time reversal of a non-combining one (reduce, reduce-scatter) are answered on the
reversed problem: run a broadcast schedule backwards, on reversed links, with copies turned into additions, and every
contribution reaches its sum exactly once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from synth.checker.documents import refutation
from synth.errors import MissingDependencyError, UsageError
from synth.model.outcome import Budget, Cost, Sat, Unknown, Unsat, Verdict, Why
from synth.model.schedule import Problem, Schedule
from synth.pareto.portfolio.members import Attempt, Racer, attempt
from synth.pareto.portfolio.selection import QUICK, entrants, size
from synth.solvers.processes.fork_server import Job
from synth.solvers.processes.jobs import TURN, alone, drain, end, start, watch

HEAD_START = 0.03  # seconds the first racer has to itself
HANDICAPS = (
    0.0,
    0.02,
    0.1,
    0.15,
    0.4,
    1.5,
    4.0,
    8.0,
    16.0,
)  # few racers share the first seconds, others wait for hard problems
QUICK_SECONDS = 0.03  # handicap of all others where it takes part
TREE_SECONDS = 10.0  # of the tree engine, which count only
TREE_SHARE = 0.2  # so much: a processor is nearly its own while they last
SLICE = 0.1  # seconds between changes of turn, growing with the time spent
DETERMINISTIC_CONFLICTS = (2_000, 20_000, 200_000)  # budgets of the sequential rounds; the last round has none


def solve(
    problem: Problem, *, budget: Budget, encoding: str = "auto", solver: str = "auto", proof: Path | None = None,
    on_event: Callable[[str], None] | None = None, patience: float = 1.0, beside: Job | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> Verdict:  # fmt: skip
    """Is there a schedule with these chunks, steps and rounds?

    `encoding` names an encoding (``step``, ``quotient@1``, ``sccl``, ``tree``) or a racer (``step/cadical``); "auto"
    races them all. `solver` likewise. With `proof`, a folder, an infeasible problem is proved again with a proof file
    there. `on_event` hears, in words, which racers start and stop. The race ends when the racers have had
    `budget.seconds` of each processor they use, and after `patience` times as many wall seconds: with more than 1 a
    busy machine cuts no search short. `beside` is a job of the tree engine with the same aim: while it runs it has a
    processor, no racer does the same, and once it has a schedule the race is over. `limits`: `extra_memory` and
    `pipeline` of SCCL's encoding, which then decides alone. Raises UsageError for unknown names and for collectives
    that neither copy only nor are the reversal of one that does; MissingDependencyError.
    """
    coll = problem.collective
    if coll.combining and not coll.reversible:
        instead = f"`synth pareto --coll {coll.name} --max-steps {problem.steps}` finds its frontier"
        raise UsageError(f"{coll.name} is not asked for one (C, S, R); {instead}")
    plain = problem.reversed() if coll.combining else problem
    began = time.monotonic()
    racers = [
        entry for entry in entrants(plain, encoding, solver, limits) if beside is None or entry[0].encoding != "tree"
    ]
    if plain.rounds < plain.steps or plain.steps < 1:
        verdict: Verdict = Unsat("fewer rounds than steps", Cost("rounds"))
    else:
        with TURN:
            verdict = _Race(plain, racers, budget, on_event or (lambda text: None), patience, beside).run()
    if isinstance(verdict, Sat):
        schedule = verdict.schedule.reversed() if coll.combining else verdict.schedule
        return Sat(Schedule(problem.network, coll, problem.chunks, schedule.steps), verdict.cost)
    if isinstance(verdict, Unsat) and proof is not None:
        return _proved(problem, verdict, proof, budget, began)
    return verdict


def _proved(problem: Problem, verdict: Unsat, folder: Path, budget: Budget, began: float) -> Verdict:
    """The same refutation with a proof file, as far as the rest of the budget goes; its certificate is in the cost's
    detail."""
    from synth.encodings.lrat_proofs import write_proof

    left = None if budget.seconds is None else max(1.0, budget.seconds - (time.monotonic() - began))
    job = alone(Racer("step", "cadical").imports, write_proof, (problem, folder.absolute()), budget, left)
    if job.result and job.result[0] == "ok":
        certificate = job.result[1]
        path = refutation.write(problem, certificate, folder)
        cost = replace(verdict.cost, detail={**verdict.cost.detail, "certificate": certificate})
        return Unsat(verdict.reason, cost, str(path))
    why = "the time ran out" if not job.ended else str(job.result[1]) if job.result else "its process died"
    return replace(verdict, reason=f"{verdict.reason}; no proof was written: {why}")


@dataclass
class _Runner:
    racer: Racer
    generators: tuple
    handicap: float  # seconds of running that others may have first
    job: Job | None = None
    running: bool = False
    ran: float = 0.0
    seen: float = 0.0
    finished: bool = False
    why: Why | None = None
    detail: str = ""

    def turn(self) -> float:
        """Who has the least goes on. The tree engine's first seconds count little: it answers early or hardly ever."""
        early = min(self.ran, TREE_SECONDS) * (1 - TREE_SHARE) if self.racer.encoding == "tree" else 0.0
        return self.ran - early + self.handicap

    def worked(self, wall: float) -> float:
        """CPU seconds since it was last asked, or as many as were on the clock where they cannot be told."""
        now = None if self.job is None else self.job.spent()
        if now is None:
            return wall
        before, self.seen = self.seen, now
        return max(0.0, now - before)


class _Race:
    """One query. Racers take turns on `budget.jobs` processors: those that ran least (plus their handicap) go on."""

    def __init__(
        self,
        problem: Problem,
        racers: list[tuple[Racer, tuple]],
        budget: Budget,
        tell: Callable[[str], None],
        patience: float,
        beside: Job | None = None,
    ) -> None:
        self.problem, self.budget, self.tell, self.beside = problem, budget, tell, beside
        handicaps = _handicaps([racer for racer, _ in racers], problem)
        self.runners = [
            _Runner(racer, generators, late) for (racer, generators), late in zip(racers, handicaps, strict=True)
        ]
        self.began = time.monotonic()
        self.deadline = None if budget.seconds is None else self.began + budget.seconds * patience
        self.used = 0.0  # CPU seconds of each processor in use

    def run(self) -> Verdict:
        """Runs to the first answer or the end of the budget; every child is dead when this returns or raises."""
        try:
            winner = (
                self._in_order()
                if self.budget.deterministic and len(self.runners) > 1
                else self._together(self.runners, None)
            )
        finally:
            end([r.job for r in self.runners if r.job is not None])
        return self._verdict(winner)

    def _together(self, runners: list[_Runner], conflicts: int | None) -> tuple[_Runner, Attempt] | None:
        while any(not r.finished for r in runners):
            now = time.monotonic()
            if self._over(now) or self._answered:
                return None
            self._turns([r for r in runners if not r.finished], now, conflicts)
            before = time.monotonic()
            tick = max(SLICE, 0.05 * (now - self.began)) if now - self.began > HEAD_START else HEAD_START
            until = before + tick if self.deadline is None else min(before + tick, self.deadline)
            active = [r for r in runners if r.running]
            watch([r.job for r in active if r.job is not None] + self._company, until)
            spent = time.monotonic() - before
            worked = [runner.worked(spent) for runner in active]
            self.used += sum(worked) / max(1, len(worked))
            for runner, work in zip(active, worked, strict=True):
                runner.ran += (
                    0.0 if before - self.began < HEAD_START else work
                )  # so that the first is not the first to wait
                found = self._look(runner)
                if found is not None and found.status in ("sat", "unsat"):
                    return runner, found
        return None

    @property
    def _company(self) -> list[Job]:
        """The job beside, while it runs."""
        return [self.beside] if self.beside and not (self.beside.result or self.beside.ended) else []

    @property
    def _answered(self) -> bool:
        """Whether the job beside has a schedule."""
        result = self.beside.result if self.beside else None
        return result is not None and result[0] == "ok" and isinstance(result[1], Sat)

    def _over(self, now: float) -> bool:
        seconds = self.budget.seconds
        return seconds is not None and self.deadline is not None and (self.used >= seconds or now >= self.deadline)

    def _in_order(self) -> tuple[_Runner, Attempt] | None:
        """One racer at a time, each with a number of conflicts that grows from round to round: no clock decides who
        wins."""
        everybody = [(r.racer, r.generators) for r in self.runners]
        entries = [entry for entry in everybody if entry[0].solver == "cadical"] or everybody
        lost: set[Racer] = set()
        for conflicts in (*DETERMINISTIC_CONFLICTS, None):
            for racer, generators in entries:
                if racer in lost or (conflicts is None and racer.encoding != "step"):
                    continue
                runner = _Runner(racer, generators, 0.0)
                self.runners.append(runner)
                found = self._together([runner], conflicts)
                if found is not None or not runner.finished:
                    return found
                if runner.detail != "conflicts":
                    lost.add(racer)
        return None

    def _turns(self, alive: list[_Runner], now: float, conflicts: int | None) -> None:
        slots = (
            max(1, self.budget.jobs - len(self._company))
            if now - self.began >= HEAD_START or len(alive) < len(self.runners)
            else 1
        )
        order = sorted(alive, key=_Runner.turn)
        for runner in order[slots:]:
            if runner.running and runner.job is not None:
                runner.job.stop()
                runner.running = False
        for runner in order[:slots]:
            if runner.running:
                continue
            runner.running = True
            if runner.job is not None:
                runner.job.resume()
                continue
            self.tell(f"{runner.racer} starts")
            arguments = (runner.racer, self.problem, runner.generators, self.budget, conflicts)
            runner.job = start(runner.racer.imports, attempt, arguments, self.budget)

    def _look(self, runner: _Runner) -> Attempt | None:
        job = runner.job
        if job is None or not (job.result or job.ended):
            return None
        runner.finished, runner.running = True, False
        if job.result is None:
            drain(job)
        match job.result:
            case ("ok", Attempt() as found):
                if found.status not in ("sat", "unsat"):
                    runner.why, runner.detail = found.status, found.detail  # type: ignore[assignment]
                    self.tell(f"{runner.racer} gave up: {found.detail or found.status}")
                return found
            case ("error", MissingDependencyError() | UsageError() as error):
                raise error
            case ("error", MemoryError()):
                runner.why, runner.detail = "memory", "out of memory"
            case ("error", error):
                runner.why, runner.detail = "crash", f"{runner.racer}: {type(error).__name__}: {error}"
            case _:
                near_limit = self.budget.memory is not None and job.peak > 0.8 * self.budget.memory
                runner.why = "memory" if job.over_memory or near_limit else "crash"
                runner.detail = f"{runner.racer} ended with wait status {job.status}"
        self.tell(f"{runner.racer} is out: {runner.detail}")
        return None

    def _verdict(self, won: tuple[_Runner, Attempt] | None) -> Verdict:
        wall = time.monotonic() - self.began
        total = sum(r.job.cpu for r in self.runners if r.job is not None)
        if won is None:
            why, detail = self._why()
            return Unknown(why, detail, Cost("", 0.0, total, wall))
        runner, found = won
        cost = Cost(str(runner.racer), found.cpu, total, wall, found.profile or {})
        if found.steps is None:
            return Unsat(found.detail or "refuted", cost)
        return Sat(Schedule(self.problem.network, self.problem.collective, self.problem.chunks, found.steps), cost)

    def _why(self) -> tuple[Why, str]:
        if self._answered:
            return "interrupted", "another engine has a schedule"
        if any(not r.finished for r in self.runners) and self._over(time.monotonic()):
            return "time", f"no answer in {self.budget.seconds:g} s"
        for why in ("memory", "interrupted", "crash", "time"):
            for runner in self.runners:
                if runner.why == why:
                    return why, runner.detail
        return "gave-up", "; ".join(f"{r.racer}: {r.detail}" for r in self.runners if r.detail)


def _handicaps(racers: Sequence[Racer], problem: Problem) -> list[float]:
    """Seconds that the racers before each may have first; more where all are slower."""
    scale = max(1.0, size(problem) / 10_000)
    quick = len(list(itertools.takewhile(lambda racer: racer.solver == QUICK, racers)))
    late = [
        HANDICAPS[min(place, len(HANDICAPS) - 1)] + (QUICK_SECONDS if quick else 0)
        for place in range(len(racers) - quick)
    ]
    return [QUICK_SECONDS * place / 4 for place in range(quick)] + [scale * seconds for seconds in late]

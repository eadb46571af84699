"""The race: encodings, solvers and subgroups against each other in killable processes, under one budget.

The first answer wins: a schedule from anybody, a refutation only from a complete encoding. Nothing else ever counts as
"infeasible": a racer that is killed, crashes or runs out ends as `Unknown` with the reason.

Combining collectives that are the time reversal of a non-combining one (reduce, reduce-scatter) are answered on the
reversed problem: run a broadcast schedule backwards, on reversed links, with copies turned into additions, and every
contribution reaches its sum exactly once.
"""

from __future__ import annotations

import atexit
import itertools
import os
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from synth.encodings import ENCODINGS, ENGINES, REQUIRES, SOLVERS
from synth.errors import MissingDependencyError, UsageError
from synth.pareto import refutation
from synth.pareto.racers import Attempt, Racer, attempt, parse
from synth.pareto.workers import Job, Nursery
from synth.registry import find, installed
from synth.schedule import Problem, Schedule
from synth.verdict import Budget, Cost, Sat, Unknown, Unsat, Verdict, Why

HEAD_START = 0.03  # seconds the first racer has to itself
LARGE = 100_000  # send variables above which quotients go before the whole formula
HANDICAPS = (0.0, 0.02, 0.1, 0.15, 0.4, 1.5, 4.0, 8.0, 16.0)  # few racers share the first seconds, others wait for hard problems
QUICK = "minicard"  # the solver that most small problems need; its racers go before all others
QUICK_SECONDS = 0.03  # handicap of all others where it takes part
TREE_SECONDS = 10.0  # of the tree engine, which count only
TREE_SHARE = 0.2  # so much: a processor is nearly its own while they last
SLICE = 0.1  # seconds between changes of turn, growing with the time spent
DETERMINISTIC_CONFLICTS = (2_000, 20_000, 200_000)  # budgets of the sequential rounds; the last round has none

_turn = threading.Lock()
_numbers = itertools.count(1)
_nurseries: dict[tuple[int, tuple[str, ...]], Nursery] = {}


def warm(jobs: int = 2) -> None:
    """Starts importing the default solver in the background, so that the first query finds it ready."""
    del jobs  # one nursery forks for all
    with _turn:
        _nursery(Racer("quotient", "cadical", 0))


def stop() -> None:
    """Ends every helper process. They also end by themselves with this process, and start again when needed."""
    with _turn:
        for (pid, _), nursery in list(_nurseries.items()):
            if pid == os.getpid():
                nursery.close()
        _nurseries.clear()


atexit.register(stop)


def solve(
    problem: Problem, *, budget: Budget, encoding: str = "auto", solver: str = "auto", proof: Path | None = None,
    on_event: Callable[[str], None] | None = None, patience: float = 1.0, beside: Job | None = None,
) -> Verdict:  # fmt: skip
    """Is there a schedule with these chunks, steps and rounds?

    `encoding` names an encoding (``step``, ``quotient@1``, ``path``, ``tree``) or a racer (``step/cadical``); "auto"
    races them all. `solver` likewise. With `proof`, a folder, an infeasible problem is proved again with a proof file
    there. `on_event` hears, in words, which racers start and stop. The race ends when the racers have had `budget.seconds` of each
    processor they use, and after `patience` times as many wall seconds: with more than 1 a busy machine cuts no search
    short. `beside` is a job of the tree engine with the same aim: while it runs it has a processor, no racer does the same, and once
    it has a schedule the race is over. Raises UsageError for unknown names and for collectives
    that neither copy only nor are the reversal of one that does; MissingDependencyError.
    """
    coll = problem.collective
    if coll.combining and not coll.reversible:
        instead = f"`synth pareto --coll {coll.name} --max-steps {problem.steps}` finds its frontier"
        raise UsageError(f"{coll.name} is not asked for one (C, S, R); {instead}")
    plain = problem.reversed() if coll.combining else problem
    began = time.monotonic()
    racers = [entry for entry in entrants(plain, encoding, solver) if beside is None or entry[0].encoding != "tree"]
    if plain.rounds < plain.steps or plain.steps < 1:
        verdict: Verdict = Unsat("fewer rounds than steps", Cost("rounds"))
    else:
        with _turn:
            verdict = _Race(plain, racers, budget, on_event or (lambda text: None), patience, beside).run()
    if isinstance(verdict, Sat):
        schedule = verdict.schedule.reversed() if coll.combining else verdict.schedule
        return Sat(Schedule(problem.network, coll, problem.chunks, schedule.steps), verdict.cost)
    if isinstance(verdict, Unsat) and proof is not None:
        return _proved(problem, verdict, proof, budget, began)
    return verdict


def _proved(problem: Problem, verdict: Unsat, folder: Path, budget: Budget, began: float) -> Verdict:
    """The same refutation with a proof file, as far as the rest of the budget goes; its certificate is in the cost's detail."""
    from synth.encodings.proofs import write_proof

    left = None if budget.seconds is None else max(1.0, budget.seconds - (time.monotonic() - began))
    job = alone(Racer("step", "cadical"), write_proof, (problem, folder.absolute()), budget, left)
    if job.result and job.result[0] == "ok":
        certificate = job.result[1]
        path = refutation.write(problem, certificate, folder)
        cost = replace(verdict.cost, detail={**verdict.cost.detail, "certificate": certificate})
        return Unsat(verdict.reason, cost, str(path))
    why = "the time ran out" if not job.ended else str(job.result[1]) if job.result else "its process died"
    return replace(verdict, reason=f"{verdict.reason}; no proof was written: {why}")


def alone(racer: Racer, call: Callable, arguments: tuple, budget: Budget, seconds: float | None) -> Job:
    """Runs ``call(*arguments)`` in a process with what `racer` imports, for so many wall seconds at most; the job as it ended, or not."""
    return finish(begin(racer, call, arguments, budget), None if seconds is None else time.monotonic() + seconds)


def begin(racer: Racer, call: Callable, arguments: tuple, budget: Budget) -> Job:
    """Starts ``call(*arguments)`` in a process with what `racer` imports. Every job goes to `finish`."""
    with _turn:
        return _start(racer, call, arguments, budget)


def wait(jobs: Sequence[Job], until: float | None) -> None:
    """Waits until one of the jobs has answered or ended, until then at most (monotonic seconds). They go on."""
    with _turn:
        if not any(job.result or job.ended for job in jobs):
            _wait(jobs, until)


def finish(job: Job, until: float | None) -> Job:
    """Waits for a job that was begun, until then at most (monotonic seconds), and ends it; the job as it ended, or not."""
    with _turn:
        try:
            _wait([job], until)
        finally:
            if not job.ended and job.result is None:
                job.kill()
        if job.ended and job.result is None:
            _drain(job)
        job.channel.close()
        return job


@lru_cache(maxsize=16)
def _subgroups(network: object, collective: object) -> tuple:
    from synth.symmetry import subgroups

    return tuple(group for group in subgroups(network, collective) if group)  # type: ignore[arg-type]


def entrants(problem: Problem, encoding: str, solver: str) -> list[tuple[Racer, tuple]]:
    """The racers, the most promising first, each with the generators it needs."""
    name, subgroup, own_solver = parse(encoding)
    solver = own_solver or solver.lower()
    if name != "auto":
        _known("encodings", name, ENCODINGS)
        _have(name)
    if solver != "auto":
        _known("solvers", solver, SOLVERS)
        _have(solver)
    if name in ENGINES or (name != "auto" and name not in ENCODINGS):
        if solver not in ("auto", "z3" if name == "path" else "auto"):
            raise UsageError(f"encoding {name} brings its own solver; remove --solver {solver}")
        return [(Racer(name), ())]
    groups = _subgroups(problem.network, problem.collective) if name == "auto" or name.startswith("quotient") else ()
    if name.startswith("quotient"):
        if not groups:
            raise UsageError(f"{problem.network.name}: no symmetry was found for {problem.collective.name}; use --encoding step")
        if subgroup is not None and subgroup >= len(groups):
            raise UsageError(f"{name}@{subgroup}: {problem.network.name} has {len(groups)} subgroups, 0 to {len(groups) - 1}")
        chosen = [subgroup] if subgroup is not None else range(len(groups))
        return [(Racer(name, "cadical" if solver == "auto" else solver, k), groups[k]) for k in chosen]
    if name != "auto":
        return [(Racer(name, "cadical" if solver == "auto" else solver), ())]
    everybody = [entry for entry in _everybody(groups, solver) if _available(entry[0])]
    if _size(problem) > LARGE:
        everybody.sort(key=lambda entry: _late_when_large(entry[0], _first(solver)))
    return everybody


def _late_when_large(racer: Racer, solver: str) -> int:
    """The largest subgroup first, then trees, then the quick and the other subgroups; what sees the whole problem comes last."""
    if racer.encoding == "tree":
        return 1
    if racer.solver == QUICK:
        return 2
    if racer.solver != solver or racer.subgroup is None:
        return 3
    return 0 if racer.subgroup == 0 and racer.encoding == "quotient" else 2


def _size(problem: Problem) -> int:
    """About how many send variables the whole formula has."""
    return problem.collective.units * problem.chunks * len(problem.network.routes) * problem.steps


def _first(solver: str) -> str:
    """The solver that "auto" means where one is needed."""
    return "cadical" if solver == "auto" else solver


def _everybody(groups: Sequence[tuple], solver: str) -> list[tuple[Racer, tuple]]:
    first = _first(solver)
    racers: list[tuple[Racer, tuple]] = []
    if solver == "auto":
        racers += [(Racer("quotient", QUICK, k), group) for k, group in enumerate(groups[:2])]
        racers.append((Racer("step", QUICK), ()))
    if groups:
        racers.append((Racer("quotient", first, 0), groups[0]))
    racers.append((Racer("step", first), ()))
    if solver == "auto":
        racers.append((Racer("tree"), ()))
    for k in range(1, min(3, len(groups))):
        racers.append((Racer("quotient", first, k), groups[k]))
        if k == 1:
            racers.append((Racer("quotient-mono", first, k), groups[k]))
    racers.append((Racer("step-mono", first), ()))
    if groups:
        racers.append((Racer("quotient-mono", first, 0), groups[0]))
    if solver == "auto":
        if groups:
            racers.append((Racer("quotient", "cpsat", 0), groups[0]))
        racers.append((Racer("step", "cpsat"), ()))
    return racers


def _available(racer: Racer) -> bool:
    from importlib.util import find_spec

    if find_spec(ENCODINGS[racer.encoding].partition(":")[0]) is None:
        return False
    return all(installed(REQUIRES[name][0].partition(".")[0]) for name in (racer.encoding, racer.solver) if name in REQUIRES)


def _known(kind: str, name: str, built_in: Mapping[str, str]) -> None:
    """Raises UsageError for a name that neither `built_in` nor a plug-in has; loads nothing built in."""
    if name not in built_in:
        find(kind, name, built_in)


def _have(name: str) -> None:
    if name in REQUIRES and not installed(REQUIRES[name][0].partition(".")[0]):
        module, install = REQUIRES[name]
        raise MissingDependencyError(f"{name} needs {module.partition('.')[0]}, which is not installed; run: {install}")


def _nursery(racer: Racer) -> Nursery:
    modules = racer.imports
    key = (os.getpid(), modules)
    nursery = _nurseries.get(key)
    if nursery is None or nursery.dead:
        nursery = _nurseries[key] = Nursery(modules)
    return nursery


def _start(racer: Racer, call: Callable, arguments: tuple, budget: Budget) -> Job:
    return _nursery(racer).start(next(_numbers), call, arguments, budget.memory)


def _wait(jobs: Sequence[Job], until: float | None) -> None:
    """Returns when a job has answered or ended, or at `until` (monotonic seconds)."""
    with selectors.DefaultSelector() as selector:
        for nursery in {id(job.nursery): job.nursery for job in jobs}.values():
            if not nursery.dead:
                selector.register(nursery.control, selectors.EVENT_READ, nursery)
        for job in jobs:
            if job.channel.fileno() >= 0:
                selector.register(job.channel, selectors.EVENT_READ, job)
        while not any(job.result or job.ended for job in jobs):
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            for key, _ in selector.select(left):
                if isinstance(key.data, Job) and key.data.channel.fileno() >= 0:
                    key.data.receive()
                    if key.data.channel.fileno() < 0:
                        selector.unregister(key.fileobj)
                elif isinstance(key.data, Nursery):
                    key.data.receive()


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
        self, problem: Problem, racers: list[tuple[Racer, tuple]], budget: Budget, tell: Callable[[str], None], patience: float,
        beside: Job | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.budget, self.tell, self.beside = problem, budget, tell, beside
        handicaps = _handicaps([racer for racer, _ in racers], problem)
        self.runners = [_Runner(racer, generators, late) for (racer, generators), late in zip(racers, handicaps, strict=True)]
        self.began = time.monotonic()
        self.deadline = None if budget.seconds is None else self.began + budget.seconds * patience
        self.used = 0.0  # CPU seconds of each processor in use

    def run(self) -> Verdict:
        """Runs to the first answer or the end of the budget; every child is dead when this returns or raises."""
        try:
            winner = self._in_order() if self.budget.deterministic and len(self.runners) > 1 else self._together(self.runners, None)
        finally:
            self._end()
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
            _wait([r.job for r in active if r.job is not None] + self._company, until)
            spent = time.monotonic() - before
            worked = [runner.worked(spent) for runner in active]
            self.used += sum(worked) / max(1, len(worked))
            for runner, work in zip(active, worked, strict=True):
                runner.ran += 0.0 if before - self.began < HEAD_START else work  # so that the first is not the first to wait
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
        """One racer at a time, each with a number of conflicts that grows from round to round: no clock decides who wins."""
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
        slots = max(1, self.budget.jobs - len(self._company)) if now - self.began >= HEAD_START or len(alive) < len(self.runners) else 1
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
            runner.job = _start(runner.racer, attempt, arguments, self.budget)

    def _look(self, runner: _Runner) -> Attempt | None:
        job = runner.job
        if job is None or not (job.result or job.ended):
            return None
        runner.finished, runner.running = True, False
        if job.result is None:
            _drain(job)
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

    def _end(self) -> None:
        jobs = [r.job for r in self.runners if r.job is not None]
        for job in jobs:
            if not job.ended:
                job.kill()
        until = time.monotonic() + 2
        while (open_jobs := [job for job in jobs if not job.ended]) and time.monotonic() < until:
            _wait_endings(open_jobs, until)
        for job in jobs:
            job.channel.close()

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
    scale = max(1.0, _size(problem) / 10_000)
    quick = len(list(itertools.takewhile(lambda racer: racer.solver == QUICK, racers)))
    late = [HANDICAPS[min(place, len(HANDICAPS) - 1)] + (QUICK_SECONDS if quick else 0) for place in range(len(racers) - quick)]
    return [QUICK_SECONDS * place / 4 for place in range(quick)] + [scale * seconds for seconds in late]


def _wait_endings(jobs: list[Job], until: float) -> None:
    nurseries = {id(job.nursery): job.nursery for job in jobs}
    with selectors.DefaultSelector() as selector:
        for nursery in nurseries.values():
            if nursery.dead:
                nursery.receive()
            else:
                selector.register(nursery.control, selectors.EVENT_READ, nursery)
        for key, _ in selector.select(max(0.0, until - time.monotonic())):
            key.data.receive()


def _drain(job: Job) -> None:
    """An ended child may have answered just before: read what is left."""
    while job.channel.fileno() >= 0:
        job.receive()

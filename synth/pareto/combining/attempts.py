"""Attempts: one engine on one symmetric translation with a limit, each in a process that can be killed."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.schedule import Schedule
from synth.solvers import pool
from synth.solvers.deadline import Deadline
from synth.solvers.pool import ProcessJob

MODULES = (
    "synth.pareto.combining.attempts",
    "pysat.solvers",
    "synth.solvers.python_sat",
    "synth.encodings.contributions",
    "synth.encodings.hubs.reduce_broadcast",
)


@dataclass(frozen=True, eq=False)
class Attempt:
    """One engine on the representatives of `translation`, in S steps and R rounds, with at most `conflicts` conflicts.

    `engine`: "direct", "hub", "mixture" or "columns". `local`: "direct" lets ranks add their input again, which it
    always does where ranks want different sums. The conflicts of "mixture" are starts of its local search. "columns"
    chooses C and R: it looks for no R/C below `least` and accepts none from `below` on, takes `seconds` of CPU time,
    and with `alike` leaves the same bits on all ranks.
    """

    engine: str
    translation: TranslatedChunks
    steps: int
    rounds: int = 0
    conflicts: int | None = None
    seed: int = 0
    local: bool = False
    least: Fraction = Fraction(0)
    below: Fraction | None = None
    seconds: float = 0.0
    alike: bool = False


@dataclass(frozen=True)
class AttemptOutcome:
    """The result of an attempt: `schedule`, or None with the reason in `status`.

    "unsat" refutes only the class of schedules that the attempt searched. `work`: as in `Answer`. `fractions`: the
    least R/C of a fractional mixture of hub paths, where "columns" computed it.
    """

    status: Literal["sat", "unsat", "gave-up", "crash", "memory"]
    schedule: Schedule | None = None
    cpu: float = 0.0
    work: float = 0.0
    fractions: float | None = None


def run_attempt(attempt: Attempt) -> AttemptOutcome:
    """Run an attempt to its end in this process, and return its outcome."""
    began = time.process_time()
    outcome = {"columns": _columns, "mixture": _mixture}.get(attempt.engine, _sat)(attempt)
    spent = time.process_time() - began
    return replace(outcome, cpu=spent, work=spent if attempt.engine == "columns" else outcome.work)


def _columns(attempt: Attempt) -> AttemptOutcome:
    from synth.encodings.hubs.column_generation import search_hub_trees

    result = search_hub_trees(
        attempt.translation, attempt.steps, attempt.least, attempt.below, attempt.seconds, attempt.seed, attempt.alike
    )
    return AttemptOutcome("gave-up" if result.schedule is None else "sat", result.schedule, fractions=result.value)


def _mixture(attempt: Attempt) -> AttemptOutcome:
    from synth.encodings.hubs import annealing

    schedule, work = annealing.solve(
        attempt.translation, attempt.steps, attempt.rounds, attempt.conflicts or 1, attempt.seed
    )
    return AttemptOutcome("gave-up" if schedule is None else "sat", schedule, work=work)


def _sat(attempt: Attempt) -> AttemptOutcome:
    """Return the answer of CaDiCaL to the direct encoding, or to the hub encoding."""
    from synth.encodings import contributions
    from synth.encodings.hubs import reduce_broadcast
    from synth.solvers.python_sat import Cadical

    if attempt.engine == "direct":
        local = attempt.local or attempt.translation.collective.wants is not None
        model, decode = contributions.encode(attempt.translation, attempt.steps, attempt.rounds, local)
    else:
        model, decode = reduce_broadcast.encode(attempt.translation, attempt.steps, attempt.rounds)
    answer = Cadical(attempt.seed, attempt.conflicts).solve(model)
    if answer.status == "sat":
        return AttemptOutcome("sat", decode({v for v, holds in enumerate(answer.values) if holds}), work=answer.work)
    return AttemptOutcome("unsat" if answer.status == "unsat" else "gave-up", work=answer.work)


class AttemptPool:
    """Runs attempts, at most `jobs` at a time, each in a process that may use `memory` bytes (None: no limit).

    `cpu` and `work` sum those of all outcomes.
    """

    def __init__(self, jobs: int, memory: int | None) -> None:
        self.jobs, self.memory = max(1, jobs), memory
        self.cpu = self.work = 0.0
        pool.warm(MODULES)

    def run(self, attempts: Iterator[Attempt], deadline: Deadline) -> Generator[tuple[Attempt, AttemptOutcome]]:
        """Yield outcomes as they arrive, until the attempts are done or the deadline. Raises what an attempt raised.

        Closing the generator kills the attempts that still run.
        """
        running: dict[Attempt, ProcessJob] = {}
        try:
            while True:
                while len(running) < self.jobs and not deadline.over:
                    attempt = next(attempts, None)
                    if attempt is None:
                        break
                    running[attempt] = pool.submit(MODULES, run_attempt, (attempt,), self.memory)
                if running:
                    pool.wait(list(running.values()), deadline)
                answered = [attempt for attempt, job in running.items() if job.done]
                if not answered:
                    return
                for attempt in answered:
                    outcome = pool.outcome(running.pop(attempt))
                    if not isinstance(outcome, AttemptOutcome):
                        outcome = AttemptOutcome("memory" if outcome.reason == "memory" else "crash")
                    self.cpu += outcome.cpu
                    self.work += outcome.work
                    yield attempt, outcome
        finally:
            pool.end(list(running.values()))

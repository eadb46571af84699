"""Tries: one engine on one symmetric shape with a number of conflicts, each in a process that can be killed."""

from __future__ import annotations

import itertools
import selectors
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from synth.encodings.translated_chunks import Translation
from synth.model.schedule import Schedule
from synth.solvers.processes.fork_server import Job, Nursery

MODULES = (
    "synth.pareto.combining.attempts",
    "pysat.solvers",
    "synth.solvers.cadical",
    "synth.encodings.contributions",
    "synth.encodings.hubs.reduce_broadcast",
)


@dataclass(frozen=True, eq=False)
class Try:
    """One of the engines on representatives of `translation`, in S steps and R rounds, up to `conflicts`.

    `engine`: "direct", "hub", "mixture", "shares", "placing" or "blending". The conflicts of "mixture" are starts of
    its local search, those of "placing" and "blending" propagations. `local`: "direct" lets ranks add their input
    again, which it always does where ranks want different sums. "blending" and "shares" choose C and R: no R/C below
    `least` is looked for, none from `below` on taken; the former takes the schedules of `start` apart, the latter takes
    `seconds` of CPU time and with `alike` leaves the same bits on all ranks.
    """

    engine: str
    translation: Translation
    steps: int
    rounds: int
    conflicts: int | None = None
    seed: int = 0
    local: bool = False
    least: Fraction = Fraction(0)
    below: Fraction | None = None
    start: tuple[Schedule, ...] = ()
    seconds: float = 0.0
    alike: bool = False


@dataclass(frozen=True)
class Outcome:
    """`schedule` where one was found. "unsat" speaks of the try's own class of schedules only. `work`: as of `Answer`.

    `fractions`: the least R/C of fractions of its ways, where "shares" found it.
    """

    status: Literal["sat", "unsat", "gave-up", "crash", "memory"]
    schedule: Schedule | None = None
    cpu: float = 0.0
    work: float = 0.0
    fractions: float | None = None


def attempt(asked: Try) -> Outcome:
    """Runs a try to its end, in this process."""
    from synth.encodings import contributions
    from synth.encodings.hubs import reduce_broadcast
    from synth.solvers.cadical import Cadical

    began = time.process_time()
    if asked.engine == "mixture":
        from synth.encodings.hubs import symmetric_column_generation

        found = symmetric_column_generation.solve(
            asked.translation, asked.steps, asked.rounds, asked.conflicts or 1, asked.seed
        )
        status = "sat" if found.schedule is not None else "gave-up" if found.reached else "unsat"
        return Outcome(status, found.schedule, time.process_time() - began, found.work)
    if asked.engine == "shares":
        from synth.encodings.hubs.column_generation import share_out

        network, collective = asked.translation.network, asked.translation.collective
        out = share_out(
            network, collective, asked.steps, asked.least, asked.below, asked.seconds, asked.seed, asked.alike
        )
        spent = time.process_time() - began
        return Outcome("gave-up" if out.schedule is None else "sat", out.schedule, spent, spent, out.value)
    if asked.engine == "placing":
        from synth.encodings.chunk_mixtures import iterative_forward_search

        made = iterative_forward_search.place(
            asked.translation, asked.steps, asked.rounds, asked.conflicts or 0, asked.seed
        )
        return Outcome(
            "gave-up" if made.schedule is None else "sat", made.schedule, time.process_time() - began, made.work
        )
    if asked.engine == "blending":
        from synth.encodings.chunk_mixtures import fractional_chunks

        network, collective = asked.translation.network, asked.translation.collective
        made = fractional_chunks.blend(
            network, collective, asked.steps, asked.least, asked.below, asked.conflicts or 0, asked.seed, asked.start
        )
        return Outcome(
            "gave-up" if made.schedule is None else "sat", made.schedule, time.process_time() - began, made.work
        )
    if asked.engine == "direct":
        local = asked.local or asked.translation.collective.wants is not None
        model, read = contributions.encode(asked.translation, asked.steps, asked.rounds, local)
    else:
        model, read = reduce_broadcast.encode(asked.translation, asked.steps, asked.rounds)
    answer = Cadical(asked.seed, asked.conflicts).solve(model)
    if answer.status == "sat":
        schedule = read({v for v, holds in enumerate(answer.values) if holds})
        return Outcome("sat", schedule, time.process_time() - began, answer.work)
    return Outcome("unsat" if answer.status == "unsat" else "gave-up", None, time.process_time() - began, answer.work)


class Desk:
    """Runs tries, at most `jobs` at a time, in children of one nursery. Use as a context manager; nothing outlives
    it."""

    def __init__(self, jobs: int, memory: int | None) -> None:
        self.jobs, self.memory = max(1, jobs), memory
        self._numbers = itertools.count(1)
        self._nursery: Nursery | None = None
        self.cpu = self.work = 0.0

    def __enter__(self) -> Desk:
        self._nursery = Nursery(MODULES)
        return self

    def __exit__(self, *_: object) -> None:
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def run(self, tries: Iterator[Try], until: float | None) -> Generator[tuple[Try, Outcome]]:
        """Outcomes as they come, until the tries or the time (monotonic seconds) run out. Closing it kills what
        runs."""
        running: dict[int, tuple[Try, Job]] = {}
        try:
            while True:
                while len(running) < self.jobs and (until is None or time.monotonic() < until):
                    asked = next(tries, None)
                    if asked is None:
                        break
                    number = next(self._numbers)
                    running[number] = (asked, self._started(number, asked))
                if not running or not self._wait([job for _, job in running.values()], until):
                    return
                for number, (asked, job) in list(running.items()):
                    if job.result is not None or job.ended:
                        del running[number]
                        yield asked, self._outcome(job)
        finally:
            for _, job in running.values():
                job.kill()
                job.channel.close()

    def _started(self, number: int, asked: Try) -> Job:
        if self._nursery is None or self._nursery.dead:
            self._nursery = Nursery(MODULES)
        return self._nursery.start(number, attempt, (asked,), self.memory)

    def _wait(self, jobs: list[Job], until: float | None) -> bool:
        """Returns True when a job has answered or ended, False at `until`."""
        with selectors.DefaultSelector() as selector:
            nursery = jobs[0].nursery
            if not nursery.dead:
                selector.register(nursery.control, selectors.EVENT_READ, nursery)
            for job in jobs:
                if job.channel.fileno() >= 0:
                    selector.register(job.channel, selectors.EVENT_READ, job)
            while not any(job.result is not None or job.ended for job in jobs):
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                for key, _ in selector.select(left):
                    before = key.fileobj
                    key.data.receive()
                    if isinstance(key.data, Job) and key.data.channel.fileno() < 0:
                        selector.unregister(before)
        return True

    def _outcome(self, job: Job) -> Outcome:
        while job.channel.fileno() >= 0 and job.result is None:
            job.receive()
        match job.result:
            case ("ok", Outcome() as found):
                self.cpu += found.cpu
                self.work += found.work
                return found
            case ("error", MemoryError()):
                return Outcome("memory")
            case ("error", BaseException() as error):
                raise error
            case _:
                return Outcome("memory" if job.over_memory else "crash")

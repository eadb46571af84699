"""Calls in processes that can be killed: begun, waited for, ended; the helper processes that fork for them.

One race, or one of these questions, is waited for at a time (`TURN`); jobs that were begun go on meanwhile.
"""

from __future__ import annotations

import atexit
import itertools
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence

from synth.model.outcome import Budget
from synth.solvers.processes.fork_server import PATIENCE, Job, Nursery

TURN = (
    threading.Lock()
)  # held by who starts jobs or waits for them; `start`, `watch`, `drain` and `end` are called by who holds it
_numbers = itertools.count(1)
_nurseries: dict[tuple[int, tuple[str, ...]], Nursery] = {}


def warm(imports: tuple[str, ...]) -> None:
    """Starts the helper process that imports these modules, so that the first job finds them ready."""
    with TURN:
        _nursery(imports)


def stop() -> None:
    """Ends every helper process. They also end by themselves with this process, and start again when needed."""
    with TURN:
        mine = [nursery for (pid, _), nursery in _nurseries.items() if pid == os.getpid()]
        _nurseries.clear()
        for nursery in mine:
            nursery.hang_up()
        until = time.monotonic() + PATIENCE
        for nursery in mine:
            nursery.close(max(0.0, until - time.monotonic()))


atexit.register(stop)


def alone(imports: tuple[str, ...], call: Callable, arguments: tuple, budget: Budget, seconds: float | None) -> Job:
    """As `begin`, then `finish` after so many wall seconds at most; the job as it ended, or not."""
    return finish(begin(imports, call, arguments, budget), None if seconds is None else time.monotonic() + seconds)


def begin(imports: tuple[str, ...], call: Callable, arguments: tuple, budget: Budget) -> Job:
    """Starts ``call(*arguments)`` in a process that has these modules imported. Every job goes to `finish`."""
    with TURN:
        return start(imports, call, arguments, budget)


def wait(jobs: Sequence[Job], until: float | None) -> None:
    """Waits until one of the jobs has answered or ended, until then at most (monotonic seconds). They go on."""
    with TURN:
        if not any(job.result or job.ended for job in jobs):
            watch(jobs, until)


def finish(job: Job, until: float | None) -> Job:
    """Waits for a job that was begun, until then at most (monotonic seconds), and ends it; the job as it ended, or
    not."""
    with TURN:
        try:
            watch([job], until)
        finally:
            if not job.ended and job.result is None:
                job.kill()
        if job.ended and job.result is None:
            drain(job)
        job.channel.close()
        return job


def _nursery(modules: tuple[str, ...]) -> Nursery:
    key = (os.getpid(), modules)
    nursery = _nurseries.get(key)
    if nursery is None or nursery.dead:
        nursery = _nurseries[key] = Nursery(modules)
    return nursery


def start(imports: tuple[str, ...], call: Callable, arguments: tuple, budget: Budget) -> Job:
    """As `begin`, for who has the turn."""
    return _nursery(imports).start(next(_numbers), call, arguments, budget.memory)


def watch(jobs: Sequence[Job], until: float | None) -> None:
    """Returns when a job has answered or ended, or at `until` (monotonic seconds); for who has the turn."""
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


def end(jobs: Sequence[Job]) -> None:
    """Kills those that have not ended, and waits until they have; for who has the turn."""
    for job in jobs:
        if not job.ended:
            job.kill()
    until = time.monotonic() + 2
    while (left := [job for job in jobs if not job.ended]) and time.monotonic() < until:
        _wait_endings(left, until)
    for job in jobs:
        job.channel.close()


def _wait_endings(jobs: Sequence[Job], until: float) -> None:
    nurseries = {id(job.nursery): job.nursery for job in jobs}
    with selectors.DefaultSelector() as selector:
        for nursery in nurseries.values():
            if nursery.dead:
                nursery.receive()
            else:
                selector.register(nursery.control, selectors.EVENT_READ, nursery)
        for key, _ in selector.select(max(0.0, until - time.monotonic())):
            key.data.receive()


def drain(job: Job) -> None:
    """An ended child may have answered just before: read what is left."""
    while job.channel.fileno() >= 0:
        job.receive()

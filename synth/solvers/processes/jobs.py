"""Calls in processes that can be killed, and the fork servers that start them.

One thread at a time starts jobs or waits for them (`TURN`). Jobs continue meanwhile.
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
from synth.solvers.processes.fork_server import PATIENCE, ForkServer, Job

# Held by the thread that starts jobs or waits for them. Only that thread may call `start`, `watch`, `drain` and `end`.
TURN = threading.Lock()
_numbers = itertools.count(1)
_servers: dict[tuple[int, tuple[str, ...]], ForkServer] = {}


def warm(imports: tuple[str, ...]) -> None:
    """Start the fork server that imports these modules, so that the first job finds them ready."""
    with TURN:
        _server(imports)


def stop() -> None:
    """End every fork server. They also end with this process, and start again when needed."""
    with TURN:
        servers = [server for (pid, _), server in _servers.items() if pid == os.getpid()]
        _servers.clear()
        for server in servers:
            server.hang_up()
        until = time.monotonic() + PATIENCE
        for server in servers:
            server.close(max(0.0, until - time.monotonic()))


atexit.register(stop)


def run_job(imports: tuple[str, ...], call: Callable, arguments: tuple, budget: Budget, seconds: float | None) -> Job:
    """Begin a job and finish it after `seconds` wall seconds at most; return the job."""
    return finish(begin(imports, call, arguments, budget), None if seconds is None else time.monotonic() + seconds)


def begin(imports: tuple[str, ...], call: Callable, arguments: tuple, budget: Budget) -> Job:
    """Start ``call(*arguments)`` in a process with these modules imported. Every job must be passed to `finish`."""
    with TURN:
        return start(imports, call, arguments, budget)


def wait(jobs: Sequence[Job], until: float | None) -> None:
    """Wait until a job has answered or ended, or until `until` (monotonic seconds). The jobs continue."""
    with TURN:
        if not any(job.result or job.ended for job in jobs):
            watch(jobs, until)


def finish(job: Job, until: float | None) -> Job:
    """Wait for a job until `until` (monotonic seconds), kill it if it has not answered, and return it."""
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


def _server(modules: tuple[str, ...]) -> ForkServer:
    """Return the fork server with these modules, started anew where there is none."""
    key = (os.getpid(), modules)
    server = _servers.get(key)
    if server is None or server.dead:
        server = _servers[key] = ForkServer(modules)
    return server


def start(imports: tuple[str, ...], call: Callable, arguments: tuple, budget: Budget) -> Job:
    """Start a job, as `begin`. The caller holds `TURN`."""
    return _server(imports).start(next(_numbers), call, arguments, budget.memory)


def watch(jobs: Sequence[Job], until: float | None) -> None:
    """Wait until a job has answered or ended, or until `until` (monotonic seconds). The caller holds `TURN`."""
    with selectors.DefaultSelector() as selector:
        for server in {id(job.server): job.server for job in jobs}.values():
            if not server.dead:
                selector.register(server.control, selectors.EVENT_READ, server)
        for job in jobs:
            if job.channel.fileno() >= 0:
                selector.register(job.channel, selectors.EVENT_READ, job)
        while not any(job.result or job.ended for job in jobs):
            seconds = None if until is None else until - time.monotonic()
            if seconds is not None and seconds <= 0:
                return
            for key, _ in selector.select(seconds):
                if isinstance(key.data, Job) and key.data.channel.fileno() >= 0:
                    key.data.receive()
                    if key.data.channel.fileno() < 0:
                        selector.unregister(key.fileobj)
                elif isinstance(key.data, ForkServer):
                    key.data.receive()


def end(jobs: Sequence[Job]) -> None:
    """Kill the jobs that have not ended, and wait until they have. The caller holds `TURN`."""
    for job in jobs:
        if not job.ended:
            job.kill()
    until = time.monotonic() + 2
    while (running := [job for job in jobs if not job.ended]) and time.monotonic() < until:
        _wait_endings(running, until)
    for job in jobs:
        job.channel.close()


def _wait_endings(jobs: Sequence[Job], until: float) -> None:
    """Receive endings of jobs from their fork servers, once or until `until` (monotonic seconds)."""
    servers = {id(job.server): job.server for job in jobs}
    with selectors.DefaultSelector() as selector:
        for server in servers.values():
            if server.dead:
                server.receive()
            else:
                selector.register(server.control, selectors.EVENT_READ, server)
        for key, _ in selector.select(max(0.0, until - time.monotonic())):
            key.data.receive()


def drain(job: Job) -> None:
    """Read the rest of an ended child's output: it may have answered just before its end."""
    while job.channel.fileno() >= 0:
        job.receive()

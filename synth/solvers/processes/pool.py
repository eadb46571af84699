"""The pool of supervised solver processes: calls in processes that can be suspended and killed.

    submit                 begin a call; returns a `ProcessJob`
    wait                   wait for the first of several jobs; the jobs continue
    result, outcome        wait for one job and decode what came of it
    end                    kill jobs that are not needed
    run_in_process         one call under the ambient deadline

Each tuple of modules has a fork server, which imports them once. One thread at a time starts jobs or waits for them
(`TURN`). Jobs continue meanwhile.
"""

from __future__ import annotations

import atexit
import itertools
import os
import selectors
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from synth.errors import SynthError, UndecidedError
from synth.model.outcome import Unknown
from synth.solvers.processes import deadline as ambient
from synth.solvers.processes.deadline import MEMORY, NEVER, Deadline, OutOfMemory, TimeUp
from synth.solvers.processes.fork_server import PATIENCE, ForkServer, ProcessJob

Result = TypeVar("Result")

# Held by the thread that starts jobs or waits for them.
TURN = threading.RLock()
# Seconds to wait for the ends of killed jobs.
ENDING_SECONDS = 2.0
# Seconds in which a job that has begun gives a sign of it.
SIGN_SECONDS = 0.1
_numbers = itertools.count(1)
_servers: dict[tuple[int, tuple[str, ...]], ForkServer] = {}
# True in a process that `run_in_process` began.
_inside = False


class ProcessDied(UndecidedError):
    """The process of a job ended without an answer, which refutes nothing."""


def warm(imports: tuple[str, ...]) -> None:
    """Start the fork server for the modules `imports` without waiting for it, so that the first job finds them
    ready."""
    with TURN:
        _server(imports)


def stop() -> None:
    """End every fork server of this process and all their jobs. They also end with the process, and start again when
    needed."""
    with TURN:
        servers = [server for (pid, _), server in _servers.items() if pid == os.getpid()]
        _servers.clear()
        for server in servers:
            server.hang_up()
        deadline = Deadline.after(PATIENCE)
        for server in servers:
            server.close(deadline.remaining())


atexit.register(stop)


def submit(imports: tuple[str, ...], call: Callable, arguments: tuple, memory: int | None = MEMORY) -> ProcessJob:
    """Begin ``call(*arguments)`` in a process that may use `memory` bytes (None: no limit), with `imports` imported.

    Every job must be passed to `result`, `outcome` or `end`.
    """
    with TURN:
        return _server(imports).start(next(_numbers), call, arguments, memory)


def wait(jobs: Sequence[ProcessJob], deadline: Deadline = NEVER) -> None:
    """Wait until the first of `jobs` has answered or ended, or until the deadline. The jobs continue."""
    with TURN:
        _watch(jobs, deadline, lambda job: job.done)


def result(job: ProcessJob, deadline: Deadline = NEVER) -> Any:
    """Wait for the result of the call of a job, and return it. A job that has not answered at the deadline is killed.

    Raises what the call raised, TimeUp at the deadline, OutOfMemory where it needed more memory than it may use, and
    ProcessDied where it ended without an answer.
    """
    with TURN:
        try:
            _watch([job], deadline, lambda job: job.done)
        finally:
            if not job.done:
                job.kill()
        while job.ended and job.channel.fileno() >= 0:  # it may have answered just before its end
            job.receive()
        job.channel.close()
    match job.result:
        case ("ok", value):
            return value
        case ("error", MemoryError()):
            raise OutOfMemory
        case ("error", error):
            raise error
    if not job.ended:
        raise TimeUp
    if job.out_of_memory:
        raise OutOfMemory
    raise ProcessDied(f"the process of {job.name} died; allow it more memory, or time")


def outcome(job: ProcessJob, deadline: Deadline = NEVER, *, errors_crash: bool = False) -> Any:
    """Return the result of the call of a job as `result` does, or Unknown with the reason why there is none.

    Raises what the call raised. With `errors_crash` an error that is no SynthError counts as a crash instead.
    """
    try:
        return result(job, deadline)
    except OutOfMemory:
        return Unknown("memory", "out of memory")
    except TimeUp:
        return Unknown("time")
    except ProcessDied:
        return Unknown("crash", f"ended with wait status {job.status}")
    except SynthError:
        raise
    except Exception as error:
        if not errors_crash:
            raise
        return Unknown("crash", f"{type(error).__name__}: {error}")


def end(jobs: Sequence[ProcessJob]) -> None:
    """Kill the jobs that have not ended, and wait for the ends of those that have begun, `ENDING_SECONDS` at most.

    A fork server that still imports has begun none, and could not answer.
    """
    with TURN:
        for job in jobs:
            if not job.ended:
                job.kill()
        deadline, sign = Deadline.after(ENDING_SECONDS), Deadline.after(SIGN_SECONDS)
        while not deadline.over:
            running = [job for job in jobs if not job.ended and (job.pid or not sign.over)]
            if not running:
                break
            _watch(running, deadline if sign.over else sign, lambda job: job.ended)
        for job in jobs:
            job.channel.close()


def run_in_process(call: Callable[..., Result], *arguments: object, imports: tuple[str, ...] = ()) -> Result:
    """Return ``call(*arguments)`` from another process, which Ctrl-C and the ambient deadline kill at once.

    It is for long calls of C libraries, which notice neither. `call` is a function of a module. It, the arguments and
    the result are pickled. `imports`: modules that the process imports first, besides that of `call`. A nested call
    runs in the same process. Raises as `result`.
    """
    ambient.check_deadline()
    if _inside:
        return call(*arguments)
    deadline = ambient.current_deadline()
    return result(submit((*imports, call.__module__), _under_deadline, (deadline, call, arguments)), deadline)


def _under_deadline(deadline: Deadline, call: Callable[..., Result], arguments: tuple) -> Result:
    """Run `call` in the process of `run_in_process`."""
    global _inside
    _inside = True
    with ambient.time_limited(deadline):
        return call(*arguments)


def _server(modules: tuple[str, ...]) -> ForkServer:
    """Return the fork server with these modules, started anew where there is none."""
    key = (os.getpid(), modules)
    server = _servers.get(key)
    if server is None or server.dead:
        server = _servers[key] = ForkServer(modules)
    return server


def _watch(jobs: Sequence[ProcessJob], deadline: Deadline, ready: Callable[[ProcessJob], bool]) -> None:
    """Receive from jobs and their fork servers until a job is `ready` or the deadline. The caller holds `TURN`."""
    with selectors.DefaultSelector() as selector:
        for server in {id(job.server): job.server for job in jobs}.values():
            if server.dead:
                server.receive()  # which marks its jobs as ended
            else:
                selector.register(server.control, selectors.EVENT_READ, server)
        for job in jobs:
            if job.channel.fileno() >= 0:
                selector.register(job.channel, selectors.EVENT_READ, job)
        while not any(map(ready, jobs)) and not deadline.over:
            for key, _ in selector.select(deadline.remaining() if deadline.limited else None):
                key.data.receive()
                if isinstance(key.data, ProcessJob) and key.data.channel.fileno() < 0:
                    selector.unregister(key.fileobj)

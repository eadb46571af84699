"""Calls in child processes on this machine, forked from one process that has imported the libraries
(`synth.solvers.processes.fork_server`)."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field

from synth.catalog.jobs.runners import Work, WorkAnswer, WorkCall
from synth.solvers.processes.fork_server import ForkServer, ProcessJob

# The modules that nearly every task needs; imported once, before the first fork.
MODULES = (
    "synth.catalog.jobs.task",
    "synth.pareto.sweep",
    "synth.pareto.combining.close_combining",
    "synth.bounds.cut_lp",
    "synth.checker.documents.exact_frontier",
    "scipy.optimize",
)


@dataclass
class _Running:
    call: WorkCall
    job: ProcessJob
    began: float = field(default_factory=time.monotonic)

    @property
    def end(self) -> float | None:
        return None if self.call.deadline is None else self.began + self.call.deadline


class Processes:
    """A runner of calls in child processes, at most `slots` at a time. A killed child process ends as an answer too."""

    def __init__(self, work: Work, slots: int, modules: tuple[str, ...] = MODULES) -> None:
        self.work, self.slots, self.modules = work, slots, modules
        self._fork_server: ForkServer | None = None
        self._running: dict[int, _Running] = {}
        self._numbers = itertools.count(1)

    def start(self, call: WorkCall) -> None:
        """Start the call in a new child process."""
        if self._fork_server is None or self._fork_server.dead:
            self._fork_server = ForkServer(self.modules)
        number = next(self._numbers)
        self._running[number] = _Running(call, self._fork_server.start(number, self.work, (call.text,), call.memory))

    def wait(self, seconds: float | None) -> list[WorkAnswer]:
        """Return the new answers. Waits for one, at most `seconds`. Kills child processes past their deadline."""
        timeout = None if seconds is None else time.monotonic() + seconds
        while self._running:
            now = time.monotonic()
            ends = [end for r in self._running.values() if (end := r.end) is not None]
            late = [n for n, r in self._running.items() if r.end is not None and now >= r.end]
            for number in late:
                self._running[number].job.kill()
            ended = [n for n, r in self._running.items() if n in late or r.job.result is not None or r.job.ended]
            if ended or (timeout is not None and now >= timeout):
                return [self._answer(self._running.pop(n), n in late) for n in ended]
            if timeout is not None:
                ends.append(timeout)
            self._listen(max(0.0, min(ends) - now) if ends else None)
        return []

    def _listen(self, seconds: float | None) -> None:
        """Receive messages of the child processes and of their fork server, for at most `seconds`."""
        with selectors.DefaultSelector() as selector:
            servers = {id(r.job.server): r.job.server for r in self._running.values()}
            for server in servers.values():
                if not server.dead:
                    selector.register(server.control, selectors.EVENT_READ, server)
            for running in self._running.values():
                if running.job.channel.fileno() >= 0:
                    selector.register(running.job.channel, selectors.EVENT_READ, running.job)
            for key, _ in selector.select(seconds):
                key.data.receive()

    def _answer(self, running: _Running, late: bool) -> WorkAnswer:
        call, job = running.call, running.job
        if job.ended and not late:  # it may have answered just before
            while job.channel.fileno() >= 0:
                job.receive()
        job.channel.close()
        seconds = time.monotonic() - running.began
        match job.result:
            case ("ok", text):
                return WorkAnswer(call.number, text, seconds=seconds)
            case ("error", MemoryError()):
                return WorkAnswer(call.number, None, "memory", "out of memory", seconds)
            case ("error", error):
                return WorkAnswer(call.number, None, "crash", f"{type(error).__name__}: {error}", seconds)
            case _ if late:
                return WorkAnswer(call.number, None, "time", f"ended after {seconds:.0f} s", seconds)
            case _:
                over = job.over_memory or (call.memory is not None and job.peak > 0.8 * call.memory)
                return WorkAnswer(call.number, None, "memory" if over else "crash", _ending(job.status), seconds)

    def abandon(self) -> None:
        """End every child process, from another thread than the one that waits; that thread receives crashes as
        answers."""
        server = self._fork_server
        if server is not None and not server.dead:
            with contextlib.suppress(OSError):
                server.control.shutdown(socket.SHUT_RDWR)

    @property
    def pids(self) -> list[int]:
        """The id of the fork server's process, for tests and diagnosis; [] where it does not run."""
        return [] if self._fork_server is None or self._fork_server.dead else [self._fork_server._process.pid]

    def close(self) -> None:
        """End every child process and the fork server."""
        for running in self._running.values():
            running.job.channel.close()
        self._running.clear()
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None


def _ending(status: int) -> str:
    """Return the wait status of a process in words."""
    if os.WIFSIGNALED(status):
        return f"its process was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"its process ended with code {os.WEXITSTATUS(status) if os.WIFEXITED(status) else status}"

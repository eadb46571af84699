"""Resumable jobs: calls in other processes that are suspended when they are late, and continue when needed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from synth.model.outcome import Budget, Unknown
from synth.solvers.processes import jobs
from synth.solvers.processes.fork_server import Job

# Up to this many ranks bounds are computed in this process: they take less time than the start of another.
LEAST_RANKS = 8


@dataclass
class ResumableJobs:
    """Calls by key. `jobs`: those at work or suspended. `found`: results, or the reason for none (memory, crash).

    A call that has ended without a result is not begun again. `imports`: modules that the processes import first.
    """

    budget: Budget
    imports: tuple[str, ...]
    jobs: dict[Hashable, Job] = field(default_factory=dict)
    found: dict[Hashable, object] = field(default_factory=dict)

    def begin(self, key: Hashable, call: Callable, *arguments: object) -> None:
        """Begin ``call(*arguments)`` where it has not begun, or continue it where it is suspended."""
        if key in self.found:
            return
        if key in self.jobs:
            self.jobs[key].resume()
        else:
            self.jobs[key] = jobs.begin(self.imports, call, arguments, self.budget)

    def wait(self, keys: Sequence[Hashable], until: float) -> None:
        """Wait until a call of `keys`, which have all begun, has ended, or until `until` (monotonic seconds)."""
        if all(key in self.jobs for key in keys):
            jobs.wait([self.jobs[key] for key in keys], until)
        for key in keys:
            job = self.jobs.get(key)
            if job is not None and (job.result is not None or job.ended):
                self._take(key, job)

    def rest(self, key: Hashable) -> None:
        """Suspend a call until it is begun again."""
        if key in self.jobs:
            self.jobs[key].stop()

    def ask(self, key: Hashable, until: float, call: Callable, *arguments: object) -> object:
        """Return the result of ``call(*arguments)`` at `until`; where it is late, suspend the call and return None."""
        self.begin(key, call, *arguments)
        self.wait([key], until)
        self.rest(key)
        return self.found.get(key)

    def close(self) -> None:
        """End every call that is at work or suspended."""
        while self.jobs:
            _, job = self.jobs.popitem()
            jobs.finish(job, time.monotonic())

    def _take(self, key: Hashable, job: Job) -> None:
        """Record the result of a job. Raises what the call raised, except for a lack of memory."""
        del self.jobs[key]
        jobs.finish(job, time.monotonic())
        failed = job.result[1] if job.result is not None and job.result[0] == "error" else None
        if job.over_memory or isinstance(failed, MemoryError):
            self.found[key] = Unknown("memory")
        elif isinstance(failed, Exception):
            raise failed
        else:
            self.found[key] = Unknown("crash") if job.result is None else job.result[1]

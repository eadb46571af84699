"""Questions in processes of their own that are waited for in parts: one that took too long rests, and goes on when
asked again."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from synth.model.outcome import Budget, Unknown
from synth.solvers.processes import jobs
from synth.solvers.processes.fork_server import Job

LEAST_RANKS = 8  # up to here bounds are computed at once: they take less than a process


@dataclass
class ResumableJobs:
    """What was asked, by key, and what came of it: an answer, or why there is none (memory, crash), which is not asked
    again.

    `imports`: the modules that the processes begin with.
    """

    budget: Budget
    imports: tuple[str, ...]
    jobs: dict[Hashable, Job] = field(default_factory=dict)
    found: dict[Hashable, object] = field(default_factory=dict)

    def begin(self, key: Hashable, call: Callable, *arguments: object) -> None:
        """Starts on ``call(*arguments)``, once; a question that rests goes on."""
        if key in self.found:
            return
        if key in self.jobs:
            self.jobs[key].resume()
        else:
            self.jobs[key] = jobs.begin(self.imports, call, arguments, self.budget)

    def wait(self, keys: Sequence[Hashable], until: float) -> None:
        """Waits until one of `keys`, all of which were begun, has an answer or none will come, or until then (monotonic
        seconds)."""
        if all(key in self.jobs for key in keys):
            jobs.wait([self.jobs[key] for key in keys], until)
        for key in keys:
            job = self.jobs.get(key)
            if job is not None and (job.result is not None or job.ended):
                self._take(key, job)

    def rest(self, key: Hashable) -> None:
        """Stops the work on a question until it is begun again."""
        if key in self.jobs:
            self.jobs[key].stop()

    def ask(self, key: Hashable, until: float, call: Callable, *arguments: object) -> object:
        """The answer to ``call(*arguments)`` by then; None where it is late: then it rests."""
        self.begin(key, call, *arguments)
        self.wait([key], until)
        self.rest(key)
        return self.found.get(key)

    def close(self) -> None:
        """Ends every question that is still at work or rests."""
        while self.jobs:
            _, job = self.jobs.popitem()
            jobs.finish(job, time.monotonic())

    def _take(self, key: Hashable, job: Job) -> None:
        """Notes what the job has said. Raises what it raised, but for what the machine lacked."""
        del self.jobs[key]
        jobs.finish(job, time.monotonic())
        failed = job.result[1] if job.result is not None and job.result[0] == "error" else None
        if job.over_memory or isinstance(failed, MemoryError):
            self.found[key] = Unknown("memory")
        elif isinstance(failed, Exception):
            raise failed
        else:
            self.found[key] = Unknown("crash") if job.result is None else job.result[1]

"""Resumable jobs: calls in other processes that are suspended when they are late, and continue when needed again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from synth.solvers.processes import pool
from synth.solvers.processes.deadline import Deadline
from synth.solvers.processes.fork_server import Job

# Up to this many ranks bounds are computed in this process: they take less time than the start of another.
LEAST_RANKS = 8


@dataclass
class ResumableJobs:
    """Calls by key. `jobs`: those at work or suspended. `found`: results, or Unknown with the reason why there is none.

    A call that has ended without a result is not begun again. `imports`: modules that the processes import first.
    `memory`: bytes that each may use (None: no limit).
    """

    memory: int | None
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
            self.jobs[key] = pool.submit(self.imports, call, arguments, self.memory)

    def wait(self, keys: Sequence[Hashable], deadline: Deadline) -> None:
        """Wait until a call of `keys`, which have all begun, has ended, or until the deadline.

        Raises what the call raised, except for a lack of memory.
        """
        if all(key in self.jobs for key in keys):
            pool.wait([self.jobs[key] for key in keys], deadline)
        for key in keys:
            if key in self.jobs and self.jobs[key].done:
                self.found[key] = pool.outcome(self.jobs.pop(key))

    def rest(self, key: Hashable) -> None:
        """Suspend a call until it is begun again."""
        if key in self.jobs:
            self.jobs[key].stop()

    def ask(self, key: Hashable, deadline: Deadline, call: Callable, *arguments: object) -> object:
        """Return the result of ``call(*arguments)``; where it is late, suspend the call and return None."""
        self.begin(key, call, *arguments)
        self.wait([key], deadline)
        self.rest(key)
        return self.found.get(key)

    def close(self) -> None:
        """End every call that is at work or suspended."""
        pool.end(list(self.jobs.values()))
        self.jobs.clear()

"""Resumable jobs: calls in other processes that are suspended when they are late, and continue when needed again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from synth.errors import UncheckedError
from synth.model.outcome import Unknown
from synth.solvers.processes import pool
from synth.solvers.processes.deadline import Deadline
from synth.solvers.processes.fork_server import ProcessJob

# Maximum number of ranks up to which bounds are computed in this process: they take less time than the start of
# another.
MAX_RANKS_IN_PROCESS = 8


@dataclass
class ResumableJobs:
    """Calls in other processes, by key.

    Attributes:
        memory: bytes that each process may use (None: no limit).
        imports: modules that the processes import first.
        jobs: the calls at work or suspended.
        results: the result of each call that has ended, or Unknown with the reason why there is none. Such a call is
            not begun again.
    """

    memory: int | None
    imports: tuple[str, ...]
    jobs: dict[Hashable, ProcessJob] = field(default_factory=dict)
    results: dict[Hashable, object] = field(default_factory=dict)

    def begin(self, key: Hashable, call: Callable, *arguments: object) -> None:
        """Begin ``call(*arguments)`` where it has not begun, or continue it where it is suspended."""
        if key in self.results:
            return
        if key in self.jobs:
            self.jobs[key].resume()
        else:
            self.jobs[key] = pool.submit(self.imports, call, arguments, self.memory)

    def wait(self, keys: Sequence[Hashable], deadline: Deadline) -> None:
        """Wait until the first call of `keys` has ended, or until the deadline; then enter all results of `keys`.

        All of them must have begun. Raises what a call raised, except for a lack of memory, and for a bound whose
        certificate is too large to check.
        """
        if all(key in self.jobs for key in keys):
            pool.wait([self.jobs[key] for key in keys], deadline)
        for key in keys:
            if key in self.jobs and self.jobs[key].done:
                try:
                    self.results[key] = pool.outcome(self.jobs.pop(key))
                except UncheckedError:
                    self.results[key] = Unknown("gave-up", "its certificate is too large to check")

    def suspend(self, key: Hashable) -> None:
        """Suspend a call until it is begun again."""
        if key in self.jobs:
            self.jobs[key].suspend()

    def run_until(self, key: Hashable, deadline: Deadline, call: Callable, *arguments: object) -> object:
        """Begin or continue a call, and return its entry in `results` if it ends before `deadline`.

        Otherwise the call is suspended, and the answer is None. Raises as `wait`.
        """
        self.begin(key, call, *arguments)
        self.wait([key], deadline)
        self.suspend(key)
        return self.results.get(key)

    def close(self) -> None:
        """Kill every call that is at work or suspended."""
        pool.end(list(self.jobs.values()))
        self.jobs.clear()

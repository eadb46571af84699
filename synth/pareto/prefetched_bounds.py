"""Questions to the tree engine and about bounds, in processes of their own that run beside a race."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from synth import bounds
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Budget, Sat, Unknown
from synth.model.topology import Network
from synth.pareto.portfolio.members import Member
from synth.solvers.processes import jobs
from synth.solvers.processes.fork_server import Job
from synth.solvers.processes.resumable_jobs import LEAST_RANKS

TREE_MEMBER = Member("tree")


def begin(
    ask: Callable, network: Network, collective: Collective, steps: int, bound: LowerBound, most: int, budget: Budget
) -> Job:
    """Asks `ask`, a function of the tree engine, about a problem that copies; `answer` has what it says."""
    return jobs.begin(
        TREE_MEMBER.imports, ask, (_in_order(network), collective, steps, bound.value, most, budget), budget
    )


def _in_order(network: Network) -> Network:
    """The same with its routes by their ends: where all are alike both ways, a reduce is searched just as its
    broadcast."""
    if network.caps:  # which number the routes
        return network
    return replace(network, routes=tuple(sorted(network.routes, key=lambda r: (r.src, r.dst, r.via))))


def answer(job: Job, seconds: float) -> Sat | Unknown:
    """What the job has answered after so many more wall seconds at most."""
    jobs.finish(job, time.monotonic() + seconds)
    if job.result is None:
        return Unknown("memory" if job.over_memory else "crash" if job.ended else "time")
    if job.result[0] != "ok":
        return Unknown("memory" if isinstance(job.result[1], MemoryError) else "crash", str(job.result[1]))
    return job.result[1]


def drop(job: Job | None) -> None:
    """Ends a job whose answer nobody needs."""
    if job is not None:
        jobs.finish(job, time.monotonic())


def begin_quick(network: Network, collective: Collective, budget: Budget) -> Job:
    """Starts on a bound for any number of steps whose search for cuts is not let go on; `finish_quick` has it."""
    return jobs.begin(TREE_MEMBER.imports, _quick, (network, collective), budget)


def finish_quick(job: Job, end: float) -> LowerBound | None:
    """What the job has found at `end` (monotonic seconds), None where it has nothing."""
    jobs.finish(job, end)
    return job.result[1] if job.result is not None and job.result[0] == "ok" else None


def _quick(network: Network, collective: Collective) -> LowerBound:
    return bounds.flow(network, collective, None, cycles=1)


@dataclass
class PrefetchedBounds:
    """Flow bounds, in processes of their own: for more steps while the tree engine works on fewer, and all where there
    is an `end` or many ranks.

    `end`: monotonic seconds until which they are waited for. `lost`: those that ran out of time or memory, which are
    not tried again.
    """

    network: Network
    collective: Collective
    budget: Budget
    end: float | None = None
    jobs: dict[int | None, Job] = field(default_factory=dict)
    lost: dict[int | None, Unknown] = field(default_factory=dict)

    def begin(self, steps: int | None) -> None:
        """Starts on the bound for `steps` (None: for any number), once."""
        if steps not in self.jobs and steps not in self.lost:
            self.jobs[steps] = jobs.begin(
                TREE_MEMBER.imports, bounds.flow, (self.network, self.collective, steps), self.budget
            )

    def bound(self, steps: int | None) -> LowerBound | Unknown:
        """As `bounds.flow`, from the job where there is one; why there is none where its time or its memory is over."""
        if self.end is not None and steps not in self.jobs and time.monotonic() >= self.end:
            return Unknown("time")
        if self.end is not None or self.network.ranks > LEAST_RANKS:  # where Ctrl-C need not wait for a linear program
            self.begin(steps)
        if steps in self.lost:
            return self.lost[steps]
        job = self.jobs.pop(steps, None)
        if job is None:
            return bounds.flow(self.network, self.collective, steps)
        jobs.finish(job, self.end)
        if job.result is not None and job.result[0] == "ok":
            return job.result[1]
        failed = None if job.result is None else job.result[1]
        if job.over_memory or isinstance(failed, MemoryError):
            self.lost[steps] = Unknown("memory")
        elif isinstance(failed, Exception):
            raise failed
        else:
            self.lost[steps] = Unknown("crash" if job.ended else "time", "" if failed is None else str(failed))
        return self.lost[steps]

"""Queries to the tree engine and computations of bounds, in processes that run beside the portfolio."""

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


def begin_tree_query(
    ask: Callable, network: Network, collective: Collective, steps: int, bound: LowerBound, most: int, budget: Budget
) -> Job:
    """Begin the query `ask`, a function of the tree engine, on a problem that copies. `finish_tree_query` returns its
    verdict."""
    return jobs.begin(
        TREE_MEMBER.imports, ask, (_in_order(network), collective, steps, bound.value, most, budget), budget
    )


def _in_order(network: Network) -> Network:
    """Return the network with its routes ordered by their ends.

    So on a network with equal routes both ways a reduce is searched exactly as its broadcast.
    """
    if network.caps:  # which refer to routes by their numbers
        return network
    return replace(network, routes=tuple(sorted(network.routes, key=lambda r: (r.src, r.dst, r.via))))


def finish_tree_query(job: Job, seconds: float) -> Sat | Unknown:
    """Return the verdict of the job after `seconds` more wall seconds at most."""
    jobs.finish(job, time.monotonic() + seconds)
    if job.result is None:
        reason = "crash" if job.ended else "time"
        return Unknown("memory" if job.over_memory else reason)
    if job.result[0] != "ok":
        return Unknown("memory" if isinstance(job.result[1], MemoryError) else "crash", str(job.result[1]))
    return job.result[1]


def end_job(job: Job | None) -> None:
    """End a job whose answer is not needed."""
    if job is not None:
        jobs.finish(job, time.monotonic())


def begin_quick(network: Network, collective: Collective, budget: Budget) -> Job:
    """Begin a bound for any number of steps with a single cycle of the search for cuts. `finish_quick` returns it."""
    return jobs.begin(TREE_MEMBER.imports, _quick, (network, collective), budget)


def finish_quick(job: Job, end: float) -> LowerBound | None:
    """Return the bound of the job at `end` (monotonic seconds), or None where it has none."""
    jobs.finish(job, end)
    return job.result[1] if job.result is not None and job.result[0] == "ok" else None


def _quick(network: Network, collective: Collective) -> LowerBound:
    return bounds.flow(network, collective, None, cycles=1)


@dataclass
class PrefetchedBounds:
    """Flow bounds that are computed in other processes.

    The bound of the next S is computed while the tree engine works on this one. All bounds are where there is an `end`
    or where there are many ranks. `end`: monotonic seconds at which the wait for any bound ends. `lost`: bounds that
    ran out of time or memory, which are not tried again.
    """

    network: Network
    collective: Collective
    budget: Budget
    end: float | None = None
    jobs: dict[int | None, Job] = field(default_factory=dict)
    lost: dict[int | None, Unknown] = field(default_factory=dict)

    def begin(self, steps: int | None) -> None:
        """Begin the bound for `steps` (None: for any number), once."""
        if steps not in self.jobs and steps not in self.lost:
            self.jobs[steps] = jobs.begin(
                TREE_MEMBER.imports, bounds.flow, (self.network, self.collective, steps), self.budget
            )

    def bound(self, steps: int | None) -> LowerBound | Unknown:
        """Return `bounds.flow`, from its job where there is one, or the reason why its job ended without."""
        if self.end is not None and steps not in self.jobs and time.monotonic() >= self.end:
            return Unknown("time")
        # In another process Ctrl-C need not wait for a linear program.
        if self.end is not None or self.network.ranks > LEAST_RANKS:
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
            detail = "" if failed is None else str(failed)
            self.lost[steps] = Unknown("crash" if job.ended else "time", detail)
        return self.lost[steps]

"""Queries to the tree engine and computations of bounds, in processes that run beside the portfolio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from synth.encodings import bounds
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Sat, Unknown
from synth.model.topology import Network
from synth.pareto.portfolio.members import Member
from synth.solvers.processes import pool
from synth.solvers.processes.deadline import NEVER, Budget, Deadline
from synth.solvers.processes.fork_server import ProcessJob
from synth.solvers.processes.resumable_jobs import MAX_RANKS_IN_PROCESS, ResumableJobs

TREE_MEMBER = Member("tree")


def submit_tree_query(
    ask: Callable, network: Network, collective: Collective, steps: int, bound: LowerBound, most: int, budget: Budget
) -> ProcessJob:
    """Begin the query `ask`, a function of the tree engine, on a problem that copies. `tree_verdict` returns its
    verdict."""
    arguments = (_in_order(network), collective, steps, bound.value, most, budget)
    return pool.submit(TREE_MEMBER.imports, ask, arguments, budget.memory)


def _in_order(network: Network) -> Network:
    """Return the network with its routes ordered by their ends.

    So on a network with equal routes both ways a reduce is searched exactly as its broadcast.
    """
    if network.caps:  # which refer to routes by their numbers
        return network
    return replace(network, routes=tuple(sorted(network.routes, key=lambda r: (r.src, r.dst, r.via))))


def tree_verdict(job: ProcessJob, deadline: Deadline) -> Sat | Unknown:
    """Return the verdict of the job, which is killed at the deadline."""
    return pool.outcome(job, deadline, errors_crash=True)


def end_job(job: ProcessJob | None) -> None:
    """End a job whose answer is not needed."""
    pool.end([] if job is None else [job])


@dataclass
class PrefetchedBounds:
    """Flow bounds that are computed in other processes.

    The bound of the next S is computed while the tree engine works on this one. All bounds are where there is a
    deadline, at which the wait for any bound ends, or where there are many ranks. A bound that ran out of memory is not
    tried again.
    """

    network: Network
    collective: Collective
    memory: int | None
    deadline: Deadline = NEVER

    def __post_init__(self) -> None:
        self.jobs = ResumableJobs(self.memory, TREE_MEMBER.imports)

    def begin(self, steps: int | None) -> None:
        """Begin the bound for `steps` (None: for any number), once."""
        self.jobs.begin(steps, bounds.flow, self.network, self.collective, steps)

    def bound(self, steps: int | None, share: float = 1.0) -> LowerBound | Unknown:
        """Return `bounds.flow`, from its job where there is one, or the reason why its job ended without.

        It may take `share` of the time until the deadline.
        """
        begun = steps in self.jobs.jobs or steps in self.jobs.results
        if self.deadline.over and not begun:
            return Unknown("time")
        # In another process Ctrl-C need not wait for a linear program.
        if not (begun or self.deadline.limited or self.network.ranks > MAX_RANKS_IN_PROCESS):
            return bounds.flow(self.network, self.collective, steps)
        deadline = self.deadline.share(share)
        bound = self.jobs.run_until(steps, deadline, bounds.flow, self.network, self.collective, steps)
        return cast(LowerBound | Unknown, bound) if bound is not None else Unknown("time")

"""Queries to the tree engine and computations of bounds, in processes that run beside the portfolio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from signal import SIGCONT, SIGSTOP

from synth.encodings import bounds
from synth.errors import UncheckedError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Sat, Unknown
from synth.model.topology import Network
from synth.pareto.portfolio.members import Member
from synth.solvers import pool
from synth.solvers.deadline import NEVER, Budget, Deadline
from synth.solvers.pool import MAX_RANKS_IN_PROCESS, ProcessJob

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
    deadline, at which the wait for any bound ends, or where there are many ranks. A bound whose time is over rests
    until it is asked for again. One that ran out of memory is not tried again.

    `jobs`: the bounds at work or at rest, by S. `ended`: the others, or Unknown with the reason why there is none.
    """

    network: Network
    collective: Collective
    memory: int | None
    deadline: Deadline = NEVER
    jobs: dict[int | None, ProcessJob] = field(default_factory=dict)
    ended: dict[int | None, LowerBound | Unknown] = field(default_factory=dict)

    def begin(self, steps: int | None) -> None:
        """Begin the bound for `steps` (None: for any number), or continue it where it rests."""
        if steps in self.jobs:
            self.jobs[steps].signal(SIGCONT)
        elif steps not in self.ended:
            arguments = (self.network, self.collective, steps)
            self.jobs[steps] = pool.submit(TREE_MEMBER.imports, bounds.flow, arguments, self.memory)

    def bound(self, steps: int | None, share: float = 1.0) -> LowerBound | Unknown:
        """Return `bounds.flow`, from its job where there is one, or the reason why its job ended without.

        It may take `share` of the time until the deadline. Raises what the computation raised.
        """
        if steps in self.ended:
            return self.ended[steps]
        if steps not in self.jobs:
            if self.deadline.over:
                return Unknown("time")
            # In another process Ctrl-C need not wait for a linear program.
            if not self.deadline.limited and self.network.ranks <= MAX_RANKS_IN_PROCESS:
                return bounds.flow(self.network, self.collective, steps)
        self.begin(steps)
        job = self.jobs[steps]
        pool.wait([job], self.deadline.share(share))
        if not job.done:
            job.signal(SIGSTOP)
            return Unknown("time")
        del self.jobs[steps]
        try:
            self.ended[steps] = pool.outcome(job)
        except UncheckedError:
            self.ended[steps] = Unknown("gave-up", "its certificate is too large to check")
        return self.ended[steps]

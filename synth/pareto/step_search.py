"""Means of the searches at one number of steps: queries to solvers and trees, bounds, time, the choice of engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from signal import SIGCONT, SIGSTOP

from synth.encodings import bounds
from synth.errors import UncheckedError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound, Point, QueryRecord
from synth.model.outcome import Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem, Schedule
from synth.model.topology import Network
from synth.pareto.found import Found
from synth.pareto.log import points_from_records
from synth.pareto.portfolio import portfolio
from synth.pareto.portfolio.members import Member
from synth.solvers import pool
from synth.solvers.deadline import NEVER, Budget, Deadline
from synth.solvers.pool import MAX_RANKS_IN_PROCESS, ProcessJob

# Ranks up to which trees are searched well enough to be queried before solvers have had long slices.
TREE_RANKS = 32
# CPU seconds of the tree engine for one query, and the member of the portfolio whose modules its process imports.
TREE_SECONDS, TREE_MEMBER = 30.0, Member("tree")
# Wall seconds that a CPU second may take on a busy machine, without a time limit; least wall seconds of any budget.
PATIENCE, LEAST_SECONDS = 8.0, 0.1
# Greatest share of the remaining time for replaying points of an earlier run.
RESUME_SHARE = 0.5
# Shares of a time limit that are left for what follows the sweep, and, at most, for entering its last rows.
LAST_SHARE, ENTRY_SHARE = 0.1, 0.25
# Seconds, about, to enter one send of a row.
SECONDS_PER_SEND = 1.5e-5


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


@dataclass
class StepSearch:
    """The means of the searches at each number of steps of a sweep: what is found, the time, and the choice of engines.

    `deadline`: the end of the time limit, of which the sweep leaves a part for what follows. `spent`: CPU seconds of
    each processor, in the processes of the queries. `share`: seconds for an open S that the sweep returns to.
    `longer`: factor on all slices of time.
    """

    found: Found
    deadline: Deadline = NEVER
    spent: float = 0.0
    share: float | None = None
    longer: int = 1
    network: Network = field(init=False)
    collective: Collective = field(init=False)

    def __post_init__(self) -> None:
        found = self.found
        self.network, self.collective, self.options = found.network, found.collective, found.options
        found.rows, found.points, found.sweeping = found.points, [], True
        limit = self.options.time_limit
        if limit is not None and found.floor.certificate:  # other engines come before and after
            entries = 0.0
            if not self.direct:  # those of other sums plan the entries themselves
                work = sum(row.schedule.sends + len(self.network.routes) for row in found.rows)
                entries = min(limit * ENTRY_SHARE, SECONDS_PER_SEND * work)
            self.deadline = Deadline(self.deadline.end - entries - limit * LAST_SHARE)

    @property
    def direct(self) -> bool:
        """True for a collective that combines and is no reversal of a copying one."""
        return self.collective.combining and not self.collective.reversible

    @cached_property
    def prefetched(self) -> PrefetchedBounds:
        """Flow bounds, begun before they are needed."""
        # With few ranks a bound takes less time than the start of a process.
        deadline = self.deadline if self.network.ranks > MAX_RANKS_IN_PROCESS else NEVER
        return PrefetchedBounds(self.network, self.collective, self.options.memory, deadline)

    def answered(self, answer: QueryRecord) -> None:
        """Record the answer of a solver."""
        self.found.answered(answer)

    def resumed(self, steps: int) -> Iterator[Point]:
        """Yield the points of `steps` steps of an earlier run, replayed and checked again, as the time allows."""
        deadline = self.deadline.share(RESUME_SHARE)
        return points_from_records(self.network, self.collective, self.found.log.records, steps, deadline)

    # ------------------------------------------------------------ choice of engines

    def forwards(self) -> tuple[Network, Collective]:
        """Return the problem as one that copies: itself, or its time reversal where it combines."""
        network, collective = self.network, self.collective
        if collective.combining:
            network, collective = network.reversed(), collective.reversed()
        return network, collective

    @cached_property
    def exact_pricing(self) -> bool:
        """True where trees are priced exactly, because there are few ranks, and the options name no engine."""
        from synth.encodings.trees.cheapest_trees import SteinerTreeDP

        network, collective = self.forwards()
        free = self.options.encoding == self.options.solver == "auto"
        return free and all(SteinerTreeDP.fits(network, pre) for pre in collective.pre)

    @property
    def tree_search(self) -> bool:
        """True where trees are searched well, and the options name no engine.

        That is up to `TREE_RANKS` ranks, or where each unit has few ranks to reach.
        """
        free = self.options.encoding == self.options.solver == "auto"
        return free and (self.network.ranks <= TREE_RANKS or self.exact_pricing)

    # ------------------------------------------------------------ time

    @property
    def out_of_time(self) -> bool:
        """True when the time limit is over."""
        return self.deadline.over

    @property
    def work(self) -> float:
        """CPU seconds so far, of this process and of the queries' processes on each processor that they used."""
        return time.process_time() + self.spent

    def seconds_left(self, work_limit: float) -> float:
        """Return the seconds until `work` is `work_limit`, or until the time limit, whichever is less."""
        return min(work_limit - self.work, self.deadline.remaining())

    def point_seconds(self) -> float:
        """Return the wall seconds for the next number of steps: its share of the time limit, where there is one."""
        if not self.deadline.limited:
            return self.options.point_seconds
        return max(0.5, self.deadline.remaining() / 2 if self.share is None else self.share)

    def budget(self, seconds: float | None) -> Budget:
        """Return a budget of `seconds` (None: no limit) of each processor that ends with the time limit.

        Without a time limit it may take `PATIENCE` times as many wall seconds.
        """
        if self.deadline.limited:
            deadline = self.deadline.at_least(LEAST_SECONDS).within(seconds)
        else:
            deadline = Deadline.after(None if seconds is None else PATIENCE * seconds)
        options = self.options
        return Budget(deadline, seconds, options.memory, options.seed, options.jobs, options.deterministic)

    # ------------------------------------------------------------ queries

    def asked(self, problem: Problem, decide: Callable[[], Verdict]) -> Verdict:
        """Return the answer of `decide` to a problem, recorded, or that of an earlier run in the log."""
        log = self.found.log
        if log.refuted(problem):
            return Unsat("refuted in an earlier run")
        self.found.tell("query", f"C={problem.chunks} S={problem.steps} R={problem.rounds}", problem.steps)
        verdict = decide()
        self.answered(record(problem, verdict))
        if isinstance(verdict, Unsat):
            query = [problem.chunks, problem.steps, problem.rounds]
            log.append({"kind": "unsat", "query": query, "engine": verdict.cost.engine})
        return verdict

    def query_portfolio(self, problem: Problem, seconds: float, beside: ProcessJob | None = None) -> Verdict:
        """Decide a problem by the portfolio in `seconds` of each processor, or by the log of an earlier run.

        `beside`: as in `portfolio.solve`.
        """
        options = self.options

        def decide() -> Verdict:
            verdict = portfolio.solve(
                problem, budget=self.budget(seconds), encoding=options.encoding, solver=options.solver,
                on_event=lambda text: self.found.tell("query", text, problem.steps), beside=beside,
            )  # fmt: skip
            self.spent += verdict.cost.total_cpu / options.jobs
            return verdict

        return self.asked(problem, decide)

    def begin_trees(self, query: Callable, steps: int, bound: LowerBound, max_chunks: int) -> ProcessJob:
        """Begin `query`, a function of the tree engine, in another process, with up to `max_chunks` chunks per unit."""
        network, collective = self.forwards()
        # routes in the order of their ends, so that with equal routes both ways a reduce is searched as its broadcast;
        # limits refer to routes by their numbers
        if not network.caps:
            network = replace(network, routes=tuple(sorted(network.routes, key=lambda r: (r.src, r.dst, r.via))))
        budget = self.budget(TREE_SECONDS * self.longer)
        arguments = (network, collective, steps, bound.value, max_chunks, budget)
        return pool.submit(TREE_MEMBER.imports, query, arguments, budget.memory)

    def finish_trees(self, job: ProcessJob, steps: int, bound: LowerBound) -> Sat | Unknown:
        """Wait for a query of `begin_trees` and return its verdict.

        Meanwhile the bound of the next S is computed where there is another processor.
        """
        options = self.options
        several = options.jobs > 1 and not self.exact_pricing
        if several and steps != options.max_steps and bound.value > self.found.floor.value:
            self.prefetched.begin(steps + 1)
        deadline = self.budget(TREE_SECONDS * self.longer).deadline
        verdict: Sat | Unknown = pool.outcome(job, deadline, errors_crash=True)
        self.spent += verdict.cost.total_cpu / options.jobs
        if not isinstance(verdict, Sat):
            return verdict
        schedule = verdict.schedule.reversed() if self.collective.combining else verdict.schedule
        return Sat(Schedule(self.network, self.collective, schedule.chunks, schedule.steps), verdict.cost)


def record(problem: Problem, verdict: Verdict) -> QueryRecord:
    """Return the record of a verdict on `problem`, as it stands in a frontier."""
    text = "undecided"
    if isinstance(verdict, Sat):
        text = "schedule"
    elif isinstance(verdict, Unsat):
        text = "infeasible"
    return QueryRecord(problem.chunks, problem.steps, problem.rounds, text, verdict.cost.engine)


def point(verdict: Sat, bound: LowerBound, began: float) -> Point:
    """Return the point of a verdict. `began`: start of its search in monotonic seconds."""
    return Point.of(verdict.schedule, bound, verdict.cost.engine, True, time.monotonic() - began)

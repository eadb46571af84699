"""Means of the searches at one number of steps: what is found, the time that they have, and the choice of engines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from synth.model.collective import Collective
from synth.model.frontier import Point, QueryRecord
from synth.model.topology import Network
from synth.pareto.found import Found
from synth.pareto.prefetched_bounds import PrefetchedBounds
from synth.pareto.resume import points_from_records
from synth.solvers.deadline import NEVER, Budget, Deadline
from synth.solvers.pool import MAX_RANKS_IN_PROCESS

# Ranks up to which trees are searched well enough to be queried before solvers have had long slices.
TREE_RANKS = 32
# Wall seconds that a CPU second may take on a busy machine, without a time limit; least wall seconds of any budget.
PATIENCE, LEAST_SECONDS = 8.0, 0.1
# Greatest share of the remaining time for replaying points of an earlier run.
RESUME_SHARE = 0.5
# Shares of a time limit that are left for what follows the sweep, and, at most, for entering its last rows.
LAST_SHARE, ENTRY_SHARE = 0.1, 0.25
# Seconds, about, to enter one send of a row.
SECONDS_PER_SEND = 1.5e-5


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
        if self.collective.combining:
            return self.network.reversed(), self.collective.reversed()
        return self.network, self.collective

    @cached_property
    def exact_pricing(self) -> bool:
        """True where trees are priced exactly, because there are few ranks, and the options name no engine."""
        from synth.encodings.bounds.trees.cheapest_trees import SteinerTreeDP

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

"""State of one sweep: its problem, options, results and spent time. Every point is replayed, logged and announced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from synth.checker.schedule import column_replay
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.errors import VerificationError, refused
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Open, Point, QueryRecord
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto import prefetched_bounds
from synth.pareto.acceptance import with_checked_bound
from synth.pareto.events import Event, Listener, Options
from synth.pareto.log import Log
from synth.pareto.resume import point_record, points_from_records
from synth.solvers.deadline import NEVER, Budget, Deadline
from synth.solvers.pool import MAX_RANKS_IN_PROCESS


@dataclass(frozen=True)
class SweepStateSettings:
    """Shares of time of a sweep.

    Attributes:
        tree_ranks: Ranks up to which trees are searched well enough to be queried before solvers have had long slices.
        patience: Wall seconds that a CPU second may take on a busy machine, without a time limit.
        least_seconds: Wall seconds of any budget, at least.
        resume_share: Greatest share of the remaining time for replaying points of an earlier run.
    """

    tree_ranks: int = 32
    patience: float = 8.0
    least_seconds: float = 0.1
    resume_share: float = 0.5


SETTINGS = SweepStateSettings()


@dataclass
class SweepState:
    """The state of a sweep. Seconds are wall time from `started` on, except in `spent`, `work` and `seconds_left`."""

    network: Network
    collective: Collective
    options: Options
    log: Log
    listen: Listener = lambda event: None
    notes: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    seeds: tuple[tuple[str, Schedule], ...] = ()  # replayed schedules of other methods, with the methods' names
    first_bound: LowerBound | None = None  # for any number of steps, where another method has one
    reached: Fraction | None = None  # the least R/C of other methods at any number of steps, also of longer schedules
    points: list[Point] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    bounds: list[tuple[int | None, LowerBound]] = field(default_factory=list)
    answers: list[QueryRecord] = field(default_factory=list)
    complete: bool = False
    last: int | None = None  # the greatest number of steps that the sweep followed, None where no more can gain
    started: float = field(default_factory=time.monotonic)
    default_seconds: float | None = None  # the time limit where the options have none, of a search without end
    reserve: float = 0.0  # seconds of the time limit for entering the last seeds and for what follows the sweep
    spent: float = 0.0  # CPU seconds of each processor, in the processes of the queries
    upto: int | None = None  # number of steps up to which points count for `best`, None for all
    share: float | None = None  # seconds for an open S that the sweep returns to
    longer: int = 1  # factor on all slices of time

    # ------------------------------------------------------------ results

    def frontier(self) -> Frontier:
        """Return the frontier of the points so far, without dominated ones."""
        best: list[Point] = []
        for point in sorted(self.points, key=lambda p: (p.steps, p.rounds_per_chunk)):
            if not best or point.rounds_per_chunk < best[-1].rounds_per_chunk:
                best.append(point)
        seconds = time.monotonic() - self.started
        return Frontier(
            self.network, self.collective, tuple(best), tuple(self.open), self.complete, self.last, seconds,
            tuple(self.bounds), self.notes, self.labels, tuple(self.answers),
        )  # fmt: skip

    @property
    def best(self) -> Fraction | None:
        """The least R/C of the points so far with up to `upto` steps, None where there is none."""
        return min((p.rounds_per_chunk for p in self.points if self.upto is None or p.steps <= self.upto), default=None)

    @cached_property
    def quick_bound(self) -> LowerBound:
        """A quickly computed bound for any number of steps: that of another method, or the cut-set bound."""
        return self.first_bound or single_cut_bound(self.network, self.collective)

    @property
    def floor(self) -> Fraction:
        """The bound on R/C for any number of steps, 0 before there is one."""
        return next((b.value for steps, b in self.bounds if steps is None), Fraction(0))

    def resumed(self, steps: int | None = None) -> Iterator[Point]:
        """Yield the points of an earlier run of the same question, replayed and checked again.

        Those of `steps` steps, or all; under a time limit those for which a part of the time is enough.
        """
        deadline = self.deadline.share(SETTINGS.resume_share)
        return points_from_records(self.network, self.collective, self.log.records, steps, deadline)

    def forwards(self) -> tuple[Network, Collective]:
        """Return the problem as one that copies: itself, or its time reversal where it combines."""
        if self.collective.combining:
            return self.network.reversed(), self.collective.reversed()
        return self.network, self.collective

    def allowed(self, schedule: Schedule) -> bool:
        """Return True where a schedule has no more steps, rounds and chunks than the options allow."""
        return self.options.allows(len(schedule.steps), schedule.rounds, schedule.chunks)

    # ------------------------------------------------------------ choice of engines

    @property
    def free(self) -> bool:
        """True where the options name no engine."""
        options = self.options
        return options.encoding == options.solver == "auto"

    @cached_property
    def exact_pricing(self) -> bool:
        """True where trees are priced exactly, because there are few ranks, and the options name no engine."""
        from synth.encodings.bounds.trees.cheapest_trees import SteinerTreeDP

        network, collective = self.forwards()
        return self.free and all(SteinerTreeDP.fits(network, pre) for pre in collective.pre)

    @property
    def tree_search(self) -> bool:
        """True where trees are searched well, and the options name no engine.

        That is up to `SETTINGS.tree_ranks` ranks, or where each unit has few ranks to reach.
        """
        return self.free and (self.network.ranks <= SETTINGS.tree_ranks or self.exact_pricing)

    @cached_property
    def prefetched(self) -> prefetched_bounds.PrefetchedBounds:
        """Flow bounds, begun before they are needed."""
        # With few ranks a bound takes less time than the start of a process.
        deadline = self.deadline if self.network.ranks > MAX_RANKS_IN_PROCESS else NEVER
        return prefetched_bounds.PrefetchedBounds(self.network, self.collective, self.options.memory, deadline)

    # ------------------------------------------------------------ time

    @property
    def deadline(self) -> Deadline:
        """The end of the searches: that of the time limit, less the reserve."""
        limit = self.default_seconds if self.options.time_limit is None else self.options.time_limit
        return NEVER if limit is None else Deadline(self.started + limit - self.reserve)

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

        Without a time limit it may take `SETTINGS.patience` times as many wall seconds.
        """
        if self.deadline.limited:
            deadline = self.deadline.at_least(SETTINGS.least_seconds).within(seconds)
        else:
            deadline = Deadline.after(None if seconds is None else SETTINGS.patience * seconds)
        options = self.options
        return Budget(deadline, seconds, options.memory, options.seed, options.jobs, options.deterministic)

    # ------------------------------------------------------------ entries

    def add_point(self, point: Point) -> bool:
        """Replay a point, enter it, log it and announce it. Return False, with a note, where its replay fails.

        Raises VerificationError where its bound is not proved.

        After the time limit seeds are not logged: a record of many sends takes as long as a replay.
        """
        try:
            replay = column_replay.schedule(point.schedule)
        except VerificationError as error:
            self.notes += (refused(point.construction, error),)
            return False
        trusted = with_checked_bound(point, replay.rounds_per_chunk)
        self.points = [
            p for p in self.points if p.steps != point.steps or p.rounds_per_chunk <= point.rounds_per_chunk
        ] + [trusted]
        if not (self.out_of_time and self.is_seed(point)):  # which the same command finds again without a search
            self.log.append(point_record(point))
        self.answered(QueryRecord(point.chunks, point.steps, point.rounds, "schedule", point.construction))
        text = (
            f"S={point.steps}: {show(point.rounds_per_chunk)} rounds per chunk (C={point.chunks}, R={point.rounds}), "
            f"{point.status}"
        )
        self.tell("point", text, point.steps, point.bound.value, point)
        return True

    def is_seed(self, point: Point) -> bool:
        """Return True where the schedule of a point is one of those to begin with."""
        return any(point.schedule is schedule for _, schedule in self.seeds)

    def answered(self, answer: QueryRecord) -> None:
        """Record the answer of a solver, once for each query and verdict."""
        if not any(a.question == answer.question and a.verdict == answer.verdict for a in self.answers):
            self.answers.append(answer)
            self.tell("answer", str(answer), answer.steps)

    def add_open(self, item: Open) -> None:
        """Enter an open interval. Without a time limit its reason is "effort" instead of "time"."""
        spent = item.reason == "time" and self.options.time_limit is None
        self.open.append(replace(item, reason="effort") if spent else item)

    def update_open(self) -> None:
        """Lower the upper ends of open intervals to the points with as many steps or fewer, and close those that meet.

        A closed interval leaves its lower end as a bound.
        """
        still_open: list[Open] = []
        for interval in self.open:
            upper = min((p.rounds_per_chunk for p in self.points if p.steps <= interval.steps), default=None)
            if upper is not None and upper <= interval.lower:
                self.bounds.append((interval.steps, LowerBound(interval.lower, interval.certificate)))
            else:
                still_open.append(replace(interval, upper=upper))
        self.open = still_open

    def tell(
        self, kind: str, text: str, steps: int | None = None, bound: Fraction | None = None, point: Point | None = None
    ) -> None:
        """Send an `Event`, one line of progress, to the listener."""
        self.listen(Event(kind, text, steps, bound, point))

"""What one sweep was asked, has found, has spent and may still spend; what it finds is replayed, logged and told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from synth.model.collective import Collective
from synth.model.frontier import Answer, Frontier, LowerBound, Open, Point
from synth.model.outcome import Budget
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto import prefetched_bounds
from synth.pareto.acceptance import trusted_point
from synth.pareto.events import Event, Listener, Options
from synth.pareto.log import Log
from synth.pareto.resume import resumed
from synth.solvers.processes.resumable_jobs import LEAST_RANKS

TREE_RANKS = 32  # up to here trees are searched well enough to be asked before solvers have long been


@dataclass
class SweepState:
    """The state of a sweep. Seconds are wall time from `started` on, but for `spent`, `work` and `left`."""

    network: Network
    collective: Collective
    options: Options
    log: Log
    listen: Listener = lambda event: None
    notes: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    seeds: tuple[tuple[str, Schedule], ...] = ()  # replayed schedules of other methods, with the methods' names
    points: list[Point] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    bounds: list[tuple[int | None, LowerBound]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    complete: bool = False
    last: int | None = None
    started: float = field(default_factory=time.monotonic)
    spent: float = 0.0  # CPU seconds of each processor, in the processes of the queries
    upto: int | None = None  # steps up to which points count, None for all: those of more steps say nothing of fewer
    share: float | None = None  # seconds for the next S, where it is returned to
    longer: int = 1  # how many times as long slices are

    # ------------------------------------------------------------ what is known

    def frontier(self) -> Frontier:
        """What has been found so far, dominated points left out."""
        best: list[Point] = []
        for point in sorted(self.points, key=lambda p: (p.steps, p.bandwidth)):
            if not best or point.bandwidth < best[-1].bandwidth:
                best.append(point)
        seconds = time.monotonic() - self.started
        return Frontier(
            self.network, self.collective, tuple(best), tuple(self.open), self.complete, self.last, seconds,
            tuple(self.bounds), self.notes, self.labels, tuple(self.answers),
        )  # fmt: skip

    @property
    def best(self) -> Fraction | None:
        """The least R/C reached so far, with up to `upto` steps."""
        return min((p.bandwidth for p in self.points if self.upto is None or p.steps <= self.upto), default=None)

    @property
    def floor(self) -> Fraction:
        """The static bound, 0 before there is one."""
        return next((b.value for steps, b in self.bounds if steps is None), Fraction(0))

    def resumed(self) -> Iterator[Point]:
        """Points of an earlier run of the same question, replayed and re-checked."""
        return resumed(self.network, self.collective, self.log.records)

    def forwards(self) -> tuple[Network, Collective]:
        """The problem as one that copies: itself, or its time reversal where it combines."""
        if self.collective.combining:
            return self.network.reversed(), self.collective.reversed()
        return self.network, self.collective

    def allowed(self, schedule: Schedule) -> bool:
        """Whether a schedule has no more steps, rounds and chunks than were allowed."""
        return self.options.allows(len(schedule.steps), schedule.rounds, schedule.chunks)

    # ------------------------------------------------------------ which engines

    @property
    def free(self) -> bool:
        """Whether nobody asked for an engine by its name."""
        return self.options.encoding == "auto" and self.options.solver == "auto" and not self.options.limits

    @cached_property
    def few(self) -> bool:
        """Whether trees are priced exactly, as there are few ranks, and nobody asked for another engine."""
        from synth.bounds.trees.cheapest_trees import Holders

        network, collective = self.forwards()
        return self.free and all(Holders.fits(network, pre) for pre in collective.pre)

    @property
    def some(self) -> bool:
        """Whether trees are searched well, as there are not many ranks or few to be reached, and nobody asked for
        another engine."""
        return self.free and (self.network.ranks <= TREE_RANKS or self.few)

    @cached_property
    def prefetched(self) -> prefetched_bounds.PrefetchedBounds:
        """Flow bounds, begun before they are needed."""
        limit = (
            self.options.time_limit if self.network.ranks > LEAST_RANKS else None
        )  # of few ranks they take less than a process
        return prefetched_bounds.PrefetchedBounds(
            self.network, self.collective, self.budget(None), None if limit is None else self.started + limit
        )

    # ------------------------------------------------------------ what it may spend

    @property
    def out_of_time(self) -> bool:
        """Whether the whole budget is spent."""
        limit = self.options.time_limit
        return limit is not None and time.monotonic() - self.started >= limit

    @property
    def work(self) -> float:
        """CPU seconds so far: of this process, and of the queries' processes on each processor they used."""
        return time.process_time() + self.spent

    def left(self, until: float) -> float:
        """Seconds until `work` is `until`, or until the time that was allowed is over."""
        limit = self.options.time_limit
        return min(until - self.work, float("inf") if limit is None else limit - (time.monotonic() - self.started))

    def point_seconds(self) -> float:
        """Seconds for the next point: its share of the time limit, where there is one."""
        limit = self.options.time_limit
        if limit is None:
            return self.options.point_seconds
        return max(0.5, (limit - (time.monotonic() - self.started)) / 2 if self.share is None else self.share)

    def budget(self, seconds: float | None) -> Budget:
        """A budget of so many seconds (None: no limit), no more than is left of the time limit."""
        limit = self.options.time_limit
        if limit is not None:
            left = max(0.1, limit - (time.monotonic() - self.started))
            seconds = left if seconds is None else min(seconds, left)
        options = self.options
        return Budget(seconds, options.memory, options.seed, options.jobs, options.deterministic)

    # ------------------------------------------------------------ what is entered

    def keep(self, point: Point) -> None:
        """Replays a point, logs and tells it. Raises VerificationError."""
        document = point.to_json()
        trusted = trusted_point(point, document["schedule"])
        self.points = [p for p in self.points if p.steps != point.steps or p.bandwidth <= point.bandwidth] + [trusted]
        self.log.append({"kind": "point", "point": document})
        self.answered(Answer(point.chunks, point.steps, point.rounds, "schedule", point.construction))
        text = (
            f"S={point.steps}: {show(point.bandwidth)} rounds per chunk (C={point.chunks}, R={point.rounds}), "
            f"{point.status}"
        )
        self.tell("point", text, point.steps, point.bound.value, point)

    def answered(self, answer: Answer) -> None:
        """Note which solver said what, once for each question that it decided."""
        if not any(a.question == answer.question and a.verdict == answer.verdict for a in self.answers):
            self.answers.append(answer)
            self.tell("answer", str(answer), answer.steps)

    def leave(self, item: Open) -> None:
        """Note an interval. Time that nobody limited did not run out: it was the default effort that ended."""
        spent = item.reason == "time" and self.options.time_limit is None
        self.open.append(replace(item, reason="effort") if spent else item)

    def narrow(self) -> None:
        """What points say of open intervals at as many steps and more."""
        reached = [(o, min((p.bandwidth for p in self.points if p.steps <= o.steps), default=None)) for o in self.open]
        self.bounds += [
            (o.steps, LowerBound(o.lower, o.certificate))
            for o, upper in reached
            if upper is not None and upper <= o.lower
        ]
        self.open = [replace(o, upper=upper) for o, upper in reached if upper is None or upper > o.lower]

    def tell(
        self, kind: str, text: str, steps: int | None = None, bound: Fraction | None = None, point: Point | None = None
    ) -> None:
        """One line of progress (`Event`) to who listens."""
        self.listen(Event(kind, text, steps, bound, point))

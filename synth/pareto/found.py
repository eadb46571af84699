"""Findings of the engines of one frontier: replayed points, checked bounds, and open intervals."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.checker.certificates import cuts
from synth.checker.schedule import replay
from synth.encodings.bounds import distance
from synth.encodings.engine import Options
from synth.errors import SynthError, VerificationError, refused
from synth.model.collective import Collective
from synth.model.frontier import NO_BOUND, Frontier, LowerBound, Open, Point, QueryRecord, Rate
from synth.model.rational import show
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import Network
from synth.pareto.events import Event, Listener
from synth.pareto.log import Log, point_record

if TYPE_CHECKING:
    from synth.scale.search import ScaleSearch

# Begins the note on a bound for any number of steps whose search was ended early; untrue where it is attained.
UNPROVEN_BOUND = "the bound for any number of steps may be higher: "


@dataclass
class Found:
    """Points and bounds of one problem. Whatever comes in is checked; what goes out is a `Frontier`.

    A sweep over numbers of steps takes the points of the engines before it as `rows`, and enters each when it comes to
    its number of steps; `sweeping` is None before, True until it ends, and False from then on. `floor`: the greatest
    bound on R/C for any number of steps. `reached`: the least R/C of all schedules so far, also of those too long to
    be written out. `last`: the greatest number of steps that the sweep followed, None where no more can gain;
    `visited`: that at which it has ended so far. `flow_search`: what flow methods continue in their next turn.
    """

    network: Network
    collective: Collective
    options: Options = field(default_factory=Options)
    log: Log = field(default_factory=lambda: Log(None, ""))
    listen: Listener = lambda event: None
    notes: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    started: float = field(default_factory=time.monotonic)
    points: list[Point] = field(default_factory=list)
    rows: list[Point] = field(default_factory=list)
    floor: LowerBound = NO_BOUND
    reached: Fraction | None = None
    bounds: list[tuple[int, LowerBound]] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    answers: list[QueryRecord] = field(default_factory=list)
    complete: bool = False
    sweeping: bool | None = None
    last: int | None = None
    visited: int = 0
    flow_search: ScaleSearch | None = None
    proved: dict[tuple[int, int | None], LowerBound] = field(default_factory=dict)  # by id of the bound, and steps

    @staticmethod
    def of(frontier: Frontier, options: Options, points: Iterable[Point] = ()) -> Found:
        """Return what `frontier` says, with `points` in place of its own."""
        bounds = [(steps, bound) for steps, bound in frontier.bounds if steps is not None]
        floor = next((bound for steps, bound in frontier.bounds if steps is None), NO_BOUND)
        found = Found(
            frontier.network, frontier.collective, options, notes=frontier.notes, labels=frontier.labels, floor=floor,
            bounds=bounds, open=list(frontier.open), complete=frontier.complete,
            last=frontier.max_steps, sweeping=False,
        )  # fmt: skip
        for point in points:
            found.keep(point)
        return found

    @property
    def rates(self) -> list[Rate]:
        """S and R/C of the points."""
        return [(point.steps, point.rounds_per_chunk) for point in self.points]

    def best(self, steps: int | None = None) -> Fraction | None:
        """Return the least R/C of the points with up to so many steps (None: any number), None where there is none."""
        return min((p.rounds_per_chunk for p in self.points if steps is None or p.steps <= steps), default=None)

    # ------------------------------------------------------------ what comes in

    def take(self, item: Point | LowerBound) -> bool:
        """Replay and keep a point, or check and keep a bound for any number of steps. Return False for one left out.

        A point is left out, with a note, where its replay fails or it is of another problem; a bound where it is no
        greater. Raises VerificationError for a bound that its certificate does not prove.
        """
        if isinstance(item, LowerBound):
            if item.value <= self.floor.value:
                return False
            self.prove(item, None)
            self.floor = item
            self.tell("bound", f"no schedule takes fewer than {show(item.value)} rounds per chunk", None, item.value)
            return True
        schedule = item.schedule
        try:
            if (schedule.network, schedule.collective) != (self.network, self.collective):
                raise VerificationError("it is of another problem")
            if not self.is_row(item):
                replay.schedule(schedule)
        except VerificationError as error:
            self.note(refused(item.construction, error))
            return False
        point = Point.of(schedule, item.bound, item.construction, same_bits(schedule), item.seconds)
        asked = self.options.allows(point.steps, point.rounds, point.chunks)
        if not self.sweeping and not (asked and (point.same_bits or not self.options.same_bits)):
            return False
        point = self.keep(point)
        if self.reached is None or point.rounds_per_chunk < self.reached:
            self.reached = point.rounds_per_chunk
        if self.sweeping:
            if not self.is_row(point):  # which the same command finds again without a search
                self.log.append(point_record(point))
            self.answered(QueryRecord(point.chunks, point.steps, point.rounds, "schedule", point.construction))
        elif any(rate <= point.rounds_per_chunk for steps, rate in self.rates[:-1] if steps <= point.steps):
            return True
        numbers = f"(C={point.chunks}, R={point.rounds}), {point.status}, by {point.construction}"
        text = f"S={point.steps}: {show(point.rounds_per_chunk)} rounds per chunk {numbers}"
        self.tell("point", text, point.steps, point.bound.value, point)
        return True

    def keep(self, point: Point) -> Point:
        """Keep a replayed point with the greatest bound that is known and proved at its steps; return it so.

        Raises VerificationError where the bound that it brings is the greatest, but is not proved.
        """
        bounds = [point.bound, self.floor, *(bound for steps, bound in self.bounds if steps == point.steps)]
        bounds += [LowerBound(o.lower, o.certificate) for o in self.open if o.steps == point.steps and o.certificate]
        for bound in sorted(bounds, key=lambda bound: -bound.value):
            try:
                self.prove(bound, point.steps)
            except SynthError:
                if bound is point.bound:
                    raise
                continue
            break
        point = replace(point, bound=bound)
        rate = point.rounds_per_chunk
        self.points = [p for p in self.points if p.steps != point.steps or p.rounds_per_chunk <= rate] + [point]
        return point

    def prove(self, bound: LowerBound, steps: int | None) -> None:
        """Check once that the certificate of a bound proves it at `steps` (None: at any number of steps).

        Raises VerificationError.
        """
        if (id(bound), None) in self.proved or (id(bound), steps) in self.proved or bound is NO_BOUND:
            return
        value = cuts.check(bound.certificate, self.network, self.collective.document, steps=steps)
        if value != bound.value:
            raise VerificationError(f"the certificate proves {value}, {bound.value} is claimed", f"S={steps}")
        self.proved[id(bound), steps] = bound

    def is_row(self, point: Point) -> bool:
        """Return True where the schedule of a point is one of those that the sweep began with."""
        return any(point.schedule is row.schedule for row in self.rows)

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
            upper = self.best(interval.steps)
            if upper is not None and upper <= interval.lower and interval.certificate:
                self.bounds.append((interval.steps, LowerBound(interval.lower, interval.certificate)))
            else:
                still_open.append(replace(interval, upper=upper))
        self.open = still_open

    def note(self, text: str) -> None:
        """Add a line to the notes of the frontier, once."""
        if text not in self.notes:
            self.notes += (text,)

    def tell(
        self, kind: str, text: str, steps: int | None = None, bound: Fraction | None = None, point: Point | None = None
    ) -> None:
        """Send an `Event`, one line of progress, to the listener."""
        self.listen(Event(kind, text, steps, bound, point))

    # ------------------------------------------------------------ what goes out

    def frontier(self, interrupted: bool = False) -> Frontier:
        """Return the frontier of the points so far, without dominated ones.

        `interrupted`: before the end of the sweep. Then its rows count, too, and each number of steps that it has not
        visited, up to the most of a point, is open where no point meets the bound.
        """
        bounds: list[tuple[int | None, LowerBound]] = list(self.bounds)
        if interrupted:
            for row in self.rows:
                self.keep(row)
            if not any(steps == 0 for steps, _ in bounds):
                bounds.insert(0, (0, distance.steps(self.network, self.collective)))
            self.update_open()
            first = max(self.visited + 1, int(bounds[0][1].value))
            visited = [interval.steps for interval in self.open]
            most = max([first, *(point.steps for point in self.points)])
            if self.floor is NO_BOUND:
                most = 0  # nothing is known
            for steps in range(first, most + 1):
                upper = self.best(steps)
                if upper is not None and upper <= self.floor.value:
                    break
                if steps not in visited:
                    self.open.append(Open(steps, self.floor.value, upper, "interrupted", self.floor.certificate))
        points: list[Point] = []
        for point in sorted(self.points, key=lambda p: (p.steps, p.rounds_per_chunk)):
            if not points or point.rounds_per_chunk < points[-1].rounds_per_chunk:
                points.append(point)
        if self.floor is not NO_BOUND:
            bounds.insert(1 if bounds and bounds[0][0] == 0 else 0, (None, self.floor))
        best, notes = self.best(), self.notes
        if best is not None and best <= self.floor.value:
            notes = tuple(text for text in notes if not text.startswith(UNPROVEN_BOUND))
        last = self.last
        if last is not None and points:
            last = max(last, points[-1].steps)
        return Frontier(
            self.network, self.collective, tuple(points), tuple(self.open), self.complete, last,
            time.monotonic() - self.started, tuple(bounds),
            notes, self.labels, tuple(self.answers),
        )  # fmt: skip

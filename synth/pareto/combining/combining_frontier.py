"""The frontier of combining collectives that are no reversal of a copying one: allreduce, scan, custom ones.

For each S from the least possible up: the bound first (`synth.pareto.combining.bounds_over_steps`), then the search for
schedules (`synth.pareto.combining.search_at_steps`; for allreduce pipelined spanning trees and reduce-scatter +
allgather come before it,
`synth.pareto.combining.constructions`). A schedule that meets the bound is optimal for every C; otherwise the best one
found is reported with its interval. That no shape admits a schedule proves nothing; that no schedule for one chunk pays
less than so much does (`synth.bounds.single_chunk`, for collectives other than allreduce).

A time limit is shared out among the numbers of steps. What is left of it when all have had their share goes to those
that are open, the widest interval first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import cast

from synth import bounds
from synth.bounds import single_chunk
from synth.model.bitwise_equality import same_bits as ends_alike
from synth.model.collective import Collective
from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Budget
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto.combining import unvisited_steps
from synth.pareto.combining.attempts import Desk
from synth.pareto.combining.bounds_over_steps import Bounding
from synth.pareto.combining.candidates import Candidates
from synth.pareto.combining.constructions import LOADED, Built
from synth.pareto.combining.search_at_steps import AtSteps, Means
from synth.pareto.events import too_few_allowed

STEPS_BEYOND = 6  # how far past the least S a frontier that does not end is followed
# seconds of work (`Answer`) for an S whose bound is not met, of up to 8 ranks, when there is no limit on the whole
POINT_CPU = 12.0
ALIKE_CPU = 2.5  # the same with the same bits everywhere, where bounds are mostly not met
OTHER_CPU, AGAIN_CPU = (
    2.5,
    0.6,
)  # and for other collectives, where they hardly ever are; where a step more lowers no bound
LEAST_VISIT = 0.5  # wall seconds of a return to an open S
LATE_SHARE = 0.5  # of these for a bound that was late

Item = Point | Open | tuple[int | None, LowerBound] | str


def points(
    network: Network, collective: Collective, *, budget: Budget, max_steps: int | None = None, same_bits: bool = False,
    known: Mapping[int, Point] | None = None, progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Item]:  # fmt: skip
    """The frontier as it is found: points, open intervals, bounds ``(S, bound)`` where no point can improve, and notes.

    ``(None, bound)``, which holds for every S, comes first. What comes later replaces what was said of the same S
    before. With
    `same_bits` only schedules count after which all ranks hold the same bits (bounds are those of all schedules).
    `known` points, by S, are taken over, and tried to be improved where they do not meet the bound. `budget.seconds`
    limits the whole. Raises InfeasibleError, and NoBoundError where the time is over before there is any bound.
    """
    least = int(bounds.steps(network, collective).value)
    if least == 0:
        return
    bounding, built = Bounding(network, collective, budget), Built(network, collective, budget)
    try:
        floor = bounding.first()
        yield None, floor
        progress(f"no schedule takes fewer than {least} steps or {show(floor.value)} rounds per chunk")
        followed = least + max(STEPS_BEYOND, least + 1)
        end = max_steps or followed
        with Desk(1 if budget.deterministic else budget.jobs, budget.memory) as desk:
            search = Search(
                Means(budget, same_bits, progress, desk, Candidates(network, collective, budget.seed), built), bounding
            )
            needed = single_chunk.steps(network, collective)
            if needed.value > least:
                progress(f"no schedule takes fewer than {show(needed.value)} steps")
                yield 0, needed
                if max_steps is not None and needed.value > max_steps:
                    raise too_few_allowed(network, collective, needed, max_steps)
            for steps in range(int(needed.value), end + 1):
                bound = bounding.at(steps)
                if search.best is not None and bound.value >= search.best:
                    yield steps, bound
                else:
                    yield from search.at(steps, bound, (known or {}).get(steps))
                if search.best == floor.value:
                    break
                if search.out_of_time:
                    break
            yield from search.again()
            some = [
                p
                for p in (known or {}).values()
                if (p.same_bits or not same_bits) and (max_steps is None or p.steps <= max_steps)
            ]
            why = "time" if search.out_of_time else "gave-up"
            yield from unvisited_steps.items(
                some, steps, min(end, max(followed, steps + 1)), search.best, cast(LowerBound, bounding.floor), why
            )
        yield from bounding.notes
    finally:
        bounding.close()
        built.close()


@dataclass
class _Left:
    """What is known of an open S: the bound, its own point, and the search that may go on."""

    bound: LowerBound
    point: Point | None
    here: AtSteps


@dataclass
class Search:
    """The searches at every S. `best`: the least R/C so far; `found`: its schedule; `bound`: that of the last S;
    `left`: what is open."""

    means: Means
    bounding: Bounding
    best: Fraction | None = None
    bound: Fraction | None = None
    found: Schedule | None = None
    left: dict[int, _Left] = field(default_factory=dict)
    _reached: dict[int, Fraction] = field(default_factory=dict)
    _raises: int = 2

    @property
    def out_of_time(self) -> bool:
        """Whether the whole budget is spent."""
        return self.bounding.end is not None and time.monotonic() >= self.bounding.end

    def at(self, steps: int, bound: LowerBound, known: Point | None) -> Iterator[Item]:
        """What is found at `steps`: an optimal point, or the best improvement and an open interval. Ctrl-C goes on
        after what there is."""
        again, self.bound = bound.value == self.bound, bound.value
        point = known if known is not None and (known.same_bits or not self.means.same_bits) else None
        yield from self._at(steps, bound, point, self._limits(time.monotonic(), again), again)

    def _at(
        self, steps: int, bound: LowerBound, point: Point | None, limits: tuple[float, float], again: bool = False,
        here: AtSteps | None = None,
    ) -> Iterator[Item]:  # fmt: skip
        """As `at`, until `limits` (wall clock, work); `here` is a search that goes on, where the bound is still its
        own."""
        began, interrupted, spent = time.monotonic(), None, False
        while (upper := self._upper(steps, point)) is None or upper > bound.value:
            fresh = here is None or here.bound != bound.value
            if here is None or fresh:
                here = AtSteps(self.means, steps, bound.value, upper, *limits, again, start=self.found)
            try:
                if fresh:
                    here.run()
                else:
                    here.go_on(limits[0], upper)
            except KeyboardInterrupt as stop:
                interrupted = stop
            spent = spent or here.spent or here.brief
            if here.schedule is not None and (point is None or here.schedule.bandwidth < point.bandwidth):
                schedule = here.schedule
                point = Point(
                    schedule, bound, "best-known", here.construction, ends_alike(schedule), time.monotonic() - began
                )
            if interrupted is not None or (point is not None and point.bandwidth == bound.value):
                break
            floor, bound = bound.value, self._raised(steps, bound)
            if bound.value == floor:
                break
        yield from self._told(steps, bound, point)
        if interrupted is not None:
            raise interrupted
        upper = self._upper(steps)
        if here is not None and (upper is None or upper > bound.value):
            self.left[steps] = _Left(bound, point, here)
            ended = spent if self.bounding.end is None else self._unfinished(steps)
            yield Open(steps, bound.value, upper, "time" if ended else "gave-up", bound.certificate)

    def _told(self, steps: int, bound: LowerBound, point: Point | None) -> Iterator[Item]:
        """The point at `steps` where it improves on those of fewer steps, or has another bound now; the bound where
        nothing can improve."""
        before, upper = self.left.pop(steps, None), self._upper(steps)
        mine = point is not None and point.bandwidth == self._reached.get(steps)
        changed = before is not None and before.bound.value != bound.value
        if point is not None and (upper is None or point.bandwidth < upper or (mine and changed)):
            upper = self._reached[steps] = point.bandwidth
            if self.best is None or point.bandwidth < self.best:
                self.best, self.found = point.bandwidth, point.schedule
            yield replace(point, bound=bound, status="optimal" if point.bandwidth == bound.value else "best-known")
        elif upper is not None and upper <= bound.value:
            yield steps, bound

    def again(self) -> Iterator[Item]:
        """Returns to what is open while there is time: the widest interval first, each for as much of it as those after
        it."""
        while self.bounding.end is not None and not self.out_of_time:
            work = sorted((s for s in self.left if self._unfinished(s)), key=self._width, reverse=True)
            for place, steps in enumerate(work):
                left = self.bounding.end - time.monotonic()
                if left <= 0:
                    return
                if steps in self.left:
                    yield from self._return(steps, min(left, max(LEAST_VISIT, left / (len(work) - place))))
            if not work:
                return

    def _return(self, steps: int, seconds: float) -> Iterator[Item]:
        """More of so many seconds at an open S, and what that says of those with more steps."""
        until, left, floor = time.monotonic() + seconds, self.left[steps], self.bounding.floor
        self.means.progress(f"S={steps}: again, with the time that is left (at least {show(left.bound.value)})")
        bound = left.bound
        if self.bounding.late(steps):
            bound = max(bound, self.bounding.again(steps, seconds * LATE_SHARE), key=lambda b: b.value)
        if self.bounding.floor is not None and self.bounding.floor is not floor:
            yield None, self.bounding.floor
        yield from self._at(steps, bound, left.point, (until, math.inf), here=left.here)
        for after in [s for s in self.left if s > steps]:
            other, upper = self.left[after], self._upper(after)
            if upper is not None and upper <= other.bound.value:
                yield from self._told(after, other.bound, None)
            elif upper is not None:
                reason = "time" if self._unfinished(after) else "gave-up"
                yield Open(after, other.bound.value, upper, reason, other.bound.certificate)

    def _unfinished(self, steps: int) -> bool:
        """Whether more time would try more at an open S."""
        return not self.left[steps].here.exhausted or self.bounding.late(steps)

    def _width(self, steps: int) -> Fraction | float:
        upper = self._upper(steps)
        return math.inf if upper is None else upper / self.left[steps].bound.value

    def _upper(self, steps: int, point: Point | None = None) -> Fraction | None:
        """The least R/C that is known with up to so many steps."""
        known = [value for s, value in self._reached.items() if s <= steps]
        return min([*known, point.bandwidth] if point is not None else known, default=None)

    def _raised(self, steps: int, bound: LowerBound) -> LowerBound:
        """`bound`, or a higher one by what one chunk pays. With more steps that gets harder: not tried again after two
        failures."""
        if not self._raises or self.means.candidates.hub_steps is not None:
            return bound
        self.means.progress(f"S={steps}: what one chunk pays (at least {show(bound.value)})")
        found = self.bounding.raised(steps, bound.value)
        self._raises -= found is None and not self.bounding.late(steps)
        return found or bound

    def _limits(self, began: float, again: bool) -> tuple[float, float]:
        """When to stop at this S: the wall clock, and the work of all tries together."""
        if self.means.budget.seconds is None:
            cpu = POINT_CPU * max(1.0, self.means.built.network.ranks / 8) ** 1.5
            if self.means.candidates.hub_steps is None:
                cpu = AGAIN_CPU if again else OTHER_CPU
            elif self.means.same_bits:
                cpu = ALIKE_CPU
            return began + LOADED * cpu, self.means.desk.work + cpu
        left = self.means.budget.seconds - (began - self.bounding.began)
        share = max(left / 4, min(POINT_CPU, self.means.budget.seconds / 4))  # the steps to come have theirs too
        return began + min(left, share), math.inf

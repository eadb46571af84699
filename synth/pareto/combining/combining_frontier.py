"""The frontier of combining collectives that are no reversal of a copying one: allreduce, scan, custom ones.

For each S from the least possible up: first the bound (`synth.pareto.combining.bounds_over_steps`), then the search for
schedules (`synth.pareto.combining.search_at_steps`). For allreduce, pipelined spanning trees and reduce-scatter +
allgather (`synth.pareto.combining.constructions`) come before the search. A schedule that meets the bound is optimal
for every C. Otherwise the best schedule is reported with its interval. That no symmetric schedule exists proves
nothing. That no schedule for a single chunk is cheap enough does (`synth.bounds.single_chunk`, for collectives other
than allreduce).

A time limit is shared out among the numbers of steps. The time that is left after all of them goes to the open ones,
the widest interval first.
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
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto.combining import unvisited_steps
from synth.pareto.combining.attempts import AttemptPool
from synth.pareto.combining.bounds_over_steps import StepBounds
from synth.pareto.combining.candidates import Candidates
from synth.pareto.combining.constructions import SETTINGS as CONSTRUCTION_SETTINGS
from synth.pareto.combining.constructions import Constructions
from synth.pareto.combining.search_at_steps import SearchAtSteps, SearchContext
from synth.pareto.events import too_few_allowed
from synth.solvers.processes.deadline import Budget, Deadline


@dataclass(frozen=True)
class CombiningFrontierSettings:
    """Efforts for the numbers of steps of a combining collective.

    Attributes:
        steps_beyond: Number of steps past the least S up to which an infinite frontier is followed, at least.
        point_cpu: Seconds of work (`Answer.work`) for an S whose bound is not met, with up to 8 ranks and no
            time limit.
        alike_cpu: The same with the same bits on all ranks, where bounds are rarely met.
        other_cpu: The same for collectives without a hub encoding, where bounds are hardly ever met.
        again_cpu: The same for those at an S whose bound is that of one step less.
        least_visit: Wall seconds, at least, of a return to an open S.
        late_share: Share of these seconds for a bound that was late.
    """

    steps_beyond: int = 6
    point_cpu: float = 12.0
    alike_cpu: float = 2.5
    other_cpu: float = 1.2
    again_cpu: float = 0.6
    least_visit: float = 0.5
    late_share: float = 0.5


SETTINGS = CombiningFrontierSettings()

Item = Point | Open | tuple[int | None, LowerBound] | str


def points(
    network: Network, collective: Collective, *, budget: Budget, max_steps: int | None = None, same_bits: bool = False,
    known: Mapping[int, Point] | None = None, first_bound: LowerBound | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Item]:  # fmt: skip
    """Yield points, open intervals, bounds ``(S, bound)`` of S at which no point can improve, and notes.

    ``(None, bound)``, which holds for every S, comes first. A later item replaces the earlier ones of the same S. With
    `same_bits` only schedules count after which all ranks hold the same bits (bounds are those of all schedules).
    `known` points, by S, are taken over, and the search tries to improve those that do not meet the bound.
    `first_bound`: a bound for any number of steps, where another method has one. Everything ends at the deadline of
    `budget`. Raises InfeasibleError.
    """
    least = int(bounds.steps(network, collective).value)
    if least == 0:
        return
    seconds = budget.deadline.remaining()
    step_bounds = StepBounds(network, collective, budget, floor=first_bound)
    constructions = Constructions(network, collective, budget)
    try:
        floor = step_bounds.first()
        yield None, floor
        progress(f"no schedule takes fewer than {least} steps or {show(floor.value)} rounds per chunk")
        followed = least + max(SETTINGS.steps_beyond, least + 1)
        end = max_steps or followed
        pool = AttemptPool(1 if budget.deterministic else budget.jobs, budget.memory)
        candidates = Candidates(network, collective)
        context = SearchContext(budget, same_bits, progress, pool, candidates, constructions)
        searches = StepSearches(context, step_bounds, seconds)
        needed = single_chunk.steps(network, collective)
        if needed.value > least:
            progress(f"no schedule takes fewer than {show(needed.value)} steps")
            yield 0, needed
            if max_steps is not None and needed.value > max_steps:
                raise too_few_allowed(network, collective, needed, max_steps)
        for steps in range(int(needed.value), end + 1):
            bound = step_bounds.at(steps)
            if searches.best is not None and bound.value >= searches.best:
                yield steps, bound
            else:
                yield from searches.at(steps, bound, (known or {}).get(steps))
            if searches.best == floor.value or searches.out_of_time:
                break
        yield from searches.again()
        allowed = [
            p
            for p in (known or {}).values()
            if (p.same_bits or not same_bits) and (max_steps is None or p.steps <= max_steps)
        ]
        why = "time" if searches.out_of_time else "gave-up"
        yield from unvisited_steps.items(
            allowed,
            steps,
            min(end, max(followed, steps + 1)),
            searches.best,
            cast(LowerBound, step_bounds.floor),
            why,
        )
        yield from step_bounds.notes
    finally:
        step_bounds.close()
        constructions.close()


@dataclass
class _OpenStep:
    """An open S: its bound, its point, and its search, which may continue."""

    bound: LowerBound
    point: Point | None
    search: SearchAtSteps


@dataclass
class StepSearches:
    """The searches at every S.

    `seconds`: wall seconds of everything. `best`: the least R/C so far, of `schedule`. `bound`: the bound of the last
    S. `open_steps`: the open S.
    """

    context: SearchContext
    step_bounds: StepBounds
    seconds: float = math.inf
    best: Fraction | None = None
    bound: Fraction | None = None
    schedule: Schedule | None = None
    open_steps: dict[int, _OpenStep] = field(default_factory=dict)
    _reached: dict[int, Fraction] = field(default_factory=dict)  # R/C of the point at each S
    _raises: int = 2  # failures of the single-chunk bound after which it is not tried again

    @property
    def out_of_time(self) -> bool:
        """True when the time limit is over."""
        return self.step_bounds.deadline.over

    def at(self, steps: int, bound: LowerBound, known: Point | None) -> Iterator[Item]:
        """Yield an optimal point at `steps`, or the best improvement and an open interval.

        KeyboardInterrupt is raised again after these.
        """
        same_bound, self.bound = bound.value == self.bound, bound.value
        point = known if known is not None and (known.same_bits or not self.context.same_bits) else None
        yield from self._at(steps, bound, point, self._limits(same_bound), same_bound)

    def _at(
        self, steps: int, bound: LowerBound, point: Point | None, limits: tuple[Deadline, float],
        same_bound: bool = False, search: SearchAtSteps | None = None,
    ) -> Iterator[Item]:  # fmt: skip
        """As `at`, until `limits` (deadline, work). `search` continues where the bound is still the one that it had.

        Where the search does not meet the bound, the bound is raised if possible and the search repeated.
        """
        began, interrupted, spent = time.monotonic(), None, False
        while (upper := self._upper(steps, point)) is None or upper > bound.value:
            fresh = search is None or search.bound != bound.value
            if search is None or fresh:
                search = SearchAtSteps(
                    self.context, steps, bound.value, upper, *limits, same_bound, start=self.schedule
                )
            try:
                if fresh:
                    search.run()
                else:
                    search.resume(limits[0], upper)
            except KeyboardInterrupt as stop:
                interrupted = stop
            spent = spent or search.spent or search.brief
            if search.schedule is not None and (
                point is None or search.schedule.rounds_per_chunk < point.rounds_per_chunk
            ):
                schedule, seconds = search.schedule, time.monotonic() - began
                point = Point.of(schedule, bound, "best-known", search.construction, ends_alike(schedule), seconds)
            if interrupted is not None or (point is not None and point.rounds_per_chunk == bound.value):
                break
            value, bound = bound.value, self._raised(steps, bound)
            if bound.value == value:
                break
        yield from self._items(steps, bound, point)
        if interrupted is not None:
            raise interrupted
        upper = self._upper(steps)
        if search is not None and (upper is None or upper > bound.value):
            self.open_steps[steps] = _OpenStep(bound, point, search)
            ended = self._unfinished(steps) if self.step_bounds.deadline.limited else spent
            yield Open(steps, bound.value, upper, "time" if ended else "gave-up", bound.certificate)

    def _items(self, steps: int, bound: LowerBound, point: Point | None) -> Iterator[Item]:
        """Yield the result at `steps`: a point if it improves on fewer steps or if its bound has changed.

        Yield the pair ``(steps, bound)`` instead if the bound shows that no point at `steps` can improve.
        """
        before, upper = self.open_steps.pop(steps, None), self._upper(steps)
        mine = point is not None and point.rounds_per_chunk == self._reached.get(steps)
        changed = before is not None and before.bound.value != bound.value
        if point is not None and (upper is None or point.rounds_per_chunk < upper or (mine and changed)):
            upper = self._reached[steps] = point.rounds_per_chunk
            if self.best is None or point.rounds_per_chunk < self.best:
                self.best, self.schedule = point.rounds_per_chunk, point.schedule
            yield replace(
                point, bound=bound, status="optimal" if point.rounds_per_chunk == bound.value else "best-known"
            )
        elif upper is not None and upper <= bound.value:
            yield steps, bound

    def again(self) -> Iterator[Item]:
        """Return to the open S while there is time, the widest interval first, with equal shares of the time."""
        while self.step_bounds.deadline.limited and not self.out_of_time:
            work = sorted((s for s in self.open_steps if self._unfinished(s)), key=self._width, reverse=True)
            for place, steps in enumerate(work):
                deadline = self.step_bounds.deadline
                if deadline.over:
                    return
                if steps in self.open_steps:
                    seconds = max(SETTINGS.least_visit, deadline.remaining() / (len(work) - place))
                    yield from self._return(steps, deadline.within(seconds))
            if not work:
                return

    def _return(self, steps: int, deadline: Deadline) -> Iterator[Item]:
        """Continue at an open S until `deadline`; yield its items and those of larger S that change."""
        visited, floor = self.open_steps[steps], self.step_bounds.floor
        self.context.progress(f"S={steps}: again, with the time that is left (at least {show(visited.bound.value)})")
        bound = visited.bound
        if self.step_bounds.may_rise(steps):
            higher = self.step_bounds.with_more_time(steps, deadline.share(SETTINGS.late_share))
            bound = max(bound, higher, key=lambda b: b.value)
        if self.step_bounds.floor is not None and self.step_bounds.floor is not floor:
            yield None, self.step_bounds.floor
        yield from self._at(steps, bound, visited.point, (deadline, math.inf), search=visited.search)
        for after in [s for s in self.open_steps if s > steps]:
            other, upper = self.open_steps[after], self._upper(after)
            if upper is not None and upper <= other.bound.value:
                yield from self._items(after, other.bound, None)
            elif upper is not None:
                reason = "time" if self._unfinished(after) else "gave-up"
                yield Open(after, other.bound.value, upper, reason, other.bound.certificate)

    def _unfinished(self, steps: int) -> bool:
        """Return True where more time would allow further attempts, or a higher bound, at an open S."""
        return not self.open_steps[steps].search.exhausted or self.step_bounds.may_rise(steps)

    def _width(self, steps: int) -> Fraction | float:
        """Return the ratio of an open interval's ends."""
        upper = self._upper(steps)
        return math.inf if upper is None else upper / self.open_steps[steps].bound.value

    def _upper(self, steps: int, point: Point | None = None) -> Fraction | None:
        """Return the least known R/C with up to `steps` steps, `point` included; None where none is known."""
        known = [value for s, value in self._reached.items() if s <= steps]
        return min([*known, point.rounds_per_chunk] if point is not None else known, default=None)

    def _raised(self, steps: int, bound: LowerBound) -> LowerBound:
        """Return `bound`, or a higher single-chunk bound.

        That gets harder with more steps, so it is not tried again after two failures.
        """
        if not self._raises or self.context.candidates.hub_steps is not None:
            return bound
        self.context.progress(f"S={steps}: what one chunk pays (at least {show(bound.value)})")
        higher = self.step_bounds.single_chunk_bound(steps, bound.value)
        self._raises -= higher is None and not self.step_bounds.may_rise(steps)
        return higher or bound

    def _limits(self, same_bound: bool) -> tuple[Deadline, float]:
        """Return the ends of the search at one S: its deadline, and that of the pool's work.

        `same_bound`: one step less had the same bound.
        """
        deadline = self.step_bounds.deadline
        if not deadline.limited:
            cpu = SETTINGS.point_cpu * max(1.0, self.context.constructions.network.ranks / 8) ** 1.5
            if self.context.candidates.hub_steps is None:
                cpu = SETTINGS.again_cpu if same_bound else SETTINGS.other_cpu
            elif self.context.same_bits:
                cpu = SETTINGS.alike_cpu
            return Deadline.after(CONSTRUCTION_SETTINGS.loaded * cpu), self.context.pool.work + cpu
        # The S to come have their shares, too.
        seconds = max(deadline.remaining() / 4, min(SETTINGS.point_cpu, self.seconds / 4))
        return deadline.within(seconds), math.inf

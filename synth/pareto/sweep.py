"""The guided sweep: bounds first, then only queries whose answer closes a point for every chunk count.

For each S from the least possible up: p/q = bound(S). If the bound is no better than the best R/C so far, S is skipped,
with the bound as proof. Otherwise schedules with C = q·m and R = p·m are searched for m = 1, 2, ... One of them closes
the point. Where there is none, the best schedule is reported with its interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from math import inf

from synth.checker.documents import exact_frontier
from synth.encodings.bounds import too_few_steps
from synth.model.frontier import Frontier, LowerBound, Open
from synth.model.outcome import Unknown
from synth.model.rational import show
from synth.pareto import close_step_count, notes
from synth.pareto.combining.close_combining import DEFAULT_SECONDS, CombiningSearch, has_no_end
from synth.pareto.events import SweepInterrupted, too_few_allowed
from synth.pareto.portfolio.members import Member
from synth.pareto.sweep_state import SweepState
from synth.solvers import pool


@dataclass(frozen=True)
class SweepSettings:
    """Ends of a guided sweep.

    Attributes:
        steps_beyond: Number of steps past the least S up to which an infinite frontier is followed.
        floor_share: Share of a time limit for the search for a higher bound for any number of steps than the first one.
        steps_share: Share of the remaining time for the bound at one S, where there is a time limit.
        idle: Share of the time for a return to an open S. A search that ends sooner has nothing left to try.
        little: An infinite frontier ends where more steps cannot lower R/C by more than this share.
    """

    steps_beyond: int = 6
    floor_share: float = 0.25
    steps_share: float = 0.5
    idle: float = 0.1
    little: Fraction = Fraction(1, 40)


SETTINGS = SweepSettings()
ENDED = {"time": "the time limit ended its search", "memory": "the memory allowed ended its search"}


@dataclass
class Sweep(SweepState):
    """One run of the guided sweep. `run()` returns the frontier."""

    @property
    def direct(self) -> bool:
        """True for a collective that combines and is no reversal of a copying one."""
        return self.collective.combining and not self.collective.reversible

    @cached_property
    def _close(self) -> Callable[[int, LowerBound], None]:
        """The search at one S, which enters its result."""
        return CombiningSearch(self).close if self.direct else partial(close_step_count.close, self)

    def run(self) -> Frontier:
        """Sweep to the end or the time limit; return the frontier.

        Raises InfeasibleError where no schedule exists, and SweepInterrupted with the frontier so far on Ctrl-C.
        """
        try:
            if not self.direct:
                pool.warm(Member("quotient", "cadical", 0).imports)  # while the bounds are computed
            elif has_no_end(self.network, self.collective) and not self.options.deterministic:
                self.default_seconds = DEFAULT_SECONDS
            first = self._least_steps()
            if first == 0:
                self.complete = True
            else:
                self._sweep(first)
        except KeyboardInterrupt:
            self.log.close(finished=False)
            raise SweepInterrupted(self.frontier(), self.log.path) from None
        finally:
            pool.stop()
        self._open_unproved()
        self.log.close(finished=not self.out_of_time)
        self.tell("done", "complete" if self.complete else "done")
        return self.frontier()

    def _open_unproved(self) -> None:
        """Leave an interval open at each S where a complete frontier would claim more than its bounds prove.

        The time limit may have come before such a bound.
        """
        points = [(point.steps, point.rounds_per_chunk) for point in self.frontier().points]
        if not self.complete or not points:
            return
        bounds_here = [(steps, bound.value) for steps, bound in self.bounds]
        for _, end in exact_frontier.unproved_intervals(
            points, bounds_here, points[-1][0] if self.last is None else self.last
        ):
            lower = max((value for steps, value in bounds_here if steps is None or steps >= end), default=Fraction(0))
            upper = min(rounds_per_chunk for steps, rounds_per_chunk in points if steps <= end)
            self.add_open(Open(end, lower, upper, "time"))
            self.complete = False

    def _least_steps(self) -> int:
        """Return the least S and enter its bound. Raises InfeasibleError where the options allow fewer steps."""
        least = too_few_steps.steps(self.network, self.collective)
        self.bounds.append((0, least))
        maximum = self.options.max_steps
        if maximum is not None and maximum < least.value:
            raise too_few_allowed(self.network, self.collective, least, maximum)
        return int(least.value)

    def _sweep(self, first: int) -> None:
        """Enter bounds, points and intervals for each S from `first` up."""
        floor = self._static()
        self.bounds.append((None, floor))
        least = f"{first} step{'s' * (first != 1)} or {show(floor.value)} rounds per chunk"
        self.tell("bound", f"no schedule takes fewer than {least}", None, floor.value)
        beyond = max(SETTINGS.steps_beyond, first + 1) if self.direct else SETTINGS.steps_beyond
        end = self.options.max_steps or first + beyond
        next_bound = None
        for steps in range(first, end + 1):
            bound = next_bound or self._bound(steps, floor)
            next_bound = None
            self.tell("bound", f"S={steps}: at least {show(bound.value)} rounds per chunk", steps, bound.value)
            if self.best is not None and bound.value >= self.best:
                self.bounds.append((steps, bound))
            else:
                self._close(steps, bound)
            if self.best == floor.value:
                break
            if (
                not self.direct
                and self.options.max_steps is None
                and bound.value <= floor.value * (1 + SETTINGS.little)
            ):
                next_bound = self._bound(steps + 1, floor)
                if next_bound.value > floor.value:
                    self.notes += (notes.followed(self.best, steps, floor.value),)
                    end = steps
                    break
            if self.out_of_time and steps < end:
                self._keep_seeds(range(steps + 1, steps + 2), floor)
                self.add_open(Open(steps + 1, floor.value, self.best, "time", floor.certificate))
                self._keep_seeds(range(steps + 2, end + 1), floor)
                break
        self._return_to_open()
        if not self.direct and steps == end and bound.value > floor.value and not self.out_of_time:
            self.notes += (notes.unattained(self, steps, bound.value, floor),)
        if self.open and self.options.max_steps is None and self.best != floor.value:
            longest = max((len(schedule.steps) for _, schedule in self.seeds), default=end)
            self._keep_seeds(range(end + 1, longest + 1), floor)
            end = max([end, *(point.steps for point in self.points)])
        self.complete = not self.open and self.best is not None
        self.notes = notes.drop_unproven_bound(self.notes, self.best, floor.value)
        self.last = None if self.best == floor.value else end

    def _return_to_open(self) -> None:
        """Return to open intervals while a time limit leaves time: the widest first, with longer slices each time."""
        exhausted = set[int]()
        while self.deadline.limited and not self.out_of_time:
            work = [o for o in self.open if o.steps not in exhausted]
            if not work:
                break
            began, self.share = time.monotonic(), self.deadline.remaining() / len(work)
            widest = max(work, key=lambda o: inf if o.upper is None else o.upper / o.lower)
            self.upto, self.longer = widest.steps, 4 * self.longer
            self.tell("query", f"S={widest.steps}: again, with the time that is left", widest.steps, widest.lower)
            self.open.remove(widest)
            try:
                self._close(widest.steps, LowerBound(widest.lower, widest.certificate))
            except KeyboardInterrupt:
                self.open.append(widest)
                raise
            if time.monotonic() - began < self.share * SETTINGS.idle:  # more time would allow no further attempt
                exhausted.add(widest.steps)
            self.update_open()
        self.upto = self.share = None
        self.open.sort(key=lambda o: o.steps)
        if not self.out_of_time:
            for place, interval in enumerate(self.open):
                if interval.reason == "time":
                    self.open[place] = replace(interval, reason="gave-up")

    def _static(self) -> LowerBound:
        """Return the bound for any number of steps: the quick one where the search for a higher one cannot gain much,
        or where its time or memory is over."""
        quick = self.quick_bound
        if self.reached is not None and self.reached <= quick.value * (1 + SETTINGS.little):
            return quick
        bound = self.prefetched.bound(None, SETTINGS.floor_share)
        if isinstance(bound, Unknown):
            return self._noted(bound, quick)
        return bound if bound.value >= quick.value else quick

    def _noted(self, why: Unknown, bound: LowerBound) -> LowerBound:
        """Return `bound`, and note that there may be a higher one and why its search ended."""
        self.notes += (notes.unproven_bound(ENDED.get(why.reason, "its search ended early")),)
        return bound

    def _bound(self, steps: int, floor: LowerBound) -> LowerBound:
        """Return the bound at `steps`, or `floor` where a seed attains that, and where its time or memory is over."""
        if any(len(s.steps) <= steps and s.rounds_per_chunk <= floor.value for _, s in self.seeds):
            return floor
        bound = self.prefetched.bound(steps, SETTINGS.steps_share)
        return floor if isinstance(bound, Unknown) else max(bound, floor, key=lambda b: b.value)

    def _keep_seeds(self, steps: range, floor: LowerBound) -> None:
        """Enter the seeds that improve on the best R/C, where no time is left to search."""
        for s in steps:
            seed = close_step_count.seed(self, s, floor)
            if seed is not None and (self.best is None or seed.rounds_per_chunk < self.best):
                self.add_point(seed)

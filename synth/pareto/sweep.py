"""Exact synthesis as an engine: bounds first, then only queries whose answer closes a point for every chunk count.

For each S from the least possible up: p/q = bound(S). If the bound is no better than the best R/C so far, S is skipped,
with the bound as proof. Otherwise schedules with C = q·m and R = p·m are searched for m = 1, 2, ... One of them closes
the point. Where there is none, the best schedule is reported with its interval.

The points of the engines before it are its rows: each is entered at its number of steps, unless a shorter schedule of
fewer rounds is found there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import inf

from synth.checker.documents import exact_frontier
from synth.encodings.bounds import too_few_steps
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Unknown
from synth.model.rational import show
from synth.pareto import close_step_count
from synth.pareto.events import too_few_allowed
from synth.pareto.found import UNPROVEN_BOUND
from synth.pareto.portfolio.members import Member
from synth.pareto.step_search import StepSearch
from synth.solvers import pool
from synth.solvers.deadline import Deadline

# Number of steps past the least S up to which an infinite frontier is followed.
STEPS_BEYOND = 6
# Share of a time limit for the search for a higher bound for any number of steps than the first one, and share of the
# remaining time for the bound at one S.
FLOOR_SHARE, STEPS_SHARE = 0.25, 0.5
# A return to an open S that ends within this share of its time has nothing left to try.
IDLE = 0.1
# An infinite frontier ends where more steps cannot lower R/C by more than this share.
LITTLE = Fraction(1, 40)
# Wall seconds without a time limit where neither bounds nor searches end by themselves.
DEFAULT_SECONDS = 25.0
ENDED = {"time": "the time limit ended its search", "memory": "the memory allowed ended its search"}


class Sweep(StepSearch):
    """One run of the guided sweep. Intervals, bounds at a number of steps and answers of solvers go into `found`."""

    def run(self) -> Iterator[Point | LowerBound]:
        """Sweep to the end or the time limit. Raises InfeasibleError where no schedule exists."""
        found = self.found
        try:
            if not self.direct:
                pool.warm(Member("quotient", "cadical", 0).imports)  # while the bounds are computed
            elif not self.options.deterministic and not self.deadline.limited:
                from synth.pareto.combining.close_combining import has_no_end

                if has_no_end(self.network, self.collective):
                    self.deadline = Deadline(found.started + DEFAULT_SECONDS)
            least = too_few_steps.steps(self.network, self.collective)
            found.bounds.insert(0, (0, least))
            maximum = self.options.max_steps
            if maximum is not None and maximum < least.value:
                raise too_few_allowed(self.network, self.collective, least, maximum)
            if least.value == 0:
                found.complete = True
            else:
                yield from self._sweep(int(least.value))
        finally:
            pool.stop()
        self._open_unproved()
        found.log.close(finished=not self.out_of_time)
        found.sweeping = False
        found.tell("done", "complete" if found.complete else "done")

    def _open_unproved(self) -> None:
        """Leave an interval open at each S where a complete frontier would claim more than its bounds prove.

        The time limit may have come before such a bound.
        """
        frontier = self.found.frontier()
        points = [(point.steps, point.rounds_per_chunk) for point in frontier.points]
        if not self.found.complete or not points:
            return
        bounds_here = [(steps, bound.value) for steps, bound in frontier.bounds]
        for _, end in exact_frontier.unproved_intervals(
            points, bounds_here, points[-1][0] if self.found.last is None else self.found.last
        ):
            lower = max((value for steps, value in bounds_here if steps is None or steps >= end), default=Fraction(0))
            self.found.add_open(Open(end, lower, self.found.best(end), "time"))
            self.found.complete = False

    def _sweep(self, first: int) -> Iterator[Point | LowerBound]:
        """Yield the points and the bound for any number of steps; enter what is known of each S from `first` up."""
        # the bound for any number of steps
        found, options = self.found, self.options
        floor = self._static()
        yield floor
        least = f"{first} step{'s' * (first != 1)} or {show(floor.value)} rounds per chunk"
        found.tell("bound", f"no schedule takes fewer than {least}", None, floor.value)

        # one number of steps after the other, until a point meets that bound or more steps gain too little
        beyond = max(STEPS_BEYOND, first + 1) if self.direct else STEPS_BEYOND
        end = options.max_steps or first + beyond
        next_bound = None
        for steps in range(first, end + 1):
            bound = next_bound or self._bound(steps, floor)
            next_bound, best = None, found.best(steps)
            found.tell("bound", f"S={steps}: at least {show(bound.value)} rounds per chunk", steps, bound.value)
            if best is not None and bound.value >= best:
                found.bounds.append((steps, bound))
            else:
                yield from self.close(steps, bound)
            found.visited, best = steps, found.best(steps)
            if best == floor.value:
                break
            if not self.direct and options.max_steps is None and bound.value <= floor.value * (1 + LITTLE):
                next_bound = self._bound(steps + 1, floor)
                if next_bound.value > floor.value:
                    less = "" if best is None else f"{float(1 - floor.value / best):.1%}"
                    more = f": more can lower rounds/chunk by {less} at most, as the bounds say" if less else ""
                    found.note(f"followed to {steps} steps{more}")
                    end = steps
                    break
            if self.out_of_time and steps < end:
                yield from self._remaining_rows(range(steps + 1, steps + 2), floor)
                found.add_open(Open(steps + 1, floor.value, found.best(), "time", floor.certificate))
                yield from self._remaining_rows(range(steps + 2, end + 1), floor)
                break
        yield from self.again()

        # why it ends there, and what is known of more steps
        if not self.direct and steps == end and bound.value > floor.value and not self.out_of_time:
            _, copied = self.forwards()
            limit = f"with any number of steps at least {show(floor.value)} rounds per chunk are needed"
            if all(len(post) == self.network.ranks for post in copied.post):
                # the bound for every S is a packing of spanning trees (Edmonds, 1973)
                limit += ", and pipelined spanning trees come as near to that as one likes"
            found.note(f"{limit}; up to {steps} steps it is not attained (at least {show(bound.value)})")
        if found.open and options.max_steps is None and found.best() != floor.value:
            longest = max((row.steps for row in found.rows), default=end)
            yield from self._remaining_rows(range(end + 1, longest + 1), floor)
            end = max([end, *(point.steps for point in found.points)])
        found.complete = not found.open and bool(found.points)
        found.last = None if found.best() == floor.value else end

    def close(self, steps: int, bound: LowerBound) -> Iterator[Point]:
        """Search for a schedule of `steps` steps that meets `bound`; yield points, or leave an interval open."""
        if self.direct:
            yield from self._combining.close(steps, bound)
        else:
            yield from close_step_count.close(self, steps, bound)

    @cached_property
    def _combining(self):
        from synth.pareto.combining.close_combining import CombiningSearch

        return CombiningSearch(self)

    def again(self) -> Iterator[Point]:
        """Return to open intervals while a time limit leaves time: the widest first, with longer slices each time."""
        found, exhausted = self.found, set[int]()
        while self.deadline.limited and not self.out_of_time:
            work = [o for o in found.open if o.steps not in exhausted]
            if not work:
                break
            began, self.share = time.monotonic(), self.deadline.remaining() / len(work)
            widest = max(work, key=lambda o: inf if o.upper is None else o.upper / o.lower)
            self.longer *= 4
            found.tell("query", f"S={widest.steps}: again, with the time that is left", widest.steps, widest.lower)
            found.open.remove(widest)
            try:
                yield from self.close(widest.steps, LowerBound(widest.lower, widest.certificate))
            except (KeyboardInterrupt, GeneratorExit):
                found.open.append(widest)
                raise
            if time.monotonic() - began < self.share * IDLE:  # more time would allow no further attempt
                exhausted.add(widest.steps)
            found.update_open()
        self.share = None
        found.open.sort(key=lambda o: o.steps)
        if not self.out_of_time:
            for place, interval in enumerate(found.open):
                if interval.reason == "time":
                    found.open[place] = replace(interval, reason="gave-up")

    def _remaining_rows(self, steps: range, floor: LowerBound) -> Iterator[Point]:
        """Yield the rows that improve on the best R/C, where no time is left to search."""
        for s in steps:
            row, best = close_step_count.row_at(self.found, s), self.found.best()
            if row is not None and (best is None or row.rounds_per_chunk < best):
                yield replace(row, bound=floor)

    # ------------------------------------------------------------ bounds

    def _static(self) -> LowerBound:
        """Return the bound for any number of steps: the quick one where the search for a higher one cannot gain much,
        or where its time or memory is over."""
        found = self.found
        quick = found.floor if found.floor.certificate else single_cut_bound(self.network, self.collective)
        if found.reached is not None and found.reached <= quick.value * (1 + LITTLE):
            return quick
        bound = self.prefetched.bound(None, FLOOR_SHARE)
        if isinstance(bound, Unknown):
            found.note(UNPROVEN_BOUND + ENDED.get(bound.reason, "its search ended early"))
            return quick
        return bound if bound.value >= quick.value else quick

    def _bound(self, steps: int, floor: LowerBound) -> LowerBound:
        """Return the bound at `steps`, or `floor` where a row attains that, and where its time or memory is over."""
        if any(row.steps <= steps and row.rounds_per_chunk <= floor.value for row in self.found.rows):
            return floor
        bound = self.prefetched.bound(steps, STEPS_SHARE)
        return floor if isinstance(bound, Unknown) else max(bound, floor, key=lambda b: b.value)

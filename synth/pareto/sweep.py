"""The guided sweep: bounds first, then only the questions whose answer closes a point for every chunk count.

For each S from the least possible up: p/q = bound(S). If it does not improve on what is already reached, S is
skipped, with the bound as proof. Otherwise C = q·m and R = p·m are asked for m = 1, 2, ...; a schedule closes the
point. Where none is found the tree bound may be higher; else the best schedule found is reported with its interval.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf

from synth import bounds
from synth.checker.documents import exact_frontier
from synth.model.frontier import Frontier, LowerBound, Open
from synth.model.outcome import Unknown
from synth.model.rational import show
from synth.pareto import close_step_count, notes, prefetched_bounds
from synth.pareto.combining import sweep
from synth.pareto.events import NoBoundError, SweepInterrupted, too_few_allowed
from synth.pareto.portfolio.members import Member
from synth.pareto.sweep_state import SweepState
from synth.solvers.processes import jobs

STEPS_BEYOND = 6  # how far past the least S an infinite frontier is followed
FEW_RANKS = 16  # up to here a quick bound takes no less time than the best
IDLE = 0.1  # of the time for a return to an open S: what ends sooner has nothing left to try
GRACE = 1.0  # seconds past the time limit that are waited for a quick bound where there is no other
ENDED = {"time": "the time limit ended its search", "memory": "the memory allowed ended its search"}
LITTLE = Fraction(1, 40)  # an infinite frontier ends where more steps cannot gain more than this share


@dataclass
class Sweep(SweepState):
    """One run of the guided sweep; `run()` returns the frontier. State: what was found so far."""

    def run(self) -> Frontier:
        """Sweep to the end, the budget or Ctrl-C (SweepInterrupted). Raises InfeasibleError when proved so."""
        try:
            direct = self.collective.combining and not self.collective.reversible
            if not direct:
                jobs.warm(Member("quotient", "cadical", 0).imports)  # while the bounds are computed
            first = self._least_steps()
            if first == 0:
                self.complete = True
            elif direct:
                sweep.sweep(self)
            else:
                self._sweep(first)
        except KeyboardInterrupt:
            self.log.close(finished=False)
            raise SweepInterrupted(self.frontier(), self.log.path) from None
        finally:
            jobs.stop()
        self._own_up()
        self.log.close(finished=not self.out_of_time)
        self.tell("done", "complete" if self.complete else "done")
        return self.frontier()

    def _own_up(self) -> None:
        """Leaves open what a complete frontier would claim without a bound: the time limit may have come before that
        bound."""
        points = [(point.steps, point.bandwidth) for point in self.frontier().points]
        if not self.complete or not points:
            return
        bounds_here = [(steps, bound.value) for steps, bound in self.bounds]
        for _, end in exact_frontier.unproved(points, bounds_here, points[-1][0] if self.last is None else self.last):
            lower = max((value for steps, value in bounds_here if steps is None or steps >= end), default=Fraction(0))
            upper = min(bandwidth for steps, bandwidth in points if steps <= end)
            self.leave(Open(end, lower, upper, "time"))
            self.complete = False

    def _least_steps(self) -> int:
        """The least S, with its bound noted. Raises InfeasibleError where fewer are allowed."""
        least = bounds.steps(self.network, self.collective)
        self.bounds.append((0, least))
        most = self.options.max_steps
        if most is not None and most < least.value:
            raise too_few_allowed(self.network, self.collective, least, most)
        return int(least.value)

    def _sweep(self, first: int) -> None:
        floor = self._static()
        self.bounds.append((None, floor))
        self.log.append({"kind": "floor", "bound": floor.to_json()})
        least = f"{first} step{'s' * (first != 1)} or {show(floor.value)} rounds per chunk"
        self.tell("bound", f"no schedule takes fewer than {least}", None, floor.value)
        end = self.options.max_steps or first + STEPS_BEYOND
        ahead = None
        for steps in range(first, end + 1):
            bound = ahead or self._bound(steps, floor)
            ahead = None
            self.tell("bound", f"S={steps}: at least {show(bound.value)} rounds per chunk", steps, bound.value)
            if self.best is not None and bound.value >= self.best:
                self.bounds.append((steps, bound))
            else:
                close_step_count.close(self, steps, bound)
            if self.best == floor.value:
                break
            if self.options.max_steps is None and bound.value <= floor.value * (1 + LITTLE):
                ahead = self._bound(steps + 1, floor)
                if ahead.value > floor.value:
                    self.notes += (notes.followed(self.best, steps, floor.value),)
                    end = steps
                    break
            if self.out_of_time and steps < end:
                self._keep_seeds(range(steps + 1, steps + 2), floor)
                self.leave(Open(steps + 1, floor.value, self.best, "time", floor.certificate))
                self._keep_seeds(range(steps + 2, end + 1), floor)
                break
        self._again()
        if steps == end and bound.value > floor.value and not self.out_of_time:
            self.notes += (notes.unattained(self, steps, bound.value, floor),)
        self.complete = not self.open and self.best is not None
        self.notes = notes.drop_unproven_bound(self.notes, self.best, floor.value)
        self.last = None if self.best == floor.value else end

    def _again(self) -> None:
        """Returns to what is open while a time limit leaves time: the widest interval first, with longer slices each
        time."""
        limit, tried = self.options.time_limit, set[int]()
        while limit is not None and not self.out_of_time:
            work = [o for o in self.open if o.steps not in tried]
            if not work:
                break
            left = limit - (time.monotonic() - self.started)
            began, self.share = time.monotonic(), left / len(work)
            some = max(work, key=lambda o: inf if o.upper is None else o.upper / o.lower)
            self.upto, self.longer = some.steps, 4 * self.longer
            self.tell("query", f"S={some.steps}: again, with the time that is left", some.steps, some.lower)
            self.open.remove(some)
            try:
                close_step_count.close(self, some.steps, LowerBound(some.lower, some.certificate))
            except KeyboardInterrupt:
                self.open.append(some)
                raise
            if time.monotonic() - began < self.share * IDLE:  # there is nothing that more time would try
                tried.add(some.steps)
            self.narrow()
        self.upto = self.share = None
        self.open.sort(key=lambda o: o.steps)
        if not self.out_of_time:
            self.open = [replace(o, reason="gave-up") if o.reason == "time" else o for o in self.open]

    def _static(self) -> LowerBound:
        """The bound for any number of steps; where the time or the memory is over, one whose search for cuts is not let
        go on."""
        limit = self.options.time_limit
        if limit is None or self.network.ranks <= FEW_RANKS:
            found = self.prefetched.bound(None)
            return (
                self._noted(found, bounds.flow(self.network, self.collective, None, cycles=1))
                if isinstance(found, Unknown)
                else found
            )
        quick = prefetched_bounds.begin_quick(self.network, self.collective, replace(self.budget(None), seconds=None))
        try:
            found = self.prefetched.bound(None)
            if not isinstance(found, Unknown):
                return found
            least = prefetched_bounds.finish_quick(quick, max(self.started + limit, time.monotonic()) + GRACE)
        finally:
            prefetched_bounds.drop(quick)
        if least is None:
            raise NoBoundError(self.network, self.collective)
        return self._noted(found, least)

    def _noted(self, why: Unknown, bound: LowerBound) -> LowerBound:
        """`bound`, with a note that there may be a higher one, and why that was not found."""
        self.notes += (notes.unproven_bound(ENDED.get(why.reason, "its search ended early")),)
        return bound

    def _bound(self, steps: int, floor: LowerBound) -> LowerBound:
        """The bound at so many steps; where the time or the memory is over the one that holds for any number."""
        found = self.prefetched.bound(steps)
        return floor if isinstance(found, Unknown) else found

    def _keep_seeds(self, steps: range, floor: LowerBound) -> None:
        """Seeds that improve on what is known, where no time is left for more."""
        for s in steps:
            seed = close_step_count.seed(self, s, floor)
            if seed is not None and (self.best is None or seed.bandwidth < self.best):
                self.keep(seed)

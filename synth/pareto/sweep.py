"""The guided sweep: bounds first, then only the questions whose answer closes a point for every chunk count.

For each S from the least possible up: p/q = bound(S). If it does not improve on what is already reached, S is
skipped, with the bound as proof. Otherwise C = q·m and R = p·m are asked for m = 1, 2, ...; a schedule closes the
point. Where none is found the tree bound may be higher; else the best schedule found is reported with its interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from math import ceil, inf, lcm

from synth import bounds
from synth.collective import Collective
from synth.frontier import Frontier, LowerBound, Open, Point
from synth.pareto import ontrees, race
from synth.pareto.awaited import LEAST_RANKS
from synth.pareto.events import Event, Listener, NoBoundError, Options, SweepInterrupted, too_few_allowed
from synth.pareto.log import Log
from synth.pareto.partial import resumed
from synth.pareto.trust import trusted_point
from synth.pareto.workers import Job
from synth.rational import show
from synth.samebits import same_bits
from synth.schedule import Problem, Schedule
from synth.topology import Network
from synth.verdict import Budget, Sat, Unknown, Unsat

STEPS_BEYOND = 6  # how far past the least S an infinite frontier is followed
MULTIPLES = (0, 1, 2, 3, 5)  # beyond the least m: C = q·m, R = p·m; some bounds are met only by whole rounds of a larger m
FIRST_SLICES = (4.0, 2.0, 4.0, 2.0, 2.0)  # seconds of each processor for each of them, at first
QUICK_SLICE = 0.3  # for the first where trees are priced exactly: what a solver does not find at once trees find sooner
QUICK_CHUNKS = 300  # of all units together: and only up to here
QUICK_EACH = 16  # of one unit: and only below, where trees are priced exactly
TREE_SECONDS = 30.0  # CPU seconds for whole chunks on trees there
CLOSE_ON_TREES = 0.005  # how near to the bound the fractions of trees are that it settles for, where trees are searched
TREE_RANKS = 32  # up to here trees are searched well enough to be asked before solvers have long been
PATIENCE = 8.0  # wall seconds that a CPU second may take on a busy machine, where nobody limited the time
SUGGESTED_SLICE = 8.0  # for the one that an optimal packing of trees suggests
LATER_SLICES = ((14.0, 4.0, 6.0, 4.0, 4.0), (30.0, 10.0, 10.0, 10.0, 10.0))  # and when nothing else is left to try
FEW_CHUNKS = 1000  # of all units together: above, a bound is aimed at but not insisted on
MOST_CHUNKS = 3000  # of all units together: a bound that needs more is not aimed at
MOST_ON_TREES = 30_000  # where trees are priced exactly: many chunks take hardly more work, but long files
NEAR_CHUNKS = 3000  # of all units together, for a schedule near a bound that needs more
SEARCH_SECONDS = 20.0  # seconds of work spent on a good schedule where none that meets the bound is in sight
SEARCH_SLICE = 9.0  # of one query of that search
CLOSE, WORTH = Fraction(1, 20), Fraction(1, 80)  # how near to the bound it ends, how much better the next must be
SEARCH_CHUNKS = 12
FEW_RANKS = 16  # up to here a quick bound takes no less time than the best
IDLE = 0.1  # of the time for a return to an open S: what ends sooner has nothing left to try
GRACE = 1.0  # seconds past the time limit that are waited for a quick bound where there is no other
ENDED = {"time": "the time limit ended its search", "memory": "the memory allowed ended its search"}
LITTLE = Fraction(1, 40)  # an infinite frontier ends where more steps cannot gain more than this share


@dataclass
class Sweep:
    """One run of the guided sweep; `run()` returns the frontier. State: what was found so far."""

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
    complete: bool = False
    last: int | None = None
    started: float = field(default_factory=time.monotonic)
    spent: float = 0.0  # CPU seconds of each processor, in the processes of the queries
    upto: int | None = None  # steps up to which points count, None for all: those of more steps say nothing of fewer
    _share: float | None = None  # seconds for the next S, where it is returned to
    _longer: int = 1  # how many times as long slices are

    def run(self) -> Frontier:
        """Sweep to the end, the budget or Ctrl-C (SweepInterrupted). Raises InfeasibleError when proved so."""
        try:
            direct = self.collective.combining and not self.collective.reversible
            if not direct:
                race.warm(self.options.jobs)  # while the bounds are computed
            first = self._least_steps()
            if first == 0:
                self.complete = True
            elif direct:
                self._combining()
            else:
                self._sweep(first)
        except KeyboardInterrupt:
            self.log.close(finished=False)
            raise SweepInterrupted(self.frontier(), self.log.path) from None
        finally:
            race.stop()
        self.log.close(finished=not self.out_of_time)
        self._tell("done", "complete" if self.complete else "done")
        return self.frontier()

    def frontier(self) -> Frontier:
        """What has been found so far, dominated points left out."""
        best: list[Point] = []
        for point in sorted(self.points, key=lambda p: (p.steps, p.bandwidth)):
            if not best or point.bandwidth < best[-1].bandwidth:
                best.append(point)
        seconds = time.monotonic() - self.started
        return Frontier(
            self.network, self.collective, tuple(best), tuple(self.open), self.complete, self.last, seconds,
            tuple(self.bounds), self.notes, self.labels,
        )  # fmt: skip

    # ------------------------------------------------------------ the two kinds of sweep

    def _sweep(self, first: int) -> None:
        floor = self._static()
        self.bounds.append((None, floor))
        self.log.append({"kind": "floor", "bound": floor.to_json()})
        least = f"{first} step{'s' * (first != 1)} or {show(floor.value)} rounds per chunk"
        self._tell("bound", f"no schedule takes fewer than {least}", None, floor.value)
        end = self.options.max_steps or first + STEPS_BEYOND
        ahead = None
        for steps in range(first, end + 1):
            bound = ahead or self._bound(steps, floor)
            ahead = None
            self._tell("bound", f"S={steps}: at least {show(bound.value)} rounds per chunk", steps, bound.value)
            if self.best is not None and bound.value >= self.best:
                self.bounds.append((steps, bound))
            else:
                self._close(steps, bound)
            if self.best == floor.value:
                break
            if self.options.max_steps is None and bound.value <= floor.value * (1 + LITTLE):
                ahead = self._bound(steps + 1, floor)
                if ahead.value > floor.value:
                    self.notes += (self._followed(steps, floor.value),)
                    end = steps
                    break
            if self.out_of_time and steps < end:
                self._keep_seeds(range(steps + 1, steps + 2), floor)
                self._leave(Open(steps + 1, floor.value, self.best, "time", floor.certificate))
                self._keep_seeds(range(steps + 2, end + 1), floor)
                break
        self._again()
        if steps == end and bound.value > floor.value and not self.out_of_time:
            self.notes += (self._limit(steps, bound.value, floor),)
        self.complete = not self.open and self.best is not None
        self.last = None if self.best == floor.value else end

    def _followed(self, steps: int, floor: Fraction) -> str:
        """Why an infinite frontier ends at so many steps: what more can gain over the best found, the bound at S being lost or not."""
        told = f"followed to {steps} steps"
        if self.best is None:
            return told
        return f"{told}: more can lower rounds/chunk by {float(1 - floor / self.best):.1%} at most, as the bounds say"

    def _again(self) -> None:
        """Returns to what is open while a time limit leaves time: the widest interval first, with longer slices each time."""
        limit, tried = self.options.time_limit, set[int]()
        while limit is not None and not self.out_of_time:
            work = [o for o in self.open if o.steps not in tried]
            if not work:
                break
            left = limit - (time.monotonic() - self.started)
            began, self._share = time.monotonic(), left / len(work)
            some = max(work, key=lambda o: inf if o.upper is None else o.upper / o.lower)
            self.upto, self._longer = some.steps, 4 * self._longer
            self._tell("query", f"S={some.steps}: again, with the time that is left", some.steps, some.lower)
            self.open.remove(some)
            try:
                self._close(some.steps, LowerBound(some.lower, some.certificate))
            except KeyboardInterrupt:
                self.open.append(some)
                raise
            if time.monotonic() - began < self._share * IDLE:  # there is nothing that more time would try
                tried.add(some.steps)
            self._narrow()
        self.upto = self._share = None
        self.open.sort(key=lambda o: o.steps)
        if not self.out_of_time:
            self.open = [replace(o, reason="gave-up") if o.reason == "time" else o for o in self.open]

    def _narrow(self) -> None:
        """What points say of open intervals at as many steps and more."""
        reached = [(o, min((p.bandwidth for p in self.points if p.steps <= o.steps), default=None)) for o in self.open]
        self.bounds += [(o.steps, LowerBound(o.lower, o.certificate)) for o, upper in reached if upper is not None and upper <= o.lower]
        self.open = [replace(o, upper=upper) for o, upper in reached if upper is None or upper > o.lower]

    def _static(self) -> LowerBound:
        """The bound for any number of steps; where the time or the memory is over, one whose search for cuts is not let go on."""
        limit = self.options.time_limit
        if limit is None or self.network.ranks <= FEW_RANKS:
            found = self._ahead.bound(None)
            return self._noted(found, bounds.flow(self.network, self.collective, None, cycles=1)) if isinstance(found, Unknown) else found
        quick = ontrees.begin_quick(self.network, self.collective, replace(self._budget(None), seconds=None))
        try:
            found = self._ahead.bound(None)
            if not isinstance(found, Unknown):
                return found
            least = ontrees.finish_quick(quick, max(self.started + limit, time.monotonic()) + GRACE)
        finally:
            ontrees.drop(quick)
        if least is None:
            raise NoBoundError(self.network, self.collective)
        return self._noted(found, least)

    def _noted(self, why: Unknown, bound: LowerBound) -> LowerBound:
        """`bound`, with a note that there may be a higher one, and why that was not found."""
        self.notes += (f"the bound for any number of steps may be higher: {ENDED.get(why.reason, 'its search ended early')}",)
        return bound

    def _bound(self, steps: int, floor: LowerBound) -> LowerBound:
        """The bound at so many steps; where the time or the memory is over the one that holds for any number."""
        found = self._ahead.bound(steps)
        return floor if isinstance(found, Unknown) else found

    def _keep_seeds(self, steps: range, floor: LowerBound) -> None:
        """Seeds that improve on what is known, where no time is left for more."""
        for s in steps:
            seed = self._seed(s, floor)
            if seed is not None and (self.best is None or seed.bandwidth < self.best):
                self._keep(seed)

    def _limit(self, steps: int, bound: Fraction, floor: LowerBound) -> str:
        """What is known of the least R/C over all numbers of steps where `steps` of them do not attain it.

        Where every unit goes to every rank, the bound for every S is a packing of spanning trees (Edmonds, 1973), and
        pipelining them comes as near to it as one likes.
        """
        network, collective = self._forwards()
        everyone = frozenset(range(self.network.ranks))
        from synth.bounds.unattained import never_attained

        told = f"with any number of steps at least {show(floor.value)} rounds per chunk are needed"
        if all(post == everyone for post in collective.post):
            told += ", and pipelined spanning trees come as near to that as one likes"
        copying = bounds.flow(network, collective, None) if self.collective.combining else floor
        never = copying.value == floor.value and never_attained(network, collective, copying)
        ever = "no number of steps attains it" if never else "whether it ever is, is not known"
        return f"{told}; up to {steps} steps it is not attained (at least {show(bound)}), and {ever}"

    def _combining(self) -> None:
        from synth.pareto import allreduce

        known = {p.steps: p for p in self._resumed()}
        found = allreduce.points(
            self.network, self.collective, budget=self._budget(None), max_steps=self.options.max_steps,
            same_bits=self.options.same_bits, known=known, progress=lambda text: self._tell("query", text),
        )  # fmt: skip
        for item in found:
            match item:
                case str():
                    self.notes += (item,)
                    continue
                case Point():
                    self._keep(item)
                    about: int | None = item.steps
                case Open():
                    self._leave(item)
                    about = item.steps
                case (about, bound):
                    self.bounds = [(s, b) for s, b in self.bounds if s != about] + [(about, bound)]
                    if about is None:
                        self.log.append({"kind": "floor", "bound": bound.to_json()})
            last = self.open[-1:] if isinstance(item, Open) else []
            self.open = [o for o in self.open if o.steps != about] + last  # what is said of an S replaces what was said before
        self.open.sort(key=lambda interval: interval.steps)
        floor = next((b for s, b in self.bounds if s is None), None)
        closed = floor is not None and self.best == floor.value
        points = self.frontier().points
        self.complete = not self.open and all(p.status == "optimal" for p in points) and bool(points)
        seen = [*(s for s, _ in self.bounds if s), *(p.steps for p in self.points)]
        self.last = None if closed else max(seen, default=self.options.max_steps)

    def _least_steps(self) -> int:
        """The least S, with its bound noted. Raises InfeasibleError where fewer are allowed."""
        least = bounds.steps(self.network, self.collective)
        self.bounds.append((0, least))
        most = self.options.max_steps
        if most is not None and most < least.value:
            raise too_few_allowed(self.network, self.collective, least, most)
        return int(least.value)

    def _forwards(self) -> tuple[Network, Collective]:
        """The problem as one that copies: itself, or its time reversal where it combines."""
        if self.collective.combining:
            return self.network.reversed(), self.collective.reversed()
        return self.network, self.collective

    # ------------------------------------------------------------ one S

    def _close(self, steps: int, bound: LowerBound) -> None:
        """Find a schedule that meets the bound at `steps`, or the best one that the time allows."""
        began, worked = time.monotonic(), self.work
        resumed = next((p for p in self._resumed() if p.steps == steps), None) or self._seed(steps, bound)
        if resumed and self._short(resumed, bound) and resumed.bandwidth == bound.value:
            self._keep(Point(resumed.schedule, bound, "optimal", resumed.construction, resumed.same_bits, resumed.seconds))
            return
        until = worked + self._point_seconds()
        found, why, bound = self._aim(steps, bound, until)
        if found is None and self.best is not None and bound.value >= self.best:
            self.bounds.append((steps, bound))
            return
        if found is not None:
            self._keep(self._point(found, bound, "optimal", began))
            return
        if resumed:
            self._keep(resumed)
        if not self.out_of_time and self._some:
            self._near(steps, bound, began)
        if not self.out_of_time:
            self._search(steps, bound, self.work + min(SEARCH_SECONDS * self._longer, self._point_seconds()), began)
        reached = [p.bandwidth for p in self.points if p.steps <= steps]
        if not any(p.steps == steps and p.status == "optimal" for p in self.points):
            reason = "time" if self.out_of_time else why
            self._leave(Open(steps, bound.value, min(reached, default=None), reason, bound.certificate))
            self._tell("open", f"S={steps}: open, at least {show(bound.value)}", steps, bound.value)

    def _seed(self, steps: int, bound: LowerBound) -> Point | None:
        """The best of the seeds with so many steps."""
        most = self.options.max_chunks
        able = [(s.bandwidth, s.chunks, name, s) for name, s in self.seeds if len(s.steps) == steps and (most is None or s.chunks <= most)]
        if not able:
            return None
        bandwidth, _, name, schedule = min(able, key=lambda item: item[:2])
        return Point(schedule, bound, "optimal" if bandwidth == bound.value else "best-known", name, same_bits(schedule))

    def _short(self, point: Point, bound: LowerBound) -> bool:
        """Whether a point that meets the bound has few enough chunks to be taken at once: a solver's have the fewest."""
        seeded = any(point.schedule is schedule for _, schedule in self.seeds)
        return not seeded or point.chunks <= 2 * bound.value.denominator * self._least_multiple(point.steps, bound)

    def _aim(self, steps: int, bound: LowerBound, until: float) -> tuple[Sat | None, str, LowerBound]:
        """A schedule that meets the bound, or else a higher bound and a schedule that meets that."""
        from synth.encodings import trees

        few, beside = self._few, None
        most = MOST_CHUNKS if not few else max(MOST_ON_TREES, (self.options.max_chunks or 0) * self.collective.units)
        if bound.value.denominator * self.collective.units > most:
            return None, f"{bound.value.denominator} chunks per unit at the least would meet the bound, more than are tried", bound
        first = (QUICK_SLICE,) if few else FIRST_SLICES[:1]
        many = self._some and bound.value.denominator * self.collective.units > QUICK_CHUNKS
        if many or (few and bound.value.denominator >= QUICK_EACH):
            first = ()
        if self._some and not few and self.options.jobs > 1 and not self.options.deterministic:
            beside = self._begin(trees.meet, steps, bound, self._most_on_trees)
        found, why = self._meet(steps, bound, first, until, beside=beside)
        reached = False
        if found is not None or (self._left(until) <= 0 and not (beside and beside.result)):
            ontrees.drop(beside)
        elif self._some:
            found, reached, why = self._on_trees(steps, bound, beside)
        else:
            reached, multiples = self._suggested(steps, bound, min(SUGGESTED_SLICE, self._left(until)))
            found, why = self._meet(steps, bound, (SUGGESTED_SLICE,), until, multiples)
        if found is None and self._left(until) > 0:
            higher = None if reached else self._tree_bound(steps, bound, until)
            if higher is not None:
                bound = higher
                if self.best is not None and bound.value >= self.best:
                    return None, why, bound
                if self._some and bound.value.denominator * self.collective.units <= most:
                    found, reached, why = self._on_trees(steps, bound)
            if found is None:
                again, start = (0 if higher is not None else 1), self._least_multiple(steps, bound)
                found, why = self._meet(steps, bound, FIRST_SLICES[again:], until, [start + more for more in MULTIPLES[again:]])
        effort = bound.value.denominator * self.collective.units <= FEW_CHUNKS
        for slices in LATER_SLICES if effort else ():
            if found is None and self._left(until) > 0:
                found, why = self._meet(steps, bound, slices, until)
        return found, why, bound

    @cached_property
    def _few(self) -> bool:
        """Whether trees are priced exactly, as there are few ranks, and nobody asked for another engine."""
        from synth.bounds.holders import Holders

        network, collective = self._forwards()
        return self._free and all(Holders.fits(network, pre) for pre in collective.pre)

    @property
    def _some(self) -> bool:
        """Whether trees are searched well, as there are not many ranks or few to be reached, and nobody asked for another engine."""
        return self._free and (self.network.ranks <= TREE_RANKS or self._few)

    @property
    def _free(self) -> bool:
        return self.options.encoding == "auto" and self.options.solver == "auto"

    def _on_trees(self, steps: int, bound: LowerBound, job: Job | None = None) -> tuple[Sat | None, bool, str]:
        """A schedule on trees that meets the bound, and whether fractions of trees do: then trees prove no more than it.

        `job` is that question where it has been asked before.
        """
        from synth.encodings import trees

        self._tell("query", f"S={steps}: whole chunks on trees", steps, bound.value)
        verdict = self._answer(job or self._begin(trees.meet, steps, bound, self._most_on_trees), steps, bound)
        reached = float(verdict.cost.detail.get("lp", float("inf"))) <= float(bound.value) * (1 + 1e-6)
        return (verdict, reached, "") if isinstance(verdict, Sat) else (None, reached, verdict.reason)

    @property
    def _most_on_trees(self) -> int:
        return self.options.max_chunks or MOST_ON_TREES // self.collective.units

    def _near(self, steps: int, bound: LowerBound, began: float) -> None:
        """A schedule on trees that is near the bound, where there is one and it improves on what is known."""
        from synth.encodings import trees

        self._tell("query", f"S={steps}: whole chunks on trees, near the bound", steps, bound.value)
        most = min(self.options.max_chunks or NEAR_CHUNKS, NEAR_CHUNKS // self.collective.units)
        close = 0.0 if self._few else CLOSE_ON_TREES
        if self.best is not None:
            close = min(close, float(self.best / bound.value - 1) / 2)  # or it would not improve on that
        ask = partial(trees.near, close=close)
        verdict = self._answer(self._begin(ask, steps, bound, most), steps, bound)
        if isinstance(verdict, Sat) and (self.best is None or verdict.schedule.bandwidth < self.best):
            self._keep(self._point(verdict, bound, "best-known", began))

    def _begin(self, ask: Callable, steps: int, bound: LowerBound, most: int) -> Job:
        """Asks `ask`, a function of the tree engine, in a process of its own."""
        return ontrees.begin(ask, *self._forwards(), steps, bound, most, self._budget(TREE_SECONDS * self._longer))

    def _answer(self, job: Job, steps: int, bound: LowerBound) -> Sat | Unknown:
        """What that has answered, once it has; meanwhile the next bound is computed where there is another processor."""
        if not self._few and self.options.jobs > 1 and steps != self.options.max_steps and bound.value > self._floor:
            self._ahead.begin(steps + 1)
        limit = self._budget(TREE_SECONDS * self._longer).seconds or TREE_SECONDS
        verdict = ontrees.answer(job, limit * (1.0 if self.options.time_limit is not None else PATIENCE))
        self.spent += verdict.cost.total_cpu / self.options.jobs
        if not isinstance(verdict, Sat):
            return verdict
        schedule = verdict.schedule.reversed() if self.collective.combining else verdict.schedule
        return Sat(Schedule(self.network, self.collective, schedule.chunks, schedule.steps), verdict.cost)

    def _suggested(self, steps: int, bound: LowerBound, seconds: float) -> tuple[bool, list[int]]:
        """Whether a fractional packing of trees meets the bound, and the m at which it has whole rounds in every step.

        Where one does, trees prove no more than the bound.
        """
        from synth import symmetry
        from synth.bounds.columns import generate

        network, collective = self._forwards()
        group = symmetry.generators(network, collective)
        columns = generate(network, collective, steps, group, target=float(bound.value), seconds=seconds, seed=self.options.seed)
        if columns is None or columns.value > float(bound.value) * (1 + 1e-6):
            return False, []
        q = bound.value.denominator
        m = lcm(q, *(Fraction(r).limit_denominator(64 * q).denominator for r in columns.rounds)) // q
        return True, [m] if q * m * self.collective.units <= MOST_CHUNKS else []

    @staticmethod
    def _least_multiple(steps: int, bound: LowerBound) -> int:
        """The least m with at least a round for every step."""
        return max(1, ceil(Fraction(steps, bound.value.numerator)))

    def _meet(
        self, steps: int, bound: LowerBound, slices: Sequence[float], until: float, multiples: Sequence[int] | None = None,
        beside: Job | None = None,
    ) -> tuple[Sat | None, str]:  # fmt: skip
        """A schedule with R/C equal to the bound: several chunk counts that allow it, each for its slice of seconds.

        Until the job `beside` has one.
        """
        p, q = bound.value.numerator, bound.value.denominator
        start, why = self._least_multiple(steps, bound), "gave-up"
        for m, seconds in zip(multiples if multiples is not None else [start + more for more in MULTIPLES], slices, strict=False):
            if q * m * self.collective.units > MOST_CHUNKS and m > start:
                return None, why
            if self.options.max_chunks is not None and q * m > self.options.max_chunks:
                return None, f"chunks are limited to {self.options.max_chunks}, {q * m} would be next"
            left = min(seconds * self._longer, self._left(until))
            if left <= 0:
                break
            verdict = self._ask(Problem(self.network, self.collective, q * m, steps, p * m), left, beside)
            if isinstance(verdict, Sat):
                return verdict, ""
            if isinstance(verdict, Unknown):
                why = verdict.reason
        return None, why

    def _tree_bound(self, steps: int, bound: LowerBound, until: float) -> LowerBound | None:
        from synth.bounds import trees

        network, collective = self._forwards()
        left = max(2.0, self._left(until) / 2)
        self._tell("query", f"S={steps}: tree bound", steps, bound.value)
        found = trees.tree_bound(network, collective, steps, self._budget(left))
        if found is None or found.value <= bound.value:
            return None
        if self.collective.combining:
            found = LowerBound(found.value, found.certificate | {"reversed": True}, found.scope)
        self._tell("bound", f"S={steps}: at least {show(found.value)} by trees", steps, found.value)
        return found

    def _search(self, steps: int, bound: LowerBound, until: float, began: float) -> None:
        """Good schedules where none meets the bound: ever better ratios R/C, by growing C, until one is close."""
        ratios: dict[Fraction, tuple[int, int]] = {}
        for chunks in range(1, min(SEARCH_CHUNKS, self.options.max_chunks or SEARCH_CHUNKS) + 1):
            least = max(steps, ceil(bound.value * chunks))
            for rounds in range(least, least + 2 + (chunks <= 2) * steps):
                ratios.setdefault(Fraction(rounds, chunks), (chunks, rounds))
        close = bound.value * (1 + CLOSE)
        for ratio, (chunks, rounds) in sorted(ratios.items(), key=lambda item: (item[1], item[0])):
            left = self._left(until)
            if left <= 0 or (self.best is not None and self.best <= close):
                break
            if ratio > bound.value and (self.best is None or ratio <= self.best * (1 - WORTH)):
                verdict = self._ask(Problem(self.network, self.collective, chunks, steps, rounds), min(SEARCH_SLICE * self._longer, left))
                if isinstance(verdict, Sat):
                    self._keep(self._point(verdict, bound, "best-known", began))

    # ------------------------------------------------------------ helpers

    @property
    def best(self) -> Fraction | None:
        """The least R/C reached so far, with up to `upto` steps."""
        return min((p.bandwidth for p in self.points if self.upto is None or p.steps <= self.upto), default=None)

    @property
    def _floor(self) -> Fraction:
        """The static bound."""
        return next((b.value for steps, b in self.bounds if steps is None), Fraction(0))

    @cached_property
    def _ahead(self) -> ontrees.Ahead:
        limit = self.options.time_limit if self.network.ranks > LEAST_RANKS else None  # of few ranks they take less than a process
        return ontrees.Ahead(self.network, self.collective, self._budget(None), None if limit is None else self.started + limit)

    @property
    def out_of_time(self) -> bool:
        """Whether the whole budget is spent."""
        limit = self.options.time_limit
        return limit is not None and time.monotonic() - self.started >= limit

    @property
    def work(self) -> float:
        """CPU seconds so far: of this process, and of the queries' processes on each processor they used."""
        return time.process_time() + self.spent

    def _left(self, until: float) -> float:
        """Seconds until `work` is `until`, or until the time that was allowed is over."""
        limit = self.options.time_limit
        return min(until - self.work, float("inf") if limit is None else limit - (time.monotonic() - self.started))

    def _point_seconds(self) -> float:
        limit = self.options.time_limit
        if limit is None:
            return self.options.point_seconds
        return max(0.5, (limit - (time.monotonic() - self.started)) / 2 if self._share is None else self._share)

    def _budget(self, seconds: float | None) -> Budget:
        limit = self.options.time_limit
        if limit is not None:
            left = max(0.1, limit - (time.monotonic() - self.started))
            seconds = left if seconds is None else min(seconds, left)
        options = self.options
        return Budget(seconds, options.memory, options.seed, options.jobs, options.deterministic)

    def _ask(self, problem: Problem, seconds: float, beside: Job | None = None) -> Sat | Unsat | Unknown:
        name = f"C={problem.chunks} S={problem.steps} R={problem.rounds}"
        if self.log.refuted(problem):
            return Unsat("refuted in an earlier run")
        self._tell("query", name, problem.steps)
        verdict = race.solve(
            problem, budget=self._budget(seconds), encoding=self.options.encoding, solver=self.options.solver, proof=self.options.proof,
            patience=1.0 if self.options.time_limit is not None else PATIENCE, beside=beside,
        )  # fmt: skip
        self.spent += verdict.cost.total_cpu / self.options.jobs
        if isinstance(verdict, Unsat):
            self.log.append({"kind": "unsat", "query": [problem.chunks, problem.steps, problem.rounds], "engine": verdict.cost.engine})
        return verdict

    def _point(self, verdict: Sat, bound: LowerBound, status: str, began: float) -> Point:
        if verdict.schedule.bandwidth == bound.value:
            status = "optimal"
        return Point(verdict.schedule, bound, status, verdict.cost.engine, True, time.monotonic() - began)

    def _keep(self, point: Point) -> None:
        document = point.to_json()
        trusted = trusted_point(point, document["schedule"])
        self.points = [p for p in self.points if p.steps != point.steps or p.bandwidth <= point.bandwidth] + [trusted]
        self.log.append({"kind": "point", "point": document})
        text = f"S={point.steps}: {show(point.bandwidth)} rounds per chunk (C={point.chunks}, R={point.rounds}), {point.status}"
        self._tell("point", text, point.steps, point.bound.value, point)

    def _leave(self, item: Open) -> None:
        """Note an interval. Time that nobody limited did not run out: it was the default effort that ended."""
        spent = item.reason == "time" and self.options.time_limit is None
        self.open.append(replace(item, reason="effort") if spent else item)

    def _resumed(self) -> Iterator[Point]:
        return resumed(self.network, self.collective, self.log.records)

    def _tell(self, kind: str, text: str, steps: int | None = None, bound: Fraction | None = None, point: Point | None = None) -> None:
        self.listen(Event(kind, text, steps, bound, point))

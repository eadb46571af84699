"""The frontier of combining collectives that are no reversal of a copying one: allreduce, scan, custom ones.

For each S from the least possible up: the bound first, then symmetric shapes (`synth.pareto.shapes`) whose R/C can meet
it, on the direct encoding and, where S allows it, on the hub encoding, the cheapest first, with conflict limits that
grow from round to round; then shapes that come close. For allreduce pipelined spanning trees and reduce-scatter +
allgather come before them. A schedule that
meets the bound is optimal for every C; otherwise the best one found is reported with its interval. That no shape
admits a schedule proves nothing; that no schedule for one chunk pays less than so
much does (`synth.pareto.onechunk`, for collectives other than allreduce).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from synth import bounds
from synth.collective import Collective
from synth.collective import collective as collective_named
from synth.encodings.compose import compose
from synth.flows import tau
from synth.flows.until import TimeUp, until
from synth.frontier import LowerBound, Open, Point
from synth.pareto import onechunk
from synth.pareto.candidates import Candidate, Candidates, Frame, construction
from synth.pareto.tries import Desk, Outcome, Try
from synth.rational import show
from synth.samebits import same_bits as ends_alike
from synth.schedule import Problem, Schedule
from synth.topology import Network
from synth.verdict import Budget, Sat

STEPS_BEYOND = 6  # how far past the least S a frontier that does not end is followed
POINT_CPU = 12.0  # seconds of work (`Answer`) for an S whose bound is not met, of up to 8 ranks, when there is no limit on the whole
FEW = 24  # candidates of one effort, the most promising ones; half as many when each may take long
ALIKE_CPU = 2.5  # the same with the same bits everywhere, where bounds are mostly not met
OTHER_CPU, AGAIN_CPU = 2.5, 0.6  # and for other collectives, where they hardly ever are; where a step more lowers no bound
LOADED = 60  # wall seconds for each of these, at most: others may use the machine too, and are to change no answer
FOREST_UNITS = 200  # units of all links of networks whose trees are packed
COMPOSE_SECONDS = 4.0  # CPU seconds for an allgather schedule to compose with
FIRST = 4  # candidates that come before mixtures of hubs
MIXTURES = 8  # tries of them, each beginning elsewhere; what counts for them is how often they begin
# What is tried, in which order, and how many conflicts each try may take. "meet": what meets the bound exactly; "near":
# halving from above; by hubs where S allows them, else directly. "any meet", "any near": with every engine.
EFFORTS = (
    ("first meet", 2_000), ("mixture", 8), ("meet", 2_000), ("any meet", 2_000), ("near", 2_000), ("near", 60_000), ("meet", 150_000),
    ("any meet", 30_000), ("any near", 2_000), ("meet", 600_000), ("near", 200_000), ("any near", 30_000), ("any meet", 300_000),
    ("any near", 300_000),
)  # fmt: skip
HUBS_FIRST = 2  # of these, how many are for hubs only and come before all others
# Without hubs; the number of "place" is how many rounds a step has, that of "blend" how many times `BLENDING` it takes.
OTHER_EFFORTS = (
    ("meet", 2_000), ("place", 1), ("near", 2_000), ("near", 10_000), ("blend", 1), ("place", 2), ("near", 60_000), ("blend", 6),
    ("meet", 150_000), ("place", 3), ("meet", 600_000), ("blend", 20), ("near", 200_000), ("place", 4), ("blend", 60), ("place", 6),
)  # fmt: skip
ALL_AT_ONCE = 6  # chunks up to which asking for all at once finds more than placing them one by one, in little time
PLACERS = 2  # tries with as many chunks, each beginning elsewhere
PLACING = 6_000_000  # propagations of each
BLENDING = 8_000_000  # propagations

Item = Point | Open | tuple[int | None, LowerBound]


def points(
    network: Network, collective: Collective, *, budget: Budget, max_steps: int | None = None, same_bits: bool = False,
    known: Mapping[int, Point] | None = None, progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Item]:  # fmt: skip
    """The frontier as it is found: points, open intervals, and bounds ``(S, bound)`` where no point can improve.

    ``(None, bound)``, which holds for every S, comes first. With `same_bits` only schedules count after which all
    ranks hold the same bits (bounds are those of all schedules). `known` points, by S, are taken over, and tried to
    be improved where they do not meet the bound. `budget.seconds` limits the whole. Raises InfeasibleError.
    """
    least = int(bounds.steps(network, collective).value)
    if least == 0:
        return
    floor = bounds.allreduce(network, collective, None)
    yield None, floor
    progress(f"no schedule takes fewer than {least} steps or {show(floor.value)} rounds per chunk")
    end = max_steps or max(least + STEPS_BEYOND, 2 * least + 1)
    with Desk(1 if budget.deterministic else budget.jobs, budget.memory) as desk:
        search = Search(network, collective, budget, same_bits, progress, desk, Candidates(network, collective, budget.seed))
        for steps in range(least, end + 1):
            bound = bounds.allreduce(network, collective, steps)
            if search.best is not None and bound.value >= search.best:
                yield steps, bound
            else:
                yield from search.at(steps, bound, (known or {}).get(steps))
            if search.best == floor.value:
                return
            if search.out_of_time:
                if steps < end:
                    yield Open(steps + 1, floor.value, search.best, "time", floor.certificate)
                return


@dataclass
class Search:
    """What the search at every S shares. `best`: the least R/C so far; `found`: its schedule; `bound`: that of the last S."""

    network: Network
    collective: Collective
    budget: Budget
    same_bits: bool
    progress: Callable[[str], None]
    desk: Desk
    candidates: Candidates
    best: Fraction | None = None
    bound: Fraction | None = None
    began: float = field(default_factory=time.monotonic)
    _gather_bounds: dict[int, Fraction] = field(default_factory=dict)
    _raises: int = 2
    found: Schedule | None = None

    @property
    def out_of_time(self) -> bool:
        """Whether the whole budget is spent."""
        return self.budget.seconds is not None and time.monotonic() - self.began >= self.budget.seconds

    def at(self, steps: int, bound: LowerBound, known: Point | None) -> Iterator[Item]:
        """What is found at `steps`: an optimal point, or the best improvement and an open interval. Ctrl-C goes on after what there is."""
        began = time.monotonic()
        again, self.bound = bound.value == self.bound, bound.value
        point = known if known is not None and (known.same_bits or not self.same_bits) else None
        reason, interrupted = "gave-up", None
        while point is None or point.bandwidth > bound.value:
            here = _Here(self, steps, bound.value, point.bandwidth if point else self.best, *self._limits(began, again), again)
            try:
                here.run()
            except KeyboardInterrupt as stop:
                interrupted = stop
            reason = "time" if here.spent or here.brief else reason
            if here.schedule is not None:
                schedule = here.schedule
                point = Point(schedule, bound, "best-known", here.construction, ends_alike(schedule), time.monotonic() - began)
            if interrupted is not None or (point is not None and point.bandwidth == bound.value):
                break
            floor, bound = bound.value, self._raised(steps, bound)
            if bound.value == floor:
                break
        if point is not None and (self.best is None or point.bandwidth < self.best):
            self.best, self.found = point.bandwidth, point.schedule
            yield replace(point, bound=bound, status="optimal" if point.bandwidth == bound.value else "best-known")
        if interrupted is not None:
            raise interrupted
        if self.best != bound.value:
            yield Open(steps, bound.value, self.best, reason, bound.certificate)

    def _raised(self, steps: int, bound: LowerBound) -> LowerBound:
        """`bound`, or a higher one by what one chunk pays. With more steps that gets harder: not tried again after two failures."""
        if not self._raises or self.candidates.hub_steps is not None:
            return bound
        self.progress(f"S={steps}: what one chunk pays (at least {show(bound.value)})")
        found = onechunk.bound(self.network, self.collective, steps, bound.value)
        self._raises -= found is None
        return found or bound

    def _limits(self, began: float, again: bool) -> tuple[float, float]:
        """When to stop at this S: the wall clock, and the work of all tries together."""
        if self.budget.seconds is None:
            cpu = POINT_CPU * max(1.0, self.network.ranks / 8) ** 1.5
            if self.candidates.hub_steps is None:
                cpu = AGAIN_CPU if again else OTHER_CPU
            elif self.same_bits:
                cpu = ALIKE_CPU
            return began + LOADED * cpu, self.desk.work + cpu
        left = self.budget.seconds - (began - self.began)
        share = max(left / 4, min(POINT_CPU, self.budget.seconds / 4))  # the steps to come have theirs too
        return began + min(left, share), math.inf

    @cached_property
    def forest(self) -> tau.Forest | None:
        """Trees that attain the rate for large messages, where they are known to, the network is small, and there is time."""
        small = sum(r.units for r in self.network.routes) <= FOREST_UNITS
        if not small or not tau.applies(self.network):
            return None
        left = self.budget.seconds and max(0.0, self.budget.seconds - (time.monotonic() - self.began))
        try:
            with until(left):
                return tau.forest(self.network)
        except TimeUp:
            return None

    def built(self, steps: int, upper: Fraction | None) -> Iterator[tuple[Schedule, str]]:
        """Schedules of allreduce by construction, with their names: spanning trees, and reduce-scatter + allgather below `upper`."""
        made = self.forest
        if made is not None and steps >= 2 * made.height:
            schedule = tau.schedule(made, self.collective, steps - 2 * made.height + 1)
            upper = schedule.bandwidth if upper is None else min(upper, schedule.bandwidth)
            yield schedule, "tau forest"
        composed = self.composed(steps, upper)
        if composed is not None:
            yield composed, "reduce-scatter + allgather"

    def composed(self, steps: int, upper: Fraction | None) -> Schedule | None:
        """Reduce-scatter + allgather in `steps` steps, if its bounds say that it may be below `upper`."""
        task = collective_named("allgather", self.network.ranks)
        sides = (self.network.reversed(), self.network)
        least = int(bounds.steps(self.network, task).value)
        splits = [(self._gather_bound(a) + self._gather_bound(steps - a), a) for a in range(least, steps - least + 1)]
        if not splits or (upper is not None and min(splits)[0] / self.network.ranks >= upper):
            return None
        first = min(splits)[1]
        parts = [self._gathered(side, task, n) for side, n in zip(sides, (first, steps - first), strict=True)]
        if parts[0] is None or parts[1] is None:
            return None
        return compose(parts[0], parts[1], self.collective)

    def _gather_bound(self, steps: int) -> Fraction:
        """R/C of allgather at `steps`. Reduce-scatter's is taken to be the same, which only decides what is tried."""
        if steps not in self._gather_bounds:
            task = collective_named("allgather", self.network.ranks)
            self._gather_bounds[steps] = bounds.flow(self.network, task, steps).value
        return self._gather_bounds[steps]

    def _gathered(self, network: Network, task: Collective, steps: int) -> Schedule | None:
        """An allgather schedule that meets its bound, None when none is found quickly."""
        from synth.pareto import race

        value = bounds.flow(network, task, steps).value
        more = max(1, -(-steps // value.numerator))
        problem = Problem(network, task, value.denominator * more, steps, value.numerator * more)
        patience = 1.0 if self.budget.seconds is not None else float(LOADED)
        verdict = race.solve(problem, budget=replace(self.budget, seconds=COMPOSE_SECONDS), patience=patience)
        return verdict.schedule if isinstance(verdict, Sat) else None


@dataclass
class _Here:
    """The search at one S for schedules below `upper`, until the bound is met or the time is up. `brief`: more time would try more."""

    search: Search
    steps: int
    bound: Fraction
    upper: Fraction | None
    until: float
    cpu: float
    again: bool = False
    brief: bool = False
    schedule: Schedule | None = None
    construction: str = ""
    refuted: set[Candidate] = field(default_factory=set)

    def run(self) -> None:
        """Fills `schedule` and `construction` with the best that is found."""
        if self.search.candidates.hub_steps is not None and self.search.collective.units == 1:
            self._built()
            if self._done:
                return
        if self.search.candidates.hub_steps is None:
            self._others()
            return
        meet = self.search.candidates.meeting(self.steps, self.bound)
        near: list[Frame] = []
        hubs = any(c.engine == "hub" for c in meet)
        for k, (which, conflicts) in enumerate(EFFORTS):
            if which not in ("meet", "near") and not hubs:
                continue
            seed = self.search.budget.seed + (k if hubs else k - HUBS_FIRST)
            few = FIRST if which.startswith("first") else FEW if conflicts <= 60_000 else FEW // 2
            if which == "mixture":
                self._mixture(meet, conflicts, seed)
            elif which.endswith("meet"):
                left = [c for c in meet if c not in self.refuted]
                alone = not any(c.engine == "hub" for c in left)
                first = [c for c in left if alone or c.engine == "hub"][:few]
                rest = [c for c in left if c.engine == "direct"][:few] if which.startswith("any") and not alone else []
                self._meet([*first, *rest], conflicts, seed)
            else:
                near = near or self.search.candidates.frames(self.steps, self.bound)
                first = [f for f in near if not hubs or f.base.engine == "hub"][:few]
                rest = [f for f in near if f.base.engine == "direct"][:few] if which.startswith("any") else []
                self._near([*first, *rest], conflicts, seed)
            if self._done:
                return

    def _others(self) -> None:
        """Without hubs: what meets the bound, chunks placed one by one, and what comes close.

        When there is no limit on the whole, chunks are placed once, then come fractions of chunks, and that is all. Before these
        comes what comes close, unless there are many chunks already. Where a step more lowers no bound these come alone.
        """
        candidates, brief = self.search.candidates, self.search.budget.seconds is None
        places = candidates.placing(self.steps, 1, self.steps) is not None
        quick = brief and places
        frames: list[Frame] = []
        alone = False
        for k, (which, effort) in enumerate(OTHER_EFFORTS):
            seed, few = self.search.budget.seed + k, FEW if effort <= 60_000 else FEW // 2
            if which == "place":
                self.brief = quick
                before, cpu, self.cpu = self.search.desk.work, self.cpu, math.inf  # what this takes is counted apart
                many = (quick and self.again) or self._placing(effort, seed) > ALL_AT_ONCE
                self.cpu = cpu + self.search.desk.work - before
                alone = quick and many
            elif which == "blend":
                self._blending(effort, seed)
                if quick:
                    return
            elif alone:
                continue
            elif which == "meet" and not (quick and self.again):
                self._meet([c for c in candidates.meeting(self.steps, self.bound) if c not in self.refuted][:few], effort, seed)
            elif which == "near":
                frames = frames or candidates.frames(self.steps, self.bound)
                self._near(frames[:few], effort, seed)
            if self.upper == self.bound or (self.spent and not quick):
                return
            alone = alone or self.spent

    def _placing(self, each: int, seed: int) -> int:
        """Asks for more and more chunks in `each` rounds a step, until they do not find room; the most that it asked for."""
        rounds = each * self.steps
        chunks = 1 if self.upper is None else int(rounds / self.upper) + 1
        tries = PLACERS if chunks <= ALL_AT_ONCE or self.search.budget.seconds is not None else 1
        while chunks * self.bound < rounds and not self._done:
            candidate, found = self.search.candidates.placing(self.steps, chunks, rounds), False
            for _, outcome in self._ask([candidate] * tries if candidate else [], each * PLACING, seed):
                if outcome.schedule is not None:
                    found = True
                    break
            if not found:
                break
            chunks += 1
        return chunks

    def _blending(self, times: int, seed: int) -> None:
        """Asks for fractions of chunks, and whole ones from these."""
        candidate = self.search.candidates.placing(self.steps, 1, self.steps)
        if candidate is None:
            return
        self.search.progress(f"S={self.steps}: fractions of chunks (at least {show(self.bound)})")
        start = tuple(s for s in (self.search.found, self.schedule) if s is not None)
        query = Try(
            "blending", candidate.translation, self.steps, 0, times * BLENDING, seed, least=self.bound, below=self.upper, start=start
        )  # fmt: skip
        for _, outcome in self.search.desk.run(iter([query]), self.until):
            if outcome.schedule is not None:
                self._take(outcome.schedule, "blending")

    @property
    def spent(self) -> bool:
        """Whether the time for this S is up."""
        return time.monotonic() >= self.until or self.search.desk.work >= self.cpu

    @property
    def _done(self) -> bool:
        return self.upper == self.bound or self.spent

    def _meet(self, candidates: Sequence[Candidate], conflicts: int, seed: int) -> None:
        """Asks for schedules that meet the bound."""
        for candidate, outcome in self._ask(candidates, conflicts, seed):
            if outcome.status in ("sat", "unsat"):
                self.refuted.add(candidate)

    def _mixture(self, meet: Sequence[Candidate], starts: int, seed: int) -> None:
        """Asks for mixtures of hubs that meet the bound, until one does, or fractions of them do not."""
        candidate = self.search.candidates.mixture(self.steps, self.bound)
        for _, outcome in self._ask([candidate] * MIXTURES if candidate else [], starts, seed):
            if outcome.status == "unsat":  # then no hub alone meets it either
                self.refuted.update(c for c in meet if c.engine == "hub")
                return

    def _near(self, frames: Sequence[Frame], conflicts: int, seed: int) -> None:
        """Asks each frame for less and less, until none of them answers with this effort."""
        for frame in frames:
            frame.now = 0
        progress = True
        while progress and not self._done:
            progress = False
            asked: dict[Candidate, Frame] = {}
            for candidate, outcome in self._ask(self._next(frames, asked), conflicts, seed):
                progress = True
                frame = asked[candidate]
                if outcome.schedule is not None and self.upper is not None and self.upper <= candidate.value:
                    frame.alive = True
                elif outcome.status == "unsat":
                    frame.least = max(frame.least, candidate.rounds + 1)
                else:
                    frame.now = candidate.rounds + 1

    def _next(self, frames: Sequence[Frame], asked: dict[Candidate, Frame]) -> Iterator[Candidate]:
        for frame in frames:
            candidate = frame.next(self.upper)
            if candidate is not None:
                asked[candidate] = frame
                yield candidate

    def _ask(self, candidates: Iterable[Candidate], conflicts: int, seed: int) -> Iterator[tuple[Candidate, Outcome]]:
        """Outcomes as they come; keeps improvements, and ends when the bound is met or the time is up."""
        asked: dict[Try, Candidate] = {}

        def queries() -> Iterator[Try]:
            for k, c in enumerate(candidates):
                self.search.progress(
                    f"S={self.steps}: {c.engine}, C={c.translation.chunks} R={c.rounds} ({show(c.value)}, at least {show(self.bound)})"
                )
                elsewhere = k * conflicts if c.engine == "mixture" else k * len(OTHER_EFFORTS) if c.engine == "placing" else 0
                query = Try(c.engine, c.translation, self.steps, c.rounds, conflicts, seed + elsewhere)
                asked[query] = c
                yield query

        outcomes = self.search.desk.run(queries(), self.until)
        try:
            for query, outcome in outcomes:
                if outcome.schedule is not None:
                    self._take(outcome.schedule, construction(asked[query].engine, outcome.schedule))
                yield asked[query], outcome
                if self._done:
                    return
        finally:
            outcomes.close()

    def _take(self, schedule: Schedule, name: str) -> None:
        if self.upper is not None and schedule.bandwidth >= self.upper:
            return
        if self.search.same_bits and not ends_alike(schedule):
            return
        self.schedule, self.construction, self.upper = schedule, name, schedule.bandwidth

    def _built(self) -> None:
        """The constructions that need no search of their own."""
        for schedule, name in self.search.built(self.steps, self.upper):
            self._take(schedule, name)
            if self._done:
                return

"""The search at one S for schedules of a combining collective that pay less than is known, or as little as the bound.

Efforts, one after the other: symmetric shapes (`synth.pareto.combining.symmetry_candidates`) whose R/C can meet the
bound, on the direct encoding and, where S allows it, on the hub encoding, the cheapest first, with conflict limits that
grow from round to round; then shapes that come close. A search that its time ended goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from synth.model.bitwise_equality import same_bits as ends_alike
from synth.model.outcome import Budget
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.pareto.combining.attempts import Desk, Outcome, Try
from synth.pareto.combining.candidates import Candidate, Candidates, Frame, construction
from synth.pareto.combining.constructions import Built
from synth.solvers.processes.deadline import TimeUp, until

FEW = 24  # candidates of one effort, the most promising ones; half as many when each may take long
FIRST = 4  # candidates that come before mixtures of hubs
MIXTURES = 8  # tries of them, each beginning elsewhere; what counts for them is how often they begin
# What is tried, in which order, and how many conflicts each try may take. "meet": what meets the bound exactly; "near":
# halving from above; by hubs where S allows them, else directly. "any meet", "any near": with every engine.
# "shares": fractions of ways through hubs, and whole chunks of them, which are looked for so many seconds; "mixture"
# too, with symmetry.
EFFORTS = (
    ("first meet", 2_000),
    ("shares", 0),
    ("mixture", 8),
    ("shares", 9),
    ("meet", 2_000),
    ("any meet", 2_000),
    ("near", 2_000),
    ("near", 60_000),
    ("meet", 150_000),
    ("any meet", 30_000),
    ("any near", 2_000),
    ("shares", 30),
    ("meet", 600_000),
    ("near", 200_000),
    ("any near", 30_000),
    ("any meet", 300_000),
    ("any near", 300_000),
    ("shares", 120),
)
HUBS_FIRST = 2  # of these, how many are for hubs only and come before all others, "shares" not counted
IN_TIME = 0.7  # of the time that is left at an S: what "shares" may take, to have said what it found before
# Without hubs; the number of "place" is how many rounds a step has, that of "blend" how many times `BLENDING` it takes.
OTHER_EFFORTS = (
    ("meet", 2_000),
    ("place", 1),
    ("near", 2_000),
    ("near", 10_000),
    ("blend", 1),
    ("place", 2),
    ("near", 60_000),
    ("blend", 6),
    ("meet", 150_000),
    ("place", 3),
    ("meet", 600_000),
    ("blend", 20),
    ("near", 200_000),
    ("place", 4),
    ("blend", 60),
    ("place", 6),
)
ALL_AT_ONCE = 6  # chunks up to which asking for all at once finds more than placing them one by one, in little time
PLACERS = 2  # tries with as many chunks, each beginning elsewhere
PLACING = 6_000_000  # propagations of each
BLENDING = 8_000_000  # propagations
SURE = 1e-6


@dataclass(frozen=True)
class Means:
    """What the search at every S works with; `same_bits`: only schedules that leave the same bits on all ranks
    count."""

    budget: Budget
    same_bits: bool
    progress: Callable[[str], None]
    desk: Desk
    candidates: Candidates
    built: Built


@dataclass
class AtSteps:
    """The search at one S for schedules below `upper`, until the bound is met or the time is up.

    `until`: monotonic seconds; `cpu`: seconds of work of the desk. `again`: a step less had the same bound. `start`: a
    schedule that is known at fewer steps. `brief`: more time would try more. `next`: the effort to go on with.
    `fractions`: the least R/C of any mixture of ways through hubs.
    """

    means: Means
    steps: int
    bound: Fraction
    upper: Fraction | None
    until: float
    cpu: float
    again: bool = False
    brief: bool = False
    schedule: Schedule | None = None
    construction: str = ""
    start: Schedule | None = None
    refuted: set[Candidate] = field(default_factory=set)
    next: int = 0
    visits: int = 0
    meets: list[Candidate] | None = None
    frames: list[Frame] | None = None
    built: bool = False
    fractions: float | None = None

    def go_on(self, end: float, upper: Fraction | None) -> None:
        """As `run`, for a search that its time ended: until `end`, for schedules below `upper` too."""
        self.until, self.visits = end, self.visits + 1
        if upper is not None and (self.upper is None or upper < self.upper):
            self.upper = upper
        self.run()

    @property
    def exhausted(self) -> bool:
        """Whether all efforts have been made."""
        return self.next >= len(EFFORTS if self.means.candidates.hub_steps is not None else OTHER_EFFORTS)

    def run(self) -> None:
        """Fills `schedule` and `construction` with the best that is found."""
        limited = self.means.budget.seconds is not None
        try:
            with until(self.until - time.monotonic() if limited else None):
                self._run()
        except TimeUp:
            return

    def _run(self) -> None:
        if self.means.candidates.hub_steps is not None and self.means.built.collective.units == 1 and not self.built:
            self._build()
            if self._done:
                return
        if self.means.candidates.hub_steps is None:
            self._others()
            return
        if self.meets is None:
            self.meets = self.means.candidates.meeting(self.steps, self.bound)
        meet = self.meets
        hubs = any(c.engine == "hub" for c in meet)
        for k, (which, conflicts) in list(enumerate(EFFORTS))[self.next :]:
            self.next = k
            if which not in ("meet", "near", "shares") and not hubs:
                continue
            place = sum(other != "shares" for other, _ in EFFORTS[:k])
            seed = self._seed(place if hubs else place - HUBS_FIRST)
            few = FIRST if which.startswith("first") else FEW if conflicts <= 60_000 else FEW // 2
            if which == "shares":
                self._sharing(meet, conflicts, self._seed(k))
            elif which == "mixture":
                self._mixture(meet, conflicts, seed)
            elif which.endswith("meet"):
                left = [c for c in meet if c not in self.refuted]
                alone = not any(c.engine == "hub" for c in left)
                first = [c for c in left if alone or c.engine == "hub"][:few]
                rest = [c for c in left if c.engine == "direct"][:few] if which.startswith("any") and not alone else []
                self._meet([*first, *rest], conflicts, seed)
            else:
                near = self._frames()
                first = [f for f in near if not hubs or f.base.engine == "hub"][:few]
                rest = [f for f in near if f.base.engine == "direct"][:few] if which.startswith("any") else []
                self._near([*first, *rest], conflicts, seed)
            if self._done:
                return
        self.next = len(EFFORTS)

    def _frames(self) -> list[Frame]:
        if self.frames is None:
            self.frames = self.means.candidates.frames(self.steps, self.bound)
        return self.frames

    def _seed(self, effort: int) -> int:
        """Another one when an effort that its time ended is made again."""
        return self.means.budget.seed + effort + 1_000 * self.visits

    def _others(self) -> None:
        """Without hubs: what meets the bound, chunks placed one by one, and what comes close.

        When there is no limit on the whole, chunks are placed once, then come fractions of chunks, and that is all.
        Before these comes what comes close, unless there are many chunks already. Where a step more lowers no bound
        these come alone.
        """
        candidates, brief = self.means.candidates, self.means.budget.seconds is None
        places = candidates.placing(self.steps, 1, self.steps) is not None
        quick = brief and places
        alone = False
        for k, (which, effort) in list(enumerate(OTHER_EFFORTS))[self.next :]:
            self.next = k
            seed, few = self._seed(k), FEW if effort <= 60_000 else FEW // 2
            if which == "place":
                self.brief = quick
                before, cpu, self.cpu = self.means.desk.work, self.cpu, math.inf  # what this takes is counted apart
                many = (quick and self.again) or self._placing(effort, seed) > ALL_AT_ONCE
                self.cpu = cpu + self.means.desk.work - before
                alone = quick and many
            elif which == "blend":
                self._blending(effort, seed)
                if quick:
                    return
            elif alone:
                continue
            elif which == "meet" and not (quick and self.again):
                self._meet(
                    [c for c in candidates.meeting(self.steps, self.bound) if c not in self.refuted][:few], effort, seed
                )
            elif which == "near":
                self._near(self._frames()[:few], effort, seed)
            if self.upper == self.bound or (self.spent and not quick):
                return
            alone = alone or self.spent
        self.next = len(OTHER_EFFORTS)

    def _placing(self, each: int, seed: int) -> int:
        """Asks for more and more chunks in `each` rounds a step, until they do not find room; the most that it asked
        for."""
        rounds = each * self.steps
        chunks = 1 if self.upper is None else int(rounds / self.upper) + 1
        tries = PLACERS if chunks <= ALL_AT_ONCE or self.means.budget.seconds is not None else 1
        while chunks * self.bound < rounds and not self._done:
            candidate, found = self.means.candidates.placing(self.steps, chunks, rounds), False
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
        candidate = self.means.candidates.placing(self.steps, 1, self.steps)
        if candidate is None:
            return
        self.means.progress(f"S={self.steps}: fractions of chunks (at least {show(self.bound)})")
        start = tuple(s for s in (self.start, self.schedule) if s is not None)
        query = Try(
            "blending",
            candidate.translation,
            self.steps,
            0,
            times * BLENDING,
            seed,
            least=self.bound,
            below=self.upper,
            start=start,
        )
        for _, outcome in self.means.desk.run(iter([query]), self.until):
            if outcome.schedule is not None:
                self._take(outcome.schedule, "blending")

    @property
    def spent(self) -> bool:
        """Whether the time for this S is up."""
        return time.monotonic() >= self.until or self.means.desk.work >= self.cpu

    @property
    def _done(self) -> bool:
        return self.upper == self.bound or self.spent

    def _meet(self, candidates: Sequence[Candidate], conflicts: int, seed: int) -> None:
        """Asks for schedules that meet the bound."""
        for candidate, outcome in self._ask(candidates, conflicts, seed):
            if outcome.status in ("sat", "unsat"):
                self.refuted.add(candidate)

    def _sharing(self, meet: Sequence[Candidate], seconds: float, seed: int) -> None:
        """Asks for fractions of ways through hubs, and for whole chunks of them."""
        candidate = self.means.candidates.sharing(self.steps)
        if candidate is None or (
            self.fractions is not None and self.upper is not None and self.upper <= self.fractions * (1 + SURE)
        ):
            return
        self.means.progress(f"S={self.steps}: fractions of ways through hubs (at least {show(self.bound)})")
        seconds = min(seconds, IN_TIME * (self.until - time.monotonic()), max(0.0, self.cpu - self.means.desk.work))
        query = Try(
            "shares",
            candidate.translation,
            self.steps,
            0,
            seed=seed,
            least=self.bound,
            below=self.upper,
            seconds=seconds,
            alike=self.means.same_bits,
        )
        for _, outcome in self.means.desk.run(iter([query]), self.until):
            if outcome.schedule is not None:
                self._take(outcome.schedule, construction("mixture", outcome.schedule))
            if outcome.fractions is not None:
                self.fractions = outcome.fractions
        if self._above:  # then no hub alone meets it either
            self.refuted.update(c for c in meet if c.engine == "hub")

    @property
    def _above(self) -> bool:
        """Whether no mixture of ways through hubs meets the bound (in floats)."""
        return self.fractions is not None and self.fractions > float(self.bound) * (1 + SURE)

    def _mixture(self, meet: Sequence[Candidate], starts: int, seed: int) -> None:
        """Asks for mixtures of hubs that meet the bound, until one does, or fractions of them do not."""
        candidate = None if self._above else self.means.candidates.mixture(self.steps, self.bound)
        if (
            candidate is not None
            and len(candidate.translation.moves) == 1
            and self.means.candidates.sharing(self.steps) is not None
        ):
            return
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
                self.means.progress(
                    f"S={self.steps}: {c.engine}, C={c.translation.chunks} R={c.rounds} ({show(c.value)}, at least "
                    f"{show(self.bound)})"
                )
                elsewhere = (
                    k * conflicts if c.engine == "mixture" else k * len(OTHER_EFFORTS) if c.engine == "placing" else 0
                )
                query = Try(c.engine, c.translation, self.steps, c.rounds, conflicts, seed + elsewhere)
                asked[query] = c
                yield query

        outcomes = self.means.desk.run(queries(), self.until)
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
        if self.means.same_bits and not ends_alike(schedule):
            return
        self.schedule, self.construction, self.upper = schedule, name, schedule.bandwidth

    def _build(self) -> None:
        """The constructions that need no search of their own."""
        for schedule, name in self.means.built.schedules(self.steps, self.upper, self.until):
            self._take(schedule, name)
            if self._done:
                return
        self.built = True

"""The search at one S for schedules of a combining collective that meet the bound, or improve on the best known R/C.

A fixed sequence of efforts, one after the other: first candidates whose R/C meets the bound, on symmetric chunks
(`synth.pareto.combining.symmetry_candidates`), by the direct encoding and, where S allows it, by the hub encoding, the
cheapest first, with conflict limits that grow from effort to effort. Then candidates whose R/C comes close. A search
that the time limit ended continues with the effort that it was at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from synth.model.bitwise_equality import same_bits as ends_alike
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.pareto.combining.attempts import Attempt, AttemptPool, Outcome
from synth.pareto.combining.candidates import Candidate, Candidates, Frame, construction
from synth.pareto.combining.constructions import Constructions
from synth.solvers.processes.deadline import NEVER, Budget, Deadline, TimeUp, time_limited


@dataclass(frozen=True)
class SearchSettings:
    """Efforts of the search at one S.

    Attributes:
        few: Maximum number of candidates of one effort, the most promising ones. Half as many where each may
            take long.
        first: Number of candidates that come before mixtures of hubs.
        mixtures: Number of attempts on a mixture of hubs, each with other starting points of its local search.
        efforts: (kind, conflict limit of each attempt) of the efforts where the hub encoding applies, in their
            order. "meet": candidates that meet the bound exactly. "near": bisection of R from above. Both use
            hubs where S allows them, else the direct encoding. "any meet" and "any near" use both engines.
            "mixture": mixtures of hubs on symmetric chunks, where the number counts starts of the local search.
            "shares": column generation over hub paths, where the number is CPU seconds for rounding to whole
            chunks.
        hubs_first: Number of efforts at the beginning that are for hubs only, "shares" not counted. Seeds are
            counted after them where there are no hubs.
        in_time: Share of the remaining time at an S that "shares" may take, so that it reports its result
            before the end.
        other_efforts: The efforts where the hub encoding does not apply. The number of "place" is the rounds of
            each step, and that of "blend" a multiple of `blending`.
        all_at_once: Number of chunks up to which one formula for all of them finds more schedules than placing
            them one by one.
        placers: Number of attempts to place the same number of chunks, each with another seed.
        placement_propagations: Propagations of each attempt to place chunks, for each round of a step.
        blending: Propagations of column generation over fractions of chunks.
        sure: Relative tolerance for comparing floating-point R/C.
    """

    few: int = 24
    first: int = 4
    mixtures: int = 8
    efforts: tuple[tuple, ...] = (
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
    hubs_first: int = 2
    in_time: float = 0.7
    other_efforts: tuple[tuple, ...] = (
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
    all_at_once: int = 6
    placers: int = 2
    placement_propagations: int = 6_000_000
    blending: int = 8_000_000
    sure: float = 1e-6


SETTINGS = SearchSettings()


@dataclass(frozen=True)
class SearchContext:
    """The parts that the searches at all S share.

    `same_bits`: only schedules count that leave the same bits on all ranks. `progress`: called with a line of text.
    """

    budget: Budget
    same_bits: bool
    progress: Callable[[str], None]
    pool: AttemptPool
    candidates: Candidates
    constructions: Constructions


@dataclass
class SearchAtSteps:
    """The search at one S for schedules with R/C below `upper`, until one meets the bound or the time is over.

    `deadline`: its end on the wall clock. `cpu`: value of the pool's `work`, in seconds, at which the search ends.
    `same_bound`: the bound at one step less was equal. `start`: a schedule with fewer steps, which is decomposed into
    columns. `brief`: efforts were left out that a time limit would have allowed. `schedule`, `construction`: the best
    result and its name. `refuted`: candidates that need no further attempt. `next`: index of the effort to continue
    with. `visits`: number of continuations. `meets`, `frames`: candidates, once they are computed. `constructed`: the
    constructions without search are done. `fractions`: the least R/C of a fractional mixture of hub paths.
    """

    context: SearchContext
    steps: int
    bound: Fraction
    upper: Fraction | None
    deadline: Deadline
    cpu: float
    same_bound: bool = False
    brief: bool = False
    schedule: Schedule | None = None
    construction: str = ""
    start: Schedule | None = None
    refuted: set[Candidate] = field(default_factory=set)
    next: int = 0
    visits: int = 0
    meets: list[Candidate] | None = None
    frames: list[Frame] | None = None
    constructed: bool = False
    fractions: float | None = None

    def resume(self, deadline: Deadline, upper: Fraction | None) -> None:
        """Continue a search that its time ended, until `deadline`, for schedules below `upper`."""
        self.deadline, self.visits = deadline, self.visits + 1
        if upper is not None and (self.upper is None or upper < self.upper):
            self.upper = upper
        self.run()

    @property
    def exhausted(self) -> bool:
        """True when all efforts are done."""
        return self.next >= len(
            SETTINGS.efforts if self.context.candidates.hub_steps is not None else SETTINGS.other_efforts
        )

    def run(self) -> None:
        """Set `schedule` and `construction` to the best result."""
        try:
            with time_limited(self.deadline if self.context.budget.deadline.limited else NEVER):
                self._run()
        except TimeUp:
            return

    def _run(self) -> None:
        if self.context.candidates.hub_steps is None:
            self._run_without_hubs()
            return
        if self.context.constructions.collective.units == 1 and not self.constructed:
            self._construct()
            if self._done:
                return
        if self.meets is None:
            self.meets = self.context.candidates.meeting(self.steps, self.bound)
        meet = self.meets
        hubs = any(c.engine == "hub" for c in meet)
        for k, (which, conflicts) in list(enumerate(SETTINGS.efforts))[self.next :]:
            self.next = k
            if which not in ("meet", "near", "shares") and not hubs:
                continue
            place = sum(other != "shares" for other, _ in SETTINGS.efforts[:k])
            seed = self._seed(place if hubs else place - SETTINGS.hubs_first)
            few = SETTINGS.first if which.startswith("first") else self._candidate_limit(conflicts)
            if which == "shares":
                self._generate_columns(meet, conflicts, self._seed(k))
            elif which == "mixture":
                self._mixture(meet, conflicts, seed)
            elif which.endswith("meet"):
                undecided = [c for c in meet if c not in self.refuted]
                direct = [c for c in undecided if c.engine == "direct"]
                hub = [c for c in undecided if c.engine == "hub"]
                second = direct if hub and which.startswith("any") else []
                self._meet([*(hub or undecided)[:few], *second[:few]], conflicts, seed)
            else:
                frames = self._frames()
                first = [f for f in frames if not hubs or f.base.engine == "hub"]
                second = [f for f in frames if f.base.engine == "direct" and which.startswith("any")]
                self._near([*first[:few], *second[:few]], conflicts, seed)
            if self._done:
                return
        self.next = len(SETTINGS.efforts)

    @staticmethod
    def _candidate_limit(conflicts: int) -> int:
        """Return the maximum number of candidates at a conflict limit."""
        return SETTINGS.few if conflicts <= 60_000 else SETTINGS.few // 2

    def _frames(self) -> list[Frame]:
        if self.frames is None:
            self.frames = self.context.candidates.frames(self.steps, self.bound)
        return self.frames

    def _seed(self, effort: int) -> int:
        """Return the seed of an effort, another one each time that the search continues."""
        return self.context.budget.seed + effort + 1_000 * self.visits

    def _run_without_hubs(self) -> None:
        """Run `SETTINGS.other_efforts`.

        Without a time limit chunks are placed once, and fractions of chunks end the search. "near" comes between them,
        unless many chunks were placed. Where one step less had the same bound, only fractions of chunks are tried.
        """
        candidates, brief = self.context.candidates, not self.context.budget.deadline.limited
        places = candidates.placing(self.steps, 1, self.steps) is not None
        quick = brief and places
        alone = False
        for k, (which, effort) in list(enumerate(SETTINGS.other_efforts))[self.next :]:
            self.next = k
            seed = self._seed(k)
            few = self._candidate_limit(effort)
            if which == "place":
                self.brief = quick
                before, cpu, self.cpu = self.context.pool.work, self.cpu, math.inf  # its work does not count
                many = (quick and self.same_bound) or self._place(effort, seed) > SETTINGS.all_at_once
                self.cpu = cpu + self.context.pool.work - before
                alone = quick and many
            elif which == "blend":
                self._blend(effort, seed)
                if quick:
                    return
            elif alone:
                continue
            elif which == "meet" and not (quick and self.same_bound):
                self._meet(
                    [c for c in candidates.meeting(self.steps, self.bound) if c not in self.refuted][:few], effort, seed
                )
            elif which == "near":
                self._near(self._frames()[:few], effort, seed)
            if self.upper == self.bound or (self.spent and not quick):
                return
            alone = alone or self.spent
        self.next = len(SETTINGS.other_efforts)

    def _place(self, each: int, seed: int) -> int:
        """Place one chunk more each time in `each` rounds a step, until that fails; return the last number tried."""
        rounds = each * self.steps
        chunks = 1 if self.upper is None else int(rounds / self.upper) + 1
        attempts = SETTINGS.placers if chunks <= SETTINGS.all_at_once or self.context.budget.deadline.limited else 1
        while chunks * self.bound < rounds and not self._done:
            candidate = self.context.candidates.placing(self.steps, chunks, rounds)
            for _, outcome in self._run_attempts(
                [candidate] * attempts if candidate else [], each * SETTINGS.placement_propagations, seed
            ):
                if outcome.schedule is not None:
                    break
            else:
                break
            chunks += 1
        return chunks

    def _blend(self, times: int, seed: int) -> None:
        """Run column generation over single-chunk schedules, and round its fractions to whole chunks."""
        candidate = self.context.candidates.placing(self.steps, 1, self.steps)
        if candidate is None:
            return
        self.context.progress(f"S={self.steps}: fractions of chunks (at least {show(self.bound)})")
        start = tuple(s for s in (self.start, self.schedule) if s is not None)
        query = Attempt(
            "blending",
            candidate.translation,
            self.steps,
            0,
            times * SETTINGS.blending,
            seed,
            least=self.bound,
            below=self.upper,
            start=start,
        )
        for _, outcome in self.context.pool.run(iter([query]), self.deadline):
            if outcome.schedule is not None:
                self._take(outcome.schedule, "blending")

    @property
    def spent(self) -> bool:
        """True when the time for this S is over."""
        return self.deadline.over or self.context.pool.work >= self.cpu

    @property
    def _done(self) -> bool:
        return self.upper == self.bound or self.spent

    def _meet(self, candidates: Sequence[Candidate], conflicts: int, seed: int) -> None:
        """Run attempts that meet the bound, and note the candidates that are decided."""
        for candidate, outcome in self._run_attempts(candidates, conflicts, seed):
            if outcome.status in ("sat", "unsat"):
                self.refuted.add(candidate)

    def _generate_columns(self, meet: Sequence[Candidate], seconds: float, seed: int) -> None:
        """Run column generation over hub paths, and round its fractions to whole chunks for `seconds` CPU seconds."""
        candidate = self.context.candidates.sharing(self.steps)
        if candidate is None:
            return
        if self.fractions is not None and self.upper is not None and self.upper <= self.fractions * (1 + SETTINGS.sure):
            return
        self.context.progress(f"S={self.steps}: fractions of ways through hubs (at least {show(self.bound)})")
        remaining_work = max(0.0, self.cpu - self.context.pool.work)
        seconds = min(seconds, SETTINGS.in_time * self.deadline.remaining(), remaining_work)
        query = Attempt(
            "shares",
            candidate.translation,
            self.steps,
            0,
            seed=seed,
            least=self.bound,
            below=self.upper,
            seconds=seconds,
            alike=self.context.same_bits,
        )
        for _, outcome in self.context.pool.run(iter([query]), self.deadline):
            if outcome.schedule is not None:
                self._take(outcome.schedule, construction("mixture", outcome.schedule))
            if outcome.fractions is not None:
                self.fractions = outcome.fractions
        if self._hubs_exceed_bound:  # then no single hub meets it either
            self.refuted.update(c for c in meet if c.engine == "hub")

    @property
    def _hubs_exceed_bound(self) -> bool:
        """True where no mixture of hub paths meets the bound (in floating point)."""
        return self.fractions is not None and self.fractions > float(self.bound) * (1 + SETTINGS.sure)

    def _mixture(self, meet: Sequence[Candidate], starts: int, seed: int) -> None:
        """Run attempts on mixtures of hubs that meet the bound, until one does or fractions of them are refuted."""
        candidate = None if self._hubs_exceed_bound else self.context.candidates.mixture(self.steps, self.bound)
        if (
            candidate is not None
            and len(candidate.translation.translations) == 1
            and self.context.candidates.sharing(self.steps) is not None
        ):
            return
        for _, outcome in self._run_attempts([candidate] * SETTINGS.mixtures if candidate else [], starts, seed):
            if outcome.status == "unsat":  # then no single hub meets it either
                self.refuted.update(c for c in meet if c.engine == "hub")
                return

    def _near(self, frames: Sequence[Frame], conflicts: int, seed: int) -> None:
        """Lower the rounds of each frame, until none of them has a further candidate at this conflict limit."""
        for frame in frames:
            frame.now = 0
        progress = True
        while progress and not self._done:
            progress = False
            frame_of: dict[Candidate, Frame] = {}
            for candidate, outcome in self._run_attempts(self._next(frames, frame_of), conflicts, seed):
                progress = True
                frame = frame_of[candidate]
                if outcome.schedule is not None and self.upper is not None and self.upper <= candidate.value:
                    frame.alive = True
                elif outcome.status == "unsat":
                    frame.least = max(frame.least, candidate.rounds + 1)
                else:
                    frame.now = candidate.rounds + 1

    def _next(self, frames: Sequence[Frame], frame_of: dict[Candidate, Frame]) -> Iterator[Candidate]:
        """Yield the next candidate of each frame, and enter it into `frame_of`."""
        for frame in frames:
            candidate = frame.next(self.upper)
            if candidate is not None:
                frame_of[candidate] = frame
                yield candidate

    def _run_attempts(
        self, candidates: Iterable[Candidate], conflicts: int, seed: int
    ) -> Iterator[tuple[Candidate, Outcome]]:
        """Yield outcomes as they arrive and take improvements, until the bound is met or the time is over."""
        candidate_of: dict[Attempt, Candidate] = {}

        def attempts() -> Iterator[Attempt]:
            for k, c in enumerate(candidates):
                self.context.progress(
                    f"S={self.steps}: {c.engine}, C={c.translation.chunks} R={c.rounds} ({show(c.value)}, at least "
                    f"{show(self.bound)})"
                )
                # Repeated attempts of one candidate differ by their seeds alone.
                offset = {"mixture": k * conflicts, "placing": k * len(SETTINGS.other_efforts)}.get(c.engine, 0)
                attempt = Attempt(c.engine, c.translation, self.steps, c.rounds, conflicts, seed + offset)
                candidate_of[attempt] = c
                yield attempt

        outcomes = self.context.pool.run(attempts(), self.deadline)
        try:
            for attempt, outcome in outcomes:
                candidate = candidate_of[attempt]
                if outcome.schedule is not None:
                    self._take(outcome.schedule, construction(candidate.engine, outcome.schedule))
                yield candidate, outcome
                if self._done:
                    return
        finally:
            outcomes.close()

    def _take(self, schedule: Schedule, name: str) -> None:
        """Make `schedule` the result where it improves on `upper`."""
        if self.upper is not None and schedule.rounds_per_chunk >= self.upper:
            return
        if self.context.same_bits and not ends_alike(schedule):
            return
        self.schedule, self.construction, self.upper = schedule, name, schedule.rounds_per_chunk

    def _construct(self) -> None:
        """Try the constructions without search."""
        for schedule, name in self.context.constructions.schedules(self.steps, self.upper, self.deadline):
            self._take(schedule, name)
            if self._done:
                return
        self.constructed = True

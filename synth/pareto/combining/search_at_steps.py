"""The search at one S for schedules of a combining collective that meet the bound, or improve on the best known R/C.

Three rounds of growing effort. Each looks for candidates whose R/C meets the bound, on symmetric chunks
(`synth.pareto.combining.symmetry_candidates`), by the direct encoding and, where S allows it, by the hub encoding, the
cheapest first. It lowers R of candidates from above. And it generates columns: pairs of trees through hubs where the
hub encoding applies (allreduce), single-chunk schedules elsewhere. A search that the time limit ended continues with
the effort that it was at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from synth.model.bitwise_equality import same_bits as ends_alike
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.pareto.combining.attempts import Attempt, AttemptOutcome, AttemptPool
from synth.pareto.combining.candidates import Candidates, CombiningCandidate, Frame, construction
from synth.pareto.combining.constructions import Constructions
from synth.solvers.processes.deadline import NEVER, Budget, Deadline, TimeUp, check_deadline, time_limited


@dataclass(frozen=True)
class SearchSettings:
    """Efforts of the search at one S.

    Attributes:
        few: Maximum number of ranks (`CombiningCandidate.rank`) of the candidates of one effort and encoding, the
            most promising ones. Half as many where each may take long. Candidates of one rank differ by the class of
            their symmetries, which decides whether there is a schedule and how hard it is to find.
        first: Number of candidates that come before mixtures of hubs.
        mixtures: Number of attempts on a mixture of hubs, each with other starting points of its local search.
        mixture_starts: Number of starts of the local search of each such attempt.
        conflicts: Conflict limit of each attempt, by round.
        hub_seconds: CPU seconds for rounding columns of trees through hubs to whole chunks, by round.
        chunk_propagations: Propagations of column generation over single-chunk schedules, by round.
        in_time: Share of the remaining time at an S that "shares" may take, so that it reports its result
            before the end.
        sure: Relative tolerance for comparing floating-point R/C.
    """

    few: int = 12
    first: int = 4
    mixtures: int = 8
    mixture_starts: int = 8
    conflicts: tuple[int, ...] = (2_000, 60_000, 600_000)
    hub_seconds: tuple[float, ...] = (9.0, 30.0, 120.0)
    chunk_propagations: tuple[int, ...] = (8_000_000, 48_000_000, 160_000_000)
    in_time: float = 0.7
    sure: float = 1e-6


SETTINGS = SearchSettings()
Effort = tuple[str, float]  # kind, and its limit
Item = TypeVar("Item")


def efforts(hubs: bool) -> list[Effort]:
    """Return the efforts in their order, with or without the engines of the hub encoding.

    "meet": candidates that meet the bound, with a conflict limit. "first meet": a few of them. "near": bisection of R
    from above, with a conflict limit. "hub columns": with CPU seconds for rounding. "mixture": mixtures of hubs on
    symmetric chunks. "chunk columns": with a limit on propagations.

    Where the hub encoding applies "near" comes before "meet", because the bound is often below what a schedule attains:
    all attempts to meet it then give up and would leave no time for a schedule near it. Scans attain their bound at few
    steps, so "meet" comes first there.
    """
    sequence: list[Effort] = []
    if hubs:
        sequence += [("first meet", SETTINGS.conflicts[0]), ("hub columns", 0), ("mixture", SETTINGS.mixture_starts)]
    for k, conflicts in enumerate(SETTINGS.conflicts):
        if hubs:
            sequence += [("hub columns", SETTINGS.hub_seconds[k]), ("near", conflicts), ("meet", conflicts)]
        else:
            propagations = SETTINGS.chunk_propagations[k]
            sequence += [("meet", conflicts), ("near", conflicts), ("chunk columns", propagations)]
    return sequence


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
    refuted: set[CombiningCandidate] = field(default_factory=set)
    next: int = 0
    visits: int = 0
    meets: list[CombiningCandidate] | None = None
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
        return self.next >= len(efforts(self.context.candidates.hub_steps is not None))

    def run(self) -> None:
        """Run the remaining efforts; `schedule` and `construction` are then the best result."""
        try:
            with time_limited(self.deadline if self.context.budget.deadline.limited else NEVER):
                self._run()
        except TimeUp:
            return

    def _run(self) -> None:
        check_deadline()
        candidates = self.context.candidates
        hubs = candidates.hub_steps is not None
        if hubs and self.context.constructions.collective.units == 1 and not self.constructed:
            self._construct()
            if self._done:
                return
        # Without a time limit the first columns of single-chunk schedules, which do not count as work, end the search.
        limited = self.context.budget.deadline.limited
        self.brief = not (hubs or limited) and candidates.single_chunk(self.steps) is not None
        sequence = efforts(hubs)
        for k, (kind, limit) in list(enumerate(sequence))[self.next :]:
            self.next = k
            if kind == "chunk columns":
                self._generate_chunk_columns(int(limit), self._seed(k))
                if self.brief:
                    return
            elif not (self.brief and (self.same_bound or self.spent)):
                self._try(kind, limit, self._seed(k))
            if self.upper == self.bound or (self.spent and not self.brief):
                return
        self.next = len(sequence)

    def _try(self, kind: str, limit: float, seed: int) -> None:
        """Run one effort with symmetric chunks, or with columns of trees through hubs."""
        if self.meets is None:
            self.meets = self.context.candidates.meeting(self.steps, self.bound)
        meet = self.meets
        hubs = any(c.engine == "hub" for c in meet)
        few = SETTINGS.first if kind == "first meet" else self._candidate_limit(int(limit))
        if kind == "hub columns":
            self._generate_hub_columns(meet, limit, seed)
        elif kind == "near":
            frames = self._frames()
            by_hubs = [f for f in frames if f.base.engine == "hub"]
            direct = [f for f in frames if f.base.engine == "direct"]
            self._near([*by_hubs[: 2 * few], *_leading(direct, few, lambda f: f.base.rank)], int(limit), seed)
        elif kind == "meet" or hubs:
            if kind == "mixture":
                self._mixture(meet, int(limit), seed)
                return
            undecided = [c for c in meet if c not in self.refuted]
            by_hubs = [c for c in undecided if c.engine == "hub"]
            direct = [c for c in undecided if c.engine == "direct"]
            if kind == "first meet":
                direct = [] if by_hubs else direct
            self._meet([*by_hubs[: 2 * few], *_leading(direct, few, lambda c: c.rank)], int(limit), seed)

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

    def _generate_chunk_columns(self, propagations: int, seed: int) -> None:
        """Run column generation over single-chunk schedules, and round its fractions to whole chunks."""
        candidate = self.context.candidates.single_chunk(self.steps)
        if candidate is None:
            return
        self.context.progress(f"S={self.steps}: fractions of chunks (at least {show(self.bound)})")
        start = tuple(s for s in (self.start, self.schedule) if s is not None)
        query = Attempt(
            "blending",
            candidate.translation,
            self.steps,
            0,
            propagations,
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

    def _meet(self, candidates: Sequence[CombiningCandidate], conflicts: int, seed: int) -> None:
        """Run attempts that meet the bound, and note the candidates that are decided."""
        for candidate, outcome in self._run_attempts(candidates, conflicts, seed):
            if outcome.status in ("sat", "unsat"):
                self.refuted.add(candidate)

    def _generate_hub_columns(self, meet: Sequence[CombiningCandidate], seconds: float, seed: int) -> None:
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

    def _mixture(self, meet: Sequence[CombiningCandidate], starts: int, seed: int) -> None:
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
            frame_of: dict[CombiningCandidate, Frame] = {}
            for candidate, outcome in self._run_attempts(self._next(frames, frame_of), conflicts, seed):
                progress = True
                frame = frame_of[candidate]
                if outcome.schedule is not None and self.upper is not None and self.upper <= candidate.value:
                    frame.alive = True
                elif outcome.status == "unsat":
                    frame.least = max(frame.least, candidate.rounds + 1)
                else:
                    frame.now = candidate.rounds + 1

    def _next(self, frames: Sequence[Frame], frame_of: dict[CombiningCandidate, Frame]) -> Iterator[CombiningCandidate]:
        """Yield the next candidate of each frame, and enter it into `frame_of`."""
        for frame in frames:
            candidate = frame.next(self.upper)
            if candidate is not None:
                frame_of[candidate] = frame
                yield candidate

    def _run_attempts(
        self, candidates: Iterable[CombiningCandidate], conflicts: int, seed: int
    ) -> Iterator[tuple[CombiningCandidate, AttemptOutcome]]:
        """Yield outcomes as they arrive and take improvements, until the bound is met or the time is over."""
        candidate_of: dict[Attempt, CombiningCandidate] = {}

        def attempts() -> Iterator[Attempt]:
            for k, c in enumerate(candidates):
                self.context.progress(
                    f"S={self.steps}: trying {c.engine}, C={c.translation.chunks} R={c.rounds} ({show(c.value)}, "
                    f"at least {show(self.bound)})"
                )
                # Repeated attempts of a mixture differ by their seeds alone.
                offset = k * conflicts if c.engine == "mixture" else 0
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


def _leading(items: Sequence[Item], limit: int, rank: Callable[[Item], object]) -> list[Item]:
    """Return the first of `items`, which are sorted by rank: those of at most `limit` ranks."""
    ranks: set[object] = set()
    leading: list[Item] = []
    for item in items:
        ranks.add(rank(item))
        if len(ranks) > limit:
            break
        leading.append(item)
    return leading

"""The search at each number of steps for collectives that combine, where no reversal copies: allreduce, scan, custom.

Three rounds of growing effort. Each looks for candidates whose R/C meets the bound, on symmetric chunks
(`synth.pareto.combining.symmetry_candidates`), by the direct encoding and, where S allows it, by the hub encoding, the
cheapest first. It lowers R of candidates from above. And where the hub encoding applies (allreduce) it generates
columns: pairs of trees through hubs. That no symmetric schedule exists proves nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from synth.model.collective import Collective
from synth.model.frontier import LowerBound, Open, Point
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import Network
from synth.pareto.combining.attempts import Attempt, AttemptOutcome, AttemptPool
from synth.pareto.combining.candidates import Candidates, CombiningCandidate, Frame, construction, meets
from synth.pareto.step_search import StepSearch
from synth.solvers.deadline import NEVER, Deadline, TimeUp, check_deadline, time_limited

# Ranks up to which the search for a collective that no construction serves ends by itself.
FEW_RANKS = 16
# Kinds of effort, and their limits: conflicts of each attempt, or CPU seconds for whole chunks of columns. Near a bound
# that no schedule attains, all attempts to meet it give up, so with hubs "near" comes before "meet".
HUB_EFFORTS = (
    ("hubs", 2_000), ("columns", 0), ("mixture", 8), ("columns", 9), ("near", 2_000),
    ("meet", 2_000), ("columns", 30), ("near", 60_000), ("meet", 60_000), ("columns", 120), ("near", 600_000),
    ("meet", 600_000),
)  # fmt: skip
# Attempts on a mixture of hubs, each with other starting points.
MIXTURES = 8
EFFORTS = (("meet", 2_000), ("near", 2_000), ("meet", 60_000), ("near", 60_000), ("meet", 600_000), ("near", 600_000))
# Candidates of the first effort, of any other, and of one that may take long.
FIRST, FEW, FEW_OF_LONG = 8, 24, 12
# Seconds of work (`Answer.work`) at an S without a time limit, for up to 8 ranks: with hubs, with hubs and the same
# bits on all ranks, where bounds are rarely met, and without hubs.
WORK, WORK_ALIKE, WORK_OTHERS = 12.0, 2.5, 2.5
# Wall seconds allowed for each second of work, so that other load on the machine changes no answer.
LOADED = 60
# Share of the remaining time that columns may take, so that they report their result before the end.
IN_TIME = 0.7
# Relative tolerance for R/C in floating point.
SURE = 1e-6


def has_no_end(network: Network, collective: Collective) -> bool:
    """Return True where bounds on copies can take minutes: for sums over more than `FEW_RANKS` ranks that are not the
    same on all ranks, as those of a scan, and are no copying collective reversed in time, as a reduce-scatter is."""
    everyone = frozenset(range(network.ranks))
    alike = collective.wants is None and all(x == everyone for x in (*collective.pre, *collective.post))
    return collective.combining and not collective.reversible and not alike and network.ranks > FEW_RANKS


@dataclass
class _Search:
    """The search at one S, with its ends: `deadline`, and `work`, that of the pool at which it ends.

    `effort`: index of the one to continue with. `visits`: number of continuations. `refuted`: candidates that need no
    further attempt. `fractions`: the least R/C of a fractional mixture of hub paths.
    """

    steps: int
    bound: Fraction
    deadline: Deadline = NEVER
    work: float = math.inf
    effort: int = 0
    visits: int = 0
    frames: list[Frame] | None = None
    refuted: set[Frame] = field(default_factory=set)
    fractions: float | None = None


class CombiningSearch:
    """The searches at all S of one sweep."""

    def __init__(self, sweep: StepSearch) -> None:
        self.sweep = sweep
        self.pool = AttemptPool(1 if sweep.options.deterministic else sweep.options.jobs, sweep.options.memory)
        self.candidates = Candidates(sweep.network, sweep.collective)
        self.searches: dict[int, _Search] = {}
        self.seconds = sweep.deadline.remaining()

    def close(self, steps: int, bound: LowerBound) -> Iterator[Point]:
        """Search for a schedule of `steps` steps that meets `bound`; yield points.

        The last one is optimal, or the best one that the time allows, and then the interval is left open.
        """
        # the best schedule of an earlier run, or of another engine
        sweep, found, began = self.sweep, self.sweep.found, time.monotonic()
        known = [*sweep.resumed(steps), *(row for row in found.rows if row.steps == steps)]
        for point in sorted(known, key=lambda p: (p.rounds_per_chunk, not p.same_bits)):
            best = found.best(steps)
            improves = best is None or point.rounds_per_chunk < best
            if improves and (point.same_bits or not sweep.options.same_bits):
                yield replace(point, bound=bound)

        # the searches, until one meets the bound or the time for this S is over
        search = self.searches.get(steps)
        if search is None or search.bound != bound.value:
            search = self.searches[steps] = _Search(steps, bound.value)
        search.deadline, search.work = self._limits()
        best = found.best(steps)
        if best is None or best > bound.value:
            improvements = self._improvements(search)
            while found.best(steps) != bound.value:
                try:
                    with time_limited(search.deadline if sweep.deadline.limited else NEVER):
                        schedule, name = next(improvements)
                except (TimeUp, StopIteration):
                    break
                yield Point.of(schedule, bound, name, True, time.monotonic() - began)
            improvements.close()
            search.visits += 1
        best = found.best(steps)
        if best is not None and best <= bound.value:
            if not any(point.steps == steps for point in found.points):
                found.bounds.append((steps, bound))
            return
        more = search.effort < len(self._efforts) if sweep.deadline.limited else self._spent(search)
        found.add_open(Open(steps, bound.value, best, "time" if more else "gave-up", bound.certificate))
        found.tell("open", f"S={steps}: open, at least {show(bound.value)}", steps, bound.value)

    @property
    def _efforts(self) -> tuple[tuple[str, int], ...]:
        return EFFORTS if self.candidates.hub_steps is None else HUB_EFFORTS

    def _limits(self) -> tuple[Deadline, float]:
        """Return the ends of the search at one S: its deadline, and that of the pool's work."""
        sweep = self.sweep
        if sweep.deadline.limited:  # the S to come have their shares, too
            seconds = max(sweep.deadline.remaining() / 4, min(WORK, self.seconds / 4))
            return sweep.budget(seconds if sweep.share is None else sweep.share).deadline, math.inf
        work = WORK * max(1.0, sweep.network.ranks / 8) ** 1.5
        if self.candidates.hub_steps is None:
            work = WORK_OTHERS
        elif sweep.options.same_bits:
            work = WORK_ALIKE
        return Deadline.after(LOADED * work), self.pool.work + work

    def _improvements(self, search: _Search) -> Generator[tuple[Schedule, str]]:
        """Yield schedules of less and less R/C with their names, from the effort on that the search is at.

        Raises TimeUp.
        """
        sweep, efforts, bound = self.sweep, self._efforts, search.bound
        check_deadline()
        if search.frames is None:
            search.frames = self.candidates.frames(search.steps, bound)
        for effort in range(search.effort, len(efforts)):
            search.effort = effort
            kind, limit = efforts[effort]
            seed = sweep.options.seed + effort + 1_000 * search.visits
            few = FEW if limit <= 60_000 else FEW_OF_LONG
            if kind == "columns":
                # fractions alone decide whether a mixture is worth a search; where there is none, whole chunks are next
                if not limit and self.candidates.mixture(search.steps, bound) is None:
                    continue
                yield from self._columns(search, min(limit, search.work - self.pool.work), seed)
            elif kind == "near":
                yield from self._near(search, _promising(search.frames, few), limit, seed)
            elif kind == "mixture":
                mixture = self.candidates.mixture(search.steps, bound)
                if mixture is None or self._hubs_exceed(search):
                    continue
                for k in range(MIXTURES):
                    for _, outcome in self._run(search, [mixture], limit, seed + k * limit):
                        if outcome.schedule is not None:
                            yield outcome.schedule, construction("mixture", outcome.schedule)
                    if self._spent(search):
                        break
            else:
                meeting = [f for f in search.frames if meets(f, bound) and f not in search.refuted]
                if self._hubs_exceed(search):
                    meeting = [f for f in meeting if f.base.engine != "hub"]  # no mixture of hub paths meets the bound
                if kind == "hubs":
                    meeting = [f for f in meeting if f.base.engine == "hub"][:FIRST]
                frames_of = {f.at(f.least): f for f in _promising(meeting, few)}
                for candidate, outcome in self._run(search, frames_of, limit, seed):
                    if outcome.status in ("sat", "unsat"):
                        search.refuted.add(frames_of[candidate])
                    if outcome.schedule is not None:
                        yield outcome.schedule, construction(candidate.engine, outcome.schedule)
            if self._spent(search):
                return
        search.effort = len(efforts)

    @staticmethod
    def _hubs_exceed(search: _Search) -> bool:
        """Return True where no mixture of hub paths meets the bound (in floating point)."""
        return search.fractions is not None and search.fractions > float(search.bound) * (1 + SURE)

    def _columns(self, search: _Search, seconds: float, seed: int) -> Iterator[tuple[Schedule, str]]:
        """Run column generation over hub paths, and make whole chunks of its fractions for `seconds` CPU seconds."""
        best, chunks, fractions = self.sweep.found.best(search.steps), self.candidates.columns(), search.fractions
        if chunks is None or (fractions is not None and best is not None and best <= fractions * (1 + SURE)):
            return
        self.sweep.found.tell("query", f"S={search.steps}: fractions of ways through hubs", search.steps, search.bound)
        attempt = Attempt(
            "columns", chunks, search.steps, seed=seed, least=search.bound, below=best,
            alike=self.sweep.options.same_bits, seconds=max(0.0, min(seconds, IN_TIME * search.deadline.remaining())),
        )  # fmt: skip
        for _, outcome in self.pool.run(iter([attempt]), search.deadline):
            search.fractions = outcome.fractions if outcome.fractions is not None else search.fractions
            if outcome.schedule is not None:
                yield outcome.schedule, construction("columns", outcome.schedule)

    def _near(self, search: _Search, frames: list[Frame], conflicts: int, seed: int) -> Iterator[tuple[Schedule, str]]:
        """Lower the rounds of each frame, until none of them has a further candidate at this conflict limit."""
        for frame in frames:
            frame.now = 0
        progress = True
        while progress:
            progress = False
            frames_of: dict[CombiningCandidate, Frame] = {}
            candidates = self._following(search, frames, frames_of)
            for candidate, outcome in self._run(search, candidates, conflicts, seed):
                progress, frame = True, frames_of[candidate]
                if outcome.schedule is not None:
                    yield outcome.schedule, construction(candidate.engine, outcome.schedule)
                best = self.sweep.found.best(search.steps)
                if outcome.schedule is not None and best is not None and best <= candidate.value:
                    frame.alive = True
                elif outcome.status == "unsat":
                    frame.least = max(frame.least, candidate.rounds + 1)
                else:
                    frame.now = candidate.rounds + 1
            if self._spent(search):
                return

    def _following(
        self, search: _Search, frames: list[Frame], frames_of: dict[CombiningCandidate, Frame]
    ) -> Iterator[CombiningCandidate]:
        """Yield the next candidate of each frame, and enter it into `frames_of`."""
        for frame in frames:
            candidate = frame.next(self.sweep.found.best(search.steps))
            if candidate is not None:
                frames_of[candidate] = frame
                yield candidate

    def _spent(self, search: _Search) -> bool:
        """Return True when the time for this S is over."""
        return self.pool.work >= search.work or search.deadline.over

    def _run(
        self, search: _Search, candidates: Iterable[CombiningCandidate], conflicts: int, seed: int
    ) -> Iterator[tuple[CombiningCandidate, AttemptOutcome]]:  # fmt: skip
        """Yield outcomes of the candidates as they arrive; schedules only that improve on the best known.

        With the option `same_bits` only schedules count that leave the same bits on all ranks.
        """
        candidate_of: dict[Attempt, CombiningCandidate] = {}

        def attempts() -> Iterator[Attempt]:
            for c in candidates:
                best = self.sweep.found.best(search.steps)
                if best is not None and c.value >= best:
                    continue
                text = f"S={c.steps}: trying {c.engine}, C={c.translation.chunks} R={c.rounds} ({show(c.value)})"
                self.sweep.found.tell("query", text, c.steps)
                attempt = Attempt(c.engine, c.translation, c.steps, c.rounds, conflicts, seed)
                candidate_of[attempt] = c
                yield attempt

        outcomes = self.pool.run(attempts(), search.deadline)
        try:
            for attempt, outcome in outcomes:
                schedule, best = outcome.schedule, self.sweep.found.best(search.steps)
                if schedule is not None and (
                    (best is not None and schedule.rounds_per_chunk >= best)
                    or (self.sweep.options.same_bits and not same_bits(schedule))
                ):
                    outcome = AttemptOutcome(outcome.status)
                yield candidate_of[attempt], outcome
                if self._spent(search):
                    return
        finally:
            outcomes.close()


def _promising(frames: list[Frame], few: int) -> list[Frame]:
    """Return the first of the sorted frames of each engine."""
    by_hubs = [f for f in frames if f.base.engine == "hub"]
    direct = [f for f in frames if f.base.engine == "direct"]
    return [*by_hubs[:few], *direct[:few]]

"""Lower bounds of a combining collective, S by S; where the whole has a time limit, in processes that are waited for so
long only.

A bound that takes longer rests, and what is known by then serves: the bound for any number of steps serves for each of
them, and either half of it for the whole. Where time is left, what rests goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import cast

from synth import bounds
from synth.bounds import single_chunk
from synth.bounds.single_cut import fenced
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Budget, Unknown
from synth.model.topology import Network
from synth.pareto import bound_notes
from synth.pareto.events import NoBoundError
from synth.pareto.portfolio.members import Racer
from synth.solvers.processes.resumable_jobs import LEAST_RANKS, Awaited

FEW_RANKS = 16  # up to here a quick one is, where the best is late
LEAST_SECONDS = 1.0  # for a first bound, however little time was allowed
QUICK_SHARE = 0.15  # of the time, for the first half of it, where there is a quick one
FLOOR_SHARE = 0.15  # of the time left, for the second half of the bound for any number of steps
STEPS_SHARE = 0.15  # for the bound at one S
RAISE_SHARE = 0.25  # for what one chunk pays there
LIMITED = "the time limit ended its search"
HALVES = {
    "flow": bounds.flow,
    "completing": bounds.completing,
}  # of the bound for any number of steps, which is the greater one
ENDED = {"memory": "the memory allowed ended its search", "crash": "its search ended early"}


@dataclass
class Bounding:
    """The bounds as far as they are known. `floor`: that for any number of steps, after `first`. `close` ends what is
    still at work."""

    network: Network
    collective: Collective
    budget: Budget
    began: float = field(default_factory=time.monotonic)
    floor: LowerBound | None = None

    def __post_init__(self) -> None:
        self.end = None if self.budget.seconds is None else self.began + self.budget.seconds
        self._flows = Awaited(self.budget, Racer("tree").imports)
        self._prices = Awaited(self.budget, Racer("step", "cadical").imports)
        self._halves: list[str] = []  # which are asked for

    def close(self) -> None:
        """Ends what is still at work."""
        self._flows.close()
        self._prices.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """That there may be a higher bound for any number of steps, and why it was not found."""
        missing = [self._flows.found.get(key) for key in self._halves]
        why = [ENDED.get(m.reason, "") if isinstance(m, Unknown) else LIMITED
               for m in missing if not isinstance(m, LowerBound)]  # fmt: skip
        return (bound_notes.note(why[0]),) if why else ()

    def first(self) -> LowerBound:
        """The bound for any number of steps, or what the time allows of it. Raises NoBoundError where there is none by
        then."""
        wide = self.network.ranks > FEW_RANKS and self.collective.wants is not None
        quick = fenced(self.network, self.collective) if wide else None
        if self.end is None or self.network.ranks <= LEAST_RANKS:
            found = bounds.allreduce(self.network, self.collective, None)
            self.floor = found if quick is None or quick.value <= found.value else quick
            return self.floor
        self._halves = [key for key in HALVES if key == "flow" or bounds.completes(self.collective)]
        now = time.monotonic()
        last = max(self.end, now + LEAST_SECONDS)
        if quick is not None:
            self.floor, last = quick, now + QUICK_SHARE * max(0.0, self.end - now)
        pending = list(self._halves if self.budget.jobs > 1 else self._halves[:1])
        for key in pending:
            self._flows.begin(key, HALVES[key], self.network, self.collective, None)
        while pending and not self._known() and time.monotonic() < last:
            self._flows.wait(pending, last)
            self._known()
            pending = [key for key in pending if key in self._flows.jobs]
        if self.floor is None and self.network.ranks <= FEW_RANKS:
            self.floor = bounds.flow(self.network, self.collective, None, cycles=1)
        if self.floor is None:
            raise NoBoundError(self.network, self.collective)
        self._more(FLOOR_SHARE)
        return self.floor

    def at(self, steps: int, share: float | None = None) -> LowerBound:
        """The bound at `steps`, with `share` of the time left for it (`STEPS_SHARE`); where it is late, the one for any
        number of steps."""
        floor = cast(LowerBound, self.floor)
        if not self._halves:
            found: object = bounds.flow(self.network, self.collective, steps)
        else:
            found = self._awaited(self._flows, steps, STEPS_SHARE if share is None else share, bounds.flow, steps)
        return max(found, floor, key=lambda b: b.value) if isinstance(found, LowerBound) else floor

    def raised(self, steps: int, above: Fraction) -> LowerBound | None:
        """A bound at `steps` by what one chunk pays (`synth.bounds.single_chunk`) that is more than `above`; None where
        none is found."""
        if self.end is None:
            return single_chunk.bound(self.network, self.collective, steps, above)
        found = self._awaited(self._prices, (steps, above), RAISE_SHARE, single_chunk.bound, steps, above)
        return found if isinstance(found, LowerBound) else None

    def late(self, steps: int) -> bool:
        """Whether with more time the bound at `steps` might be higher."""
        paid = [key for key in self._prices.jobs if isinstance(key, tuple) and key[0] == steps]
        return bool(paid or {steps, *HALVES} & set(self._flows.jobs))

    def again(self, steps: int, seconds: float) -> LowerBound:
        """As `at`, with so many seconds: half of them for the bound for any number of steps, where half of that was
        late."""
        until = time.monotonic() + seconds
        self._more(self._share(seconds / 2))
        return self.at(steps, self._share(until - time.monotonic()))

    def _share(self, seconds: float) -> float:
        """What so many seconds are of the time left."""
        left = 0.0 if self.end is None else self.end - time.monotonic()
        return 0.0 if left <= 0 else min(1.0, max(0.0, seconds) / left)

    def _awaited(self, asked: Awaited, key: Hashable, share: float, call: Callable, *given: object) -> object:
        """The answer to a question about this problem, None where it rests or there is no time to ask it."""
        if self.end is None or (key not in asked.found and time.monotonic() >= self.end):
            return None
        return asked.ask(key, self._until(share), call, self.network, self.collective, *given)

    def _known(self) -> bool:
        """Whether there is a bound for any number of steps; `floor` is the greater of the halves that are there."""
        there = [b for b in map(self._flows.found.get, self._halves) if isinstance(b, LowerBound)]
        known = [self.floor] if self.floor is not None else []
        self.floor = max([*known, *there], key=lambda b: b.value, default=None)
        return bool(there)

    def _more(self, share: float) -> None:
        """Waits for the half that is missing."""
        for key in [key for key in self._halves if key not in self._flows.found]:
            self._flows.ask(key, self._until(share), HALVES[key], self.network, self.collective, None)
        if self._halves:
            self._known()

    def _until(self, share: float) -> float:
        now = time.monotonic()
        return now if self.end is None else now + share * max(0.0, self.end - now)

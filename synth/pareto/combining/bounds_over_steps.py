"""Lower bounds of a combining collective for each S; under a time limit they are computed in suspendable processes.

A bound that is not ready in time is suspended, and a weaker one serves instead: the bound for any number of steps holds
at each S, and either part of it, or the cut-set bound, is a bound for any number of steps. Suspended searches continue
where time is left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from synth import bounds
from synth.bounds import single_chunk
from synth.bounds.single_cut import single_cut_bound
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Unknown
from synth.model.topology import Network
from synth.pareto import notes
from synth.pareto.portfolio.members import Member
from synth.solvers.processes.deadline import Budget, Deadline
from synth.solvers.processes.resumable_jobs import MAX_RANKS_IN_PROCESS, ResumableJobs


@dataclass(frozen=True)
class StepBoundsSettings:
    """Shares of the remaining time that bounds of a combining collective may take.

    Attributes:
        floor_share: For each part of the bound for any number of steps.
        steps_share: For the bound at one S.
        raise_share: For the single-chunk bound at one S.
    """

    floor_share: float = 0.15
    steps_share: float = 0.15
    raise_share: float = 0.25


SETTINGS = StepBoundsSettings()
LIMITED = "the time limit ended its search"
# The parts of the bound for any number of steps, which is the greater of the two.
PARTS = {"flow": bounds.flow, "completing": bounds.completion_bound}
ENDED = {"memory": "the memory allowed ended its search", "crash": "its search ended early"}


@dataclass
class StepBounds:
    """Bounds of one problem, as far as they are known. Call `close` to end the searches that still run.

    All of them end at the deadline of `budget`. `floor`: the bound for any number of steps, which `first` raises; None
    until then where no other method has one.
    """

    network: Network
    collective: Collective
    budget: Budget
    floor: LowerBound | None = None

    def __post_init__(self) -> None:
        self._flow_jobs = ResumableJobs(self.budget.memory, Member("tree").imports)
        self._single_chunk_jobs = ResumableJobs(self.budget.memory, Member("step", "cadical").imports)
        self._parts: list[str] = []  # keys of `PARTS` that were begun

    @property
    def deadline(self) -> Deadline:
        """The end of all bounds."""
        return self.budget.deadline

    def close(self) -> None:
        """End the searches that still run."""
        self._flow_jobs.close()
        self._single_chunk_jobs.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """A note that the bound for any number of steps may be higher and why, where a part of it is missing."""
        for result in map(self._flow_jobs.results.get, self._parts):
            if not isinstance(result, LowerBound):
                why = ENDED.get(result.reason, "") if isinstance(result, Unknown) else LIMITED
                return (notes.unproven_bound(why),)
        return ()

    def first(self) -> LowerBound:
        """Return the bound for any number of steps, or a weaker one where the time does not allow all its parts."""
        self.floor = self.floor or single_cut_bound(self.network, self.collective)
        if not self.deadline.limited or self.network.ranks <= MAX_RANKS_IN_PROCESS:
            best = bounds.combining(self.network, self.collective, None)
            self.floor = max(best, self.floor, key=lambda b: b.value)
            return self.floor
        self._parts = [key for key in PARTS if key == "flow" or bounds.has_completion_bound(self.collective)]
        if self.deadline.over:
            return self.floor
        for key in self._parts if self.budget.jobs > 1 else ():
            self._flow_jobs.begin(key, PARTS[key], self.network, self.collective, None)
        self._await_parts(self.deadline, SETTINGS.floor_share)
        return self.floor

    def at(self, steps: int, deadline: Deadline | None = None) -> LowerBound:
        """Return the bound at `steps`, or `floor` where it is late.

        `deadline`: its own end (default: after `SETTINGS.steps_share` of the remaining time).
        """
        floor = cast(LowerBound, self.floor)
        if not self._parts:
            result: object = bounds.flow(self.network, self.collective, steps)
        else:
            deadline = deadline or self.deadline.share(SETTINGS.steps_share)
            result = self._query(self._flow_jobs, steps, deadline, bounds.flow, steps)
        return max(result, floor, key=lambda b: b.value) if isinstance(result, LowerBound) else floor

    def single_chunk_bound(self, steps: int, above: Fraction) -> LowerBound | None:
        """Return a single-chunk bound (`synth.bounds.single_chunk`) at `steps` that is above `above`, or None."""
        if not self.deadline.limited:
            return single_chunk.bound(self.network, self.collective, steps, above)
        deadline = self.deadline.share(SETTINGS.raise_share)
        result = self._query(self._single_chunk_jobs, (steps, above), deadline, single_chunk.bound, steps, above)
        return result if isinstance(result, LowerBound) else None

    def may_rise(self, steps: int) -> bool:
        """Return True where the bound at `steps` might be higher with more time."""
        suspended = [key for key in self._single_chunk_jobs.jobs if isinstance(key, tuple) and key[0] == steps]
        return bool(suspended or {steps, *PARTS} & set(self._flow_jobs.jobs))

    def with_more_time(self, steps: int, deadline: Deadline) -> LowerBound:
        """Return the bound at `steps`, with more time until the deadline.

        Half of it goes to the bound for any number of steps, where a part of that is missing.
        """
        self._await_parts(deadline, 1 / 2)
        return self.at(steps, deadline)

    def _query(
        self, jobs: ResumableJobs, key: Hashable, deadline: Deadline, call: Callable, *arguments: object
    ) -> object:
        """Return the result of a call about this problem, or None where it is late or no time is left to begin it."""
        if key not in jobs.results and self.deadline.over:
            return None
        return jobs.run_until(key, deadline, call, self.network, self.collective, *arguments)

    def _update_floor(self) -> None:
        """Raise `floor`, the bound for any number of steps, to the greatest of the bounds computed so far."""
        ready = [b for b in map(self._flow_jobs.results.get, self._parts) if isinstance(b, LowerBound)]
        self.floor = max([*ready, cast(LowerBound, self.floor)], key=lambda b: b.value)

    def _await_parts(self, deadline: Deadline, share: float) -> None:
        """Wait for the missing parts, each for `share` of the time until the deadline."""
        for key in [key for key in self._parts if key not in self._flow_jobs.results]:
            self._flow_jobs.run_until(key, deadline.share(share), PARTS[key], self.network, self.collective, None)
        if self._parts:
            self._update_floor()

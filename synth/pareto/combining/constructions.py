"""Constructions of allreduce without search: pipelined spanning trees, and reduce-scatter followed by allgather."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from synth import bounds
from synth.encodings import spanning_tree_packing
from synth.model.collective import Collective
from synth.model.collective import collective as collective_named
from synth.model.frontier import LowerBound
from synth.model.outcome import Sat
from synth.model.schedule import Problem, Schedule
from synth.model.topology import Network
from synth.pareto.combining.rs_ag_composition import compose
from synth.pareto.portfolio import portfolio
from synth.pareto.portfolio.members import Member
from synth.solvers.processes.deadline import NEVER, Budget, Deadline, TimeUp, time_limited
from synth.solvers.processes.resumable_jobs import MAX_RANKS_IN_PROCESS, ResumableJobs


@dataclass(frozen=True)
class ConstructionSettings:
    """Sizes and times up to which allreduce is constructed without search.

    Attributes:
        forest_units: Maximum sum of the units of all links of a network whose spanning trees are packed.
        compose_seconds: CPU seconds for the search for one allgather schedule to compose.
        most_chunks: Maximum number of chunks of all ranks together in a composed schedule: it is written out and
            replayed in this process, whose memory and time nothing else limits.
        loaded: Wall seconds allowed for each CPU second, so that other load on the machine changes no answer.
    """

    forest_units: int = 200
    compose_seconds: float = 4.0
    most_chunks: int = 30_000
    loaded: int = 60


SETTINGS = ConstructionSettings()


@dataclass
class Constructions:
    """The constructions for one network and collective.

    All of them end at the deadline of `budget`. `close` ends their processes.
    """

    network: Network
    collective: Collective
    budget: Budget
    _bounds: dict[tuple[bool, int], LowerBound] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._jobs = ResumableJobs(self.budget.memory, Member("tree").imports)

    def close(self) -> None:
        """End the searches that still run."""
        self._jobs.close()

    @cached_property
    def forest(self) -> spanning_tree_packing.SpanningTreePacking | None:
        """Spanning trees that attain the rate for large messages.

        None where they are not known to attain it, where the network is large, or where no time is left.
        """
        small = sum(r.units for r in self.network.routes) <= SETTINGS.forest_units
        if not small or not spanning_tree_packing.applies(self.network):
            return None
        try:
            with time_limited(self.budget.deadline):
                return spanning_tree_packing.forest(self.network)
        except TimeUp:
            return None

    def schedules(
        self, steps: int, upper: Fraction | None, deadline: Deadline = NEVER
    ) -> Iterator[tuple[Schedule, str]]:
        """Yield (schedule, name of the construction) for schedules of `steps` steps.

        Reduce-scatter + allgather is tried where its R/C may be below `upper`. No search begins
        after `deadline`, where the budget has one, too.
        """
        forest = self.forest
        if forest is not None and steps >= 2 * forest.height:
            chunks = len(forest.trees) * (steps - 2 * forest.height + 1)
            schedule = spanning_tree_packing.schedule(forest, self.collective, chunks)
            upper = schedule.rounds_per_chunk if upper is None else min(upper, schedule.rounds_per_chunk)
            yield schedule, "spanning-tree packing"
        composed = self._composed(steps, upper, deadline if self.budget.deadline.limited else NEVER)
        if composed is not None:
            yield composed, "reduce-scatter + allgather"

    def _composed(self, steps: int, upper: Fraction | None, deadline: Deadline) -> Schedule | None:
        """Return reduce-scatter + allgather in `steps` steps, or None where its bounds are not below `upper`.

        Only splits with at most `SETTINGS.most_chunks` chunks are tried. The bounds of reduce-scatter are taken to be
        those of allgather, which only decides which split is tried.
        """
        least = int(bounds.steps(self.network, collective_named("allgather", self.network.ranks)).value)
        splits = []
        for a in range(least, steps - least + 1):
            first, second = self._bound(True, a, deadline), self._bound(True, steps - a, deadline)
            if first is None or second is None:
                continue
            chunks = math.lcm(_chunks(first, a), _chunks(second, steps - a))
            if chunks * self.network.ranks <= SETTINGS.most_chunks:
                splits.append((first.value + second.value, a))
        if not splits or (upper is not None and min(splits)[0] / self.network.ranks >= upper):
            return None
        first = min(splits)[1]
        parts = [self._gathered(forwards, n, deadline) for forwards, n in ((False, first), (True, steps - first))]
        if parts[0] is None or parts[1] is None:
            return None
        return compose(parts[0], parts[1], self.collective)

    def _bound(self, forwards: bool, steps: int, deadline: Deadline) -> LowerBound | None:
        """Return the bound of allgather at `steps`, on the network or its reversal, or None where it is late."""
        key = (forwards, steps)
        if key not in self._bounds:
            network = self.network if forwards else self.network.reversed()
            allgather = collective_named("allgather", network.ranks)
            if not deadline.limited or network.ranks <= MAX_RANKS_IN_PROCESS:
                bound: object = bounds.flow(network, allgather, steps)
            else:
                if key not in self._jobs.results and deadline.over:
                    return None
                bound = self._jobs.run_until(key, deadline, bounds.flow, network, allgather, steps)
            if not isinstance(bound, LowerBound):
                return None
            self._bounds[key] = bound
        return self._bounds[key]

    def _gathered(self, forwards: bool, steps: int, deadline: Deadline) -> Schedule | None:
        """Return an allgather schedule that meets its bound, None where none is found in `SETTINGS.compose_seconds`."""
        bound = self._bound(forwards, steps, deadline)
        if bound is None or deadline.over:
            return None
        network, chunks = (self.network if forwards else self.network.reversed()), _chunks(bound, steps)
        allgather = collective_named("allgather", network.ranks)
        problem = Problem(network, allgather, chunks, steps, int(chunks * bound.value))
        seconds = SETTINGS.compose_seconds
        deadline = deadline.within(seconds if deadline.limited else SETTINGS.loaded * seconds)
        budget = replace(self.budget, deadline=deadline, cpu_seconds=seconds)
        verdict = portfolio.solve(problem, budget=budget)
        return verdict.schedule if isinstance(verdict, Sat) else None


def _chunks(bound: LowerBound, steps: int) -> int:
    """Least number of chunks of a schedule that meets `bound` in whole rounds, at least one for each step."""
    return bound.value.denominator * max(1, -(-steps // bound.value.numerator))

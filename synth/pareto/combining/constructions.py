"""Schedules of allreduce that need no search of their own: pipelined spanning trees, and reduce-scatter + allgather."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from synth import bounds
from synth.encodings import spanning_tree_packing
from synth.model.collective import Collective
from synth.model.collective import collective as collective_named
from synth.model.frontier import LowerBound
from synth.model.outcome import Budget, Sat
from synth.model.schedule import Problem, Schedule
from synth.model.topology import Network
from synth.pareto.combining.rs_ag_composition import compose
from synth.pareto.portfolio import race
from synth.pareto.portfolio.members import Racer
from synth.solvers.processes.deadline import TimeUp, until
from synth.solvers.processes.resumable_jobs import LEAST_RANKS, Awaited

FOREST_UNITS = 200  # units of all links of networks whose trees are packed
COMPOSE_SECONDS = 4.0  # CPU seconds for an allgather schedule to compose with
MOST_CHUNKS = 30_000  # of all ranks together, of these: composed in this process, whose memory nothing else bounds
LOADED = 60  # wall seconds for each of these, at most: others may use the machine too, and are to change no answer


@dataclass
class Built:
    """What is built for one network and collective. `budget.seconds`, from `began` on, ends all of it; `close` ends its
    processes."""

    network: Network
    collective: Collective
    budget: Budget
    began: float = field(default_factory=time.monotonic)
    _bounds: dict[tuple[bool, int], LowerBound] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._asked = Awaited(self.budget, Racer("tree").imports)

    def close(self) -> None:
        """Ends what is still at work."""
        self._asked.close()

    @cached_property
    def forest(self) -> spanning_tree_packing.Forest | None:
        """Trees that attain the rate for large messages, where they are known to, the network is small, and there is
        time."""
        small = sum(r.units for r in self.network.routes) <= FOREST_UNITS
        if not small or not spanning_tree_packing.applies(self.network):
            return None
        try:
            with until(self._left):
                return spanning_tree_packing.forest(self.network)
        except TimeUp:
            return None

    @property
    def _left(self) -> float | None:
        return None if self.budget.seconds is None else max(0.0, self.budget.seconds - (time.monotonic() - self.began))

    def schedules(self, steps: int, upper: Fraction | None, end: float | None = None) -> Iterator[tuple[Schedule, str]]:
        """Schedules of `steps` steps with the names of their constructions; reduce-scatter + allgather where it may be
        below `upper`.

        `end`: monotonic seconds at which no more is begun, where the whole has a limit.
        """
        made = self.forest
        if made is not None and steps >= 2 * made.height:
            schedule = spanning_tree_packing.schedule(made, self.collective, steps - 2 * made.height + 1)
            upper = schedule.bandwidth if upper is None else min(upper, schedule.bandwidth)
            yield schedule, "tau forest"
        composed = self._composed(steps, upper, end if self.budget.seconds is not None else None)
        if composed is not None:
            yield composed, "reduce-scatter + allgather"

    def _composed(self, steps: int, upper: Fraction | None, end: float | None) -> Schedule | None:
        """Reduce-scatter + allgather in `steps` steps, if its bounds say that it may be below `upper`.

        The bounds of reduce-scatter are taken to be those of allgather, which only decides what is tried.
        """
        least = int(bounds.steps(self.network, collective_named("allgather", self.network.ranks)).value)
        splits = []
        for a in range(least, steps - least + 1):
            first, second = self._bound(True, a, end), self._bound(True, steps - a, end)
            if first is not None and second is not None:
                splits.append((first.value + second.value, a))
        if not splits or (upper is not None and min(splits)[0] / self.network.ranks >= upper):
            return None
        first = min(splits)[1]
        parts = [self._gathered(forwards, n, end) for forwards, n in ((False, first), (True, steps - first))]
        if parts[0] is None or parts[1] is None:
            return None
        return compose(parts[0], parts[1], self.collective)

    def _bound(self, forwards: bool, steps: int, end: float | None) -> LowerBound | None:
        """The bound of allgather at `steps`, on the network or its reversal; None where it is late."""
        key = (forwards, steps)
        if key not in self._bounds:
            network = self.network if forwards else self.network.reversed()
            task = collective_named("allgather", network.ranks)
            if end is None or network.ranks <= LEAST_RANKS:
                found: object = bounds.flow(network, task, steps)
            else:
                if key not in self._asked.found and time.monotonic() >= end:
                    return None
                found = self._asked.ask(key, end, bounds.flow, network, task, steps)
            if not isinstance(found, LowerBound):
                return None
            self._bounds[key] = found
        return self._bounds[key]

    def _gathered(self, forwards: bool, steps: int, end: float | None) -> Schedule | None:
        """An allgather schedule that meets its bound, None when none is found quickly."""
        found = self._bound(forwards, steps, end)
        left = COMPOSE_SECONDS if end is None else min(COMPOSE_SECONDS, end - time.monotonic())
        if found is None or left <= 0:
            return None
        network, value = (self.network if forwards else self.network.reversed()), found.value
        more = max(1, -(-steps // value.numerator))
        if value.denominator * more * network.ranks > MOST_CHUNKS:
            return None
        task = collective_named("allgather", network.ranks)
        problem = Problem(network, task, value.denominator * more, steps, value.numerator * more)
        patience = 1.0 if end is not None else float(LOADED)
        verdict = race.solve(problem, budget=replace(self.budget, seconds=left), patience=patience)
        return verdict.schedule if isinstance(verdict, Sat) else None

"""Allreduce without search of its own: reduce-scatter followed by allgather, in the best split of the steps."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import lcm

from synth.encodings import bounds
from synth.model.collective import Collective
from synth.model.collective import collective as collective_named
from synth.model.frontier import LowerBound
from synth.model.outcome import Sat
from synth.model.schedule import Problem, Schedule
from synth.model.topology import Network
from synth.pareto.combining.rs_ag_composition import compose
from synth.pareto.portfolio import portfolio
from synth.solvers.deadline import Budget

SECONDS = 4.0  # CPU seconds for the search for one allgather
LOADED = 60  # wall seconds allowed for each of them without a time limit
MOST_CHUNKS = 30_000  # of all ranks together: the schedule is written out and replayed in this process


def composed(
    network: Network, collective: Collective, steps: int, upper: Fraction | None, budget: Budget
) -> Schedule | None:
    """Return reduce-scatter + allgather in `steps` steps, or None where its bounds are not below `upper`.

    The bounds of reduce-scatter are taken to be those of allgather, which only decides which split is tried.
    """
    allgather = collective_named("allgather", network.ranks)
    least = int(bounds.steps(network, allgather).value)
    splits = []
    for a in range(least, steps - least + 1):
        first, second = _bound(network, a), _bound(network, steps - a)
        chunks = lcm(_chunks(first, a), _chunks(second, steps - a))
        if chunks * network.ranks <= MOST_CHUNKS:
            splits.append((first.value + second.value, a))
    if not splits or (upper is not None and min(splits)[0] / network.ranks >= upper):
        return None
    first_steps = min(splits)[1]
    parts: list[Schedule] = []
    for net, count in ((network.reversed(), first_steps), (network, steps - first_steps)):
        bound = _bound(net, count)
        chunks = _chunks(bound, count)
        deadline = budget.deadline.within(SECONDS if budget.deadline.limited else LOADED * SECONDS)
        problem = Problem(net, allgather, chunks, count, int(chunks * bound.value))
        verdict = portfolio.solve(problem, budget=replace(budget, deadline=deadline, cpu_seconds=SECONDS))
        if not isinstance(verdict, Sat):
            return None
        parts.append(verdict.schedule)
    return compose(parts[0], parts[1], collective)


@cache
def _bound(network: Network, steps: int) -> LowerBound:
    return bounds.flow(network, collective_named("allgather", network.ranks), steps)


def _chunks(bound: LowerBound, steps: int) -> int:
    """Least number of chunks of a schedule that meets `bound` in whole rounds, at least one for each step."""
    return bound.value.denominator * max(1, -(-steps // bound.value.numerator))

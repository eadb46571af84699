"""Direct sends: each unit of data along shortest paths from its holders, a schedule of the fewest steps at any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from synth.encodings.engine import Findings, FrontierProblem
from synth.model.collective import Collective, collective
from synth.model.frontier import Point
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.deadline import Deadline

# Most sends of a first row, which is written out and replayed within a second.
MAX_SENDS = 60_000


@dataclass(frozen=True)
class DirectSends:
    """Direct sends, of collectives of few units and ranks."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True where the schedule is short enough for a first row."""
        return few_sends(problem.collective)

    def improve(self, problem: FrontierProblem, found: Findings, deadline: Deadline) -> Iterator[Point]:
        """Yield the point, if there is one."""
        schedule = direct_schedule(problem.network, problem.collective)
        if schedule is not None:
            yield Point.of(schedule, found.floor, "direct sends")


def few_sends(task: Collective) -> bool:
    """Return True where direct sends are few."""
    return sum(map(len, (*task.pre, *task.post))) <= MAX_SENDS


def direct_schedule(network: Network, task: Collective) -> Schedule | None:
    """Return the schedule of one chunk a unit in which every send follows a shortest path.

    Of several shortest paths each send takes that of the least load so far. A collective that sums to one rank a unit
    is the time reversal of one that copies. An allreduce is a reduce-scatter and an allgather, of one chunk a rank.
    None for other sums, and where nothing is to be sent.
    """
    if task.name == "allreduce":
        gathers = collective("allgather", network.ranks)
        sums = Schedule(network, gathers, 1, _shortest_path_steps(network.reversed(), gathers))
        copies = Schedule(network, gathers, 1, _shortest_path_steps(network, gathers))
        if not copies.steps:
            return None
        from synth.pareto.combining.rs_ag_composition import compose

        return compose(sums, copies, task)
    if task.combining and not task.reversible:
        return None
    forwards = (network.reversed(), task.reversed()) if task.combining else (network, task)
    steps = _shortest_path_steps(*forwards)
    if not steps:
        return None
    schedule = Schedule(*forwards, 1, steps)
    if task.combining:
        schedule = Schedule(network, task, 1, schedule.reversed().steps)
    return schedule


def _shortest_path_steps(network: Network, task: Collective) -> tuple[Step, ...]:
    """Return the steps of `task`, which copies: hop h of every path is in step h."""
    sends: list[list[Send]] = []
    loads: Counter[tuple[int, str, int]] = Counter()  # by step and link or limit, in sends
    for unit in range(task.units):
        distances = network.distances_from(sorted(task.pre[unit]))
        reached = set(task.pre[unit])
        for destination in sorted(task.post[unit] - reached, key=lambda rank: -(distances[rank] or 0)):
            rank = destination
            while rank not in reached:
                step = (distances[rank] or 0) - 1
                route = _least_loaded(network, rank, step, distances, loads)
                link = network.routes[route]
                sends += [[] for _ in range(step + 1 - len(sends))]
                sends[step].append(Send(unit, link.src, rank, "copy", link.via))
                loads[step, "link", route] += 1
                loads.update((step, "limit", k) for k in network.caps_of[route])
                reached.add(rank)
                rank = link.src
    rounds = [1] * len(sends)
    for (step, kind, k), load in loads.items():
        units = network.routes[k].units if kind == "link" else network.caps[k].units
        rounds[step] = max(rounds[step], ceil(load / units))
    return tuple(Step(r, tuple(sorted(row))) for r, row in zip(rounds, sends, strict=True))


def _least_loaded(
    network: Network, rank: int, step: int, distances: list[int | None], loads: Counter[tuple[int, str, int]]
) -> int:
    """Return the route into `rank` from one hop nearer to the holders whose load at `step` is least."""

    def load(route: int) -> float:
        link = loads[step, "link", route] / network.routes[route].units
        return max([link, *(loads[step, "limit", k] / network.caps[k].units for k in network.caps_of[route])])

    nearer = [i for i in network.into[rank] if distances[network.routes[i].src] == step]
    return min(nearer, key=load)

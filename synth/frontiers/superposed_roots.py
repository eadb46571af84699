"""Schedules of a collective with several roots: those of its single roots by scale methods, all at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from synth.checker.schedule import column_replay
from synth.errors import SynthError
from synth.frontiers.coarse_machine import coarse_machine, coarse_parts
from synth.frontiers.written_points import least_sends
from synth.model.collective import Collective
from synth.model.dead_sends import with_fewest_rounds
from synth.model.frontier import Point
from synth.model.rational import whole
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network, Topology
from synth.solvers.processes.deadline import TimeUp, check_deadline, current_deadline, time_limited

# Collectives of several roots, and the one of each root.
SINGLE = {"multi-broadcast": "broadcast", "multi-reduce": "reduce"}


@dataclass(frozen=True)
class SuperposedRootsSettings:
    """Limits of the schedules of several roots.

    Attributes:
        most_sends: Maximum number of sends, which are written out and replayed in ten seconds.
        coarse_share: Share of the remaining time for packed trees on a machine in coarser units.
        worth: A schedule is offered only if R/C falls by this fraction against those with no more steps.
    """

    most_sends: int = 600_000
    coarse_share: float = 0.25
    worth: Fraction = Fraction(1, 5)


SETTINGS = SuperposedRootsSettings()


def superposed_schedules(machine: Topology, network: Network, task: Collective) -> Iterator[tuple[str, Schedule]]:
    """Yield (method, replayed schedule), each with much fewer rounds per chunk than those with no more steps before it.

    Where links of many units leave little over in parts of a round, the first ones are in steps of such parts: they
    have fewer chunks and sends. Nothing is yielded for other collectives, and for machines that scale methods do not
    read. It ends at the ambient deadline, and leaves out schedules that would take longer than that.
    """
    name = SINGLE.get(task.name)
    if name is None:
        return
    parts = coarse_parts([item.units for item in (*network.routes, *network.caps)])
    rates: list[tuple[int, Fraction]] = []
    pace = 0.0  # seconds for a send, written out and replayed

    def improves(steps: int, rate: Fraction) -> bool:
        return all(s > steps or rate < r * (1 - SETTINGS.worth) for s, r in rates)

    try:
        for fraction, options in _options(machine, name, task, parts):
            for points in _choices(options):
                check_deadline()
                steps = max(point.steps for point in points)
                chunks = max(point.chunks for point in points)
                sends = sum(least_sends(point, task) * chunks / point.chunks for point in points)
                late = pace * sends > current_deadline().remaining()
                if late or not improves(steps, max(point.rounds_per_chunk for point in points) * fraction):
                    continue
                begun = time.perf_counter()
                schedule = _superposed(network, task, points, fraction)
                improved = improves(steps, schedule.rounds_per_chunk)
                if improved:
                    column_replay.schedule(schedule)
                    rates.append((steps, schedule.rounds_per_chunk))
                pace = (time.perf_counter() - begun) / sends
                if improved:
                    yield f"{name}s of all roots at once, {points[0].construction}", schedule
    except SynthError:  # also at the deadline, with those so far
        return


def _options(
    machine: Topology, name: str, task: Collective, parts: int
) -> Iterator[tuple[Fraction, list[list[Point]]]]:
    """Yield the points of each root's collective `name`, and how much of a round each of their rounds is.

    First those of packed trees on the machine whose rounds are `parts` of one, if they are more than one; then all so
    far after each quick stage of the search.
    """
    from synth.scale.search import ScaleSearch, packed_points

    packed: list[list[Point]] = []
    if parts > 1:
        rounded = coarse_machine(machine.live(), parts)
        with suppress(TimeUp), time_limited(current_deadline().share(SETTINGS.coarse_share)):
            packed = [_few_sends(packed_points(rounded, name, root), task) for root in task.roots]
        if len(packed) == len(task.roots):
            yield Fraction(1, parts), packed
    searches = [ScaleSearch(machine, name, root, most_sends=SETTINGS.most_sends) for root in task.roots]
    while all(list(map(ScaleSearch.advance_quickly, searches))):
        yield Fraction(1), [_few_sends(search.state.points(), task) for search in searches]


def _few_sends(points: Sequence[Point], task: Collective) -> list[Point]:
    """Return the points of few enough sends."""
    return [point for point in points if least_sends(point, task) <= SETTINGS.most_sends]


def _choices(options: Sequence[Sequence[Point]]) -> Iterator[list[Point]]:
    """Yield for each number of steps the best point of each root with at most as many."""
    counts: set[int] = set()
    for points in options:
        counts.update(point.steps for point in points)
    for steps in sorted(counts):
        chosen = []
        for points in options:
            chosen += [point for point in points if point.steps <= steps][-1:]
        if len(chosen) == len(options):
            yield chosen


def _superposed(network: Network, task: Collective, points: Sequence[Point], fraction: Fraction) -> Schedule:
    """Return the schedule of all roots, with a point for each.

    All roots have as many chunks as the one with most. Where another point has fewer, some of its chunks' paths are
    taken by several chunks. `fraction`: how much of a round each round of the points is.
    """
    chunks = max(point.chunks for point in points)
    longest = max(point.steps for point in points)
    sends: list[list[Send]] = [[] for _ in range(longest)]
    for unit, point in enumerate(points):
        followers: list[list[int]] = [[] for _ in range(point.chunks)]
        for chunk in range(chunks):
            followers[chunk * point.chunks // chunks].append(unit * chunks + chunk)
        for t, step in enumerate(point.schedule.written_out().steps):
            for send in step.sends:
                sends[t] += [send._replace(chunk=chunk) for chunk in followers[send.chunk]]
    # each step lasts a whole number of its present rounds in the end: of this fraction of a round
    rows = tuple(Step(whole(fraction), tuple(sorted(row))) for row in sends)
    return with_fewest_rounds(Schedule(network, task, chunks, rows))

"""The frontier of a machine whose switches multicast and reduce, beside the one without."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from synth.bounds.distance import steps as least_steps
from synth.bounds.multicast import multicast_bound
from synth.checker.schedule import replay
from synth.encodings import multicast_pipelining
from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, ParetoFrontier, Point
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.pareto.events import Options

# Numbers of steps of pipelined schedules. The last one comes within 3% of the bound for any number of steps.
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


def multicast_frontier(
    machine: Topology, collective: Collective, plain: ParetoFrontier, options: Options
) -> Frontier | None:
    """Return the frontier with switch sends: pipelined schedules, and the points of `plain` that they do not beat.

    None where no switch of `machine` that multicasts has ports for all ranks. Every schedule is replayed, and its bound
    holds for any number of steps. Limits on steps, chunks and bits of `options` count. Raises InfeasibleError.
    """
    start = time.monotonic()
    network = machine.multicast_network()
    if multicast_pipelining.whole_switch(network) is None:
        return None
    steps = least_steps(network, collective)
    if not steps.value:
        return None
    bound = multicast_bound(network, collective)
    found: list[tuple[Schedule, str]] = []
    if isinstance(plain, Frontier):
        for point in plain.points:
            found.append((replace(point.schedule, network=network), point.construction))
    if collective.name in multicast_pipelining.COLLECTIVES:
        wanted = (s for s in STEPS if options.max_steps is None or s <= options.max_steps)
        for schedule in multicast_pipelining.schedules(network, collective, wanted, options.max_chunks):
            found.append((schedule, "switch multicast"))
    points = _points(found, bound, options)
    value = points[-1].rounds_per_chunk if points else None
    complete = len(points) == 1 and value == bound.value and points[0].steps == steps.value
    return Frontier(
        network,
        collective,
        points,
        complete=complete,
        bounds=((0, steps), (None, bound)),
        labels=machine.labels,
        seconds=time.monotonic() - start,
    )


def _points(found: Iterable[tuple[Schedule, str]], bound: LowerBound, options: Options) -> tuple[Point[Schedule], ...]:
    """Return the points of replayed schedules that no other one dominates; at equal R/C the first of fewest steps."""
    points: list[Point[Schedule]] = []
    for schedule, construction in sorted(found, key=lambda row: (len(row[0].steps), row[0].rounds_per_chunk)):
        if points and schedule.rounds_per_chunk >= points[-1].rounds_per_chunk:
            continue
        alike = same_bits(schedule)
        if options.same_bits and not alike:
            continue
        replay.schedule(schedule)
        status = "optimal" if schedule.rounds_per_chunk == bound.value else "best-known"
        points.append(Point.of(schedule, bound, status, construction, alike))
    return tuple(points)

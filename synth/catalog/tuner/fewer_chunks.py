"""Schedules of a given number of chunks, made of copies of those of another schedule.

MSCCL and MSCCL++ do not pad, so a point of 3, 6 or 144 chunks serves no size that is a power of two. Chunks move
independently of each other, so any C of the chunks of each unit, or of their copies, are a schedule of C chunks in as
many steps.
"""

from __future__ import annotations

import numpy as np

from synth.model.schedule import Schedule, Step
from synth.model.sends.step_routes import with_fewest_rounds


def of_chunks(schedule: Schedule, chunks: int) -> Schedule:
    """Return a schedule of `chunks` chunks of each unit, those that load the links of `schedule` most evenly.

    Chunks are taken one by one. Each is the one that adds least to the sum of the squares of all loads, where a load is
    the time for which the sends of a step occupy a route or a limit. `schedule` has no switch sends.
    """
    network, units = schedule.network, schedule.collective.units
    copies = -(-chunks // schedule.chunks)

    # The load of each chunk (row) on each route and limit in each step (column), in rounds.
    resources = len(network.routes) + len(network.caps)
    usage = np.zeros((units * schedule.chunks, len(schedule.steps) * resources))
    for place, step in enumerate(schedule.steps):
        for send in step.sends:
            if send.local:
                continue
            route = network.route_index[send.src, send.dst, send.via]
            usage[send.chunk, place * resources + route] += 1 / network.routes[route].units
            for cap in network.caps_of[route]:
                usage[send.chunk, place * resources + len(network.routes) + cap] += float(1 / network.caps[cap].units)

    own = (usage * usage).sum(axis=1)
    load = np.zeros(usage.shape[1])
    unit_of = np.repeat(np.arange(units), schedule.chunks)
    left = np.full(len(own), copies)
    remaining = np.full(units, chunks)
    taken: list[int] = []
    for _ in range(chunks * units):
        cost = own + 2 * (usage @ load)
        cost[(left == 0) | (remaining[unit_of] == 0)] = np.inf
        chunk = int(np.argmin(cost))
        taken.append(chunk)
        load += usage[chunk]
        left[chunk] -= 1
        remaining[unit_of[chunk]] -= 1

    # The chunks that were taken, numbered in ascending order.
    numbers: dict[int, list[int]] = {}
    for number, chunk in enumerate(sorted(taken)):
        numbers.setdefault(chunk, []).append(number)
    steps = []
    for step in schedule.steps:
        sends = [send._replace(chunk=number) for send in step.sends for number in numbers.get(send.chunk, ())]
        steps.append(Step(1, tuple(sends)))
    return with_fewest_rounds(Schedule(network, schedule.collective, chunks, tuple(steps)))

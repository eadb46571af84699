"""Schedules of fewer chunks: those chunks of a schedule that load its links most evenly.

Chunks move independently of each other, so any C of the chunks of each unit are a schedule of C chunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from synth.model.dead_sends import with_fewest_rounds
from synth.model.schedule import Schedule, Step

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class FewerChunks:
    """Schedules of some of the chunks of `schedule`, which has no switch sends; its loads are counted once."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._usage = _usage(schedule)

    def of(self, chunks: int) -> Schedule:
        """Return a schedule of `chunks` chunks of each unit, no more than there are, in as many steps.

        Chunks are taken one by one. Each is the one that adds least to the sum of the squares of all loads, where a
        load is the time for which the sends of a step occupy a route or a limit.
        """
        schedule, usage = self.schedule, self._usage
        count = schedule.collective.units
        own = np.asarray(usage.multiply(usage).sum(axis=1))
        load = np.zeros(usage.indices.max(initial=-1) + 1)
        units = np.repeat(np.arange(count), schedule.chunks)
        remaining = np.full(count, chunks)
        cost, taken = own.copy(), []
        for _ in range(chunks * count):
            chunk = int(np.argmin(cost))
            taken.append(chunk)
            row = slice(usage.indptr[chunk], usage.indptr[chunk + 1])
            load[usage.indices[row]] += usage.data[row]
            remaining[units[chunk]] -= 1
            cost = own + 2 * (usage @ load)
            cost[taken] = np.inf
            cost[remaining[units] == 0] = np.inf
        return _with_chunks(schedule, sorted(taken), chunks)


def _usage(schedule: Schedule) -> csr_array:
    """Return the load of each chunk (row) on each route and limit that it uses in a step (column), in rounds."""
    from scipy.sparse import csr_array  # takes a tenth of a second, which every synthesis would pay

    network = schedule.network
    resources = len(network.routes) + len(network.caps)
    loads: list[list[tuple[int, float]]] = []  # of each route: on itself and on its limits
    for route, link in enumerate(network.routes):
        limits = [(len(network.routes) + cap, float(1 / network.caps[cap].units)) for cap in network.caps_of[route]]
        loads.append([(route, float(1 / link.units)), *limits])
    rows, columns, values = [], [], []
    for place, step in enumerate(schedule.steps):
        for send in step.sends:
            if not send.local:
                for resource, load in loads[network.route_index[send.src, send.dst, send.via]]:
                    rows.append(send.chunk)
                    columns.append(place * resources + resource)
                    values.append(load)
    used, column = np.unique(columns, return_inverse=True)
    shape = (schedule.collective.units * schedule.chunks, max(1, len(used)))
    return csr_array((values, (rows, column)), shape=shape)


def _with_chunks(schedule: Schedule, taken: list[int], chunks: int) -> Schedule:
    """Return the schedule of the chunks `taken`, in ascending order; `chunks` of each unit."""
    number = {chunk: place for place, chunk in enumerate(taken)}
    steps = []
    for step in schedule.steps:
        sends = tuple(send._replace(chunk=number[send.chunk]) for send in step.sends if send.chunk in number)
        steps.append(Step(1, sends))
    return with_fewest_rounds(Schedule(schedule.network, schedule.collective, chunks, tuple(steps)))

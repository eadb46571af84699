"""Balanced paths: the chunks of each unit spread over many paths, for collectives whose units each go to one rank.

Direct sends of scatter, alltonext or sendrecv between boxes load one NIC and leave the others idle. Here each chunk
takes a path of least marginal cost in the time-expanded network of S steps. The cost is the gradient of the sum over
steps of the 8-norm of the loads, a smooth form of the rounds (Aspnes, Azar, Fiat, Plotkin and Waarts, "On-line routing
of virtual circuits", 1997).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from synth.checker.schedule import replay
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import check_deadline


@dataclass(frozen=True)
class BalancedPathsSettings:
    """Limits of balanced paths.

    Attributes:
        most_sends: Maximum number of sends of a schedule, which limits its chunks.
        most_chunks: Maximum number of chunks of a unit.
        least_chunks: Minimum number of chunks of a unit: fewer chunks do not spread over many paths.
        further_steps: Numbers of steps beyond the least one, in the order in which they are tried. Two further ones
            let data leave and enter a box over all its NICs.
        worth: A schedule with more steps is offered only if R/C falls by this fraction.
    """

    most_sends: int = 4_000
    most_chunks: int = 64
    least_chunks: int = 8
    further_steps: tuple[int, ...] = (2, 1, 3, 4, 0)
    worth: Fraction = Fraction(1, 50)


SETTINGS = BalancedPathsSettings()


def balanced_schedules(
    network: Network, task: Collective, known: Sequence[Schedule], bound: Fraction
) -> Iterator[Schedule]:
    """Yield replayed schedules, each better than `known` and earlier ones with no more steps, until one nearly meets
    `bound`.

    Nothing is yielded for collectives that combine, with a unit that several ranks want, or with too many units.
    """
    pairs = [(sorted(pre), sorted(post - pre)) for pre, post in zip(task.pre, task.post, strict=True)]
    if task.combining or any(len(wanting) > 1 for _, wanting in pairs):
        return
    demands = [(unit, holders, wanting[0]) for unit, (holders, wanting) in enumerate(pairs) if wanting]
    least = max((network.distances_from(holders)[rank] or 0 for _, holders, rank in demands), default=0)
    if not 0 < len(demands) * least * SETTINGS.least_chunks <= SETTINGS.most_sends:
        return
    rates = {len(schedule.steps): schedule.rounds_per_chunk for schedule in known}
    for further in SETTINGS.further_steps:
        steps = least + further
        best = min((rate for s, rate in rates.items() if s <= steps), default=None)
        if best is not None and best * (1 - SETTINGS.worth) < bound:
            continue
        schedule = _Router(network, task, demands, steps).schedule()
        if best is None or schedule.rounds_per_chunk <= best * (1 - SETTINGS.worth):
            replay.schedule(schedule)
            rates[steps] = schedule.rounds_per_chunk
            yield schedule


class _Router:
    """Paths in S steps. `loads[t]`: sends in step t on each link, and then against each limit."""

    def __init__(
        self, network: Network, task: Collective, demands: list[tuple[int, list[int], int]], steps: int
    ) -> None:
        self.network, self.task, self.demands, self.steps = network, task, demands, steps
        by_end = sorted(range(len(network.routes)), key=lambda i: (network.routes[i].dst, i))
        self.order = np.array(by_end, np.int64)  # routes by the rank that they enter
        self.source = np.array([network.routes[i].src for i in by_end], np.int64)
        self.ends = np.array([network.routes[i].dst for i in by_end], np.int64)
        self.entered, self.first = np.unique(self.ends, return_index=True)
        bounds = [*self.first.tolist(), len(by_end)]
        self.into = dict(zip(self.entered.tolist(), pairwise(bounds), strict=True))  # places of the routes into a rank
        self.leaving = [np.flatnonzero(self.source == rank) for rank in range(network.ranks)]
        self.resources: list[list[int]] = []
        for i, of_route in enumerate(network.caps_of):
            self.resources.append([i, *(len(network.routes) + k for k in of_route)])
        units = [route.units for route in network.routes]
        units += [cap.units for cap in network.caps]
        self.units = np.array(units, np.int64)
        self.share = 1 / self.units  # of a round that one send takes
        width = max(map(len, self.resources))
        self.table = np.full((len(by_end), width), len(units), np.int64)  # the last entry is no resource
        for place, i in enumerate(by_end):
            self.table[place, : len(self.resources[i])] = self.resources[i]
        self.loads = np.zeros((steps, len(units)), np.int64)
        self.little = 1e-6 * self.share.min()  # cost of any send, which prefers short paths
        place_of = np.argsort(self.order)  # of each route in `order`
        users: list[list[int]] = [[] for _ in units]
        for i, resources in enumerate(self.resources):
            for k in resources:
                users[k].append(int(place_of[i]))
        self.users = [np.array(places, np.int64) for places in users]
        self.marginal = np.zeros((steps, len(units) + 1))  # cost of a send on each resource; 0 for none
        self.unit_load, self.factor = np.zeros(steps), np.zeros(steps)
        self.costs = [np.zeros(len(by_end)) for _ in range(steps)]

    def schedule(self) -> Schedule:
        """Return the schedule of as many chunks as have the least R/C."""
        chunks = min(SETTINGS.most_chunks, max(1, SETTINGS.most_sends // (len(self.demands) * self.steps)))
        paths: list[list[tuple[int, int, int]]] = []  # (unit, step, route), by chunk
        rates: list[Fraction] = []
        for _ in range(chunks):
            check_deadline()
            for t in range(self.steps):
                self._refresh(t)
            paths.append([send for demand in self.demands for send in self._path(*demand)])
            rates.append(Fraction(sum(self._rounds(self.loads)), len(paths)))
        count = rates.index(min(rates)) + 1
        sends: list[list[Send]] = [[] for _ in range(self.steps)]
        loads = np.zeros_like(self.loads)
        for chunk, rows in enumerate(paths[:count]):
            for unit, t, i in rows:
                route = self.network.routes[i]
                sends[t].append(Send(unit * count + chunk, route.src, route.dst, "copy", route.via))
                np.add.at(loads[t], self.resources[i], 1)
        steps = [Step(r, tuple(sorted(row))) for r, row in zip(self._rounds(loads), sends, strict=True)]
        return Schedule(self.network, self.task, count, tuple(steps))

    def _rounds(self, loads: np.ndarray) -> list[int]:
        """Return the rounds of each step with these loads, one at least."""
        return np.maximum(1, (-(-loads // self.units)).max(axis=1)).tolist()

    def _path(self, unit: int, holders: list[int], destination: int) -> Iterator[tuple[int, int, int]]:
        """Yield (unit, step, route) of a path of least cost from a holder to `destination`, and add it to the loads."""
        before = [np.full(self.network.ranks, np.inf)]  # distances before each step
        before[0][holders] = 0.0
        for t in range(self.steps - 1):
            distance = before[t].copy()
            if t == 0:
                for holder in holders:
                    places = self.leaving[holder]
                    np.minimum.at(distance, self.ends[places], self.costs[0][places])
            else:
                through = before[t][self.source] + self.costs[t]
                nearest = np.minimum.reduceat(through, self.first)
                distance[self.entered] = np.minimum(distance[self.entered], nearest)
            before.append(distance)
        rank = destination
        for t in reversed(range(self.steps)):
            if rank in holders:
                break
            start, end = self.into[rank]
            through = before[t][self.source[start:end]] + self.costs[t][start:end]
            k = int(np.argmin(through))
            if through[k] < before[t][rank]:
                route = int(self.order[start + k])
                self._add(t, route)
                yield unit, t, route
                rank = int(self.source[start + k])

    def _refresh(self, t: int) -> None:
        """Compute the costs of all routes in step t, in the order of `order`."""
        loads = (self.loads[t] + 1) * self.share
        self.unit_load[t] = 1 / loads.max()
        power_4 = (loads * self.unit_load[t]) ** 2
        power_4 *= power_4
        self.factor[t] = (power_4 * power_4).sum() ** -0.875  # a dot product would start threads
        self._price(t, np.arange(len(self.share)))
        self.costs[t] = self.marginal[t][self.table].sum(axis=1) + self.little

    def _price(self, t: int, resources: np.ndarray) -> None:
        """Compute the gradient of the norm in the loads of `resources` in step t."""
        share = self.share[resources]
        relative = (self.loads[t, resources] + 1) * share * self.unit_load[t]
        square = relative * relative
        self.marginal[t, resources] = share * square * square * square * relative * self.factor[t]

    def _add(self, t: int, route: int) -> None:
        """Add a send to the loads, and to the costs of the routes that share its resources.

        The norm of all loads is computed again with the next chunk.
        """
        np.add.at(self.loads[t], self.resources[route], 1)
        self._price(t, np.array(self.resources[route], np.int64))
        for resource in dict.fromkeys(self.resources[route]):
            places = self.users[resource]
            self.costs[t][places] = self.marginal[t][self.table[places]].sum(axis=1) + self.little

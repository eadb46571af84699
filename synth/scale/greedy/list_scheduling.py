"""List scheduling in time: sends start as soon as their link is free, on links that differ in latency and bandwidth.

A greedy of the kind of TACOS (Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer", MICRO 2024) in
continuous time, by the rules of the reference executor (docs/run.md): a link carries one message at a time, and
one of b bytes arrives b / bandwidth and a latency later; limits serve transfers in the order of their starts; a
connection has a number of messages under way; steps are no barriers. When a link is free it takes, of the chunks that
its source holds and its destination lacks, the one with the longest way to go from there, then the one that the fewest
ranks hold. It takes none that the destination is to have sooner over another link. Where messages are short, half of
those under way are kept for chunks that no rank nearer to the destination is to have.

The result is a `Schedule`. The step of a message is the least one after those of its chunks' arrivals and of the
message before it on its link. So the messages of each link are in the order of time. Steps mean nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.scale.baselines.algorithms import with_reversals
from synth.solvers.deadline import TimeUp, check_deadline

# Numbers of chunks of a unit that are tried at each size; the earliest schedule counts.
CHUNKS = (1, 2, 4, 8)
# More chunks count only if they are earlier by this fraction, as each send costs more than the model says.
WORTH = 0.006
# Sizes count at which sending a unit over the slowest link takes from 1 / `spread` to `spread` times the greatest
# latency. Below and above, the schedules for the least and the greatest size serve the others.
SPREAD = Fraction(4)
# Limits on the µs that a message keeps a link, as multiples of latency / depth: with less than 1 the messages under way
# might not fill the link. With 0 each chunk is a message. Each is tried, the first one with the first order.
WEIGHTS = (1.0, 8.0, 0.0)
# Random orders of equal chunks that are tried; the earliest schedule counts.
ORDERS = 16
# Limit on sends x routes of all orders together, about half a second of search.
MOST_WORK = 4_000_000
# µs within which events count as simultaneous, above the rounding of sums.
INSTANT = 1e-9


def design_sizes(network: Network, collective: Collective, sizes: Sequence[int]) -> list[int]:
    """Return those of `sizes` at which latencies and bandwidths count alike, the least one, and the greatest."""
    slowest = min((route.units for route in network.routes), default=0) * network.unit * 1000
    if not network.latency or not slowest:
        return []
    balanced = slowest * network.latency / collective.unit_share
    near = {size for size in sizes if balanced / SPREAD <= size <= balanced * SPREAD}
    return sorted(near | {min(sizes), max(sizes)})


def schedule_for_size(network: Network, collective: Collective, size: int, depth: int) -> Schedule:
    """Return the earliest schedule found for calls of `size` bytes; sums are the reversals of copies.

    `depth`: messages of a link that may be under way. More chunks are tried until the ambient deadline. Raises
    UsageError where list scheduling does not do the collective, TimeUp where not even one chunk was in time.
    """
    best: tuple[float, Schedule] | None = None
    for chunks in CHUNKS:
        try:
            found = _with_chunks(network, collective, chunks, size, depth)
        except (UsageError, TimeUp):
            if best is None:
                raise
            break
        if best is None or found[0] < best[0] * (1 - WORTH):
            best = found
    assert best is not None
    return best[1]


def _with_chunks(
    network: Network, collective: Collective, chunks: int, size: int, depth: int
) -> tuple[float, Schedule]:
    """Return the µs and the schedule of `chunks` chunks of each unit that is copied."""
    times = []

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        found = list_schedule(net, target, chunks, float(size * target.unit_share), depth)
        times.append(found.microseconds)
        return found.schedule

    made = with_reversals("list scheduling", network, collective, None, copying)
    return sum(times), replace(made, timed=True)


class TimedSchedule(NamedTuple):
    """A schedule, and the µs that it is planned to take without barriers between its steps."""

    microseconds: float
    schedule: Schedule


def list_schedule(
    network: Network, collective: Collective, chunks: int, unit_bytes: float, depth: int
) -> TimedSchedule:
    """Return the earliest schedule found for a `collective` that copies all data to all ranks.

    `chunks`: chunks of a unit; `unit_bytes`: bytes of a unit; `depth`: messages of a link that may be under way. Raises
    UsageError for other collectives, where a rank cannot be reached, and for too many or no sends; TimeUp.
    """
    if collective.combining or any(len(post) < network.ranks for post in collective.post):
        raise UsageError(f"list scheduling copies all data to all ranks; {collective.name} does not")
    sends = chunks * sum(len(post - pre) for pre, post in zip(collective.pre, collective.post, strict=True))
    work = sends * len(network.routes)
    if not 0 < work <= MOST_WORK:
        raise UsageError(f"{sends} sends on {network.name}: too many for list scheduling, or none")
    machines = [_ChunkTimes(network, unit_bytes / chunks, depth, weight) for weight in WEIGHTS]
    for unit, pre in enumerate(collective.pre):
        if np.isinf(machines[0].lengths[sorted(pre)].min(axis=0)).any():
            raise UsageError(f"unit {unit} of {collective.name} cannot reach all its ranks on {network.name}")
    runs = []
    for seed in range(max(len(machines), min(ORDERS, MOST_WORK // work))):
        check_deadline()
        runs.append(_ListRun(machines[seed % len(machines)], collective, chunks, Random(seed)).run())
    best = min(runs, key=lambda run: run.end)
    return TimedSchedule(best.end, Schedule(network, collective, chunks, best.steps(), timed=True))


class _ChunkTimes:
    """Times in µs of one chunk: `busy[i]` on route i, `served[i]` (cap, µs) on its caps, `latency[i]` of the route.

    `depth`: messages of a route that may be under way. `scarce`: messages are so short that those under way might not
    fill a route. `together[i]`: chunks of the longest message on route i. `order`: the routes in the order in which
    they take sends that may start at once.
    """

    def __init__(self, network: Network, chunk_bytes: float, depth: int, weight: float) -> None:
        self.network, self.depth, self.scarce = network, depth, weight < 1
        unit_us = chunk_bytes / (1000 * float(network.unit))
        self.busy = [unit_us / route.units for route in network.routes]
        self.latency = [float(route.latency) for route in network.routes]
        self.served: list[list[tuple[int, float]]] = []
        for caps in network.caps_of:
            self.served.append([(k, n * unit_us / network.caps[k].units) for k, n in Counter(caps).items()])
        self.chunk_us, self.together = [], []
        for us, caps, latency in zip(self.busy, self.served, self.latency, strict=True):
            longest = max([us, *(time for _, time in caps)])
            self.chunk_us.append(longest)
            self.together.append(max(1, int(weight * latency / depth / longest)) if longest else 1)
        ends = [(route.src, route.dst, i) for i, route in enumerate(network.routes)]
        self.order = [i for _, _, i in sorted(ends)]

    @cached_property
    def lengths(self) -> np.ndarray:
        """The µs of a chunk from each rank to each other, a row for each source."""
        ranks = self.network.ranks
        lengths = np.full((ranks, ranks), inf)
        np.fill_diagonal(lengths, 0.0)
        for i, route in enumerate(self.network.routes):
            lengths[route.src, route.dst] = min(lengths[route.src, route.dst], self.chunk_us[i] + self.latency[i])
        for middle in range(ranks):  # Floyd and Warshall
            lengths = np.minimum(lengths, lengths[:, [middle]] + lengths[[middle]])
        return lengths


class _ListRun:
    """One run of the greedy.

    `held[r, c]`: rank r has chunk c. `coming[r, c]`: it is under way, or there. `arrival[c, r]`: when chunk c is at
    rank r (inf: it is not to come). `nearest[c, r]`: the least length from a rank that is to have the chunk to rank r.
    `step[r, c]`: the step in which it comes. `holders[c]`: the ranks that are to have it. `route_free[i]`,
    `cap_free[k]`: the times from which a route and a cap are free.
    """

    def __init__(self, machine: _ChunkTimes, collective: Collective, chunks: int, random: Random) -> None:
        network, total = machine.network, collective.units * chunks
        self.machine, self.random = machine, random
        self.held = np.zeros((network.ranks, total), bool)
        self.holders = np.zeros(total, np.int64)
        self.arrival = np.full((total, network.ranks), inf)
        self.nearest = np.full((total, network.ranks), inf)
        for unit, pre in enumerate(collective.pre):
            mine = range(unit * chunks, (unit + 1) * chunks)
            self.held[np.ix_(sorted(pre), mine)] = True
            self.holders[mine] = len(pre)
            self.arrival[np.ix_(mine, sorted(pre))] = 0
            self.nearest[mine] = machine.lengths[sorted(pre)].min(axis=0)
        self.coming = self.held.copy()
        self.step: dict[tuple[int, int], int] = {}
        self.route_step = [-1] * len(network.routes)
        self.under_way = [0] * len(network.routes)
        self.route_free, self.cap_free = [0.0] * len(network.routes), [0.0] * len(network.caps)
        self.lacking = (total - self.held.sum(axis=1)).tolist()
        self.fastest = []
        for into in network.into:
            self.fastest.append(min((machine.chunk_us[i] for i in into), default=0.0))
        self.messages: list[tuple[int, int, range]] = []  # the step, the route, and the chunks that travel as one
        self.end = 0.0

    def run(self) -> _ListRun:
        """Send until every rank has what it wants."""
        routes, leaving = self.machine.network.routes, self.machine.network.out
        # (time, number, route, chunks that arrive); no chunks: the route is free again
        events: list[tuple[float, int, int, range]] = []
        now, awake = 0.0, set(range(len(routes)))
        while True:
            for route in self.machine.order:
                ready = route in awake and self.route_free[route] <= now + INSTANT
                if not ready or self.under_way[route] >= self.machine.depth:
                    continue
                chunks = self._next(route, now)
                if chunks:
                    left = self._send(route, chunks, now)
                    arrival = left + self.machine.latency[route]
                    heappush(events, (left, 2 * len(self.messages), route, range(0)))
                    heappush(events, (arrival, 2 * len(self.messages) + 1, route, chunks))
            if not events:
                return self
            now, awake = events[0][0], set()
            while events and events[0][0] <= now + INSTANT:
                _, _, route, chunks = heappop(events)
                awake.add(route)
                if chunks:
                    self.under_way[route] -= 1
                    self.held[routes[route].dst, chunks] = True
                    self.end = now
                    awake.update(leaving[routes[route].dst])

    def _next(self, route: int, now: float) -> range:
        """Return the chunks of the next message over `route`; none where there is none to send."""
        src = self.machine.network.routes[route].src
        first = set(self._urgent(route, now).tolist())
        if not first:
            return range(0)
        # ranks begin anywhere among equal chunks, so that they do not all bring the same one
        start = self.random.randrange(0, max(first) + 1)
        low = min(chunk for chunk in first if chunk >= start)
        born, most = self.step.get((src, low), -1), self.machine.together[route]
        alike = {chunk for chunk in first if self.step.get((src, chunk), -1) == born}
        while most > 1 and low - 1 in alike:
            low -= 1
        end = low + 1
        while end < low + most and end in alike:
            end += 1
        return range(low, end)

    def _urgent(self, route: int, now: float) -> np.ndarray:
        """Return the chunks that are to pass `route` first; none where all of them come sooner else."""
        machine, ends = self.machine, self.machine.network.routes[route]
        dst = ends.dst
        chunks = np.flatnonzero(self.held[ends.src] & ~self.coming[dst])
        if not len(chunks):
            return chunks
        lengths = machine.lengths[:, dst]
        if machine.scarce and 2 * self.under_way[route] >= machine.depth:
            nearer = lengths < lengths[ends.src] - INSTANT
            chunks = chunks[np.isinf(self.arrival[np.ix_(chunks, nearer)]).all(axis=1)]
        elsewhere = (np.maximum(self.arrival[chunks], now) + lengths).min(axis=1)
        sooner = elsewhere + self.lacking[dst] * self.fastest[dst]
        chunks = chunks[now + machine.chunk_us[route] + machine.latency[route] <= sooner + INSTANT]
        if not len(chunks):
            return chunks
        # the longest way that is shorter from there than from any other rank that is to have the chunk
        shorter = machine.lengths[dst] < self.nearest[chunks] - INSTANT
        ways = np.where(shorter & np.isinf(self.arrival[chunks]), machine.lengths[dst], 0.0).max(axis=1)
        chunks = chunks[ways >= ways.max() - INSTANT]
        return chunks[self.holders[chunks] == self.holders[chunks].min()]

    def _send(self, route: int, chunks: range, now: float) -> float:
        """Send `chunks` over `route`. Returns when they have left."""
        src, dst = self.machine.network.routes[route].src, self.machine.network.routes[route].dst
        left = now + len(chunks) * self.machine.busy[route]
        for cap, us in self.machine.served[route]:
            self.cap_free[cap] = max(self.cap_free[cap], now) + len(chunks) * us
            left = max(left, self.cap_free[cap])
        self.route_free[route] = left
        step = max(self.route_step[route], self.step.get((src, chunks.start), -1)) + 1
        self.route_step[route] = step
        self.under_way[route] += 1
        self.coming[dst, chunks] = True
        self.lacking[dst] -= len(chunks)
        self.holders[chunks] += 1
        self.arrival[chunks, dst] = left + self.machine.latency[route]
        self.nearest[chunks] = np.minimum(self.nearest[chunks], self.machine.lengths[dst])
        for chunk in chunks:
            self.step[dst, chunk] = step
        self.messages.append((step, route, chunks))
        return left

    def steps(self) -> tuple[Step, ...]:
        """Return the messages as steps of a schedule, each of as many rounds as its fullest route or cap needs."""
        network = self.machine.network
        sends: list[list[Send]] = [[] for _ in range(max(self.route_step) + 1)]
        loads: list[Counter[int]] = [Counter() for _ in sends]
        for step, i, chunks in self.messages:
            route = network.routes[i]
            sends[step] += [Send(chunk, route.src, route.dst, via=route.via) for chunk in chunks]
            loads[step][i] += len(chunks)
        result = []
        for row, load in zip(sends, loads, strict=True):
            through: Counter[int] = Counter()
            for i, count in load.items():
                for k in network.caps_of[i]:
                    through[k] += count
            rounds = [-(-count // network.routes[i].units) for i, count in load.items()]
            rounds += [-(-count // network.caps[k].units) for k, count in through.items()]
            result.append(Step(max(rounds), tuple(sorted(row))))
        return tuple(result)

"""List scheduling in time: sends start as soon as their link is free, on links that differ in latency and bandwidth.

A greedy of the kind of TACOS (Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer", MICRO 2024) in
continuous time, by the rules of the reference executor (docs/running.md): a link carries one message at a time, and
one of b bytes arrives b / bandwidth and a latency later; limits serve transfers in the order of their starts; a
connection has a number of messages under way; steps are no barriers. When a link is free it takes, of the chunks that
its source holds and its destination lacks, the one with the longest way to go from there, then the one that the fewest
ranks hold. It takes none that the destination is to have sooner over another link. Where messages are short, half of
those under way are kept for chunks that no rank nearer to the destination is to have. Where not all ranks want a chunk,
it may only follow a tree of short paths with few messages and little load, found by Dijkstra's algorithm chunk by chunk
with the loads and messages of the chunks before it. Its messages also become smaller towards the end, as in guided
self-scheduling (Polychronopoulos and Kuck, IEEE Transactions on Computers, 1987).

The result is a `Schedule`. The step of a message is the least one after those of its chunks' arrivals and of the
message before it on its link. So the messages of each link are in the order of time. One that was held back while its
rank sent others over a limit that both share has a later step than these. Steps mean nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from math import inf, isinf
from random import Random
from typing import NamedTuple

import numpy as np

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import check_deadline


class ListVariant(NamedTuple):
    """One way of list scheduling.

    Attributes:
        weight: Limit on the µs that a message keeps a link, as a multiple of latency / depth: with less the messages
            under way might not fill the link. With 0 each chunk is a message. A further message counts as much in the
            choice of paths.
        tapered: A message holds at most half of what is left for its route, and no chunk with less far to go than its
            first.
        in_turn: Of sends that may start at once those from each rank to the next one come first, then those to the one
            after it, so that limits into a rank serve no burst. Else those of the least source come first.
        relays_first: Chunks that are to go on from where they are sent leave first. Other sends of their rank over a
            limit of theirs begin when they have left.
    """

    weight: float
    tapered: bool = False
    in_turn: bool = False
    relays_first: bool = False


@dataclass(frozen=True)
class ListSchedulingSettings:
    """Numbers of list scheduling.

    Attributes:
        orders: Random orders of equal chunks that are tried within `most_work`; the earliest schedule counts.
        most_work: Limit on sends x routes of all orders together, about half a second of search. More is done only
            for one order with each of `tree_variants` or `path_variants`.
        path_work: Times that a send counts whose path is chosen before.
        tree_variants: Each is tried, the first one with the first order.
        path_variants: The same where not all ranks want a chunk. Paths follow from what a message costs, so that none
            costs 0.
        in_turn_gain: Least fraction by which a schedule in turn is earlier than others: the executor has another order
            of sends that start at once, in which it may lose a part of that.
        instant: µs within which events count as simultaneous, above the rounding of sums.
    """

    orders: int = 16
    most_work: int = 4_000_000
    path_work: int = 6
    tree_variants: tuple[ListVariant, ...] = (
        ListVariant(1.0),
        ListVariant(8.0),
        ListVariant(0.0, relays_first=True),
        ListVariant(0.0, in_turn=True),
    )
    path_variants: tuple[ListVariant, ...] = (ListVariant(1.0), ListVariant(8.0), ListVariant(8.0, tapered=True))
    in_turn_gain: float = 0.02
    instant: float = 1e-9


SETTINGS = ListSchedulingSettings()


class TimedSchedule(NamedTuple):
    """A schedule, and the µs that it is planned to take without barriers between its steps.

    Those of a schedule in turn are raised by `in_turn_gain`, which the executor may lose.
    """

    microseconds: float
    schedule: Schedule


def list_schedule(
    network: Network, collective: Collective, chunks: int, unit_bytes: float, depth: int, reverses: bool = False
) -> TimedSchedule:
    """Return the earliest schedule found for a `collective` that copies.

    `chunks`: chunks of a unit; `unit_bytes`: bytes of a unit; `depth`: messages of a link that may be under way.
    `reverses`: the schedule is to be reversed, and nothing holds a sum back. Raises UsageError for collectives that
    add, where a rank cannot be reached, and for too many or no sends; TimeUp.
    """
    if collective.combining:
        raise UsageError(f"list scheduling copies; {collective.name} adds")
    sends = chunks * sum(len(post - pre) for pre, post in zip(collective.pre, collective.post, strict=True))
    everywhere = all(len(post) == network.ranks for post in collective.post)
    work = sends * len(network.routes) * (1 if everywhere else SETTINGS.path_work)
    if not 0 < work <= SETTINGS.most_work:
        raise UsageError(f"{sends} sends on {network.name}: too many for list scheduling, or none")
    machines = []
    for variant in SETTINGS.tree_variants if everywhere else SETTINGS.path_variants:
        if reverses:
            variant = variant._replace(relays_first=False)
        machines.append(_ChunkTimes(network, unit_bytes / chunks, depth, variant))
    for unit, (pre, post) in enumerate(zip(collective.pre, collective.post, strict=True)):
        if isinf(machines[0].longest(pre, post)):
            raise UsageError(f"unit {unit} of {collective.name} cannot reach all its ranks on {network.name}")
    runs = []
    for seed in range(max(len(machines), min(SETTINGS.orders, SETTINGS.most_work // work))):
        check_deadline()
        random, shuffles = Random(seed), seed >= len(machines)
        machine = machines[seed % len(machines)]
        paths = None
        if not everywhere:
            paths = _paths(machine, collective, chunks, random if shuffles else None)
        runs.append(_ListRun(machine, collective, chunks, paths, random).run())
    best = min(runs, key=_comparable_end)
    return TimedSchedule(_comparable_end(best), Schedule(network, collective, chunks, best.steps(), timed=True))


def _comparable_end(run: _ListRun) -> float:
    return run.end / (1 - SETTINGS.in_turn_gain) if run.machine.in_turn else run.end


class _ChunkTimes:
    """Times in µs of one chunk: `busy[i]` on route i, `served[i]` (cap, µs) on its caps, `latency[i]` of the route.

    `depth`: messages of a route that may be under way. `scarce`: messages are so short that those under way might not
    fill a route. `together[i]`, `filling[i]`: chunks of the longest message on route i, and of one of which those under
    way fill it. `order`: the routes in the order in which they take sends that may start at once. `relays[r]`: chunks
    may have to go on from rank r, which some rank sends to over a limit.
    """

    def __init__(self, network: Network, chunk_bytes: float, depth: int, variant: ListVariant) -> None:
        self.network, self.depth, self.tapered, self.in_turn = network, depth, variant.tapered, variant.in_turn
        self.scarce = variant.weight < 1
        unit_us = chunk_bytes / (1000 * float(network.unit))
        self.busy = [unit_us / route.units for route in network.routes]
        self.latency = [float(route.latency) for route in network.routes]
        self.served: list[list[tuple[int, float]]] = []
        for caps in network.caps_of:
            self.served.append([(k, n * unit_us / network.caps[k].units) for k, n in Counter(caps).items()])
        self.chunk_us = []
        for us, caps in zip(self.busy, self.served, strict=True):
            self.chunk_us.append(max([us, *(time for _, time in caps)]))
        self.message_us = [variant.weight * latency / depth for latency in self.latency]
        self.together, self.filling = [], []
        for us, limit, latency in zip(self.chunk_us, self.message_us, self.latency, strict=True):
            self.together.append(max(1, int(limit / us)) if us else 1)
            self.filling.append(max(1, round(latency / max(1, depth - 1) / us)) if us else 1)
        keys = []
        for i, route in enumerate(network.routes):
            ahead = (route.dst - route.src) % network.ranks if variant.in_turn else 0
            keys.append((ahead, route.src, route.dst, i))
        self.order = [key[-1] for key in sorted(keys)]
        self.relays = np.zeros(network.ranks, bool)
        for i, route in enumerate(network.routes if variant.relays_first else ()):
            nearer = self.lengths[route.dst] < self.lengths[route.src] - SETTINGS.instant
            nearer[route.dst] = False
            self.relays[route.dst] |= bool(self.served[i] and nearer.any())

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

    def longest(self, sources: frozenset[int], targets: frozenset[int]) -> float:
        """Return the greatest length of a chunk's way from the nearest of `sources` to one of `targets`, in µs."""
        return max((self.lengths[sorted(sources), rank].min() for rank in targets - sources), default=0.0)


class _LinkClock:
    """The times from which routes and caps are free."""

    def __init__(self, machine: _ChunkTimes) -> None:
        self.machine = machine
        self._route = [0.0] * len(machine.network.routes)
        self._cap = [0.0] * len(machine.network.caps)

    def free(self, route: int) -> float:
        """Return the time from which `route` is free."""
        return self._route[route]

    def end(self, route: int, begin: float, chunks: int) -> float:
        """Return when a message that begins then has left."""
        waits = [max(self._cap[k], begin) + chunks * us for k, us in self.machine.served[route]]
        return max([begin + chunks * self.machine.busy[route], *waits])

    def carry(self, route: int, begin: float, chunks: int) -> float:
        """Load the route and its caps with a message from `begin` on. Returns when it has left."""
        end = self._route[route] = self.end(route, begin, chunks)
        for k, us in self.machine.served[route]:
            self._cap[k] = max(self._cap[k], begin) + chunks * us
        return end


def _paths(machine: _ChunkTimes, collective: Collective, chunks: int, random: Random | None) -> list[list[int]]:
    """Return for each route the chunks that may pass it, as groups of bits; the first group has the longest way to go.

    Each chunk follows a tree of its own. They choose in a `random` order, or those that go the farthest first.
    """
    order = []
    for unit, (pre, post) in enumerate(zip(collective.pre, collective.post, strict=True)):
        if post - pre:
            order.append((-machine.longest(pre, post), unit))
    uses: list[dict[float, int]] = [{} for _ in machine.network.routes]
    trees = _ChunkTrees(machine, -min(order)[0])
    order.sort()
    if random is not None:
        random.shuffle(order)
    for _, unit in order:
        check_deadline()
        for chunk in range(unit * chunks, (unit + 1) * chunks):
            for route, left in trees.add(collective.pre[unit], collective.post[unit]).items():
                uses[route][left] = uses[route].get(left, 0) | 1 << chunk
    groups = []
    for rows in uses:
        groups.append([rows[left] for left in sorted(rows, reverse=True)])
    return groups


class _ChunkTrees:
    """Trees of paths no longer than `longest` µs without loads, with few messages on links that are little loaded.

    They are chosen chunk by chunk, by the loads and the messages of the chunks before.
    """

    def __init__(self, machine: _ChunkTimes, longest: float) -> None:
        self.machine, self.links = machine, _LinkClock(machine)
        self.longest = longest + SETTINGS.instant
        # by route: the ranks that had its last chunk first
        self._last: list[frozenset[int]] = [frozenset()] * len(machine.network.routes)

    def add(self, sources: frozenset[int], targets: frozenset[int]) -> dict[int, float]:
        """Load the links with one more chunk. Returns its routes, each with the µs from there to the last target."""
        machine, routes = self.machine, self.machine.network.routes
        wanting = sorted(targets - sources)
        remaining = machine.lengths[:, wanting].min(axis=1)
        # (cost, µs without loads) of the best path to each rank that is reached, and the route that enters it
        best = dict.fromkeys(sources, (0.0, 0.0))
        entered: dict[int, int] = {}
        heap = [(0.0, 0.0, rank) for rank in sorted(sources)]
        while heap:
            cost, at, rank = heappop(heap)
            if (cost, at) != best[rank]:
                continue
            for i in machine.network.out[rank]:
                dst, then = routes[i].dst, at + machine.chunk_us[i] + machine.latency[i]
                if then + remaining[dst] > self.longest:
                    continue
                label = (cost + self._cost(i, at, sources), then)
                if dst not in best or label < best[dst]:
                    best[dst], entered[dst] = label, i
                    heappush(heap, (*label, dst))
        left: dict[int, float] = {}
        for rank in wanting:
            end = best[rank][1]
            while rank not in sources:
                route = entered[rank]
                rank = routes[route].src
                left[route] = max(left.get(route, 0.0), round(end - best[rank][1], 6))
        for i in left:
            self._last[i] = sources
            self.links.carry(i, max(best[routes[i].src][1], self.links.free(i)), 1)
        return left

    def _cost(self, route: int, at: float, sources: frozenset[int]) -> float:
        """Return the µs that a chunk at `at` waits for `route`, and those of a message of its own."""
        wait = self.links.end(route, max(at, self.links.free(route)), 1) - at - self.machine.chunk_us[route]
        wait = max(0.0, wait)  # rounding may make it negative, and a cycle of paths the shortest one
        if self._last[route] == sources:
            return wait
        return wait + self.machine.message_us[route]


class _TimedMessage(NamedTuple):
    """Chunks that travel over a route as one, in a step."""

    step: int
    route: int
    chunks: range


class _ListRun:
    """One run of the greedy. Sets of chunks are integers, a bit each.

    `held[r]`: chunks of rank r. `coming[r]`: these and those under way to it. `arrival[c, r]`: when chunk c is at
    rank r (inf: it is not to come). `nearest[c, r]`: the least length from a rank that is to have the chunk to rank r.
    `step[r, c]`: the step in which it comes. `holders[c]`: the ranks that are to have it. `groups[i]`: the chunks that
    may pass route i, those of the first group first (None: all chunks). `allowed[i]`: the chunks of all its groups.
    """

    def __init__(
        self, machine: _ChunkTimes, collective: Collective, chunks: int, groups: list[list[int]] | None, random: Random
    ) -> None:
        network, total = machine.network, collective.units * chunks
        self.machine, self.links, self.groups, self.random = machine, _LinkClock(machine), groups, random
        self.allowed = [sum(row) for row in groups or ()]  # the groups of a route are disjoint
        self.held = [0] * network.ranks
        self.holders = np.zeros(total, np.int64)
        self.arrival = np.full((total, network.ranks), inf)
        self.nearest = np.full((total, network.ranks), inf)
        for unit, pre in enumerate(collective.pre):
            mine = range(unit * chunks, (unit + 1) * chunks)
            for rank in pre:
                self.held[rank] |= (1 << chunks) - 1 << mine.start
            self.holders[mine] = len(pre)
            self.arrival[np.ix_(mine, sorted(pre))] = 0
            self.nearest[mine] = machine.lengths[sorted(pre)].min(axis=0)
        self.coming = list(self.held)
        self.step: dict[tuple[int, int], int] = {}
        self.route_step = [-1] * len(network.routes)
        self.under_way = [0] * len(network.routes)
        self.lacking = [total - bits.bit_count() for bits in self.held]
        self.fastest = []
        for into in network.into:
            self.fastest.append(min((machine.chunk_us[i] for i in into), default=0.0))
        self.messages: list[_TimedMessage] = []
        # bit c of `onward[r]`, and r in `useful[c]`: rank r is nearer to some rank than any that is to have chunk c
        self.onward = [(1 << total) - 1] * network.ranks
        self.useful = [np.flatnonzero(machine.relays)] * total
        for rank in np.flatnonzero(~machine.relays):
            self.onward[rank] = 0
        for chunk in range(total) if machine.relays.any() else ():
            self._update_onward(chunk)
        # steps of the messages to be relayed that are leaving, by route, and of those that a route was held back for
        self.relayed: dict[int, int] = {}
        self.held_back: dict[int, int] = {}
        self.end = 0.0

    def run(self) -> _ListRun:
        """Send until every rank has what it wants."""
        routes, leaving = self.machine.network.routes, self.machine.network.out
        place = [0] * len(routes)
        for k, route in enumerate(self.machine.order):
            place[route] = k
        # (time, number, route, chunks that arrive); no chunks: the route is free again
        events: list[tuple[float, int, int, int]] = []
        now, awake = 0.0, set(range(len(routes)))
        while True:
            late = now + SETTINGS.instant
            first = {route for route in awake if self._relays(route)}
            for route in sorted(awake, key=lambda i: (i not in first, place[i])):
                if self.links.free(route) > late or self.under_way[route] >= self.machine.depth:
                    continue
                relays = self._relays(route)
                if self.relayed and not relays and self._holds_back(route):
                    continue
                bits = self._next(route, now)
                if bits:
                    left = self._send(route, bits, now)
                    if relays:
                        self.relayed[route] = self.route_step[route]
                    arrival = left + self.machine.latency[route]
                    heappush(events, (left, 2 * len(self.messages), route, 0))
                    heappush(events, (arrival, 2 * len(self.messages) + 1, route, bits))
            if not events:
                return self
            now, awake = events[0][0], set()
            while events and events[0][0] <= now + SETTINGS.instant:
                _, _, route, bits = heappop(events)
                awake.add(route)
                if not bits and self.relayed.pop(route, None) is not None:
                    awake.update(leaving[routes[route].src])
                if bits:
                    self.under_way[route] -= 1
                    self.held[routes[route].dst] |= bits
                    self.end = now
                    awake.update(leaving[routes[route].dst])

    def _relays(self, route: int) -> bool:
        """Return True if a chunk that waits for `route` is to go on from its end."""
        ends = self.machine.network.routes[route]
        return bool(self.machine.served[route] and self.held[ends.src] & ~self.coming[ends.dst] & self.onward[ends.dst])

    def _update_onward(self, chunk: int) -> None:
        """Remove `chunk` from `onward` of ranks that are nearer to none that lacks it than those that have it."""
        ranks = self.useful[chunk]
        nearer = self.machine.lengths[ranks] < self.nearest[chunk] - SETTINGS.instant
        nearer &= np.isinf(self.arrival[chunk])
        nearer[np.arange(len(ranks)), ranks] = False
        useful = nearer.any(axis=1)
        for rank in ranks[~useful]:
            self.onward[rank] &= ~(1 << chunk)
        self.useful[chunk] = ranks[useful]

    def _holds_back(self, route: int) -> bool:
        """Return True if a message to be relayed is leaving the source of `route` over a limit that both share."""
        network = self.machine.network
        limits = set(network.caps_of[route])
        for other, step in self.relayed.items():
            same_source = network.routes[other].src == network.routes[route].src
            if same_source and limits.intersection(network.caps_of[other]):
                self.held_back[route] = step
                return True
        return False

    def _next(self, route: int, now: float) -> int:
        """Return the chunks of the next message over `route`, 0 where there is none to send."""
        src, dst = self.machine.network.routes[route].src, self.machine.network.routes[route].dst
        waiting = self.held[src] & ~self.coming[dst]
        if not waiting:
            return 0
        if self.groups is None:
            first = joining = self._urgent(waiting, route, now)
        else:
            first = next((bits & waiting for bits in self.groups[route] if bits & waiting), 0)
            joining = first if self.machine.tapered else waiting & self.allowed[route]
        if not first:
            return 0
        most, begin = self.machine.together[route], 0
        if self.machine.tapered:
            # guided self-scheduling: small last messages delay little of what follows them
            remaining = (self.allowed[route] & ~self.coming[dst]).bit_count()
            most = min(most, max(self.machine.filling[route], -(-remaining // 2)))
            begin = _lowest(first)
        # ranks begin anywhere in a group, so that they do not all bring the same chunk
        start = self.random.randrange(begin, first.bit_length())
        low = _lowest(first >> start << start)
        born = self.step.get((src, low), -1)
        last = low - low % most if self.machine.tapered else 0
        while most > 1 and low > last and joining >> low - 1 & 1 and self.step.get((src, low - 1), -1) == born:
            low -= 1
        count = 1
        while count < most and joining >> low + count & 1 and self.step.get((src, low + count), -1) == born:
            count += 1
        return (1 << count) - 1 << low

    def _urgent(self, waiting: int, route: int, now: float) -> int:
        """Return those of the chunks `waiting` that are to pass `route` first; 0 where all of them come sooner else."""
        machine, ends = self.machine, self.machine.network.routes[route]
        dst, chunks = ends.dst, np.array(_bits(waiting))
        lengths = machine.lengths[:, dst]
        if machine.scarce and 2 * self.under_way[route] >= machine.depth:
            nearer = lengths < lengths[ends.src] - SETTINGS.instant
            chunks = chunks[np.isinf(self.arrival[np.ix_(chunks, nearer)]).all(axis=1)]
            if not len(chunks):
                return 0
        elsewhere = (np.maximum(self.arrival[chunks], now) + lengths).min(axis=1)
        sooner = elsewhere + self.lacking[dst] * self.fastest[dst]
        chunks = chunks[now + machine.chunk_us[route] + machine.latency[route] <= sooner + SETTINGS.instant]
        if not len(chunks):
            return 0
        # the longest way that is shorter from there than from any other rank that is to have the chunk
        shorter = machine.lengths[dst] < self.nearest[chunks] - SETTINGS.instant
        ways = np.where(shorter & np.isinf(self.arrival[chunks]), machine.lengths[dst], 0.0).max(axis=1)
        chunks = chunks[ways >= ways.max() - SETTINGS.instant]
        chunks = chunks[self.holders[chunks] == self.holders[chunks].min()]
        return sum(1 << int(chunk) for chunk in chunks)

    def _send(self, route: int, bits: int, now: float) -> float:
        """Send `bits` over `route`. Returns when they have left."""
        src, dst = self.machine.network.routes[route].src, self.machine.network.routes[route].dst
        chunks = range(_lowest(bits), bits.bit_length())
        left = self.links.carry(route, now, len(chunks))
        held_back = self.held_back.pop(route, -1)
        step = max(self.route_step[route], self.step.get((src, chunks.start), -1), held_back) + 1
        self.route_step[route] = step
        self.under_way[route] += 1
        self.coming[dst] |= bits
        self.lacking[dst] -= len(chunks)
        self.holders[chunks] += 1
        self.arrival[chunks, dst] = left + self.machine.latency[route]
        self.nearest[chunks] = np.minimum(self.nearest[chunks], self.machine.lengths[dst])
        for chunk in chunks:
            self.step[dst, chunk] = step
            if len(self.useful[chunk]):
                self._update_onward(chunk)
        self.messages.append(_TimedMessage(step, route, chunks))
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


def _lowest(bits: int) -> int:
    """Return the number of the lowest bit of `bits`, which has one."""
    return (bits & -bits).bit_length() - 1


def _bits(value: int) -> list[int]:
    """Return the numbers of the bits of `value`."""
    numbers = []
    while value:
        numbers.append(_lowest(value))
        value &= value - 1
    return numbers

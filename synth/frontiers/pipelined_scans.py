"""Pipelined scans: along a chain of all ranks, over boxes, and by the plans of single chunks.

Along the chain each rank sends its prefix to the next rank, over further ranks where no route joins them. A rank on
the way that waits for its own prefix is a relay at no cost. One that holds its prefix changes places with the passing
one, and they change back once that has gone on, so a chain leads through any machine whose routes go both ways. Rank 0
always is a relay: its prefix is its own input, which it takes again at the end.

Over boxes there are prefixes inside each box, and the sums of boxes go from one to the next over all NICs. Each box
has two hubs for a chunk, which follow the chunks round its ranks, so that all NICs carry equally much:

    chain      the other ranks of each box add up prefixes of their own box, one after the other
    total      one hub gets the sum of its box
    boxes      the other hub gets the sum of all boxes before; it passes it on to all ranks of its box, so also to the
               first hub, which then holds the sum up to its own box, and sends it to the next box
    end        hubs take the prefix of the rank before them, and add what it lacks

Chunks of a group take the same step of these phases, and the next group follows one step behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import chain
from math import inf, isqrt

import numpy as np

from synth.checker.schedule import replay
from synth.errors import VerificationError
from synth.model.collective import Collective, collective
from synth.model.dead_sends import with_fewest_rounds
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network

Box = Sequence[int]


@dataclass(frozen=True)
class ScanSettings:
    """Limits of pipelined scans.

    Attributes:
        most_sends: Maximum number of sends, which are written out and replayed in a second.
        copies: Multiples of a box's ranks that are tried as the chunks of a group. More chunks fill the rounds better.
        change_sends: Sends for which a step along the chain to a rank that holds its prefix counts: two with which the
            ranks change their values, and two with which they change them back.
        growth: The first schedules of a kind have this many times the chunks of the one before.
        worth: A schedule with more steps is offered only if R/C falls by this fraction.
    """

    most_sends: int = 50_000
    copies: tuple[int, ...] = (1, 2, 3, 5)
    change_sends: int = 4
    growth: int = 4
    worth: Fraction = Fraction(1, 5)


SETTINGS = ScanSettings()


def box_scans(network: Network, task: Collective, nodes: Sequence[int]) -> Iterator[Schedule]:
    """Yield replayed scans, each with much fewer rounds per chunk than those of fewer steps: the shortest, then some of
    several times as many chunks each, so that the first ones come soon, then the others by falling steps.

    ``nodes[rank]`` is the box of a rank. Where there is one box, or each has one rank, ranks are divided into about
    equal blocks. Nothing is yielded for other collectives, for boxes whose ranks do not follow each other, and where
    ranks that must send to each other have no route.
    """
    boxes = _boxes(nodes)
    if boxes is None or task != collective("scan", network.ranks):
        return
    yield from _scans(network, task, [_lane(boxes, k) for k in range(max(map(len, boxes)))])


def chain_scans(network: Network, task: Collective) -> Iterator[Schedule]:
    """Yield replayed scans in which each rank adds its own data and sends the prefix to the next rank, pipelined.

    They are in the order of `box_scans`. Nothing is yielded for other collectives, and where no relays lead from a
    rank to the next.
    """
    if task != collective("scan", network.ranks) or network.ranks < 2:
        return
    lane = _Chain(network).lane()
    if lane is not None:
        yield from _scans(network, task, [lane])


def planned_scans(network: Network, task: Collective, plan: Schedule) -> Iterator[Schedule]:
    """Yield replayed scans of many chunks that follow `plan`, of one chunk, in the order of `box_scans`.

    Nothing is yielded for other collectives, and where the sums of the plan do not add up.
    """
    if task != collective("scan", network.ranks):
        return
    try:
        replay.schedule(plan)
    except VerificationError:
        return
    yield from _scans(network, task, [[list(step.sends) for step in plan.steps]])


def _scans(network: Network, task: Collective, lanes: list[list[list[Send]]]) -> Iterator[Schedule]:
    """Yield the replayed schedules of the best numbers of chunks and groups; none where a send has no route.

    Sends that name no switches take the first route between their ranks.
    """
    lanes = _routed(network, lanes)
    best: Fraction | None = None
    chosen = []
    for _, rate, copies, groups in sorted(_options(network, lanes)) if lanes else ():
        if best is None or rate <= best * (1 - SETTINGS.worth):
            best = rate
            chosen.append((copies, groups))
    for copies, groups in _in_offered_order(chosen):
        schedule = _pipelined(network, task, lanes * copies, groups)
        replay.schedule(schedule)
        yield schedule


def _in_offered_order(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (copies, groups), by growing steps, in the order in which they are offered: see `box_scans`."""
    early: list[tuple[int, int]] = []
    for copies, groups in sizes:
        if not early or copies * groups >= SETTINGS.growth * early[-1][0] * early[-1][1]:
            early.append((copies, groups))
    return early + [size for size in reversed(sizes) if size not in early]


def _boxes(nodes: Sequence[int]) -> list[Box] | None:
    """Return the boxes in the order of their ranks; None where they mix, or are fewer than two, or one has one rank."""
    ranks = len(nodes)
    members: dict[int, list[int]] = {}
    for rank, box in enumerate(nodes):
        members.setdefault(box, []).append(rank)
    boxes: list[Box] = list(members.values())
    if len(boxes) in (1, ranks):
        count = isqrt(ranks)
        boxes = [range(ranks * i // count, ranks * (i + 1) // count) for i in range(count)]
    consecutive = all(list(box) == list(range(box[0], box[-1] + 1)) for box in boxes)
    return boxes if consecutive and len(boxes) > 1 and min(map(len, boxes)) > 1 else None


def _routed(network: Network, lanes: list[list[list[Send]]]) -> list[list[list[Send]]]:
    """Return `lanes` with the switches that each send passes; an empty list where one has no route."""
    via = {(route.src, route.dst): route.via for route in reversed(network.routes)}
    via |= {(rank, rank): () for rank in range(network.ranks)}
    steps = chain.from_iterable(lanes)
    if any((send.src, send.dst) not in via for send in chain.from_iterable(steps)):
        return []

    def routed(send: Send) -> Send:
        return send if send.via else send._replace(via=via[send.src, send.dst])

    result = []
    for lane in lanes:
        result.append([list(map(routed, step)) for step in lane])
    return result


class _Chain:
    """The steps of a chunk along the chain of all ranks, over relays where no route joins a rank to the next.

    Attributes:
        steps: the sends of each step.
        ready: the first step in which each rank may be written to again.
        used: ranks that do not hold their own input any more, but no prefix of theirs either.
        load: sends on each route, in rounds.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.steps: list[list[Send]] = []
        self.ready = [0] * network.ranks
        self.used: set[int] = set()
        self.leaving: list[dict[int, int]] = [{} for _ in range(network.ranks)]  # the first route to each rank
        for i, route in enumerate(network.routes):
            self.leaving[route.src].setdefault(route.dst, i)
        self.load = [0.0] * len(network.routes)

    def lane(self) -> list[list[Send]] | None:
        """Return the steps, or None where no relays lead from a rank to the next."""
        start = 0
        for rank in range(self.network.ranks - 1):
            path = self._path(rank)
            if path is None:
                return None
            start = self._pass_on(path, start)
        if 0 in self.used:
            self._add(self.ready[0], 0, 0, "copy-input")
        return self.steps

    def _holds(self, rank: int, sender: int) -> bool:
        """Return True if `rank` holds its prefix when that of `sender` passes it."""
        return 0 < rank < sender

    def _path(self, sender: int) -> list[int] | None:
        """Return the ranks on a cheapest path from `sender` to the next rank: few sends, over routes of little load."""
        if sender + 1 in self.leaving[sender]:
            return [sender, sender + 1]
        before = {sender: sender}
        known = {sender: 0.0}
        queue = [(0.0, sender)]
        while queue:
            cost, rank = heappop(queue)
            if rank == sender + 1:
                path = [rank]
                while path[-1] != sender:
                    path.append(before[path[-1]])
                return path[::-1]
            if cost > known[rank]:
                continue
            for end, route in self.leaving[rank].items():
                changes = self._holds(end, sender)
                if changes and rank not in self.leaving[end]:
                    continue
                through = cost + (1 + self.load[route]) * (SETTINGS.change_sends if changes else 1)
                if through < known.get(end, inf):
                    known[end], before[end] = through, rank
                    heappush(queue, (through, end))
        return None

    def _pass_on(self, path: list[int], start: int) -> int:
        """Send a prefix along `path` from step `start` on; return the first step in which its last rank can send it."""
        sender, first = path[0], 0
        for last in range(1, len(path)):
            if not self._holds(path[last], sender):
                start = self._pass_over(path[first : last + 1], start, last == len(path) - 1)
                first = last
        return start

    def _pass_over(self, path: list[int], start: int, ends: bool) -> int:
        """Send a prefix over ranks that hold theirs to one that does not; return the first step in which that can
        send it.

        `ends`: that rank adds its input.
        """
        between, end = len(path) - 2, path[-1]
        start = max(start, self.ready[end] - between, *(self.ready[path[i]] - i + 1 for i in range(1, between + 1)), 0)
        for i in range(between):
            self._change(start + i, path[i], path[i + 1])
            self._change(start + 2 * between - 1 - i, path[i], path[i + 1])
            self.ready[path[i + 1]] = start + 2 * between - i
        self.ready[path[0]] = start + 2 * between
        arrival = start + between
        if not ends or end in self.used:
            self._add(arrival, path[-2], end, "copy")
            if ends:
                self._add(arrival, end, end, "reduce-input")
        else:
            self._add(arrival, path[-2], end, "reduce")
        if ends:
            self.used.discard(end)
        else:
            self.used.add(end)
        self.ready[end] = arrival + 1
        return arrival + 1

    def _change(self, step: int, one: int, other: int) -> None:
        """Let two ranks change their values."""
        self._add(step, one, other, "copy")
        self._add(step, other, one, "copy")

    def _add(self, step: int, src: int, dst: int, kind: str) -> None:
        self.steps += [[] for _ in range(step + 1 - len(self.steps))]
        self.steps[step].append(Send(0, src, dst, kind))
        if src != dst:
            route = self.leaving[src][dst]
            self.load[route] += 1 / self.network.routes[route].units


def _lane(boxes: Sequence[Box], k: int) -> list[list[Send]]:
    """Return the steps of a chunk, number 0, whose first hub is at place k of the first box."""
    start = max(map(len, boxes))  # step in which the sum of the first box leaves it
    steps: list[list[Send]] = [[] for _ in range(start + 2 * len(boxes) - 1)]

    def send(step: int, src: int, dst: int, kind: str) -> None:
        steps[step].append(Send(0, src, dst, kind))

    for b, box in enumerate(boxes):
        # A sum arrives at the place that it left, as machines with rails need.
        before = box[(k + b - 1) % len(box)] if b > 0 else None
        total = box[(k + b) % len(box)] if b < len(boxes) - 1 else None
        others = [rank for rank in box if rank not in (before, total)]
        for i, rank in enumerate(others):
            if i > 0:
                send(i, others[i - 1], rank, "reduce")
            for hub in range(others[i - 1] + 1 if i > 0 else box[0], rank):
                send(i, hub, rank, "reduce-input")
        arrival = start + 2 * (b - 1)  # step in which the sum before the box arrives
        if total is not None:
            if others:
                send(start - 1, others[-1], total, "copy")
            for rank in range(others[-1] + 1 if others else box[0], box[-1] + 1):
                if others or rank != total:
                    send(start - 1, rank, total, "reduce-input")
            following = boxes[b + 1]
            send(arrival + 2, total, following[(k + b) % len(following)], "copy")
        if before is not None:
            for rank in box:
                if rank != before:
                    send(arrival + 1, before, rank, "reduce")
        for hub in (before, total):
            if hub is None:
                continue
            lower = [rank for rank in others if rank < hub]
            first = lower[-1] + 1 if lower else box[0]
            if lower:
                send(arrival + 2, lower[-1], hub, "copy")
            elif before is None:
                send(arrival + 2, first, hub, "copy-input")
                first += 1
            elif hub != before:
                send(arrival + 2, before, hub, "copy")
            for rank in range(first, hub + 1):
                send(arrival + 2, rank, hub, "reduce-input")
    return steps


def _options(network: Network, lanes: Sequence[list[list[Send]]]) -> Iterator[tuple[int, Fraction, int, int]]:
    """Yield (steps, rounds per chunk, copies of all lanes in a group, groups) of schedules with few enough sends."""
    units = np.array([resource.units for resource in (*network.routes, *network.caps)], np.int64)
    load = np.zeros((len(lanes[0]), len(units)), np.int64)  # of one group, by step and resource
    sends = 0
    for lane in lanes:
        for t, step in enumerate(lane):
            for each in step:
                if not each.local:
                    sends += 1
                    i = network.route_index[each.src, each.dst, each.via]
                    load[t, i] += 1
                    np.add.at(load[t], [len(network.routes) + k for k in network.caps_of[i]], 1)
    used = np.flatnonzero(load.any(axis=0))
    load, units = load[:, used], units[used]
    before = np.concatenate([np.zeros((1, len(units)), np.int64), np.cumsum(load, axis=0)])
    depth = len(load)
    for copies in SETTINGS.copies:
        groups = 1
        while sends * copies * groups <= SETTINGS.most_sends:
            steps = np.arange(depth + groups - 1)
            carried = before[np.minimum(steps + 1, depth)] - before[np.maximum(0, steps + 1 - groups)]
            rounds = np.maximum(1, (-(-copies * carried // units)).max(axis=1))
            rate = Fraction(int(rounds.sum()), len(lanes) * copies * groups)
            yield len(steps), rate, copies, groups
            groups *= 2


def _pipelined(network: Network, task: Collective, lanes: Sequence[list[list[Send]]], groups: int) -> Schedule:
    """Return the schedule in which group g of chunks, one for each lane, is g steps behind the first."""
    steps: list[list[Send]] = [[] for _ in range(len(lanes[0]) + groups - 1)]
    for k, lane in enumerate(lanes):
        for t, step in enumerate(lane):
            for send in step:
                for g in range(groups):
                    steps[t + g].append(send._replace(chunk=g * len(lanes) + k))
    chunks = len(lanes) * groups
    rows = tuple(Step(1, tuple(sorted(row))) for row in steps)
    return with_fewest_rounds(Schedule(network, task, chunks, rows))

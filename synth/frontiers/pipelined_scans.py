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

Where the links inside a box carry little more than its NICs, each box is one chain instead: a sum enters it at a hub,
passes all ranks, and leaves it at the same hub. So half as many sends are inside the boxes, in more steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush
from itertools import chain
from math import ceil, inf, isqrt
from typing import NamedTuple

import numpy as np

from synth.checker.schedule import column_replay
from synth.errors import VerificationError
from synth.model.collective import Collective, collective
from synth.model.gc_pause import collector_off
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network

Box = Sequence[int]
Lane = list[list[Send]]  # the sends of one chunk in each step
_Load = tuple[np.ndarray, np.ndarray]  # of a group before each step, by resource, and the units of these


@dataclass(frozen=True)
class ScanSettings:
    """Limits of pipelined scans.

    Attributes:
        most_sends: Maximum number of sends, of which there are several schedules.
        goal_sends: The same of the one schedule within the goal: it is written out and replayed in less than a second.
        rounds: Numbers of rounds, as multiples of the least that carry a chunk, for which a group has as many chunks as
            they carry in each step. In more rounds less capacity is left over.
        parts: A group may also have the chunks of the least of these rounds divided by these numbers: less is to be
            written out.
        change_sends: Sends for which a step along the chain to a rank that holds its prefix counts: two with which the
            ranks change their values, and two with which they change them back.
        growth: The first schedules of a kind have this many times the chunks of the one before.
        worth: A schedule with more steps is offered only if R/C falls by this fraction, or to the goal.
    """

    most_sends: int = 80_000
    goal_sends: int = 320_000
    rounds: tuple[int, ...] = (1, 2, 3, 4)
    parts: tuple[int, ...] = (2, 4)
    change_sends: int = 4
    growth: int = 4
    worth: Fraction = Fraction(1, 5)


SETTINGS = ScanSettings()
NO_GOAL = Fraction(0)


def box_scans(network: Network, task: Collective, nodes: Sequence[int], goal: Fraction = NO_GOAL) -> Iterator[Schedule]:
    """Yield replayed scans, each with much fewer rounds per chunk than those of fewer steps: the shortest, the one of
    fewest sends with at most `goal` rounds per chunk, some of several times as many chunks each, so that good ones
    come soon, and then the others by falling steps.

    ``nodes[rank]`` is the box of a rank. Where there is one box, or each has one rank, ranks are divided into about
    equal blocks. Nothing is yielded for other collectives, for boxes whose ranks do not follow each other, and where
    ranks that must send to each other have no route.
    """
    boxes = _boxes(nodes)
    if boxes is None or task != collective("scan", network.ranks):
        return
    # The first rank of a box has most to send where it is a hub: it is so for no more chunks than other ranks.
    places = [*range(1, max(map(len, boxes))), 0]
    side_by_side = [_side_by_side(boxes, k) for k in places]
    one_after_another = [_one_after_another(boxes, k) for k in places]
    yield from _scans(network, task, [side_by_side, one_after_another], goal)


def chain_scans(network: Network, task: Collective, goal: Fraction = NO_GOAL) -> Iterator[Schedule]:
    """Yield replayed scans in which each rank adds its own data and sends the prefix to the next rank, pipelined.

    They are in the order of `box_scans`. Nothing is yielded for other collectives, and where no relays lead from a
    rank to the next.
    """
    if task != collective("scan", network.ranks) or network.ranks < 2:
        return
    lane = _Chain(network).lane()
    if lane is not None:
        yield from _scans(network, task, [[lane]], goal)


def planned_scans(network: Network, task: Collective, plan: Schedule, goal: Fraction = NO_GOAL) -> Iterator[Schedule]:
    """Yield replayed scans of many chunks that follow `plan`, of one chunk, in the order of `box_scans`.

    Nothing is yielded for other collectives, and where the sums of the plan do not add up.
    """
    if task != collective("scan", network.ranks):
        return
    try:
        column_replay.schedule(plan)
    except VerificationError:
        return
    yield from _scans(network, task, [[[list(step.sends) for step in plan.steps]]], goal)


class _Option(NamedTuple):
    """A schedule that may be written out: `size` chunks in a group, over the lanes of a way, and `groups` one step
    apart."""

    steps: int
    rate: Fraction
    sends: int
    size: int
    groups: int
    way: int = 0


def _scans(network: Network, task: Collective, ways: Sequence[list[Lane]], goal: Fraction) -> Iterator[Schedule]:
    """Yield the replayed schedules of the best numbers of chunks and groups; none where a send has no route.

    `ways`: the lanes of one group, in each way to make them. Sends that name no switches take the first route between
    their ranks.
    """
    routed = [_Group(network, lanes) for lanes in map(partial(_routed, network), ways) if lanes]
    options: list[_Option] = []
    for way, group in enumerate(routed):
        if way == 0 or not goal or group.least_rate <= goal:
            options += [option._replace(way=way) for option in group.options()]
    if goal and all(option.rate > goal for option in options):
        found = [(way, group.within(goal)) for way, group in enumerate(routed)]
        good = [option._replace(way=way) for way, option in found if option is not None]
        options += sorted(good, key=lambda option: option.sends)[:1]
    options.sort()
    chosen = options[:1]
    for option in options[1:]:
        worth = 0 if option.rate <= goal < chosen[-1].rate else SETTINGS.worth
        if option.rate <= chosen[-1].rate * (1 - worth):
            chosen.append(option)
    for option in _in_offered_order(chosen, goal):
        schedule = routed[option.way].pipelined(task, option.size, option.groups)
        column_replay.schedule(schedule)
        yield schedule


def _in_offered_order(options: Sequence[_Option], goal: Fraction) -> list[_Option]:
    """Return the options, given by growing steps, in the order in which they are offered: see `box_scans`."""
    good = [option for option in options if option.rate <= goal]
    least = min(options, key=lambda option: option.sends, default=None)
    early = [*([] if least is None else [least]), *sorted(good, key=lambda option: option.sends)[:1]]
    largest = 0
    for option in options:
        if option.sends >= SETTINGS.growth * largest:
            early.append(option)
            largest = option.sends
    return list(dict.fromkeys([*early, *reversed(options)]))


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
        load, limit_load: sends on each route, and against each limit, in rounds.
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
        self.limit_load = [0.0] * len(network.caps)

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
                through = cost + (1 + self._load(route)) * (SETTINGS.change_sends if changes else 1)
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
            for k in self.network.caps_of[route]:
                self.limit_load[k] += 1 / self.network.caps[k].units

    def _load(self, route: int) -> float:
        """Return the load of a route, or of the busiest limit that it counts against."""
        return max([self.load[route], *(self.limit_load[k] for k in self.network.caps_of[route])])


def _side_by_side(boxes: Sequence[Box], k: int) -> Lane:
    """Return the steps of a chunk, number 0, whose first hub is at place k of the first box; boxes add up at once."""
    start = max(map(len, boxes))  # step in which the sum of the first box leaves it
    steps: Lane = [[] for _ in range(start + 2 * len(boxes) - 1)]

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


def _one_after_another(boxes: Sequence[Box], k: int) -> Lane:
    """Return the steps of a chunk, number 0, that passes all ranks of a box; its hubs are at place k of each box."""
    steps: Lane = []

    def send(step: int, src: int, dst: int, kind: str) -> None:
        steps.extend([] for _ in range(step + 1 - len(steps)))
        steps[step].append(Send(0, src, dst, kind))

    step = 0
    for b, box in enumerate(boxes):
        hub = box[k % len(box)]
        if b > 0 and hub != box[0]:
            send(step, hub, box[0], "reduce")  # the sum before the box
            step += 1
        for i in range(1, len(box)):
            if box[i] == hub and b > 0:
                send(step, box[i - 1], hub, "copy")
                send(step, hub, hub, "reduce-input")
            else:
                send(step, box[i - 1], box[i], "reduce")
            step += 1
        if b == len(boxes) - 1:
            break
        if hub != box[-1]:
            send(step, box[-1], hub, "copy")
            step += 1
        following = boxes[b + 1]
        entry = following[k % len(following)]
        send(step, hub, entry, "reduce" if entry == following[0] else "copy")
        if hub == box[0] and b == 0:
            send(step, hub, hub, "copy-input")
        elif hub == box[0]:  # it has changed values with the last rank, and they change back
            send(step - 1, hub, box[-1], "copy")
            send(step, box[-1], hub, "copy")
            send(step, hub, box[-1], "copy")
        elif hub != box[-1]:
            send(step, box[k % len(box) - 1], hub, "copy")
            send(step, hub, hub, "reduce-input")
        step += 1
    return steps


def _spread(lanes: int, size: int) -> list[int]:
    """Return the lane of each of `size` chunks of a group, which are spread evenly over the lanes."""
    return [i * lanes // size for i in range(size)]


class _Group:
    """A group of chunks that take the same steps over the lanes of one way, and groups that follow each other.

    Attributes:
        sends: number of sends between ranks of a chunk of each lane.
        load: sends by lane, step and resource, of the links and limits that are used.
        units: the capacities of these.
    """

    def __init__(self, network: Network, lanes: Sequence[Lane]) -> None:
        self.network, self.lanes = network, lanes
        self.depth = max(map(len, lanes))
        self.sends = [0] * len(lanes)
        cells: list[tuple[int, int, int]] = []  # lane, step and resource
        for k, lane in enumerate(lanes):
            for t, step in enumerate(lane):
                remote = [send for send in step if not send.local]
                self.sends[k] += len(remote)
                for send in remote:
                    i = network.route_index[send.src, send.dst, send.via]
                    cells.append((k, t, i))
                    cells += [(k, t, len(network.routes) + c) for c in network.caps_of[i]]
        lane_of, step_of, resource = np.array(cells, np.int64).reshape(-1, 3).T
        used, place = np.unique(resource, return_inverse=True)
        resources = (*network.routes, *network.caps)
        self.units = np.array([resources[i].units for i in used.tolist()], np.int64)
        self.load = np.zeros((len(lanes), self.depth, len(used)), np.int64)
        np.add.at(self.load, (lane_of, step_of, place), 1)

    @property
    def least_rate(self) -> Fraction:
        """Rounds per chunk that no schedule of these lanes with few enough sends goes below."""
        return Fraction(self.depth * sum(self.sends), SETTINGS.goal_sends * len(self.lanes))

    def options(self) -> Iterator[_Option]:
        """Yield the schedules with few enough sends, of ever more groups: each number is about half as large again."""
        for size in self._sizes(SETTINGS.most_sends):
            load = self._load_before(size)
            for groups in _group_counts(SETTINGS.most_sends // max(1, self._sends_of(size))):
                yield self._option(size, groups, load)

    def within(self, goal: Fraction) -> _Option | None:
        """Return a schedule of few sends with at most `goal` rounds per chunk; None where all have too many sends.

        Of each number of chunks in a group it has the fewest groups, where more of them take fewer rounds per chunk.
        """
        best, most_sends = None, SETTINGS.goal_sends
        for size in self._sizes(SETTINGS.goal_sends):
            load = self._load_before(size)
            counts = range(1, most_sends // max(1, self._sends_of(size)) + 1)
            if counts and self._option(size, counts[-1], load).rate <= goal:
                first = bisect_left(counts, -goal, key=lambda groups: -self._option(size, groups, load).rate)
                best = self._option(size, counts[first], load)
                most_sends = best.sends - 1
        return best

    def _sizes(self, most_sends: int) -> list[int]:
        """Return the numbers of chunks in a group that are tried, of schedules with so many sends at most."""
        return _group_sizes(self.load.sum(axis=1), self.units, most_sends // max(1, min(self.sends)))

    def _sends_of(self, size: int) -> int:
        """Return the number of sends between ranks of a group of `size` chunks."""
        return sum(self.sends[k] for k in _spread(len(self.lanes), size))

    def _option(self, size: int, groups: int, load: _Load) -> _Option:
        """Return the schedule of so many groups of `size` chunks, whose load is `load`."""
        rounds = self._rounds(groups, load)
        return _Option(len(rounds), Fraction(sum(rounds), size * groups), self._sends_of(size) * groups, size, groups)

    def _load_before(self, size: int) -> _Load:
        """Return what a group of `size` chunks loads before each step, and after the last: by resource, of those that
        one round may not be enough for, with their units."""
        load = self.load[_spread(len(self.lanes), size)].sum(axis=0)
        busy = np.flatnonzero(load.sum(axis=0) > self.units)
        start = np.zeros((1, len(busy)), np.int64)
        return np.cumsum(np.concatenate([start, load[:, busy]]), axis=0), self.units[busy]

    def _rounds(self, groups: int, load: _Load) -> list[int]:
        """Return the rounds of each step of so many groups with this load."""
        before, units = load
        steps = np.arange(self.depth + groups - 1)
        carried = before[np.minimum(steps + 1, self.depth)] - before[np.maximum(0, steps + 1 - groups)]
        return (-(-carried // units)).max(axis=1, initial=1).tolist()

    @collector_off()
    def pipelined(self, task: Collective, size: int, groups: int) -> Schedule:
        """Return the schedule of groups of `size` chunks, spread over the lanes, each one step behind the one before.

        Chunk i of group g has the number ``g * size + i``.
        """
        rows = []  # (step counted backwards, send) of one group: groups that are behind come last in a step
        for chunk, k in enumerate(_spread(len(self.lanes), size)):
            for t, step in enumerate(self.lanes[k]):
                rows += [(-t, send._replace(chunk=chunk)) for send in step]
        rows.sort()
        backwards = np.array([t for t, _ in rows], np.int64)
        chunks = np.array([send.chunk for _, send in rows], np.int64) + backwards * size
        _, src, dst, kind, via = map(list, zip(*(send for _, send in rows), strict=True))
        rounds = self._rounds(groups, self._load_before(size))
        first = np.searchsorted(backwards, -np.arange(len(rounds))).tolist()
        end = np.searchsorted(backwards, groups - np.arange(len(rounds))).tolist()
        steps = []
        for s in range(len(rounds)):
            here = slice(first[s], end[s])
            columns = (chunks[here] + s * size).tolist(), src[here], dst[here], kind[here], via[here]
            steps.append(Step.of_columns(rounds[s], *columns))
        return Schedule(self.network, task, size * groups, tuple(steps))


def _group_sizes(load: np.ndarray, units: np.ndarray, most: int) -> list[int]:
    """Return the numbers of chunks in a group, `most` at most, with which steps of few rounds have little to spare.

    `load`: sends by lane and resource, of all steps. So much is carried in each step in which all groups are under way.
    """
    lanes = len(load)
    each = float((load.mean(axis=0) / units).max())  # rounds for a chunk
    sizes = []
    for times in SETTINGS.rounds:
        rounds = times * ceil(each)
        size = min(most, int(rounds / each) + lanes - 1)  # the last ones may pass by the lanes of the greatest load
        while size > 1 and (np.bincount(_spread(lanes, size), minlength=lanes) @ load > rounds * units).any():
            size -= 1
        sizes.append(size)
    sizes += [sizes[0] // part for part in SETTINGS.parts]
    return [size for size in dict.fromkeys(sizes) if size > 0]


def _group_counts(most: int) -> list[int]:
    """Return numbers of groups up to `most`, each about half as large again as the one before."""
    counts, groups = [], 1
    while groups < most:
        counts.append(groups)
        groups += (groups + 1) // 2
    return [*counts, most] if most else counts

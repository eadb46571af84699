"""Pipelined scans: chunk after chunk along a chain of all ranks, or over boxes.

Along the chain each rank sends its prefix to the next rank, over further ranks where no route joins them.

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

Where every two ranks of a box have a link, a hub can add the inputs of all ranks of its box, and send each its prefix.
The chunks of different hubs load all links, instead of those from each rank to the next.

These take direct links first. Where they use few of the links of a rank, so that no number of chunks comes near the
bound, further chunks go over relays, each on paths of little load (`synth.frontiers.scan_lanes`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt
from typing import NamedTuple

import numpy as np

from synth.checker.schedule import column_replay
from synth.errors import VerificationError
from synth.frontiers.scan_lanes import (
    Box,
    Lane,
    LaneRouter,
    NoPathError,
    chain,
    one_after_another,
    side_by_side,
    through_hubs,
)
from synth.model.collective import Collective, collective
from synth.model.gc_pause import collector_off
from synth.model.schedule import Schedule, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import current_deadline

_MakeLane = Callable[[LaneRouter, int], Lane]  # the steps of the k-th chunk
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
        lane_sends: About how many sends the chunks of different paths have together, so that loads are even: they take
            a few tenths of a second.
        growth: The first schedules of a kind have this many times the chunks of the one before.
        worth: A schedule with more steps is offered only if R/C falls by this fraction, or to the goal.
        seconds_per_send: Seconds, about, to write out and replay one send of many. All schedules but the first are left
            out where less time is left until the ambient deadline.
    """

    most_sends: int = 80_000
    goal_sends: int = 600_000
    rounds: tuple[int, ...] = (1, 2, 3, 4)
    parts: tuple[int, ...] = (2, 4)
    lane_sends: int = 8_000
    growth: int = 4
    worth: Fraction = Fraction(1, 5)
    seconds_per_send: float = 3e-6


SETTINGS = ScanSettings()
NO_GOAL = Fraction(0)


def box_scans(
    network: Network, task: Collective, nodes: Sequence[int], goal: Fraction = NO_GOAL, known: Sequence[Fraction] = ()
) -> Iterator[Schedule]:
    """Yield replayed scans, each with much fewer rounds per chunk than those of fewer steps: the one of fewest sends,
    the one of fewest sends with at most `goal` rounds per chunk, some of several times as many chunks each, so that
    good ones come soon, and then the others by falling steps. Where none is within the goal, the one of fewest rounds
    per chunk takes its place, if it has much fewer than the others and the rates `known`, to which the caller adds
    meanwhile.

    ``nodes[rank]`` is the box of a rank. Where there is one box, or each has one rank, ranks are divided into about
    equal blocks. Nothing is yielded for other collectives, for boxes whose ranks do not follow each other, and where
    no relays lead to ranks that others must send to.
    """
    boxes = _boxes(nodes)
    if boxes is None or task != collective("scan", network.ranks):
        return
    box_of = [b for b, box in enumerate(boxes) for _ in box]
    places = max(map(len, boxes))

    def parallel(router: LaneRouter, k: int) -> Lane:
        return side_by_side(router, boxes, k)

    def serial(router: LaneRouter, k: int) -> Lane:
        return one_after_another(router, boxes, k)

    yield from _scans(network, task, [_Way(parallel, box_of, places), _Way(serial, box_of, places)], goal, known)


def hub_scans(
    network: Network, task: Collective, nodes: Sequence[int] = (), goal: Fraction = NO_GOAL,
    known: Sequence[Fraction] = (),
) -> Iterator[Schedule]:  # fmt: skip
    """Yield replayed scans through one hub in each box, another one for the next chunk, pipelined.

    They are in the order of `box_scans`. ``nodes[rank]`` is the box of a rank; all ranks are one box where there are no
    nodes, each has one rank, or boxes mix. Nothing is yielded for other collectives, where two ranks of a box have no
    link, and where hubs load links and limits no less than a chain of the ranks of each box.
    """
    if task != collective("scan", network.ranks):
        return
    boxes = _consecutive(nodes)
    if not 1 < len(boxes) < network.ranks:
        boxes = [range(network.ranks)]
    if _hubs_load_less(network, boxes):
        box_of = [b for b, box in enumerate(boxes) for _ in box]
        way = _Way(lambda router, k: through_hubs(router, boxes, k), box_of, max(map(len, boxes)) - 1)
        yield from _scans(network, task, [way], goal, known)


def _hubs_load_less(network: Network, boxes: Sequence[Box]) -> bool:
    """Return True if every two ranks of a box have a link, and hubs load the busiest one, or limit, less than chains.

    A chunk takes each link 2 / (n - 1) times through the hubs of a box of n ranks, and those from each rank to the next
    once along a chain.
    """
    box_of = [b for b, box in enumerate(boxes) for _ in box]
    joined: set[tuple[int, int]] = set()
    resources = (*network.routes, *network.caps)
    loads: dict[int, list[float]] = {}  # rounds of hubs and of chains for a chunk, by resource
    for i, route in enumerate(network.routes):
        size = len(boxes[box_of[route.src]])
        if box_of[route.src] == box_of[route.dst] and (route.src, route.dst) not in joined:
            joined.add((route.src, route.dst))
            for resource in (i, *(len(network.routes) + k for k in network.caps_of[i])):
                rounds = loads.setdefault(resource, [0.0, 0.0])
                rounds[0] += 2 / (size - 1) / resources[resource].units
                rounds[1] += (route.dst == route.src + 1) / resources[resource].units
    if not joined or len(joined) < sum(len(box) * (len(box) - 1) for box in boxes):
        return False
    hubs, chains = map(max, zip(*loads.values(), strict=True))
    return hubs < chains


def chain_scans(
    network: Network, task: Collective, nodes: Sequence[int], goal: Fraction = NO_GOAL, known: Sequence[Fraction] = ()
) -> Iterator[Schedule]:
    """Yield replayed scans in which each rank adds its own data and sends the prefix to the next rank, pipelined.

    They are in the order of `box_scans`. Relays are in the boxes of the two ranks, ``nodes[rank]``, where that is
    enough; no nodes mean one box. Nothing is yielded for other collectives, and where no relays lead from a rank to the
    next.
    """
    if task != collective("scan", network.ranks) or network.ranks < 2:
        return
    one_box = (0,) * network.ranks
    nodes = nodes or one_box
    try:
        chain(LaneRouter(network, nodes))
    except NoPathError:
        nodes = one_box
    yield from _scans(network, task, [_Way(lambda router, k: chain(router), nodes)], goal, known)


def planned_scans(
    network: Network, task: Collective, plan: Schedule, goal: Fraction = NO_GOAL, known: Sequence[Fraction] = ()
) -> Iterator[Schedule]:
    """Yield replayed scans of many chunks that follow `plan`, of one chunk, in the order of `box_scans`.

    Nothing is yielded for other collectives, and where the sums of the plan do not add up.
    """
    if task != collective("scan", network.ranks):
        return
    try:
        column_replay.schedule(plan)
    except VerificationError:
        return
    lane = [list(step.sends) for step in plan.steps]
    yield from _scans(network, task, [_Way(lambda router, k: lane, (0,) * network.ranks)], goal, known)


@dataclass(frozen=True)
class _Way:
    """A way to make the lanes of a group.

    Attributes:
        make: `make(router, k)` returns the steps of the k-th chunk.
        nodes: the box of each rank.
        places: number of lanes after which hubs are at the same places again.
    """

    make: Callable[[LaneRouter, int], Lane]
    nodes: Sequence[int]
    places: int = 1

    def direct(self, network: Network) -> _Group | None:
        """Return the group of the lanes over direct links; None where no relays lead to a rank."""
        router = LaneRouter(network, self.nodes)
        try:
            lanes = [self.make(router, k) for k in range(self.places)]
        except NoPathError:
            return None
        return _Group(network, lanes)

    def balanced(self, network: Network, direct: _Group, rate: Fraction) -> _Group | None:
        """Return the group of many lanes whose loads are even; None where the first ones load no less than `direct`, or
        have no fewer rounds per chunk than `rate`."""
        router = LaneRouter(network, self.nodes, balanced=True)
        lanes: list[Lane] = []
        sends = 0
        while not lanes or sends < SETTINGS.lane_sends:
            for _ in range(self.places):
                lanes.append(self.make(router, len(lanes)))
                sends += sum(map(len, lanes[-1]))
            if len(lanes) == self.places:
                first = _Group(network, lanes)
                if first.peak >= direct.peak or first.least_rate >= rate:
                    return None
        return _Group(network, lanes)


class _Option(NamedTuple):
    """A schedule to be written out: `size` chunks in a group, over the lanes of group number `lanes`, and `groups`
    of them one step apart."""

    steps: int
    rate: Fraction
    sends: int
    size: int
    groups: int
    lanes: int = 0


def _scans(
    network: Network, task: Collective, ways: Sequence[_Way], goal: Fraction, known: Sequence[Fraction]
) -> Iterator[Schedule]:
    """Yield replayed schedules with the best numbers of chunks and groups of each way, in the order of `box_scans`."""
    direct = [(way, group) for way in ways if (group := way.direct(network)) is not None]
    groups = [group for _, group in direct]
    options: list[_Option] = []
    for i, group in enumerate(groups):
        if i == 0 or not goal or group.least_rate <= goal:
            options += [option._replace(lanes=i) for option in group.options()]

    def offered(option: _Option) -> Schedule:
        schedule = groups[option.lanes].pipelined(task, option.size, option.groups)
        column_replay.schedule(schedule)
        return schedule

    if not options:
        return
    least = min(_worthwhile(options, goal), key=lambda option: option.sends)
    yield offered(least)
    if goal and all(option.rate > goal for option in options):
        good = _within(groups, goal)
        if good is None:
            best = min((_best(groups).rate, *known))
            for way, group in direct:
                balanced = way.balanced(network, group, best) if group.least_rate < best else None
                if balanced is not None:
                    options += [option._replace(lanes=len(groups)) for option in balanced.options()]
                    groups.append(balanced)
                    best = min(best, balanced.best().rate)
            good = _within(groups, goal)
        if good is None:
            most = _best(groups)
            reached = min((*known, *(option.rate for option in options)))
            good = most if most.rate <= reached * (1 - SETTINGS.worth) else None
        if good is not None and good.rate <= min(known, default=good.rate):
            options.append(good)
            goal = max(goal, good.rate)
    for option in _in_offered_order(_worthwhile(options, goal), goal):
        if option != least and current_deadline().remaining() > SETTINGS.seconds_per_send * option.sends:
            yield offered(option)


def _worthwhile(options: Sequence[_Option], goal: Fraction) -> list[_Option]:
    """Return options by growing steps, each with much fewer rounds per chunk than the ones before."""
    by_steps = sorted(options)
    chosen = by_steps[:1]
    for option in by_steps[1:]:
        worth = 0 if option.rate <= goal < chosen[-1].rate else SETTINGS.worth
        if option.rate <= chosen[-1].rate * (1 - worth):
            chosen.append(option)
    return chosen


def _within(groups: Sequence[_Group], goal: Fraction) -> _Option | None:
    """Return the schedule of fewest sends with at most `goal` rounds per chunk that a group has, or None."""
    found = [(i, group.within(goal)) for i, group in enumerate(groups)]
    good = [option._replace(lanes=i) for i, option in found if option is not None]
    return min(good, key=lambda option: option.sends, default=None)


def _best(groups: Sequence[_Group]) -> _Option:
    """Return the schedule of fewest rounds per chunk that a group has with as many sends as one within the goal may
    have."""
    return min((group.best()._replace(lanes=i) for i, group in enumerate(groups)), key=lambda option: option.rate)


def _in_offered_order(options: Sequence[_Option], goal: Fraction) -> list[_Option]:
    """Return the options, given by growing steps, in the order in which they are offered after the first one: see
    `box_scans`."""
    good = [option for option in options if option.rate <= goal]
    early = sorted(good, key=lambda option: option.sends)[:1]
    largest = 0
    for option in options:
        if option.sends >= SETTINGS.growth * largest:
            early.append(option)
            largest = option.sends
    return list(dict.fromkeys([*early, *reversed(options)]))


def _consecutive(nodes: Sequence[int]) -> list[Box]:
    """Return the boxes in the order of their ranks; none where they mix."""
    members: dict[int, list[int]] = {}
    for rank, box in enumerate(nodes):
        members.setdefault(box, []).append(rank)
    boxes: list[Box] = list(members.values())
    consecutive = all(list(box) == list(range(box[0], box[-1] + 1)) for box in boxes)
    return boxes if consecutive else []


def _boxes(nodes: Sequence[int]) -> list[Box] | None:
    """Return the boxes in the order of their ranks, or equal blocks of one box or of boxes of one rank; None where
    boxes mix, or are fewer than two, or some have one rank."""
    ranks = len(nodes)
    boxes: list[Box] = _consecutive(nodes)
    if len(boxes) in (1, ranks):
        count = isqrt(ranks)
        boxes = [range(ranks * i // count, ranks * (i + 1) // count) for i in range(count)]
    return boxes if len(boxes) > 1 and min(map(len, boxes)) > 1 else None


def _spread(lanes: int, size: int) -> list[int]:
    """Return the lane of each of `size` chunks of a group, which are spread evenly over the lanes."""
    return [i * lanes // size for i in range(size)]


class _Group:
    """A group of chunks that take the same steps over the lanes of one way, and groups that follow each other.

    Attributes:
        sends: number of sends between ranks of a chunk of each lane.
        lane_of, step_of, resource_of: of what each of these sends counts against, a link or limit that is used.
        units: the capacities of these resources.
        load: sends by lane and resource.
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
        self.lane_of, self.step_of, resource = np.array(cells, np.int64).reshape(-1, 3).T
        used, self.resource_of = np.unique(resource, return_inverse=True)
        resources = (*network.routes, *network.caps)
        self.units = np.array([resources[i].units for i in used.tolist()], np.int64)
        self.load = np.zeros((len(lanes), len(used)), np.int64)
        np.add.at(self.load, (self.lane_of, self.resource_of), 1)

    @property
    def peak(self) -> float:
        """Rounds per chunk of all lanes that the busiest resource takes at least."""
        return float((self.load.sum(axis=0) / self.units).max()) / len(self.lanes)

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

    def best(self) -> _Option:
        """Return the schedule of fewest rounds per chunk that has as many sends as one within a goal may have."""
        options = []
        for size in self._sizes(SETTINGS.goal_sends):
            groups = SETTINGS.goal_sends // max(1, self._sends_of(size))
            if groups:
                options.append(self._option(size, groups, self._load_before(size)))
        return min(options, key=lambda option: option.rate)

    def _sizes(self, most_sends: int) -> list[int]:
        """Return the numbers of chunks in a group that are tried, of schedules with so many sends at most."""
        return _group_sizes(self.load, self.units, most_sends // max(1, min(self.sends)))

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
        chunks = np.bincount(_spread(len(self.lanes), size), minlength=len(self.lanes))
        busy = np.flatnonzero(chunks @ self.load > self.units)
        column = np.full(len(self.units), -1)
        column[busy] = np.arange(len(busy))
        here = column[self.resource_of] >= 0
        before = np.zeros((self.depth + 1, len(busy)), np.int64)
        np.add.at(before, (self.step_of[here] + 1, column[self.resource_of[here]]), chunks[self.lane_of[here]])
        return np.cumsum(before, axis=0), self.units[busy]

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

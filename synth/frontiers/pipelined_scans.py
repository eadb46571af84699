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
bound, further chunks go over relays, each on paths of little load (`synth.frontiers.scan_lanes`). Then a group has one
chunk on each of many paths, and they begin one after the other (`synth.frontiers.modulo_scheduling`).

A step lasts as long as its busiest link needs, which may be a part of a round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, lcm
from typing import NamedTuple

import numpy as np

from synth.checker.schedule import column_replay
from synth.errors import VerificationError
from synth.frontiers.modulo_scheduling import interleaved
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
from synth.model.rational import whole
from synth.model.schedule import Schedule, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import current_deadline

_MakeLane = Callable[[LaneRouter, int], Lane]  # the steps of the k-th chunk


@dataclass(frozen=True)
class ScanSettings:
    """Limits of pipelined scans.

    Attributes:
        most_sends: Maximum number of sends, of which there are several schedules.
        goal_sends: The same of the one schedule within the goal: it is written out and replayed in about a second.
        rounds: Numbers of rounds, as multiples of the least that carry a chunk, for which a group has as many chunks as
            they carry in each step. In more rounds less capacity is left over.
        divisors: A group may also have the chunks of the least of these rounds divided by these numbers: less is to be
            written out.
        most_parts: Maximum number of parts of a round of which steps last whole numbers; where links need more, about
            four times as many as the widest one has units.
        lane_sends: About how many sends the chunks of different paths have together, so that loads are even: they take
            a few tenths of a second.
        first_lanes: Least number of such paths, after which they are given up if loads are no more even.
        slacks: Steps from one such group to the next, as multiples of the least that carry it.
        most_shapes: Maximum number of such groups that are tried, of the most promising numbers of lanes and steps.
        growth: The first schedules of a kind have this many times the chunks of the one before.
        worth: A schedule with more steps is offered only if R/C falls by this fraction, or to the goal.
        last_worth: The last one has no more than the fewest of all and this fraction of it.
        seconds_per_send: Seconds, about, to write out and replay one send of many. All schedules but the first are left
            out where less time is left until the ambient deadline.
    """

    most_sends: int = 80_000
    goal_sends: int = 640_000
    rounds: tuple[int, ...] = (1, 2, 3, 4)
    divisors: tuple[int, ...] = (2, 4)
    most_parts: int = 1 << 20
    lane_sends: int = 8_000
    first_lanes: int = 8
    slacks: tuple[float, ...] = (1.0, 1.1, 1.25)
    most_shapes: int = 6
    growth: int = 4
    worth: Fraction = Fraction(1, 5)
    last_worth: Fraction = Fraction(1, 20)
    seconds_per_send: float = 3e-6


SETTINGS = ScanSettings()
NO_GOAL = Fraction(0)


@dataclass(frozen=True)
class Way:
    """A way to make lanes, which are the steps of one chunk.

    Attributes:
        name: of the construction.
        make: `make(router, k)` returns the steps of the k-th chunk.
        nodes: the box of each rank.
        places: number of lanes after which hubs are at the same places again.
    """

    name: str
    make: _MakeLane
    nodes: Sequence[int]
    places: int = 1

    def direct(self, network: Network) -> _Group | None:
        """Return the group of the lanes over direct links; None where no relays lead to a rank."""
        router = LaneRouter(network, self.nodes)
        try:
            lanes = [self.make(router, k) for k in range(self.places)]
        except NoPathError:
            return None
        return _Group(self, network, lanes)

    def balanced(self, network: Network, direct: _Group) -> _Group | None:
        """Return the group of many lanes whose loads are even; None where the first ones load no less than `direct`, or
        no relays lead to a rank."""
        router = LaneRouter(network, self.nodes, balanced=True)
        first = max(self.places, SETTINGS.first_lanes)
        lanes: list[Lane] = []
        sends = 0
        while len(lanes) < first or len(lanes) % self.places or sends < SETTINGS.lane_sends:
            try:
                lanes.append(self.make(router, len(lanes)))
            except NoPathError:
                return None
            sends += sum(map(len, lanes[-1]))
            if len(lanes) == first and _Group(self, network, lanes).peak >= direct.peak:
                return None
        return _Group(self, network, lanes)


def box_ways(nodes: Sequence[int]) -> list[Way]:
    """Return the ways over boxes: side by side, and one after another.

    ``nodes[rank]`` is the box of a rank. Where there is one box, or each has one rank, ranks are divided into about
    equal blocks. There are no ways for boxes whose ranks do not follow each other.
    """
    boxes = _boxes(nodes)
    if boxes is None:
        return []
    name = "prefixes over boxes" if 1 < len(set(nodes)) < len(nodes) else "prefixes over blocks"
    box_of = [b for b, box in enumerate(boxes) for _ in box]
    places = max(map(len, boxes))
    return [
        Way(name, lambda router, k: side_by_side(router, boxes, k), box_of, places),
        Way(name, lambda router, k: one_after_another(router, boxes, k), box_of, places),
    ]


def hub_ways(network: Network, nodes: Sequence[int] = ()) -> list[Way]:
    """Return the way through one hub in each box, another one for the next chunk.

    ``nodes[rank]`` is the box of a rank; all ranks are one box where there are no nodes, each has one rank, or boxes
    mix. There is none where two ranks of a box have no link, and where hubs load links and limits no less than a chain
    of the ranks of each box.
    """
    boxes = _consecutive(nodes)
    if not 1 < len(boxes) < network.ranks:
        boxes = [range(network.ranks)]
    if not _hubs_load_less(network, boxes):
        return []
    box_of = [b for b, box in enumerate(boxes) for _ in box]
    places = max(map(len, boxes)) - 1
    return [Way("prefixes through hubs", lambda router, k: through_hubs(router, boxes, k), box_of, places)]


def chain_ways(network: Network, nodes: Sequence[int] = ()) -> list[Way]:
    """Return the way along a chain: each rank adds its own data, and sends the prefix to the next rank.

    Relays are in the boxes of the two ranks, ``nodes[rank]``, where that is enough; no nodes mean one box. There is no
    way for one rank.
    """
    if network.ranks < 2:
        return []
    one_box = (0,) * network.ranks
    nodes = nodes or one_box
    try:
        chain(LaneRouter(network, nodes))
    except NoPathError:
        nodes = one_box
    return [Way("prefixes along a chain", lambda router, k: chain(router), nodes)]


def planned_ways(plan: Schedule, rule: str) -> list[Way]:
    """Return the way in which all chunks follow `plan`, a scan of one chunk; none where its sums do not add up.

    `rule`: of the plan.
    """
    try:
        column_replay.schedule(plan)
    except VerificationError:
        return []
    lane = [list(step.sends) for step in plan.steps]
    return [Way(f"pipelined plan, {rule}", lambda router, k: lane, (0,) * plan.network.ranks)]


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


class _Option(NamedTuple):
    """A schedule to be written out: `groups` of `size` chunks, over the lanes of group number `lanes`."""

    steps: int
    rate: Fraction
    sends: int
    size: int
    groups: int
    lanes: int = 0


def pipelined_scans(
    network: Network, task: Collective, ways: Sequence[Way], goal: Fraction = NO_GOAL, known: Sequence[Fraction] = ()
) -> Iterator[tuple[str, Schedule]]:
    """Yield (construction, replayed scan) of these ways: the one of fewest sends, and then others, each with much fewer
    rounds per chunk than those of fewer steps: the one of fewest sends with at most `goal` rounds per chunk, some of
    several times as many chunks each, so that good ones come soon, and at last the rest by falling steps.

    Where none is within the goal, the one of fewest rounds per chunk takes its place, if it has much fewer than the
    others and the rates `known`, to which the caller adds meanwhile. Nothing is yielded for other collectives, and
    where no relays lead to ranks that others must send to.
    """
    if task != collective("scan", network.ranks):
        return
    groups = [group for way in ways if (group := way.direct(network)) is not None]
    if not groups:
        return

    def offered(option: _Option) -> tuple[str, Schedule]:
        group = groups[option.lanes]
        schedule = group.pipelined(task, option.size, option.groups)
        column_replay.schedule(schedule)
        return group.way.name, schedule

    shortest = [group.shortest()._replace(lanes=i) for i, group in enumerate(groups)]
    least = min(shortest, key=lambda option: (option.sends, option.steps))
    yield offered(least)
    options = []
    good = _good(network, groups, goal, known) if goal and least.rate > goal else None
    if good is not None:
        yield offered(good)
        options.append(good)
    for i, group in enumerate(groups):
        options += [option._replace(lanes=i) for option in group.options()]
    for option in _in_offered_order(_worthwhile(options, goal), goal):
        enough = current_deadline().remaining() > SETTINGS.seconds_per_send * option.sends
        if option not in (least, good) and enough:
            yield offered(option)


def _good(network: Network, groups: list[_Group], goal: Fraction, known: Sequence[Fraction]) -> _Option | None:
    """Return the schedule of fewest sends with at most `goal` rounds per chunk, else the one of fewest rounds per chunk
    where it has much fewer than those `known`; None where there is neither, or a better one is known.

    Groups of balanced lanes are added to `groups` where the others are not within the goal.
    """
    good = _within(groups, goal)
    if good is None:
        for direct in sorted(groups, key=lambda group: sum(group.sends) / len(group.lanes)):
            balanced = direct.way.balanced(network, direct)
            if balanced is None:
                continue
            groups.append(balanced)
            groups += [group for group in [balanced.interleaved()] if group is not None]
            good = _within(groups, goal)
            if good is not None:
                break
    if good is None:
        good = _best(groups, SETTINGS.goal_sends)
        if good.rate > min((_best(groups, SETTINGS.most_sends).rate, *known)) * (1 - SETTINGS.worth):
            return None
    return good if good.rate <= min(known, default=good.rate) else None


def _worthwhile(options: Sequence[_Option], goal: Fraction) -> list[_Option]:
    """Return options by growing steps, each with much fewer rounds per chunk than the ones before, or nearly the fewest
    of all."""
    by_steps = sorted(options)
    few = min(option.rate for option in options) * (1 + SETTINGS.last_worth)
    chosen = by_steps[:1]
    for option in by_steps[1:]:
        within = option.rate <= goal < chosen[-1].rate or option.rate <= few < chosen[-1].rate
        if within or option.rate <= chosen[-1].rate * (1 - SETTINGS.worth):
            chosen.append(option)
    return chosen


def _within(groups: Sequence[_Group], goal: Fraction) -> _Option | None:
    """Return the schedule of fewest sends with at most `goal` rounds per chunk that a group has, or None."""
    found = [(i, group.within(goal)) for i, group in enumerate(groups)]
    good = [option._replace(lanes=i) for i, option in found if option is not None]
    return min(good, key=lambda option: option.sends, default=None)


def _best(groups: Sequence[_Group], most_sends: int) -> _Option:
    """Return the schedule of fewest rounds per chunk that a group has with so many sends."""
    best = (group.best(most_sends)._replace(lanes=i) for i, group in enumerate(groups))
    return min(best, key=lambda option: option.rate)


def _in_offered_order(options: Sequence[_Option], goal: Fraction) -> list[_Option]:
    """Return the options, given by growing steps, in the order in which they are offered after the first one: see
    `pipelined_scans`."""
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
        way: of the lanes.
        period: steps from one group to the next. If they are more than one, a group has one chunk on each lane.
        sends: number of sends between ranks of a chunk of each lane.
        lane_of, step_of, resource_of: of what each of these sends counts against, a link or limit that is used.
        units: the capacities of these resources.
        load: sends by lane and resource.
        parts: steps last whole numbers of so many parts of a round: as long as the busiest resource needs.
    """

    def __init__(self, way: Way, network: Network, lanes: Sequence[Lane], period: int = 1) -> None:
        self.way, self.network, self.lanes, self.period = way, network, lanes, period
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
        parts = lcm(*self.units.tolist())
        self.parts = parts if parts <= SETTINGS.most_parts else min(4 * int(self.units.max()), SETTINGS.most_parts)

    @property
    def peak(self) -> float:
        """Rounds per chunk of all lanes that the busiest resource takes at least."""
        return float((self.load.sum(axis=0) / self.units).max()) / len(self.lanes)

    def interleaved(self) -> _Group | None:
        """Return a group whose lanes begin one after the other within a period, by modulo scheduling; None where no
        period is found in which every send has a step with enough capacity.

        It has at least half of these lanes. Of the numbers of lanes and periods those of the fewest rounds per chunk,
        as estimated, are tried first.
        """
        shapes: set[tuple[float, int, int]] = set()  # rounds per chunk, about, lanes, and period
        carried, sends = np.cumsum(self.load, axis=0), np.cumsum(self.sends)
        parts = int(self.units.min())  # of a round, in which the narrowest resource carries one chunk
        steps = (carried / (self.units // parts)).max(axis=1)  # which so many lanes take at least
        for slack in SETTINGS.slacks:
            for period in range(2, ceil(steps[-1] * slack) + 1):
                count = int(np.searchsorted(steps, period / slack, "right"))
                groups = SETTINGS.goal_sends // int(sends[count - 1]) if count else 0
                if groups and 2 * count >= len(steps):
                    rate = (self.depth + groups * period) / (groups * count * parts)
                    shapes.add((rate, count, period))
        for _, count, period in sorted(shapes)[: SETTINGS.most_shapes]:
            lanes = interleaved(self.network, self.lanes[:count], parts, period)
            if lanes is not None:
                return _Group(self.way, self.network, lanes, period)
        return None

    def shortest(self) -> _Option:
        """Return the schedule of one group of fewest sends."""
        size = len(self.lanes) if self.period > 1 else 1
        return self._option(size, 1, self._load_before(size))

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
        if self.peak > goal:
            return None
        for size in self._sizes(SETTINGS.goal_sends):
            load = self._load_before(size)
            counts = range(1, most_sends // max(1, self._sends_of(size)) + 1)
            if counts and self._option(size, counts[-1], load).rate <= goal:
                first = bisect_left(counts, -goal, key=lambda groups: -self._option(size, groups, load).rate)
                best = self._option(size, counts[first], load)
                most_sends = best.sends - 1
        return best

    def best(self, most_sends: int) -> _Option:
        """Return the schedule of fewest rounds per chunk that has so many sends, or else the shortest."""
        options = [self.shortest()]
        for size in self._sizes(most_sends):
            groups = most_sends // max(1, self._sends_of(size))
            if groups:
                options.append(self._option(size, groups, self._load_before(size)))
        return min(options, key=lambda option: option.rate)

    def _sizes(self, most_sends: int) -> list[int]:
        """Return the numbers of chunks in a group that are tried, of schedules with so many sends at most."""
        if self.period > 1:
            return [len(self.lanes)]
        sizes = _group_sizes(self.load, self.units, most_sends // max(1, min(self.sends)))
        return list(dict.fromkeys([*sizes, len(self.lanes)] if self.parts > 1 else sizes))

    def _sends_of(self, size: int) -> int:
        """Return the number of sends between ranks of a group of `size` chunks."""
        return sum(self.sends[k] for k in _spread(len(self.lanes), size))

    def _option(self, size: int, groups: int, load: _Load) -> _Option:
        """Return the schedule of so many groups of `size` chunks, whose load is `load`."""
        parts = self._step_parts(groups, load)
        rate = Fraction(int(parts.sum()), self.parts * size * groups)
        return _Option(len(parts), rate, self._sends_of(size) * groups, size, groups)

    def _load_before(self, size: int) -> _Load:
        """Return the load of a group of `size` chunks."""
        chunks = np.bincount(_spread(len(self.lanes), size), minlength=len(self.lanes))
        turns = -(-self.depth // self.period)
        load = np.zeros((turns * self.period, len(self.units)), np.int64)
        np.add.at(load, (self.step_of, self.resource_of), chunks[self.lane_of])
        before = np.zeros((turns + 1, self.period, len(self.units)), np.int64)
        np.cumsum(load.reshape(turns, self.period, -1), axis=0, out=before[1:])
        return _Load(before, self._parts_of(before[1:]), self._parts_of(before[-1] - before[1:-1]))

    def _parts_of(self, load: np.ndarray) -> np.ndarray:
        """Return the parts of a round that steps of this load last, by turn and step of the period."""
        return (-(-load * self.parts // self.units)).max(axis=2, initial=1)

    def _step_parts(self, groups: int, load: _Load) -> np.ndarray:
        """Return how many parts of a round each step of so many groups lasts."""
        turns = len(load.first)
        if groups >= turns:
            middle = np.repeat(load.first[-1:], groups - turns, axis=0)
            parts = np.concatenate([load.first, middle, load.last])
        else:
            turn = np.arange(turns + groups - 1)
            started, ended = np.minimum(turn + 1, turns), np.maximum(0, turn + 1 - groups)
            parts = self._parts_of(load.before[started] - load.before[ended])
        return parts.ravel()[: self.depth + (groups - 1) * self.period]

    @collector_off()
    def pipelined(self, task: Collective, size: int, groups: int) -> Schedule:
        """Return the schedule of groups of `size` chunks, spread over the lanes, each a period behind the one before.

        Chunk i of group g has the number ``g * size + i``.
        """
        rows = []  # (step of the period, turn counted backwards, send): in a step groups that are behind come last
        for chunk, k in enumerate(_spread(len(self.lanes), size)):
            for t, step in enumerate(self.lanes[k]):
                turn, at = divmod(t, self.period)
                rows += [(at, -turn, send._replace(chunk=chunk)) for send in step]
        rows.sort()
        backwards = np.array([row[1] for row in rows], np.int64)
        chunks = np.array([row[2].chunk for row in rows], np.int64) + backwards * size
        _, src, dst, kind, via = map(list, zip(*(row[2] for row in rows), strict=True))
        parts = self._step_parts(groups, self._load_before(size)).tolist()
        apart = 2 * len(parts)  # more than there are turns, so that rows have their order as one number
        order = np.array([row[0] for row in rows], np.int64) * apart + backwards
        turn, at = np.divmod(np.arange(len(parts)), self.period)
        first = np.searchsorted(order, at * apart - turn).tolist()
        end = np.searchsorted(order, at * apart - turn + groups).tolist()
        steps = []
        for s in range(len(parts)):
            here = slice(first[s], end[s])
            columns = (chunks[here] + s // self.period * size).tolist(), src[here], dst[here], kind[here], via[here]
            steps.append(Step.of_columns(whole(Fraction(parts[s], self.parts)), *columns))
        return Schedule(self.network, task, size * groups, tuple(steps))


class _Load(NamedTuple):
    """The load of a group.

    Attributes:
        before: by turn of the period, step of it, and resource: of this step in all turns before.
        first, last: parts of a round of the steps in which the first groups begin, and the last ones end, where there
            are more groups than turns.
    """

    before: np.ndarray
    first: np.ndarray
    last: np.ndarray


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
    sizes += [sizes[0] // part for part in SETTINGS.divisors]
    return [size for size in dict.fromkeys(sizes) if size > 0]


def _group_counts(most: int) -> list[int]:
    """Return numbers of groups up to `most`, each about half as large again as the one before."""
    counts, groups = [], 1
    while groups < most:
        counts.append(groups)
        groups += (groups + 1) // 2
    return [*counts, most] if most else counts

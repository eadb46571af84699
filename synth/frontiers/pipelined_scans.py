"""Pipelined scans: along a chain of all ranks, and over boxes.

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
from math import isqrt

import numpy as np

from synth.checker.schedule import replay
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
        worth: A schedule with more steps is offered only if R/C falls by this fraction.
    """

    most_sends: int = 50_000
    copies: tuple[int, ...] = (1, 2, 3, 5)
    worth: Fraction = Fraction(1, 5)


SETTINGS = ScanSettings()


def box_scans(network: Network, task: Collective, nodes: Sequence[int]) -> Iterator[Schedule]:
    """Yield replayed scans, each with much fewer rounds per chunk than those of fewer steps: the shortest, then the
    longest, then the others by falling steps.

    ``nodes[rank]`` is the box of a rank. Where there is one box, or each has one rank, ranks are divided into about
    equal blocks. Nothing is yielded for other collectives, for boxes whose ranks do not follow each other, and where
    ranks that must send to each other have no route.
    """
    boxes = _boxes(nodes)
    if boxes is None or task != collective("scan", network.ranks):
        return
    routes = _first_routes(network)
    yield from _scans(network, task, [_lane(boxes, k) for k in range(max(map(len, boxes)))], routes)


def chain_scans(network: Network, task: Collective) -> Iterator[Schedule]:
    """Yield replayed scans in which each rank adds its own data and sends the prefix to the next rank, pipelined.

    They are in the order of `box_scans`. Nothing is yielded for other collectives, and where a rank has no route to
    the next.
    """
    if task != collective("scan", network.ranks) or network.ranks < 2:
        return
    chain = [[Send(0, rank, rank + 1, "reduce")] for rank in range(network.ranks - 1)]
    yield from _scans(network, task, [chain], _first_routes(network))


def _scans(
    network: Network, task: Collective, lanes: list[list[list[Send]]], routes: dict[tuple[int, int], int]
) -> Iterator[Schedule]:
    """Yield the replayed schedules of the best numbers of chunks and groups; none where a send has no route."""
    ends = {(send.src, send.dst) for lane in lanes for step in lane for send in step if not send.local}
    if not ends <= routes.keys():
        return
    best: Fraction | None = None
    chosen = []
    for _, rate, copies, groups in sorted(_options(network, lanes, routes)):
        if best is None or rate <= best * (1 - SETTINGS.worth):
            best = rate
            chosen.append((copies, groups))
    for copies, groups in chosen[:1] + chosen[:0:-1]:
        schedule = _pipelined(network, task, lanes * copies, groups, routes)
        replay.schedule(schedule)
        yield schedule


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


def _first_routes(network: Network) -> dict[tuple[int, int], int]:
    """Return the number of the first route between each two ranks."""
    routes: dict[tuple[int, int], int] = {}
    for i, route in enumerate(network.routes):
        routes.setdefault((route.src, route.dst), i)
    return routes


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


def _options(
    network: Network, lanes: Sequence[list[list[Send]]], routes: dict[tuple[int, int], int]
) -> Iterator[tuple[int, Fraction, int, int]]:
    """Yield (steps, rounds per chunk, copies of all lanes in a group, groups) of schedules with few enough sends."""
    units = np.array([resource.units for resource in (*network.routes, *network.caps)], np.int64)
    load = np.zeros((len(lanes[0]), len(units)), np.int64)  # of one group, by step and resource
    sends = 0
    for lane in lanes:
        for t, step in enumerate(lane):
            for each in step:
                if not each.local:
                    sends += 1
                    i = routes[each.src, each.dst]
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


def _pipelined(
    network: Network, task: Collective, lanes: Sequence[list[list[Send]]], groups: int,
    routes: dict[tuple[int, int], int],
) -> Schedule:  # fmt: skip
    """Return the schedule in which group g of chunks, one for each lane, is g steps behind the first."""
    steps: list[list[Send]] = [[] for _ in range(len(lanes[0]) + groups - 1)]
    for k, lane in enumerate(lanes):
        for t, step in enumerate(lane):
            for send in step:
                via = () if send.local else network.routes[routes[send.src, send.dst]].via
                for g in range(groups):
                    steps[t + g].append(send._replace(chunk=g * len(lanes) + k, via=via))
    chunks = len(lanes) * groups
    rows = tuple(Step(1, tuple(sorted(row))) for row in steps)
    return with_fewest_rounds(Schedule(network, task, chunks, rows))

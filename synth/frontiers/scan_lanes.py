"""Steps of one chunk of a scan, over direct links or over paths of little load.

A `LaneRouter` plans one chunk after another. The algorithm of a chunk, such as `chain`, says which rank sends its value
to which. The router chooses the ranks that the value passes, and the step of each send.

A rank on the way that waits for its own sum is a relay at no cost: its slot is free, and it takes its own input again
afterwards. One that holds a sum, and has a link from the rank before it, which holds the same sum without its input,
is a relay that takes that sum, and adds its input, once the value has gone on. Any other one changes values with the
passing one, and they change back. So a value passes through any machine whose routes go both ways. Rank 0 always is a
relay: its sum is its own input.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import inf

from synth.model.schedule import Send
from synth.model.topology import Network

Box = Sequence[int]
Lane = list[list[Send]]  # the sends of one chunk in each step

# Price of a hop beside that of its load, which is 1 on the busiest route; and the power of the load in that: the dearer
# a hop, the fewer the sends, and the greater the power, the less goes over the busiest routes.
FEW_SENDS = (1.0, 1)
EVEN_LOADS = (0.1, 8)
# Hops for which one to a rank that holds a sum counts: two sends change the values, and two change them back.
CHANGE_HOPS = 4


class NoPathError(Exception):
    """No path over relays leads from a rank to another."""


class LaneRouter:
    """Router of the values of one chunk after another.

    Attributes:
        network, nodes: the machine, and the box of each rank. Relays are in the boxes of the two ends.
        balanced: every value takes a cheapest path, so that loads are even; otherwise only values between ranks that no
            route joins do, and few sends count more.
        load, limit_load: rounds that all chunks so far take on each route, and against each limit.
        greatest: the greatest of these.
        steps: the sends of the present chunk in each step.
        holds: ranks whose slot has a sum that is needed. The value of any other rank is its input.
        used: other ranks, whose slot has lost its input to a value that passed.
        sums: the ranks whose inputs are in the value of each rank that holds a sum, as bits.
        since: the first step in which something may be added to the value of each rank.
        complete: the first step in which the value of each rank may be sent.
        free: the first step in which the slot of each rank may be overwritten.
    """

    def __init__(self, network: Network, nodes: Sequence[int], balanced: bool = False) -> None:
        self.network, self.nodes, self.balanced = network, nodes, balanced
        self.route: dict[tuple[int, int], int] = {}  # the first route between two ranks
        # The ranks that routes lead to from each rank, and those that they come from, by box, and the routes.
        self.leaving: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(network.ranks)]
        self.entering: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(network.ranks)]
        for i, route in enumerate(network.routes):
            if self.route.setdefault((route.src, route.dst), i) == i:
                self.leaving[route.src].setdefault(nodes[route.dst], []).append((route.dst, i))
                self.entering[route.dst].setdefault(nodes[route.src], []).append((route.src, i))
        self.load = [0.0] * len(network.routes)
        self.limit_load = [0.0] * len(network.caps)
        self.greatest = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin the next chunk."""
        ranks = self.network.ranks
        self.steps: Lane = []
        self.holds: set[int] = set()
        self.used: set[int] = set()
        self.sums = [1 << rank for rank in range(ranks)]
        self.since, self.complete, self.free = [0] * ranks, [0] * ranks, [0] * ranks

    def finish(self) -> Lane:
        """Return the steps of the chunk. Ranks that hold no sum take their input again."""
        for rank in sorted(self.used):
            self._put(self.free[rank], rank, rank, "copy-input")
        return self.steps

    def release(self, rank: int) -> None:
        """Say that the sum of `rank` is not needed any more."""
        if rank in self.holds:
            self.holds.remove(rank)
            self.used.add(rank)
            self.sums[rank] = 1 << rank

    def copy(self, src: int, dst: int, over: int | None = None) -> None:
        """Let `dst` hold the value of `src`, which passes the rank `over`. Raises NoPathError."""
        self._send(src, dst, "copy", src not in self.holds, over)

    def add(self, src: int, dst: int, over: int | None = None) -> None:
        """Add the value of `src`, which passes the rank `over`, to that of `dst`. Raises NoPathError."""
        self._send(src, dst, "reduce", src not in self.holds, over)

    def add_input(self, src: int, dst: int) -> None:
        """Add the input of `src` to the value of `dst`. Raises NoPathError."""
        if src != dst:
            self._send(src, dst, "reduce", True)
            return
        step = max(self.since[dst], self.free[dst])
        self._put(step, dst, dst, "reduce-input")
        self.complete[dst] = max(self.complete[dst], step + 1)
        self.sums[dst] |= 1 << dst

    def exchange(self, a: int, b: int) -> None:
        """Let two ranks that hold sums hold each other's. Raises NoPathError."""
        if not {(a, b), (b, a)} <= self.route.keys():
            raise NoPathError
        step = max(self.complete[a], self.complete[b], self.free[a], self.free[b])
        self._put(step, a, b, "copy")
        self._put(step, b, a, "copy")
        self._change_until(a, step)
        self._change_until(b, step)
        self.sums[a], self.sums[b] = self.sums[b], self.sums[a]

    def _send(self, src: int, dst: int, kind: str, own: bool, over: int | None = None) -> None:
        """Send the value of `src`, or its `own` input, to `dst`, which copies or adds it."""
        if over is None:
            path = self._path(src, dst, changes=not own or src not in self.holds)
        else:
            path = [src, over, dst]
        value = 1 << src if own else self.sums[src]
        if kind == "reduce":
            value |= self.sums[dst]
        first = 0
        step = 0 if own else self.complete[src]
        lent = False  # the sum of the rank of the path's part that begins
        for last in range(1, len(path)):
            rank, relays = path[last], last < len(path) - 1
            lends = relays and rank in self.holds and self._can_take_again(rank, dst, path[first] if lent else None)
            if over is not None and self.nodes[rank - 1] != self.nodes[rank]:
                lends = False  # a link between boxes costs more than those inside one
            if lends:
                self.holds.remove(rank)
                self.free[rank] = max(self.free[rank], self.complete[rank])
            if not relays or rank not in self.holds:
                step = self._pass(path[first : last + 1], step, "" if relays else kind, own and first == 0)
                if lent:
                    self._take_again(path[first])
                first, lent = last, lends
        self.sums[dst] = value

    def _can_take_again(self, rank: int, dst: int, lent: int | None = None) -> bool:
        """Return True if `rank`, which a value on its way to `dst` passes, can take its sum again from the rank before.

        That has a link to it, and the same sum without its input. `lent`: the rank that the value comes from, if it
        takes its own sum again when the value has gone on: from `rank` it could not.
        """
        before = rank - 1
        if before == dst or rank + 1 == lent or (before, rank) not in self.route:
            return False
        has_input = self.sums[before] >> rank & 1
        return not has_input and self.sums[rank] == self.sums[before] | 1 << rank

    def _take_again(self, rank: int) -> None:
        """Let `rank`, which a value has passed, take the sum of the rank before it, and add its input."""
        before = rank - 1
        own = before not in self.holds
        step = self.free[rank] if own else max(self.free[rank], self.complete[before])
        self._put(step, before, rank, "copy-input" if own else "copy")
        self._put(step, rank, rank, "reduce-input")
        if not own:
            self.free[before] = max(self.free[before], step)
        self._change_until(rank, step)
        self.used.discard(rank)
        self.holds.add(rank)

    def _pass(self, part: list[int], step: int, kind: str, own: bool) -> int:
        """Send a value over ranks that hold sums to one that does not, or to the end of its path.

        `step`: the first step in which the value can be sent. `kind`: what the last rank does with it, "" if it is a
        relay. `own`: the value is the input of the first rank. Returns the first step in which the last rank can send
        it.
        """
        start, between, end = part[0], part[1:-1], part[-1]
        fresh = kind == "reduce" and end in self.used  # its input is added to a copy of the value
        kept = kind == "reduce" and not fresh
        step = max(step, (max(self.free[end], self.since[end]) if kept else self.free[end]) - len(between))
        if between:  # its slot changes its value
            step = max(step, self.free[start], self.complete[start])
        for i, rank in enumerate(between):
            step = max(step, self.free[rank] - i, self.complete[rank] - i)
        for i, rank in enumerate(between):
            self._put(step + i, part[i], rank, "copy-input" if own and i == 0 else "copy")
            self._put(step + i, rank, part[i], "copy")
        arrival = step + len(between)
        suffix = "-input" if own and not between else ""
        self._put(arrival, part[-2], end, ("reduce" if kept else "copy") + suffix)
        if fresh:
            self._put(arrival, end, end, "reduce-input")
        for i in reversed(range(len(between))):
            back = arrival + len(between) - 1 - i
            self._put(back, part[i], between[i], "copy")
            if i > 0 or start in self.holds:
                self._put(back, between[i], part[i], "copy")
            self._change_until(between[i], back)
        if between:
            self._change_until(start, arrival + len(between) - 1)
            if start not in self.holds:
                self.used.add(start)
        elif not own:
            self.free[start] = max(self.free[start], arrival)
        if not kept:
            self.since[end] = self.free[end] = arrival
            self.complete[end] = arrival + 1
        self.complete[end] = max(self.complete[end], arrival + 1)
        self.free[end] = max(self.free[end], arrival)
        if kind:
            self.used.discard(end)
            self.holds.add(end)
        else:
            self.free[end] = arrival + 1
            self.used.add(end)
        return arrival + 1

    def _change_until(self, rank: int, step: int) -> None:
        """Note that `rank` has its own value again after `step`."""
        self.since[rank] = self.free[rank] = self.complete[rank] = step + 1

    def _put(self, step: int, src: int, dst: int, kind: str) -> None:
        self.steps += [[] for _ in range(step + 1 - len(self.steps))]
        if src == dst:
            self.steps[step].append(Send(0, src, dst, kind))
            return
        i = self.route[src, dst]
        self.steps[step].append(Send(0, src, dst, kind, self.network.routes[i].via))
        self.load[i] += 1 / self.network.routes[i].units
        self.greatest = max(self.greatest, self.load[i])
        for k in self.network.caps_of[i]:
            self.limit_load[k] += 1 / self.network.caps[k].units
            self.greatest = max(self.greatest, self.limit_load[k])

    def _path(self, src: int, dst: int, changes: bool) -> list[int]:
        """Return the ranks on a cheapest path; over ranks that hold sums that they can not take again only if the value
        `changes` with theirs.

        Raises NoPathError.
        """
        if (src, dst) in self.route and not self.balanced:
            return [src, dst]
        boxes = {self.nodes[src], self.nodes[dst]}
        last_hops = [self._price(i) for box in boxes for _, i in self.entering[dst].get(box, ())]
        last_hop = min(last_hops, default=inf)
        before: dict[int, int] = {}
        known = {src: 0.0}
        queue = [(0.0, src)]
        while queue:
            cost, rank = heappop(queue)
            if cost + last_hop >= known.get(dst, inf):
                break
            if cost > known[rank]:
                continue
            for box in boxes:
                for end, i in self.leaving[rank].get(box, ()):
                    price = self._price(i)
                    if end != dst and end in self.holds:
                        if self._can_take_again(end, dst):
                            price += self._price(self.route[end - 1, end])
                        elif changes and (end, rank) in self.route:
                            price *= CHANGE_HOPS
                        else:
                            continue
                    if cost + price < known.get(end, inf):
                        known[end], before[end] = cost + price, rank
                        heappush(queue, (cost + price, end))
        if dst not in before:
            raise NoPathError
        path = [dst]
        while path[-1] != src:
            path.append(before[path[-1]])
        return path[::-1]

    def _price(self, route: int) -> float:
        """Return the price of a hop over a route."""
        hop, power = EVEN_LOADS if self.balanced else FEW_SENDS
        load = self.load[route]
        for k in self.network.caps_of[route]:
            load = max(load, self.limit_load[k])
        return hop + (load / self.greatest) ** power if load else hop


def chain(router: LaneRouter) -> Lane:
    """Return the steps of a chunk along the chain of all ranks: each adds its input, and sends the sum to the next one.

    Raises NoPathError.
    """
    router.begin()
    for rank in range(1, router.network.ranks):
        router.add(rank - 1, rank)
    return router.finish()


def side_by_side(router: LaneRouter, boxes: Sequence[Box], k: int) -> Lane:
    """Return the steps of the k-th chunk over boxes that add up at once. Raises NoPathError.

    Sums leave the first box at one place after another, and each further box some places on, as many more for each time
    that all places have had a chunk. They arrive at the place that they left, as machines with rails need.
    """
    router.begin()
    stride = 1 + k // max(map(len, boxes)) % (min(map(len, boxes)) - 1)
    k += 1  # the first rank of a box has most to send where it is a hub: it is so for no more chunks than others
    hubs: list[tuple[int | None, int | None]] = []  # those with the sum of all boxes before, and of the box
    for b, box in enumerate(boxes):
        before = box[(k + stride * (b - 1)) % len(box)] if b > 0 else None
        total = box[(k + stride * b) % len(box)] if b < len(boxes) - 1 else None
        hubs.append((before, total))
        others = [rank for rank in box if rank not in (before, total)]
        for i, rank in enumerate(others):
            if i > 0:
                router.add(others[i - 1], rank)
            for hub in range(others[i - 1] + 1 if i > 0 else box[0], rank):
                router.add_input(hub, rank)
        if total is not None:
            if others:
                router.copy(others[-1], total)
            for rank in range(others[-1] + 1 if others else box[0], box[-1] + 1):
                if others or rank != total:
                    router.add_input(rank, total)
    for b, box in enumerate(boxes):
        before, total = hubs[b]
        if before is not None:
            for rank in sorted(set(box) - {before}, key=lambda rank: rank != total):
                router.add(before, rank)
        if total is not None:
            entry = hubs[b + 1][0]
            assert entry is not None
            router.copy(total, entry)
            router.release(total)
            _take_prefix(router, box, total, hubs[b])
        if before is not None:  # `total` may have copied its sum
            _take_prefix(router, box, before, hubs[b])
    return router.finish()


def _take_prefix(router: LaneRouter, box: Box, hub: int, hubs: tuple[int | None, int | None]) -> None:
    """Let a hub take the prefix of the rank before it in its box, and add what that lacks."""
    before = hubs[0]
    lower = [rank for rank in box if rank < hub and rank not in hubs]
    first = lower[-1] + 1 if lower else box[0]
    if lower:
        router.copy(lower[-1], hub)
    elif before is None:
        return  # rank 0
    elif hub != before:
        router.copy(before, hub)
    for rank in range(first, hub + 1):
        router.add_input(rank, hub)


def one_after_another(router: LaneRouter, boxes: Sequence[Box], k: int) -> Lane:
    """Return the steps of the k-th chunk, which passes all ranks of a box, and enters and leaves boxes at one place.

    Raises NoPathError.
    """
    router.begin()
    k += 1  # as in `side_by_side`
    for b, box in enumerate(boxes):
        hub, last = box[k % len(box)], box[-1]
        if b > 0 and hub != box[0]:
            router.add(hub, box[0])  # the sum before the box
            router.release(hub)
        late = b < len(boxes) - 1 and box[0] < hub < last  # the hub takes its prefix when the sum has left the box
        others = [rank for rank in box if not (late and rank == hub)]
        for rank, following in pairwise(others):
            router.add(rank, following)
            if rank < hub < following:
                router.add_input(hub, following)
        if b == len(boxes) - 1:
            break
        entry = boxes[b + 1][k % len(boxes[b + 1])]
        send = router.add if entry == boxes[b + 1][0] else router.copy
        if late:
            router.copy(last, hub)
            send(hub, entry)
            router.copy(hub - 1, hub)
            router.add_input(hub, hub)
        else:
            joined = hub != last and {(last, hub), (hub, last), (hub, entry)} <= router.route.keys()
            send(last, entry, hub if joined else None)
    return router.finish()


def through_hubs(router: LaneRouter, boxes: Sequence[Box], k: int) -> Lane:
    """Return the steps of the k-th chunk, in which a hub of each box adds the inputs of its ranks, two in a step.

    Each of its sums goes to two ranks: to the last one that it counts, whose prefix it is, and to the next one, which
    adds its own input. In a box of the ranks 0 to 4 with the hub 2, the sum of 0 goes to 1, that of 0 to 2 stays, and
    goes to 3, that of 0 to 4 goes to 4. The hub's own prefix waits at the last rank of the box, which at the end
    changes values with the hub. Before, the hub sends the sum of all to the next box's hub. Raises NoPathError.
    """
    router.begin()
    hubs = [box[k % max(1, len(box) - 1)] for box in boxes]
    for b, box in enumerate(boxes):
        hub, last = hubs[b], box[-1]
        if b == 0 and hub != box[0]:
            router.copy(box[0], hub)
        waits_without_own = False  # the prefix that waits lacks the input of the hub
        added = 1 if b == 0 else 0  # ranks of the box whose inputs the sum of the hub has
        while added < len(box):
            for place in range(max(0, added - 1), added + 1):
                rank = box[place]
                if rank == last or b == place == 0:
                    continue
                if rank == hub:
                    router.copy(hub, last)
                    waits_without_own = place == added
                elif place == added:
                    router.add(hub, rank)
                else:
                    router.copy(hub, rank)
            for rank in box[added : added + 2]:
                router.add_input(rank, hub)
            added += 2
        if b + 1 < len(boxes):
            router.copy(hub, hubs[b + 1])
        if hub == last:
            continue
        if hub == boxes[0][0]:
            router.copy(hub, last)
            router.release(hub)
        else:
            router.exchange(hub, last)
            if waits_without_own:
                router.add_input(hub, hub)
    return router.finish()

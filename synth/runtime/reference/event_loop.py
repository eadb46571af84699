"""The event loop of the reference executor: thread blocks, FIFOs with credits, dependencies and links.

Time is in picoseconds. Blocks run their ops in order, each op part by part, and all ops once for each slice. A part
that receives needs a message that has arrived. A part that sends needs a credit of its connection and then its link
(`links`); the receiver returns the credit when it has ended the part that took the message. With a message cost a part
also waits for its sender, and for its receiver, to have dealt with its message (`MessageCosts`). A part ends when its
last byte has left, and its writes are visible to every part that starts later. Work within a rank takes no time.
Simultaneous events are processed in the order of their requests, then of block numbers, so equal programs give equal
runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, NamedTuple

from synth.errors import VerificationError
from synth.program.events import OpEvent
from synth.runtime.link_schedule import LinkSchedule, Transfer
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.onesided_ops import OneSidedOps
from synth.runtime.reference.op_tables import CompiledOp, CompiledProgram, Place
from synth.runtime.slicing import Slicing
from synth.solvers.deadline import check_deadline

# The cost of messages at their ends during one run, in integer picoseconds.
#
# A *message* is the parts that one rank sends to another over one route without a pause: a part that is ready while the
# route still carries the parts before it belongs to their message. A rank is busy for the cost of each message that it
# sends before the message leaves, one message at a time, and for the cost of each message that it receives after it
# arrived, one at a time. Sending and receiving do not delay each other.

NONE = -1


class MessageCosts:
    """The ends of all messages of a run on `ranks` ranks and `routes` routes; `cost`: ps of a message at either end."""

    def __init__(self, ranks: int, routes: int, cost: int) -> None:
        self.cost = cost
        self._sending = [0] * ranks  # by rank: the time at which it can begin to send another message
        self._receiving = [0] * ranks
        self._current = [NONE] * routes  # by route: its last message
        self._leaves = [0] * routes  # by route: the time from which parts of its last message leave
        self._open_until = [NONE] * routes  # by route: the time up to which parts join its last message
        self._received: list[int] = []  # by message: the time from which its receiver reads it; NONE: not yet paid

    def issue(self, rank: int, route: int, now: int) -> int:
        """Return the time from which a part that is ready at `now` on `rank` can leave over `route`."""
        if now <= self._open_until[route]:
            return max(now, self._leaves[route])
        leaves = max(now, self._sending[rank]) + self.cost
        self._sending[rank] = self._leaves[route] = self._open_until[route] = leaves
        self._current[route] = len(self._received)
        self._received.append(NONE)
        return leaves

    def sent(self, route: int, end: int) -> int:
        """Record that the route carries a part until `end`. Returns the number of its message."""
        self._open_until[route] = max(self._open_until[route], end)
        return self._current[route]

    def accept(self, rank: int, message: int, now: int) -> int:
        """Return the time from which `rank` reads a part of `message` that it could read at `now` without a cost."""
        if self._received[message] == NONE:
            self._received[message] = self._receiving[rank] = max(now, self._receiving[rank]) + self.cost
        return max(now, self._received[message])


JITTER = 1_000_000  # ps: the unit of random delays
CHECKED = 4096  # events between two looks at the deadline, about 20 ms


class WaitReason(NamedTuple):
    """The reason why a block waits: kind (data, credit, dep, signal, barrier, packet) and the object `what`.

    Kernels add the kinds entry and turn.
    """

    kind: str
    what: Any


class Simulation(NamedTuple):
    """Options of a simulated run.

    `links`: the links that give the times (None: no transfer takes time). `delays`: seed of random delays. `trace`:
    keep the events. `message_cost`: ps of a message at each of its ends (`MessageCosts`).
    """

    links: LinkSchedule | None = None
    delays: int | None = None
    trace: bool = False
    message_cost: int = 0


UNTIMED = Simulation()


class Engine:
    """One run of a compiled program; `waiting` and `done` describe the blocks where it stops early.

    `size`: bytes of an element. `combine`: (a, b) -> a ⊕ b; None without data.
    """

    def __init__(
        self,
        code: CompiledProgram,
        arena: Arena,
        cut: Slicing,
        size: int,
        combine: Callable | None,
        simulation: Simulation = UNTIMED,
    ) -> None:
        blocks = len(code.place)
        links, delays, trace, message_cost = simulation
        self.code, self.arena, self.cut, self.size, self.links, self.combine = code, arena, cut, size, links, combine
        self.events: list[OpEvent] | None = [] if trace else None
        self.random = None if delays is None else Random(delays)
        self.slow = [0] * blocks  # by block: factor of its random delays
        if self.random:
            self.slow = [self.random.choice((0, 1, 1, 8)) for _ in range(blocks)]
        self.slices = len(cut.bounds)
        self.pc, self.part, self.slice, self.progress = ([0] * blocks for _ in range(4))
        self.busy, self.delayed = [False] * blocks, [False] * blocks
        self.asked: list[int | None] = [None] * blocks
        self.ready = [0] * blocks
        self.done = [False] * blocks
        self.waiting: list[WaitReason | None] = [None] * blocks
        self.dependents: list[list[tuple[int, int]]] = [[] for _ in range(blocks)]
        self.routes = [-1] * len(code.wires)
        for i, wire in enumerate(code.wires):
            if links and wire.sender is not None:
                self.routes[i] = links.route(wire.src, wire.dst, wire.channel, wire.via)
        self.costs: MessageCosts | None = None
        if links and message_cost:
            self.costs = MessageCosts(code.program.ranks, len(links.keys), message_cost)
        self.issued, self.accepted = [False] * blocks, [False] * blocks  # by block: its part has paid for its message
        self.queue: list[deque] = [deque() for _ in code.wires]
        self.held = [0] * len(code.wires)
        self.turn = self._turns()
        self.heap: list[tuple[int, int, int, int]] = [(0, 0, self.turn[b], b) for b in range(blocks)]
        self.actions: list[Callable[[], None]] = []
        self.now = self.end = 0
        self.one_sided = OneSidedOps(self)

    def run(self) -> int:
        """Return the makespan: the time when the last block has ended and all data have arrived.

        It stops early when no block can go on; then some entry of `done` is False. Raises TimeUp at the ambient
        deadline.
        """
        heap, events = self.heap, 0
        heapify(heap)
        while heap:
            events += 1
            if events % CHECKED == 0:
                check_deadline()
            now, _, _, b = heappop(heap)
            self.now = now
            if b < 0:
                self.actions[-b - 1]()
                self.end = max(self.end, now)
            else:
                self.waiting[b] = None
                self._advance(b, now)
        return self.end

    def _turns(self) -> list[int]:
        """Return the place of each block among simultaneous events: its number.

        Where messages cost, peers at the same distance in rank numbers come first, so that ranks that send to all
        others do not send to the same one.
        """
        blocks = range(len(self.code.place))
        if self.costs is None:
            return list(blocks)
        ranks, distance = self.code.program.ranks, [0] * len(blocks)
        for b in blocks:
            connection = self.code.out[b] if self.code.out[b] >= 0 else self.code.into[b]
            if connection >= 0:
                wire = self.code.wires[connection]
                distance[b] = (wire.dst - wire.src) % ranks
        turn = [0] * len(blocks)
        for place, b in enumerate(sorted(blocks, key=distance.__getitem__)):
            turn[b] = place
        return turn

    # ------------------------------------------------------------ one block

    def _advance(self, b: int, now: int) -> None:
        """Go on with block b until it waits or works beyond `now`."""
        steps = self.code.steps[b]
        while True:
            if self.busy[b]:
                # End the part that block b was working on.
                step = self.code.steps[b][self.pc[b]]
                self.busy[b] = self.delayed[b] = self.issued[b] = self.accepted[b] = False
                self.asked[b] = None
                self.ready[b] = now
                if step.receives:
                    wire = self.code.into[b]
                    self.held[wire] -= 1
                    sender = self.code.wires[wire].sender
                    if sender is not None and self.waiting[sender] == ("credit", wire):
                        self.wake(sender, now)
                self.part[b] += 1
                if not (step.receives or step.sends) or self.part[b] * self.cut.part >= step.count:
                    self.part[b] = 0
                    self.pc[b] += 1
                    self.progress[b] += 1
                    if self.dependents[b]:
                        left = []
                        for need, other in self.dependents[b]:
                            if self.progress[b] >= need:
                                self.wake(other, now)
                            else:
                                left.append((need, other))
                        self.dependents[b] = left
            if self.pc[b] == len(steps):
                self.slice[b] += 1
                self.pc[b] = 0
                if self.slice[b] >= self.slices or not steps:
                    self.done[b] = True
                    self.end = max(self.end, now)
                    return
            end = self._begin(b, steps[self.pc[b]], now)
            if end is None:
                return
            self.busy[b] = True
            if end > now:
                heappush(self.heap, (end, end, self.turn[b], b))
                return

    def _begin(self, b: int, step: CompiledOp, now: int) -> int | None:
        """Start the next part of `step`. Returns the time at which it ends, or None where the block waits."""
        if self.part[b] == 0:
            for other, op in step.deps:
                need = self.slice[b] * len(self.code.steps[other]) + op + 1
                if self.progress[other] < need:
                    self.dependents[other].append((need, b))
                    return self.wait(b, "dep", (other, op))
        if self.random and not self.delayed[b]:
            self.delayed[b] = True
            if pause := self.pause(b):
                return self.resume_at(b, now + pause)
        if not (step.receives or step.sends):
            return self.one_sided.begin(b, step)
        into, out = self.code.into[b], self.code.out[b]
        if step.receives:
            queue = self.queue[into]
            if not queue:
                return self.wait(b, "data", into)
            if queue[0][0] > now:
                return self.resume_at(b, queue[0][0])
            if self.costs and not self.accepted[b]:
                self.accepted[b] = True
                read = self.costs.accept(self.code.place[b][0], queue[0][5], now)
                if read > now:
                    return self.resume_at(b, read)
        if step.sends:
            if self.held[out] >= self.cut.depth:
                return self.wait(b, "credit", out)
            if self.costs and not self.issued[b]:
                self.issued[b] = True
                leaves = self.costs.issue(self.code.place[b][0], self.routes[out], now)
                if leaves > now:
                    return self.resume_at(b, leaves)
            if self.links:
                free = self.links.free(self.routes[out], now)
                if free > now:
                    return self.retry_at(b, now, free)

        # receive one part, reduce it and write it
        first = self.part[b] * self.cut.part
        count = min(self.cut.part, step.count - first)
        low, high = self.cut.bounds[self.slice[b]]
        value: Any = None
        if step.receives:
            _, value, size, sender, op, _ = self.queue[into].popleft()
            if size != count:
                here, there = self.code.where(b, self.pc[b]), self.code.where(sender, op)
                raise VerificationError(f"{here} takes {count} chunks, but what arrives is {size} chunks of {there}")
        if step.src:
            local = self.load(b, step.src[0], first, count)
            if step.receives:
                value = self.combine_values(value, local)
            elif local is not None:
                value = local.copy()
        if step.dst:
            self.put(step.dst[0], first, count, value, self.slice[b])

        # send it; its duration is that of the transfer on the link
        size = count * (high - low) * self.size
        end, transfer = now, None
        if step.sends:
            transfer = Transfer(None, now, now, size)
            if self.links:
                times = self.links.send(self.routes[out], size, now)
                transfer, end = (
                    Transfer(self.links.keys[self.routes[out]], times.begin, times.arrival, size),
                    times.departure,
                )
            self.held[out] += 1
            message = self.costs.sent(self.routes[out], end) if self.costs else NONE
            self.queue[out].append((transfer.arrival, value, count, b, self.pc[b], message))
            receiver = self.code.wires[out].receiver
            if receiver is not None and self.waiting[receiver] == ("data", out):
                self.wake(receiver, transfer.arrival)
        self.record(b, step, now, end, transfer)
        return end

    # ------------------------------------------------------------ waiting

    def pause(self, b: int) -> int:
        """Return the ps for which block b, or a port's engine that works for it, pauses now; 0 without delays."""
        return self.slow[b] * self.random.choice((0, 0, 1, 16)) * self.random.randrange(JITTER) if self.random else 0

    def wait(self, b: int, kind: str, what: Any) -> None:
        """Record that block b waits for `what` until another block wakes it."""
        self.waiting[b] = WaitReason(kind, what)

    def wake(self, b: int, time: int) -> None:
        """End the wait of block b and resume it at `time`."""
        self.waiting[b] = None
        heappush(self.heap, (time, time, self.turn[b], b))

    def resume_at(self, b: int, time: int) -> None:
        """Resume block b at `time`, for an event whose time is known; its wait stays recorded until then."""
        heappush(self.heap, (time, time, self.turn[b], b))

    def retry_at(self, b: int, now: int, free: int) -> None:
        """Resume block b at `free`, when the link that it needs becomes free.

        Of blocks that resume at one time the one that first requested its link goes first.
        """
        asked = self.asked[b]
        if asked is None:
            asked = self.asked[b] = now
        heappush(self.heap, (free, asked, self.turn[b], b))

    def call_at(self, time: int, action: Callable[[], None]) -> None:
        """Call `action` at `time`, before any block is resumed at that time."""
        self.actions.append(action)
        heappush(self.heap, (time, -1, 0, -len(self.actions)))

    # ------------------------------------------------------------ memory

    def load(self, b: int, place: Place, first: int, count: int, late: tuple[int, int] | None = None) -> Any:
        """Return a view of `count` rows from row `first` of a span, in the slice of block b; None without data.

        `late`: (op, slice) of a read that takes place after block b may have gone on. Raises VerificationError if a row
        was never written.
        """
        row, rank = place.row + first, place.rank
        op, which = late or (self.pc[b], self.slice[b])
        at = which * self.arena.rows[rank] + row
        hole = self.arena.written[rank].find(0, at, at + count)
        if hole >= 0:
            name = self.arena.name(rank, row + hole - at)
            of = "" if rank == self.code.place[b][0] else f" of rank {rank}"
            raise VerificationError(f"{self.code.where(b, op)} reads {name}{of}, which nothing has written yet")
        if self.arena.data is None:
            return None
        low, high = self.cut.bounds[which]
        return self.arena.data[rank][row : row + count, low:high]

    def put(self, place: Place, first: int, count: int, value: Any, which: int) -> None:
        """Write `value` into `count` rows from row `first` of a span, in slice `which`."""
        row, rank = place.row + first, place.rank
        at = which * self.arena.rows[rank] + row
        self.arena.written[rank][at : at + count] = b"\x01" * count
        if self.arena.data is not None:
            low, high = self.cut.bounds[which]
            self.arena.data[rank][row : row + count, low:high] = value

    def combine_values(self, a: Any, b: Any) -> Any:
        """Return a ⊕ b as a new array; None without data."""
        return None if a is None or b is None or self.combine is None else self.combine(a, b)

    def record(self, b: int, step: CompiledOp, start: int, end: int, transfer: Transfer | None = None) -> None:
        """Record an event, in a run with a trace."""
        if self.events is not None:
            rank, block = self.code.place[b]
            place = rank, block, self.pc[b], self.slice[b], self.part[b]
            link, sent, arrival, size = transfer or (None, 0, 0, 0)
            self.events.append(OpEvent(*place, step.code, self.ready[b], start, end, link, sent, arrival, size))

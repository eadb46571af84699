"""Messages that may be written straight into the receiver's buffer, and programs whose ranks order their own memory.

The i-th send on a connection pairs with its i-th receive. So the place at which a receive stores the message (``r``,
``rcs``) is known beforehand, and the sender may write there at once, instead of into a slot of the FIFO. It writes
earlier than the receive would have. That is safe if every other op that touches those chunks has either ended before
the send starts, or starts after the receive has ended, in every execution.

Ops are ordered by their place in a block, by dependencies, and by messages: a receive starts when its send has ended.
A send of more chunks than a message holds travels in parts, of which the receive forwards the first before the last has
arrived. It then starts when what the send waited for has ended, and ends when the send has ended. Waiting for space in
a FIFO is not counted, because it depends on the FIFO.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from synth.program.buffer_layout import Layout
from synth.program.program import RECEIVING, SENDING, Op, Place, Program

READING = frozenset({"s", "rrs", "rrc", "rrcs", "cpy", "re"})
WRITING = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})
STORING = frozenset({"r", "rcs"})  # receives that store the message unchanged
CLOCK_ENTRIES = 1 << 26  # the most entries of all clocks together, 4 bytes each; larger programs are not analysed


def direct_sends(program: Program, in_place: bool, part: int) -> dict[Place, Place]:
    """Return the sends of a two-sided program that may write the receiver's buffer at once, each with its receive.

    `in_place`: the call is in place. `part`: the most chunks of a message. The result is empty for a one-sided program
    or an unknown collective, if the program is too large to analyse (`CLOCK_ENTRIES`), or if its ops wait in a circle.
    """
    if program.one_sided or program.collective is None:
        return {}
    pairs = _pairs(program)
    sends = {receive: send for send, receive in pairs.items()}
    orders = _orders(program, sends, part)
    if not pairs or orders is None:
        return {}
    ops = dict(program.placed_ops())
    reads, writes = _accesses(program, in_place)
    places = defaultdict(list)  # chunk of memory → the ops that touch it
    for place in ops:
        for chunk in {*reads[place], *writes[place]}:
            places[chunk].append(place)

    # Whoever touches the chunks of a receive must have ended before the send, or come after the receive.
    direct = {}
    for send, receive in pairs.items():
        others = {place for chunk in writes[receive] for place in places[chunk]} - {receive}
        safe = all(orders.before(receive, other) or orders.before(other, send) for other in others)
        if safe and ops[receive].code in STORING:
            direct[send] = receive
    return direct


def ordered_without_messages(program: Program, in_place: bool) -> bool:
    """True if any two accesses to a chunk, one of them a write, are ordered without messages between ranks.

    They are ordered by dependencies and by the order of ops in a block alone. Programs that were lowered here have this
    property. A foreign program may instead rely on a message that went through other ranks. Such a program cannot send
    packets (LL), because a packet orders no memory besides its own data.
    """
    orders = _orders(program, {}, 1)
    if orders is None:
        return False
    reads, writes = _accesses(program, in_place)
    readers, writers = defaultdict(list), defaultdict(list)
    for accesses, places in ((reads, readers), (writes, writers)):
        for place, chunks in accesses.items():
            for chunk in chunks:
                places[chunk].append(place)
    for chunk, rows in writers.items():
        for one, other in (*combinations(rows, 2), *product(rows, readers[chunk])):
            if one != other and not orders.before(one, other) and not orders.before(other, one):
                return False
    return True


def _pairs(program: Program) -> dict[Place, Place]:
    """Return each send with its receive, on connections whose two ends have the same counts in the same order."""
    ends = {}  # connection → side → its ops, and the blocks that have them
    for (rank, b), block in program.blocks():
        for side, peer, codes in ((0, block.send, SENDING), (1, block.recv, RECEIVING)):
            if peer is None:
                continue
            connection = (peer, rank, block.channel) if side else (rank, peer, block.channel)
            ops = [((rank, b, i), op.count) for i, op in enumerate(block.ops) if op.code in codes]
            if ops:
                ends.setdefault(connection, ([], []))[side].append(ops)
    # with several blocks at an end, or other counts, it is not known which send a receive takes
    pairs = {}
    for senders, receivers in ends.values():
        if len(senders) == len(receivers) == 1:
            sends, send_counts = zip(*senders[0], strict=True)
            receives, counts = zip(*receivers[0], strict=True)
            if send_counts == counts:
                pairs.update(zip(sends, receives, strict=True))
    return pairs


def _accesses(program: Program, in_place: bool) -> tuple[dict[Place, list[tuple]], dict[Place, list[tuple]]]:
    """Return the chunks of memory, (rank, buffer, offset), that each op reads and writes.

    In place, chunks of input and output that share memory are one.
    """
    shifts = [0] * program.ranks
    if in_place and program.collective is not None:
        shifts = [shift or 0 for shift in Layout(program.collective, program.chunks).overlaps]
    reads, writes = {}, {}
    for place, op in program.placed_ops():
        rank = place[0]
        chunks = []
        for spans, codes in ((op.src, READING), (op.dst, WRITING)):
            row = []
            if spans and op.code in codes:
                buffer, start = spans[0].buffer, spans[0].offset
                if in_place and buffer == "o":
                    buffer, start = "i", start + shifts[rank]
                row = [(rank, buffer, start + k) for k in range(op.count)]
            chunks.append(row)
        src, dst = chunks
        if op.code == "cpy" and src == dst:  # a copy onto itself does nothing
            src = dst = []
        reads[place], writes[place] = src + dst if op.code == "re" else src, dst
    return reads, writes


class _Orders(NamedTuple):
    """``start[row[block, op]][number[other]]``: the ops of `other` that have certainly ended when the op starts."""

    number: Mapping[tuple[int, int], int]
    row: Mapping[Place, int]
    start: np.ndarray

    def before(self, one: Place, other: Place) -> bool:
        """True if `one` has always ended when `other` starts."""
        return bool(self.start[self.row[other], self.number[one[:2]]] > one[2])


def _orders(program: Program, sends: Mapping[Place, Place], part: int) -> _Orders | None:
    """Return vector clocks of all ops of `program`; `sends[receive]`: its send.

    The result is None if the program is too large, or if its ops wait for each other in a circle.
    """
    blocks = dict(program.blocks())
    number = {place: n for n, place in enumerate(blocks)}
    row = {place: n for n, (place, _) in enumerate(program.placed_ops())}
    if 2 * len(row) * len(number) > CLOCK_ENTRIES:
        return None
    start = np.zeros((len(row), len(number)), np.int32)
    end = np.zeros_like(start)
    ended = dict.fromkeys(blocks, 0)
    waiting = defaultdict(list)  # block → the blocks that wait for one of its ops
    queue = deque(blocks)
    while queue:
        place = queue.popleft()
        rank, b = place
        ops: tuple[Op, ...] = blocks[place].ops
        while ended[place] < len(ops):
            i = ended[place]
            here, send = (rank, b, i), sends.get((rank, b, i))
            needed = [(rank, dep.block, dep.op) for dep in ops[i].deps]
            if i:
                needed.append((rank, b, i - 1))
            # a block that lacks an op sleeps until the block of that op goes on
            before = needed + [send] if send else needed
            missing = next((other[:2] for other in before if ended[other[:2]] <= other[2]), None)
            if missing is not None:
                waiting[missing].append(place)
                break

            # It starts after the ends of the op before, of its dependencies and of a send in one part.
            clock = start[row[here]]
            for other in needed:
                np.maximum(clock, end[row[other]], out=clock)
            if send:
                np.maximum(clock, (start if ops[i].count > part else end)[row[send]], out=clock)
            end[row[here]] = clock if send is None else np.maximum(clock, end[row[send]])
            end[row[here], number[place]] = i + 1
            ended[place] += 1
            queue.extend(waiting.pop(place, ()))
    return _Orders(number, row, start) if sum(ended.values()) == len(row) else None

"""Messages that may be written straight into the receiver's buffer, and programs whose ranks order their own memory.

The i-th send on a connection pairs with its i-th receive. So the place at which a receive stores the message (``r``,
``rcs``) is known beforehand, and the sender may write there at once, instead of into a slot of the FIFO. It writes
earlier than the receive would have. That is safe if every other op that touches those chunks has either ended before
the send starts, or starts after the receive has ended, in every execution. Ops are ordered by their place in a block,
by dependencies, and by messages: a receive starts when its send has ended. Waiting for space in a FIFO is not counted,
because it depends on the FIFO. An op of more chunks than a message holds counts as several ops here, and is written
directly if all of them may be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from synth.program.buffer_layout import Layout
from synth.program.program import RECEIVING, SENDING, Dep, Op, Place, Program, Span

BlockId = tuple[int, int]  # rank, block
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
    unsplit_pairs, (split, origin) = _pairs(program), _split(program, part)
    if not unsplit_pairs:
        return {}
    pairs = _pairs(split)
    orders = _Orders.of(split, {receive: send for send, receive in pairs.items()})
    if orders is None:
        return {}
    touched = {}
    for place, op in split.placed_ops():
        for cell in _cells(split, place[0], op, in_place):
            touched.setdefault(cell, []).append(place)

    def safe(send: Place, receive: Place) -> bool:
        cells = _cells(split, receive[0], _op(split, receive), in_place)
        others = {place for cell in cells for place in touched[cell]} - {receive}
        return all(orders.before(receive, other) or orders.before(other, send) for other in others)

    unsafe = {origin[send] for send, receive in pairs.items() if not safe(send, receive)}
    direct = {origin[send] for send in pairs} - unsafe
    stored = {send: receive for send, receive in unsplit_pairs.items() if _op(program, receive).code in STORING}
    return {send: receive for send, receive in stored.items() if send in direct}


def ordered_without_messages(program: Program, in_place: bool) -> bool:
    """True if any two accesses to a chunk, one of them a write, are ordered without messages between ranks.

    They are ordered by dependencies and by the order of ops in a block alone. Programs that were lowered here have this
    property. A foreign program may instead rely on a message that went through other ranks. Such a program cannot send
    packets (LL), because a packet orders no memory besides its own data.
    """
    orders = _Orders.of(program, {})
    if orders is None:
        return False
    reads = {}
    writes = {}
    for place, op in program.placed_ops():
        for cell in _cells(program, place[0], op, in_place, reads=True, writes=False):
            reads.setdefault(cell, []).append(place)
        for cell in _cells(program, place[0], op, in_place, reads=False):
            writes.setdefault(cell, []).append(place)
    for cell, writers in writes.items():
        for k, first in enumerate(writers):
            for other in (*writers[k + 1 :], *reads.get(cell, ())):
                if first != other and not orders.before(first, other) and not orders.before(other, first):
                    return False
    return True


def _op(program: Program, place: Place) -> Op:
    return program.gpus[place[0]].blocks[place[1]].ops[place[2]]


def _pairs(program: Program) -> dict[Place, Place]:
    """Return each send with its receive, on connections whose two ends have the same counts in the same order."""
    pairs = {}
    for connection, senders in program.senders.items():
        sends, receives = [], []
        for places, blocks, codes in (
            (sends, senders, SENDING), (receives, program.receivers.get(connection, []), RECEIVING),
        ):  # fmt: skip
            for rank, b in blocks:
                ops = program.gpus[rank].blocks[b].ops
                places += [(rank, b, i) for i, op in enumerate(ops) if op.code in codes]
        one_sender = len({place[:2] for place in sends}) <= 1
        if not one_sender or len({place[:2] for place in receives}) > 1 or len(sends) != len(receives):
            continue
        if all(_op(program, s).count == _op(program, r).count for s, r in zip(sends, receives, strict=True)):
            pairs.update(zip(sends, receives, strict=True))
    return pairs


def _cells(
    program: Program, rank: int, op: Op, in_place: bool, *, reads: bool = True, writes: bool = True
) -> list[tuple]:
    """Return the chunks of memory that an op of `rank` reads and writes.

    In place, chunks of input and output that share memory are one.
    """
    src = []
    dst = []
    if op.code in READING and op.src:
        src = [_cell(program, rank, op.src[0], k, in_place) for k in range(op.count)]
    if op.code in WRITING and op.dst:
        dst = [_cell(program, rank, op.dst[0], k, in_place) for k in range(op.count)]
    if op.code == "cpy" and src == dst:  # a copy onto itself does nothing
        return []
    cells = []
    if reads:
        cells += src
        if op.code == "re":
            cells += dst
    if writes:
        cells += dst
    return cells


def _cell(program: Program, rank: int, span: Span, k: int, in_place: bool) -> tuple:
    offset = span.offset + k
    if not in_place or span.buffer == "s" or program.collective is None:
        return rank, span.buffer, offset
    shift = Layout(program.collective, program.chunks).overlaps[rank] or 0
    return rank, "i", offset + (shift if span.buffer == "o" else 0)


def _split(program: Program, part: int) -> tuple[Program, dict[Place, Place]]:
    """Return `program` with one op for each message of at most `part` chunks, and the original op of each new op."""
    origin = {}
    gpus = []
    for gpu in program.gpus:
        last = []  # of each block: the last new op of each old op
        for block in gpu.blocks:
            ends, length = [], 0
            for op in block.ops:
                length += -(-op.count // part) if op.code in SENDING | RECEIVING else 1
                ends.append(length - 1)
            last.append(ends)
        blocks = []
        for b, block in enumerate(gpu.blocks):
            ops = []
            for i, op in enumerate(block.ops):
                deps = tuple(Dep(dep.block, last[dep.block][dep.op]) for dep in op.deps)
                step = part if op.code in SENDING | RECEIVING else op.count
                for low in range(0, op.count, step):
                    src = tuple(span._replace(offset=span.offset + low) for span in op.src)
                    dst = tuple(span._replace(offset=span.offset + low) for span in op.dst)
                    origin[gpu.rank, b, len(ops)] = (gpu.rank, b, i)
                    ops.append(op._replace(src=src, dst=dst, count=min(step, op.count - low), deps=() if low else deps))
            blocks.append(block._replace(ops=tuple(ops)))
        gpus.append(gpu._replace(blocks=tuple(blocks)))
    return replace(program, gpus=tuple(gpus)), origin


class _Orders(NamedTuple):
    """Vector clocks of all ops.

    ``start[first[block] + i][number[other]]``: the number of ops of block `other` that have certainly ended when op i
    of `block` starts.
    """

    number: Mapping[BlockId, int]
    first: Mapping[BlockId, int]
    start: np.ndarray

    def before(self, one: Place, other: Place) -> bool:
        """True if `one` has always ended when `other` starts."""
        return bool(self.start[self.first[other[:2]] + other[2], self.number[one[:2]]] > one[2])

    @staticmethod
    def of(program: Program, sends: Mapping[Place, Place]) -> _Orders | None:
        """Return the orders of `program`; `sends[receive]`: its send.

        The result is None if the program is too large, or if its ops wait for each other in a circle.
        """
        ids: list[BlockId] = [(gpu.rank, b) for gpu in program.gpus for b in range(len(gpu.blocks))]
        blocks = [program.gpus[rank].blocks[b].ops for rank, b in ids]
        number = {block: n for n, block in enumerate(ids)}
        first = dict(zip(ids, accumulate(map(len, blocks), initial=0), strict=False))
        total = sum(map(len, blocks))
        if total * len(ids) > CLOCK_ENTRIES:
            return None
        start = np.zeros((total, len(ids)), np.int32)
        ended = [0] * len(ids)
        sleepers = {}
        queue = deque(range(len(ids)))
        while queue:
            n = queue.popleft()
            rank, b = ids[n]
            while ended[n] < len(blocks[n]):
                place = (rank, b, ended[n])
                needed = [(rank, dep.block, dep.op) for dep in blocks[n][ended[n]].deps]
                needed += [sends[place]] if place in sends else []
                missing = next((number[p[:2]] for p in needed if ended[number[p[:2]]] <= p[2]), None)
                if missing is not None:
                    sleepers.setdefault(missing, []).append(n)
                    break
                row = start[first[rank, b] + ended[n]]
                if ended[n]:
                    needed.append((rank, b, ended[n] - 1))
                for p in needed:
                    other = number[p[:2]]
                    np.maximum(row, start[first[p[:2]] + p[2]], out=row)
                    row[other] = max(row[other], p[2] + 1)
                ended[n] += 1
                queue.extend(sleepers.pop(n, ()))
        return _Orders(number, first, start) if ended == list(map(len, blocks)) else None

"""Which messages may be written straight into the receiver's buffer, and whether a rank's own order orders its memory.

The i-th send on a connection pairs with its i-th receive, so where a receive that stores what arrives (``r``, ``rcs``)
will put it is known beforehand, and the sender may write there at once, instead of into a slot of the FIFO. It writes
earlier than the receive would have. That is safe where whatever else touches those chunks has either ended before the
send starts, or starts after the receive has ended, in every execution. What orders ops is their place in a block,
dependencies, and messages: a receive starts when its send has ended. Room in a FIFO is left out: it depends on the
FIFO. An op of more chunks than a message holds is as many ops here, and is put directly where all of them may be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from synth.program.buffer_layout import Layout
from synth.program.program import RECEIVING, SENDING, Dep, Op, Program, Span

Place = tuple[int, int, int]  # rank, block, op
Seat = tuple[int, int]  # rank, block
READING = frozenset({"s", "rrs", "rrc", "rrcs", "cpy", "re"})
WRITING = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})
STORING = frozenset({"r", "rcs"})  # what arrives, as it is
MOST = 1 << 26  # entries of all clocks together


def puts(program: Program, in_place: bool, part: int) -> dict[Place, Place]:
    """The sends of a two-sided program that may write the receiver's buffer, each with the receive that it pairs with;
    for calls in place or not, and messages of at most `part` chunks. None where it is too large to tell, or its ops
    wait in a circle."""
    if program.one_sided or program.collective is None:
        return {}
    whole, (split, origin) = _pairs(program), _split(program, part)
    pairs = _pairs(split)
    orders = _Orders.of(split, {receive: send for send, receive in pairs.items()}) if whole else None
    if orders is None:
        return {}
    touched: dict[tuple, list[Place]] = {}
    for place, op in _ops(split):
        for cell in _cells(split, place[0], op, in_place):
            touched.setdefault(cell, []).append(place)

    def safe(send: Place, receive: Place) -> bool:
        cells = _cells(split, receive[0], _op(split, receive), in_place)
        others = {place for cell in cells for place in touched[cell]} - {receive}
        return all(orders.before(receive, other) or orders.before(other, send) for other in others)

    unsafe = {origin[send] for send, receive in pairs.items() if not safe(send, receive)}
    paired = {origin[send] for send in pairs}
    return {
        send: receive for send, receive in whole.items()
        if _op(program, receive).code in STORING and send in paired and send not in unsafe
    }  # fmt: skip


def ordered_alone(program: Program, in_place: bool) -> bool:
    """Whether the blocks' own order and dependencies order all accesses to a chunk of which one writes, without
    messages.

    Programs made by lowering are; foreign ones may rely on a message that went round. Packets order nothing but
    themselves.
    """
    orders = _Orders.of(program, {})
    if orders is None:
        return False
    reads: dict[tuple, list[Place]] = {}
    writes: dict[tuple, list[Place]] = {}
    for place, op in _ops(program):
        for cell in _cells(program, place[0], op, in_place, reads=True, writes=False):
            reads.setdefault(cell, []).append(place)
        for cell in _cells(program, place[0], op, in_place, reads=False):
            writes.setdefault(cell, []).append(place)
    return all(
        first == other or orders.before(first, other) or orders.before(other, first)
        for cell, found in writes.items()
        for k, first in enumerate(found)
        for other in (*found[k + 1 :], *reads.get(cell, ()))
    )


def _ops(program: Program) -> Iterator[tuple[Place, Op]]:
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                yield (gpu.rank, b, i), op


def _op(program: Program, place: Place) -> Op:
    return program.gpus[place[0]].blocks[place[1]].ops[place[2]]


def _pairs(program: Program) -> dict[Place, Place]:
    """Sends and their receives, on connections where they are as many and of the same numbers of chunks."""
    found: dict[Place, Place] = {}
    for key, senders in program.senders.items():
        ends = [
            [(r, b, i) for r, b in seats for i, op in enumerate(program.gpus[r].blocks[b].ops) if op.code in codes]
            for seats, codes in ((senders, SENDING), (program.receivers.get(key, []), RECEIVING))
        ]
        if any(len({place[:2] for place in end}) > 1 for end in ends) or len(ends[0]) != len(ends[1]):
            continue
        if all(_op(program, s).count == _op(program, r).count for s, r in zip(*ends, strict=True)):
            found.update(zip(*ends, strict=True))
    return found


def _cells(
    program: Program, rank: int, op: Op, in_place: bool, *, reads: bool = True, writes: bool = True
) -> list[tuple]:
    """The chunks of memory that an op of `rank` reads and writes; in place, input and output that are one memory are
    one."""
    src = (
        [_cell(program, rank, op.src[0], k, in_place) for k in range(op.count)] if op.code in READING and op.src else []
    )
    dst = (
        [_cell(program, rank, op.dst[0], k, in_place) for k in range(op.count)] if op.code in WRITING and op.dst else []
    )
    if op.code == "cpy" and src == dst:  # it is there already, and nothing is done
        return []
    read = [*src, *(dst if op.code == "re" else ())]
    return [*(read if reads else ()), *(dst if writes else ())]


def _cell(program: Program, rank: int, span: Span, k: int, in_place: bool) -> tuple:
    at = span.offset + k
    if not in_place or span.buffer == "s" or program.collective is None:
        return rank, span.buffer, at
    shift = Layout(program.collective, program.chunks).overlaps[rank] or 0
    return rank, "i", at + (shift if span.buffer == "o" else 0)


def _split(program: Program, part: int) -> tuple[Program, dict[Place, Place]]:
    """`program` with an op for each message of at most `part` chunks, and which op each of its ops comes from."""
    origin: dict[Place, Place] = {}
    gpus = []
    for gpu in program.gpus:
        last: list[list[int]] = []
        for block in gpu.blocks:
            ends, at = [], 0
            for op in block.ops:
                at += -(-op.count // part) if op.code in SENDING | RECEIVING else 1
                ends.append(at - 1)
            last.append(ends)
        blocks = []
        for b, block in enumerate(gpu.blocks):
            ops: list[Op] = []
            for i, op in enumerate(block.ops):
                deps = tuple(Dep(dep.block, last[dep.block][dep.op]) for dep in op.deps)
                step = part if op.code in SENDING | RECEIVING else op.count
                for low in range(0, op.count, step):
                    src, dst = (
                        tuple(span._replace(offset=span.offset + low) for span in spans) for spans in (op.src, op.dst)
                    )
                    origin[gpu.rank, b, len(ops)] = (gpu.rank, b, i)
                    ops.append(op._replace(src=src, dst=dst, count=min(step, op.count - low), deps=() if low else deps))
            blocks.append(block._replace(ops=tuple(ops)))
        gpus.append(gpu._replace(blocks=tuple(blocks)))
    return replace(program, gpus=tuple(gpus)), origin


class _Orders(NamedTuple):
    """`start[first[seat] + i][number[other]]`: how many ops of block `other` have certainly ended when op i of `seat`
    starts."""

    number: Mapping[Seat, int]
    first: Mapping[Seat, int]
    start: np.ndarray

    def before(self, one: Place, other: Place) -> bool:
        """Whether `one` has always ended when `other` starts."""
        return bool(self.start[self.first[other[:2]] + other[2], self.number[one[:2]]] > one[2])

    @staticmethod
    def of(program: Program, sends: Mapping[Place, Place]) -> _Orders | None:
        """The orders of `program`; `sends`: by receive. None where it is too large, or its ops wait for each other in a
        circle."""
        seats = [(gpu.rank, b) for gpu in program.gpus for b in range(len(gpu.blocks))]
        blocks = [program.gpus[rank].blocks[b].ops for rank, b in seats]
        number = {seat: n for n, seat in enumerate(seats)}
        first = dict(zip(seats, accumulate(map(len, blocks), initial=0), strict=False))
        total = sum(map(len, blocks))
        if total * len(seats) > MOST:
            return None
        start = np.zeros((total, len(seats)), np.int32)
        ended = [0] * len(seats)
        sleepers: dict[int, list[int]] = {}
        queue = deque(range(len(seats)))
        while queue:
            n = queue.popleft()
            rank, b = seats[n]
            while ended[n] < len(blocks[n]):
                place = (rank, b, ended[n])
                needed = [(rank, dep.block, dep.op) for dep in blocks[n][ended[n]].deps]
                needed += [sends[place]] if place in sends else []
                missing = next((number[p[:2]] for p in needed if ended[number[p[:2]]] <= p[2]), None)
                if missing is not None:
                    sleepers.setdefault(missing, []).append(n)
                    break
                row = start[first[rank, b] + ended[n]]
                for p in [*needed, *([(rank, b, ended[n] - 1)] if ended[n] else [])]:
                    other = number[p[:2]]
                    np.maximum(row, start[first[p[:2]] + p[2]], out=row)
                    row[other] = max(row[other], p[2] + 1)
                ended[n] += 1
                queue.extend(sleepers.pop(n, ()))
        return _Orders(number, first, start) if ended == list(map(len, blocks)) else None

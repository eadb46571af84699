"""Deadlock check of a two-sided program by running it without data.

The check is exact: blocks with bounded FIFOs either all end or stop at the same ops, in any order of events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from synth.program.program import RECEIVING, SENDING, Gpu, Op


class StuckOp(NamedTuple):
    """Op `op` of block `block` of rank `rank`, which never ends."""

    rank: int
    block: int
    op: int


def deadlock(gpus: Sequence[Gpu], depth: int, maximum_chunks: int) -> list[StuckOp]:
    """Return the ops of one circle of waits; [] if the program ends.

    If blocks wait without a circle, because others have ended, the result is the op of each waiting block. A connection
    holds `depth` operations. An operation carries at most `maximum_chunks` chunks, so an op of more chunks is done in
    parts.
    """
    blocks = [(gpu.rank, b) for gpu in gpus for b in range(len(gpu.blocks))]
    number = {key: n for n, key in enumerate(blocks)}
    ops = [block.ops for gpu in gpus for block in gpu.blocks]
    sender = {}
    receiver = {}
    for gpu in gpus:
        for b, block in enumerate(gpu.blocks):
            if block.send is not None:
                sender[gpu.rank, block.send, block.channel] = number[gpu.rank, b]
            if block.recv is not None:
                receiver[block.recv, gpu.rank, block.channel] = number[gpu.rank, b]
    out: list[tuple | None] = [None] * len(blocks)
    into: list[tuple | None] = [None] * len(blocks)
    for key, n in sender.items():
        out[n] = key
    for key, n in receiver.items():
        into[n] = key
    sent, received = dict.fromkeys([*sender, *receiver], 0), dict.fromkeys([*sender, *receiver], 0)
    ended, part = [0] * len(blocks), [0] * len(blocks)  # ops of a block that have ended; parts of its next op
    waits: list[int | None] = [None] * len(blocks)
    sleepers = {}  # block -> blocks with an op that waits for one of its ops
    queue, queued = deque(range(len(blocks))), [True] * len(blocks)

    def missing(rank: int, op: Op) -> int | None:
        """Return the number of a block with an op that `op` of `rank` still waits for, or None."""
        return next((number[rank, d.block] for d in op.deps if ended[number[rank, d.block]] <= d.op), None)

    def wake(n: int | None) -> None:
        if n is not None and not queued[n]:
            queued[n] = True
            queue.append(n)

    while queue:
        n = queue.popleft()
        queued[n] = False
        rank = blocks[n][0]
        while ended[n] < len(ops[n]):
            op = ops[n][ended[n]]
            late = missing(rank, op) if part[n] == 0 else None
            if late is not None:
                waits[n] = late
                sleepers.setdefault(late, []).append(n)
                break
            source = into[n] if op.code in RECEIVING else None
            target = out[n] if op.code in SENDING else None
            if source is not None and sent[source] == received[source]:
                waits[n] = sender.get(source)
                break
            if target is not None and sent[target] - received[target] >= depth:
                waits[n] = receiver.get(target)
                break
            if source is not None:
                received[source] += 1
                wake(sender.get(source))
            if target is not None:
                sent[target] += 1
                wake(receiver.get(target))
            part[n] += 1
            if part[n] * maximum_chunks >= op.count or (source is None and target is None):
                part[n] = 0
                ended[n] += 1
                for other in sleepers.pop(n, ()):
                    wake(other)
    for n in range(len(blocks)):
        if ended[n] == len(ops[n]):
            waits[n] = None
    return _circle(waits, blocks, ended)


def _circle(waits: list[int | None], blocks: list[tuple[int, int]], ended: list[int]) -> list[StuckOp]:
    """Return the ops of one circle among the waiting blocks; without a circle, the ops of all waiting blocks."""
    seen = {}
    for start in range(len(waits)):
        n: int | None = start
        path: list[int] = []
        while n is not None and n not in seen and waits[n] is not None:
            seen[n] = start
            path.append(n)
            n = waits[n]
        if n is not None and waits[n] is not None and seen.get(n) == start and n in path:
            return [StuckOp(*blocks[k], ended[k]) for k in path[path.index(n) :]]
    return [StuckOp(*blocks[n], ended[n]) for n, other in enumerate(waits) if other is not None]

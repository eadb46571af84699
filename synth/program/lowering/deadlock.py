"""Deadlock check of a two-sided program by running it without data.

The check is exact: blocks with bounded FIFOs either all end or stop at the same ops, in any order of events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from synth.program.program import RECEIVING, SENDING, Gpu

BlockId = tuple[int, int]  # rank, block


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
    blocks, sender, receiver = {}, {}, {}  # the block at each end of a connection
    for gpu in gpus:
        for b, block in enumerate(gpu.blocks):
            here = gpu.rank, b
            blocks[here] = block
            if block.send is not None:
                sender[gpu.rank, block.send, block.channel] = here
            if block.recv is not None:
                receiver[block.recv, gpu.rank, block.channel] = here
    sent, received = Counter(), Counter()  # parts on each connection
    ended, part = dict.fromkeys(blocks, 0), dict.fromkeys(blocks, 0)  # ops of a block; parts of its next op
    waits: dict[BlockId, BlockId | None] = {}  # the block that each waiting block waits for
    sleepers = defaultdict(list)
    ready = list(blocks)
    while ready:
        here = ready.pop()
        waits.pop(here, None)
        rank, block = here[0], blocks[here]
        source, target = (block.recv, rank, block.channel), (rank, block.send, block.channel)
        before = ended[here], part[here]
        while ended[here] < len(block.ops):
            op = block.ops[ended[here]]
            receives, sends = op.code in RECEIVING, op.code in SENDING
            late = [(rank, dep.block) for dep in op.deps if ended[rank, dep.block] <= dep.op]

            # The first part waits for dependencies, each part for a message and for room.
            if late and not part[here]:
                waits[here] = late[0]
            elif receives and sent[source] == received[source]:
                waits[here] = sender.get(source)
            elif sends and sent[target] - received[target] >= depth:
                waits[here] = receiver.get(target)
            if here in waits:
                break
            received[source] += receives
            sent[target] += sends
            part[here] += 1
            if part[here] * maximum_chunks >= op.count or not (receives or sends):
                part[here] = 0
                ended[here] += 1
        if waits.get(here) is not None:
            sleepers[waits[here]].append(here)
        if before != (ended[here], part[here]):
            ready += sleepers.pop(here, ())
    circle = _circle(waits)
    return [StuckOp(*here, ended[here]) for here in circle or waits]


def _circle(waits: Mapping[BlockId, BlockId | None]) -> list[BlockId]:
    """Return one circle among the waiting blocks; [] without one."""
    seen = set()
    for start in waits:
        path = []
        here: BlockId | None = start
        while here is not None and here in waits and here not in seen:
            seen.add(here)
            path.append(here)
            here = waits[here]
        if here is not None and here in path:
            return path[path.index(here) :]
    return []

"""Fourth pass of lowering: messages become the ops of thread blocks, with channels, scratch and dependencies.

A connection that is not paired has a block of its own, which only sends or only receives. All ops of a rank have one
order: by step, sends before receives, receives before the copies that complete the output. Every block follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from synth.program.buffer_layout import Layout
from synth.program.lowering.dependencies import Access, dependencies, flagged
from synth.program.lowering.messages import Lane, Message, Value
from synth.program.lowering.receive_fusion import Fusion, channels, lanes_of
from synth.program.lowering.value_placement import Place, Storage
from synth.program.program import Block, Gpu, Op, Span

# number of the first cell of scratch in `Access`: above those of the input and output, however many chunks they have
_SCRATCH = 1 << 40


class PlannedOp(NamedTuple):
    """A planned op of block `block`; `key` orders all ops of its rank."""

    key: tuple[int, int, int, int]
    block: int
    code: str
    src: Place | None
    dst: Place | None
    count: int


class Ends(NamedTuple):
    """The connections that one planned block owns: the one it receives on, and the one it sends on."""

    recv: Lane | None
    send: Lane | None


@dataclass(frozen=True, slots=True)
class BlockTarget:
    """The buffers, kind of call and runtime limits that blocks are assembled for.

    `codes`: the runtime's instructions. `channel_blocks`: the most blocks of a rank that may use a channel.
    `block_ops`: the most instructions of a block.
    """

    layout: Layout
    in_place: str
    codes: frozenset[str]
    channel_blocks: int | None
    block_ops: int | None


class _Scratch:
    """The groups of scratch cells that ops store to: `cells[group]`: its rank and its size. No two groups share a cell.

    `spare`: the greatest group number so far. Further groups hold an arrival until it is added.
    """

    def __init__(self, spare: int) -> None:
        self.spare = spare
        self.cells: dict[int, tuple[int, int]] = {}

    def store(self, values: Sequence[Value]) -> None:
        for value in values:
            group, offset = value.place
            if isinstance(group, int):
                _, size = self.cells.get(group, (value.rank, 0))
                self.cells[group] = value.rank, max(size, offset + 1)

    def arrival(self, message: Message) -> Place:
        self.spare += 1
        self.cells[self.spare] = message.dst, message.count
        return self.spare, 0

    def layout(self) -> tuple[dict[int, int], Counter[int]]:
        """Return the offset of each group on its rank, and the cells of each rank."""
        offsets, sizes = {}, Counter[int]()
        for group, (rank, size) in sorted(self.cells.items()):
            offsets[group] = sizes[rank]
            sizes[rank] += size
        return offsets, sizes


def assemble(storage: Storage, fusion: Fusion, target: BlockTarget) -> tuple[tuple[Gpu, ...], list[list[Ends]]]:
    """Return the ranks' programs for one instance, and for each rank the connections of every block."""
    messages = storage.messages
    lanes = list(lanes_of(messages))
    channel = channels(lanes, fusion, target.channel_blocks)

    # The blocks of every rank, sorted by channel.
    ends = [[] for _ in range(target.layout.collective.ranks)]
    paired = {(rank, outgoing) for (rank, _), outgoing in fusion.pairs.items()}
    for lane in lanes:
        src, dst = lane[:2]
        ends[dst].append(Ends(lane, fusion.pairs.get((dst, lane))))
        if (src, lane) not in paired:
            ends[src].append(Ends(None, lane))
    for row in ends:
        row.sort(key=lambda ends: (channel[ends.recv or ends.send], ends.recv or (-1,), ends.send or (-1,)))
    sends = {block_ends.send: b for row in ends for b, block_ends in enumerate(row) if block_ends.send}
    receives = {block_ends.recv: b for row in ends for b, block_ends in enumerate(row) if block_ends.recv}
    drafts = [[] for _ in ends]
    groups = (value.place[0] for message in messages for value in message.writes if isinstance(value.place[0], int))
    scratch = _Scratch(max(groups, default=0))
    added = {value.old for message in messages for value in message.writes if value.old is not None}
    forwarded = set(fusion.forwards.values())
    writer = {}  # the block that writes a value
    for message in messages:
        if message.local:
            old, rank = message.writes[0].old, message.dst
            block = writer[old] if old in writer else _least_loaded(drafts[rank], ends[rank], target.block_ops)
            # copy the rank's input to the place that the message writes, or add it there
            source, new, key = message.reads[0].place, message.writes[0].place, (message.step, 1, message.order)
            scratch.store(message.writes)
            if old is None or old.place != new:
                first = source if old is None else old.place
                drafts[rank].append(PlannedOp((*key, 0), block, "cpy", first, new, message.count))
            if old is not None:
                drafts[rank].append(PlannedOp((*key, 1), block, "re", source, new, message.count))
            writer.update(dict.fromkeys(message.writes, block))
            continue
        if message not in forwarded:
            key = (message.step, 0, message.order, 0)
            source, block = message.reads[0].place, sends[message.lane]
            drafts[message.src].append(PlannedOp(key, block, "s", source, None, message.count))
        block = receives[message.lane]
        writer.update(dict.fromkeys(message.writes, block))
        if message in fusion.forwards:
            drafts[message.dst].append(_forward_op(message, block, added, scratch))
        else:
            drafts[message.dst] += _receive_ops(message, block, scratch, target)

    # Copies within a rank come after all steps, in the block that received the data or that with the fewest ops. In
    # place, a chunk of the input is in the output already.
    last_step = max((draft.key[0] for row in drafts for draft in row), default=0)
    for n, copy in enumerate(storage.copies):
        rank = copy.rank
        if copy.src[0] == "i" and target.in_place == "in":
            continue
        if copy.writer is not None:
            block = writer[copy.writer.writes[0]]
        else:
            block = _least_loaded(drafts[rank], ends[rank], target.block_ops)
        drafts[rank].append(PlannedOp((last_step + 1, 2, n, 0), block, "cpy", copy.src, copy.dst, copy.count))
    offsets, sizes = scratch.layout()
    gpus = []
    for rank, row in enumerate(ends):
        gpus.append(_gpu(rank, sorted(drafts[rank]), row, channel, offsets, sizes[rank], target))
    return tuple(gpus), ends


def _receive_ops(message: Message, block: int, scratch: _Scratch, target: BlockTarget) -> Iterator[PlannedOp]:
    """Yield the ops that receive `message`: one op, or a receive and an addition for a runtime without ``rrc``."""
    new, old, count = message.writes[0].place, message.writes[0].old, message.count
    key = (message.step, 1, message.order)
    scratch.store(message.writes)
    if old is None:
        yield PlannedOp((*key, 0), block, "r", None, new, count)
    elif "rrc" in target.codes:
        yield PlannedOp((*key, 0), block, "rrc", old.place, new, count)
    elif old.place == new or (target.in_place != "out" and old.place[0] == "i" and new[0] == "o"):
        spare = scratch.arrival(message)
        if old.place != new and target.in_place == "both":
            yield PlannedOp((*key, 0), block, "cpy", old.place, new, count)  # in place, onto itself
        yield PlannedOp((*key, 1), block, "r", None, spare, count)
        yield PlannedOp((*key, 2), block, "re", spare, new, count)
    else:
        yield PlannedOp((*key, 0), block, "r", None, new, count)
        yield PlannedOp((*key, 1), block, "re", old.place, new, count)


def _forward_op(message: Message, block: int, added: set[Value], scratch: _Scratch) -> PlannedOp:
    """Return the op that receives `message` and sends it on."""
    new, old = message.writes[0].place, message.writes[0].old
    key = (message.step, 1, message.order, 0)
    passing = all(len(value.readers) == 1 and not value.final and value not in added for value in message.writes)
    if old is not None and passing:
        return PlannedOp(key, block, "rrs", old.place, None, message.count)
    scratch.store(message.writes)
    if old is None:
        return PlannedOp(key, block, "rcs", None, new, message.count)
    return PlannedOp(key, block, "rrcs", old.place, new, message.count)


def _least_loaded(drafts: Sequence[PlannedOp], ends: list[Ends], maximum: int | None) -> int:
    """Return the block of a rank with the fewest ops; a new one is added to `ends` if all have `maximum` ops."""
    load = [0] * len(ends)
    for draft in drafts:
        load[draft.block] += 1
    block = load.index(min(load)) if load else 0
    if not load or (maximum is not None and load[block] >= maximum):
        block = len(load)
        ends.append(Ends(None, None))
    return block


def _gpu(
    rank: int,
    drafts: list[PlannedOp],
    ends: list[Ends],
    channel: Mapping[Lane, int],
    offsets: Mapping[int, int],
    scratch: int,
    target: BlockTarget,
) -> Gpu:
    """Return the program of one rank with `scratch` cells of scratch.

    `drafts`: its ops in the order that all blocks follow. `offsets[group]`: of a group of scratch cells.
    """
    input_size, output_size = len(target.layout.inputs[rank]), len(target.layout.outputs[rank])
    overlap = target.layout.overlaps[rank] if target.in_place != "out" else None
    shift = input_size if overlap is None else overlap  # in place, the cells of both buffers have the same numbers
    length = [0] * len(ends)
    accesses = []

    def cells(place: Place | None, count: int) -> range:
        if place is None:
            return range(0)
        buffer, start = place
        if buffer == "o":
            start += shift
        elif buffer != "i":
            start += _SCRATCH + offsets[int(buffer)]
        return range(start, start + count)

    def spans(place: Place | None) -> tuple[Span, ...]:
        if place is None:
            return ()
        buffer, start = place
        return (Span(buffer, start) if isinstance(buffer, str) else Span("s", offsets[buffer] + start),)

    for draft in drafts:
        reads, writes = cells(draft.src, draft.count), cells(draft.dst, draft.count)
        if draft.code == "cpy" and reads == writes:
            # in place the copy changes nothing; out of place no other block uses the cells that it writes
            reads = writes = range(0)
        both = (*reads, *writes) if draft.code == "re" else reads
        accesses.append(Access(draft.block, length[draft.block], both, writes))
        length[draft.block] += 1
    ops = [[] for _ in ends]
    for draft, deps in zip(drafts, dependencies(accesses, len(ends)), strict=True):
        ops[draft.block].append(Op(draft.code, spans(draft.src), spans(draft.dst), draft.count, deps))
    blocks = []
    for (recv, send), block_ops in zip(ends, flagged(ops), strict=True):
        number = channel.get(recv or send, 0)  # type: ignore[arg-type]
        via = send[2] if send else ()
        receiver = send[1] if send else None
        sender = recv[0] if recv else None
        blocks.append(Block(receiver, sender, number, block_ops, via))
    return Gpu(rank, input_size, output_size, scratch, tuple(blocks))

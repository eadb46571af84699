"""Fourth pass of lowering: messages and moves become the ops of thread blocks, with channels, scratch and dependencies.

A connection that is not paired has a block of its own, which only sends or only receives. All ops of a rank have one
order: by step, sends before receives, receives before the copies that complete the output. Every block follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from synth.program.buffer_layout import Layout
from synth.program.lowering.dependencies import Access, dependencies, flagged
from synth.program.lowering.messages import Lane, Message, Value
from synth.program.lowering.receive_fusion import Fusion, channels, lanes_of
from synth.program.lowering.value_placement import Move, Place, Room, Storage, pack
from synth.program.program import Block, Gpu, Op, Span

_SCRATCH = 1 << 40  # first cell number of scratch


class Draft(NamedTuple):
    """An op to be, of block `block`; `key` orders all ops of its rank."""

    key: tuple[int, int, int, int]
    block: int
    code: str
    src: Place | None
    dst: Place | None
    count: int


class Seat(NamedTuple):
    """A block to be: the connections that it owns."""

    recv: Lane | None
    send: Lane | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to assemble for: buffers, kind of call, the runtime's instructions, how many blocks of a rank may use a
    channel."""

    layout: Layout
    in_place: str
    codes: frozenset[str]
    channel_blocks: int | None
    block_ops: int | None


@dataclass(slots=True)
class _Rooms:
    """Collects the groups of scratch cells that are really used."""

    last: Mapping[Value, int]
    spare: int  # the next group number for cells that hold an arrival until it is added
    found: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def use(self, rank: int, group: int, offset: int, born: int, last: int) -> None:
        row = self.found.setdefault((rank, group), [0, born, last])
        row[:] = [max(row[0], offset + 1), min(row[1], born), max(row[2], last)]

    def keep(self, values: Sequence[Value]) -> None:
        for value in values:
            group, offset = value.place
            if isinstance(group, int):
                self.use(value.rank, group, offset, value.born, self.last[value])

    def arrival(self, message: Message) -> Place:
        self.spare += 1
        self.use(message.dst, self.spare, message.count - 1, message.step, message.step)
        return self.spare, 0

    def packed(self) -> tuple[dict[int, int], dict[int, int]]:
        return pack(Room(rank, group, *row) for (rank, group), row in self.found.items())


def assemble(storage: Storage, fusion: Fusion, plan: Plan) -> tuple[tuple[Gpu, ...], list[list[Seat]]]:
    """The ranks' programs for one instance, and the connections of every block."""
    messages = storage.messages
    lanes = list(lanes_of(messages))
    channel = channels(lanes, fusion.pairs, plan.channel_blocks)
    seats = _seats(lanes, fusion.pairs, channel, plan.layout.collective.ranks)
    sends = {seat.send: b for own in seats for b, seat in enumerate(own) if seat.send}
    receives = {seat.recv: b for own in seats for b, seat in enumerate(own) if seat.recv}
    drafts: list[list[Draft]] = [[] for _ in seats]
    rooms = _Rooms(
        storage.last,
        max((value.place[0] for m in messages for value in m.writes if isinstance(value.place[0], int)), default=0),
    )
    added = {value.old for message in messages for value in message.writes if value.old is not None}
    forwarded = set(fusion.forwards.values())
    at: dict[Value, int] = {}  # the block that wrote a value
    for message in messages:
        if message.local:
            old, rank = message.writes[0].old, message.dst
            block = at[old] if old in at else _spare(drafts[rank], seats[rank], plan.block_ops)
            drafts[rank] += _added(message, block, rooms)
            at.update(dict.fromkeys(message.writes, block))
            continue
        if message not in forwarded:
            key = (message.step, 0, message.order, 0)
            drafts[message.src].append(
                Draft(key, sends[message.lane], "s", message.reads[0].place, None, message.count)
            )
        block = receives[message.lane]
        at.update(dict.fromkeys(message.writes, block))
        if message in fusion.forwards:
            drafts[message.dst].append(_forward(message, block, added, rooms))
        else:
            drafts[message.dst] += _receive(message, block, rooms, plan)
    _add_moves(storage.moves, drafts, seats, at, plan)
    offsets, sizes = rooms.packed()
    gpus = tuple(
        _gpu(rank, sorted(drafts[rank]), seats[rank], channel, offsets, sizes.get(rank, 0), plan)
        for rank in range(len(seats))
    )
    return gpus, seats


def _seats(
    lanes: Sequence[Lane], pairs: Mapping[tuple[int, Lane], Lane], channel: Mapping[Lane, int], ranks: int
) -> list[list[Seat]]:
    """The blocks of every rank, by channel."""
    seats: list[list[Seat]] = [[] for _ in range(ranks)]
    paired = {(rank, outgoing) for (rank, _), outgoing in pairs.items()}
    for lane in lanes:
        src, dst = lane[:2]
        seats[dst].append(Seat(lane, pairs.get((dst, lane))))
        if (src, lane) not in paired:
            seats[src].append(Seat(None, lane))

    def order(seat: Seat) -> tuple:
        return channel[seat.recv or seat.send or lanes[0]], seat.recv or (-1,), seat.send or (-1,)

    return [sorted(own, key=order) for own in seats]


def _receive(message: Message, block: int, rooms: _Rooms, plan: Plan) -> Iterator[Draft]:
    """What receives `message`: one op; without fused instructions a receive into spare cells and an addition."""
    new, old, count = message.writes[0].place, message.writes[0].old, message.count
    key = (message.step, 1, message.order)
    rooms.keep(message.writes)
    if old is None:
        yield Draft((*key, 0), block, "r", None, new, count)
    elif "rrc" in plan.codes:
        yield Draft((*key, 0), block, "rrc", old.place, new, count)
    elif old.place == new or (plan.in_place != "out" and old.place[0] == "i" and new[0] == "o"):
        spare = rooms.arrival(message)
        if old.place != new and plan.in_place == "both":
            yield Draft((*key, 0), block, "cpy", old.place, new, count)  # in place, onto itself
        yield Draft((*key, 1), block, "r", None, spare, count)
        yield Draft((*key, 2), block, "re", spare, new, count)
    else:
        yield Draft((*key, 0), block, "r", None, new, count)
        yield Draft((*key, 1), block, "re", old.place, new, count)


def _added(message: Message, block: int, rooms: _Rooms) -> Iterator[Draft]:
    """What puts a rank's input where `message` says, or adds it there."""
    own, new, old, count = message.reads[0].place, message.writes[0].place, message.writes[0].old, message.count
    key = (message.step, 1, message.order)
    rooms.keep(message.writes)
    if old is None:
        yield Draft((*key, 0), block, "cpy", own, new, count)
        return
    if old.place != new:
        yield Draft((*key, 0), block, "cpy", old.place, new, count)
    yield Draft((*key, 1), block, "re", own, new, count)


def _forward(message: Message, block: int, added: set[Value], rooms: _Rooms) -> Draft:
    """What receives `message` and sends it on."""
    new, old = message.writes[0].place, message.writes[0].old
    key = (message.step, 1, message.order, 0)
    passing = all(len(value.readers) == 1 and not value.final and value not in added for value in message.writes)
    if old is not None and passing:
        return Draft(key, block, "rrs", old.place, None, message.count)
    rooms.keep(message.writes)
    if old is None:
        return Draft(key, block, "rcs", None, new, message.count)
    return Draft(key, block, "rrcs", old.place, new, message.count)


def _add_moves(
    moves: Sequence[Move], drafts: list[list[Draft]], seats: list[list[Seat]], at: Mapping, plan: Plan
) -> None:
    """The copies within a rank, last of all: in the block that received the data, or the one with the fewest ops."""
    end = max((draft.key[0] for own in drafts for draft in own), default=0) + 1
    for n, move in enumerate(moves):
        rank = move.rank
        if move.src[0] == "i" and plan.in_place == "in":
            continue  # it is there already
        if move.writer is not None:
            block = at[move.writer.writes[0]]
        else:
            block = _spare(drafts[rank], seats[rank], plan.block_ops)
        drafts[rank].append(Draft((end, 2, n, 0), block, "cpy", move.src, move.dst, move.count))


def _spare(drafts: Sequence[Draft], seats: list[Seat], most: int | None) -> int:
    """The block of a rank with the fewest ops; a new one where all have as many as they may."""
    load = [0] * len(seats)
    for draft in drafts:
        load[draft.block] += 1
    block = load.index(min(load)) if load else 0
    if not load or (most is not None and load[block] >= most):
        block = len(load)
        seats.append(Seat(None, None))
    return block


def _gpu(
    rank: int,
    drafts: list[Draft],
    seats: list[Seat],
    channel: Mapping[Lane, int],
    offsets: Mapping[int, int],
    scratch: int,
    plan: Plan,
) -> Gpu:
    held, wanted = len(plan.layout.inputs[rank]), len(plan.layout.outputs[rank])
    overlap = plan.layout.overlaps[rank] if plan.in_place != "out" else None
    shift = held if overlap is None else overlap  # in place, the cells of both buffers have the same numbers
    length = [0] * len(seats)
    accesses: list[Access] = []

    def cells(place: Place | None, count: int) -> range:
        if place is None:
            return range(0)
        space, at = place
        start = at if space == "i" else at + shift if space == "o" else _SCRATCH + offsets[int(space)] + at
        return range(start, start + count)

    def spans(place: Place | None) -> tuple[Span, ...]:
        if place is None:
            return ()
        space, at = place
        return (Span(space, at) if isinstance(space, str) else Span("s", offsets[space] + at),)

    for draft in drafts:
        reads, writes = cells(draft.src, draft.count), cells(draft.dst, draft.count)
        if draft.code == "cpy" and reads == writes:
            reads = writes = range(0)  # in place it changes nothing, else nobody but its own block uses what it writes
        both = (*reads, *writes) if draft.code == "re" else reads
        accesses.append(Access(draft.block, length[draft.block], both, writes))
        length[draft.block] += 1
    ops: list[list[Op]] = [[] for _ in seats]
    for draft, deps in zip(drafts, dependencies(accesses, len(seats)), strict=True):
        ops[draft.block].append(Op(draft.code, spans(draft.src), spans(draft.dst), draft.count, deps))
    blocks = tuple(
        Block(
            seat.send[1] if seat.send else None,
            seat.recv[0] if seat.recv else None,
            channel.get(seat.recv or seat.send, 0),  # type: ignore[arg-type]
            done,
            seat.send[2] if seat.send else (),
        )
        for seat, done in zip(seats, flagged(ops), strict=True)
    )
    return Gpu(rank, held, wanted, scratch, blocks)

"""Second pass of lowering: where every value lives, and messages cut to what is contiguous there.

The input is never written. A value that a rank must end with goes straight to its place in the output where that is
safe; every other one to scratch. Safe means that nothing still needed lies there: a step's receives never overwrite
what the same step (or a later one) sends. So a receive waits for sends of earlier steps only, and an exchange of two
ranks cannot deadlock however large its messages are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from synth.program.buffer_layout import Layout
from synth.program.lowering.messages import INPUT, Flow, Message, Value

Place = tuple[str | int, int]  # a buffer and an offset; a number is a group of scratch cells, not yet placed


class Move(NamedTuple):
    """A copy within a rank after its last use of `dst` for anything else: `count` chunks; `writer` received them, if
    any."""

    rank: int
    src: Place
    dst: Place
    count: int
    writer: Message | None


@dataclass(slots=True)
class Cell:
    """Scratch for one chunk, for values that replace each other; `place` once the first of them arrives."""

    place: Place | None = None


class Room(NamedTuple):
    """A group of neighbouring scratch cells of `rank`, written from step `born` on, last read in step `last`."""

    rank: int
    group: int
    size: int
    born: int
    last: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Messages with contiguous places; copies that complete the outputs; the steps after which nothing reads a
    value."""

    messages: list[Message]
    moves: list[Move]
    last: dict[Value, int]


def place(flow: Flow, layout: Layout, aliased: bool, longest: int | None, whole_units: bool) -> Storage:
    """Gives every value of `flow` its place. `aliased`: input and output may be the same memory (`Layout.overlaps`).

    `longest`: the most chunks of one message; with `whole_units` no copy spans two units.
    """
    end = (flow.messages[-1].step if flow.messages else INPUT) + 1
    inputs = [{chunk: i for i, chunk in enumerate(held)} for held in layout.inputs]
    outputs = [{chunk: i for i, chunk in enumerate(wanted)} for wanted in layout.outputs]
    cells: dict[Value, Cell] = {}
    last: dict[Value, int] = {}
    copies: list[tuple[int, Place, Place, Message | None, int]] = []
    late: list[tuple[Value, Place]] = []
    for (rank, chunk), chain in flow.chains.items():
        out = outputs[rank].get(chunk)
        own = chain[0].born == INPUT
        if own:
            chain[0].place = ("i", inputs[rank][chunk])
        for value, after in zip(chain, [*chain[1:], None], strict=True):
            last[value] = max(value.last, value.born if after is None or after.old is not value else after.born)
        if out is not None:
            final = chain[-1]
            if len(chain) == 1 and own:
                copies.append((rank, final.place, ("o", out), None, chunk))
            elif not _settle(chain, own, out, aliased, cells):
                late.append((final, ("o", out)))
                last[final] = end
        else:
            _settle(chain, own, None, aliased, cells)
    messages, writer = _cut(flow.messages, cells, longest)
    copies += [(value.rank, value.place, target, writer[value], value.chunk) for value, target in late]
    return Storage(messages, list(_moves(copies, longest, layout.chunks if whole_units else None)), last)


def _settle(chain: list[Value], own: bool, out: int | None, aliased: bool, cells: dict[Value, Cell]) -> bool:
    """Output place or scratch cell for every value that arrives; backwards, so that the last may be the output's.

    Two neighbours share a place unless the older one is sent in the step in which the younger one is written.
    Returns whether the last value is in the output.
    """
    after: Value | None = None
    for value in reversed(chain[1:] if own else chain):
        # where input and output are one, the rank's own contribution must not be needed any more
        free = out is not None and not (aliased and own and chain[0].last >= value.born)
        shared = after is not None and value.last < after.born
        if after is None:
            use_output = free
        elif shared:
            use_output = free and after.place[0] == "o"
        else:
            use_output = free and after.place[0] != "o"
        if use_output:
            value.place = ("o", out or 0)
        elif shared and after is not None and after in cells:
            cells[value] = cells[after]
        else:
            cells[value] = Cell()
        after = value
    return chain[-1].place[0] == "o"


def _cut(
    messages: list[Message], cells: dict[Value, Cell], longest: int | None
) -> tuple[list[Message], dict[Value, Message]]:
    """Messages whose places are contiguous at both ends, in the same order; and the one that writes each value."""
    found: list[Message] = []
    writer: dict[Value, Message] = {}
    for message in messages:
        for k, value in enumerate(message.writes):
            cell = cells.get(value)
            if cell is not None:
                cell.place = cell.place or (message.order, k)
                value.place = cell.place
        start = 0
        for k in range(1, message.count + 1):
            if k < message.count and k - start != longest and _adjacent(message, k):
                continue
            reads, writes = message.reads[start:k], message.writes[start:k]
            part = Message(
                message.step,
                message.lane,
                message.chunk + start,
                message.writes[start].old is not None,
                reads,
                writes,
                len(found),
            )
            for value in reads:
                value.readers.append(part)
            for value in writes:
                writer[value] = part
            found.append(part)
            start = k
    return found, writer


def _adjacent(message: Message, k: int) -> bool:
    old, new = message.writes[k - 1], message.writes[k]
    if (old.old is None) != (new.old is None) or not _follows(message.reads[k - 1].place, message.reads[k].place):
        return False
    return _follows(old.place, new.place) and (
        old.old is None or new.old is None or _follows(old.old.place, new.old.place)
    )


def _follows(a: Place, b: Place) -> bool:
    return a[0] == b[0] and a[1] + 1 == b[1]


def _moves(
    copies: list[tuple[int, Place, Place, Message | None, int]], longest: int | None, unit: int | None
) -> Iterable[Move]:
    """`copies` with contiguous ones joined."""
    rows = sorted(copies, key=lambda row: (row[0], row[2][1]))
    start = 0
    for k in range(1, len(rows) + 1):
        if k < len(rows):
            (rank, src, dst, writer, _), (rank1, src1, dst1, writer1, chunk) = rows[k - 1], rows[k]
            if (
                rank == rank1
                and writer is writer1
                and _follows(src, src1)
                and _follows(dst, dst1)
                and k - start != longest
                and (unit is None or chunk % unit)
            ):
                continue
        rank, src, dst, writer, _ = rows[start]
        yield Move(rank, src, dst, k - start, writer)
        start = k


def pack(rooms: Iterable[Room]) -> tuple[dict[int, int], dict[int, int]]:
    """Scratch offsets: group → offset, rank → cells in all. First fit in the order of birth (interval colouring).

    A cell is used again only from the step after its last read on, so reuse makes nobody wait within a step.
    """
    offsets: dict[int, int] = {}
    sizes: dict[int, int] = {}
    taken: dict[int, list[tuple[int, int, int]]] = {}  # rank -> (offset, size, last), by offset
    for room in sorted(rooms, key=lambda room: (room.rank, room.born, room.group)):
        held = [row for row in taken.get(room.rank, ()) if row[2] >= room.born]
        at = place = 0
        for place, (offset, size, _) in enumerate(held):  # noqa: B007
            if offset - at >= room.size:
                break
            at = offset + size
        else:
            place = len(held)
        held.insert(place, (at, room.size, room.last))
        taken[room.rank] = held
        offsets[room.group] = at
        sizes[room.rank] = max(sizes.get(room.rank, 0), at + room.size)
    return offsets, sizes

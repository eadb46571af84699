"""Second pass of lowering: a place in memory for every value, and messages split into contiguous ones.

The input is never written. A value that a rank must end with goes straight to its place in the output where that is
safe; every other value goes to scratch. It is safe if the place holds no value that is still needed: the receives of a
step never overwrite a value that the same step or a later one sends. So a receive waits for sends of earlier steps
only, and an exchange of two ranks cannot deadlock however large its messages are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from synth.program.buffer_layout import Layout
from synth.program.lowering.messages import INPUT, Message, ScheduleMessages, Value

Place = tuple[str | int, int]  # a buffer and an offset; a number is a group of scratch cells, not yet placed


class LocalCopy(NamedTuple):
    """A copy of `count` chunks within a rank, after the last other use of `dst`.

    `writer`: the message that brought the chunks, or None for the rank's input.
    """

    rank: int
    src: Place
    dst: Place
    count: int
    writer: Message | None


@dataclass(slots=True)
class ScratchCell:
    """Scratch for one chunk, shared by values that replace each other; `place` is set when the first one arrives."""

    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """The messages with contiguous places, and the copies that complete the outputs."""

    messages: list[Message]
    copies: list[LocalCopy]


def place_values(
    flow: ScheduleMessages, layout: Layout, aliased: bool, longest: int | None, whole_units: bool
) -> Storage:
    """Set the place of every value of `flow`, and return its messages split into contiguous ones, and the copies.

    `aliased`: input and output may be the same memory (`Layout.overlaps`). `longest`: the most chunks of one message or
    copy, None for no limit. With `whole_units` no copy spans two units.
    """
    inputs = [dict(zip(chunks, count())) for chunks in layout.inputs]  # chunk → its offset
    outputs = [dict(zip(chunks, count())) for chunks in layout.outputs]
    cells = {}
    copies = []
    late = []
    for (rank, chunk), chain in flow.chains.items():
        out = outputs[rank].get(chunk)
        # the input stays where the call has it
        from_input = chain[0].born == INPUT
        if from_input:
            chain[0].place = ("i", inputs[rank][chunk])
        if out is not None and len(chain) == 1 and from_input:
            copies.append((rank, chain[0].place, ("o", out), None, chunk))
        elif not _settle(chain, from_input, out, aliased, cells) and out is not None:
            late.append((chain[-1], ("o", out)))
    messages, writer = _split_messages(flow.messages, cells, longest)
    copies += [(value.rank, value.place, target, writer[value], value.chunk) for value, target in late]
    return Storage(messages, list(_joined_copies(copies, longest, layout.chunks if whole_units else None)))


def _settle(
    chain: list[Value], from_input: bool, out: int | None, aliased: bool, cells: dict[Value, ScratchCell]
) -> bool:
    """Give every value of `chain` that arrives offset `out` of the output or a scratch cell.

    The last value is settled first, because it is the one that belongs in the output. Two neighbours share a place
    unless the older one is sent in the step in which the younger one is written. `from_input`: the chain begins with
    the rank's own contribution. Returns True if the last value is in the output.
    """
    after: Value | None = None
    for value in reversed(chain[1:] if from_input else chain):
        # if input and output share memory, the output is free once the rank's own contribution is not needed any more
        free = out is not None and not (aliased and from_input and chain[0].last >= value.born)
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
            cells[value] = ScratchCell()
        after = value
    return chain[-1].place[0] == "o"


def _split_messages(
    messages: list[Message], cells: dict[Value, ScratchCell], longest: int | None
) -> tuple[list[Message], dict[Value, Message]]:
    """Return messages with contiguous places at both ends, in the same order, and the message that wrote each value."""
    # The scratch cells of a message are neighbours, in the order of its chunks.
    parts = []
    writer = {}
    for message in messages:
        for k, value in enumerate(message.writes):
            cell = cells.get(value)
            if cell is not None:
                cell.place = cell.place or (message.order, k)
                value.place = cell.place
        # An instruction moves neighbouring chunks only: the message is cut where places jump.
        start = 0
        for k in range(1, message.count + 1):
            if k < message.count and k - start != longest and _adjacent(message, k):
                continue
            reads, writes = message.reads[start:k], message.writes[start:k]
            reduce, chunk = writes[0].old is not None, message.chunk + start
            part = Message(message.step, message.lane, chunk, reduce, reads, writes, len(parts))
            for value in reads:
                value.readers.append(part)
            for value in writes:
                writer[value] = part
            parts.append(part)
            start = k
    return parts, writer


def _adjacent(message: Message, k: int) -> bool:
    """True if chunk `k` of `message` follows chunk k - 1 wherever it is read, added and written."""
    previous, value = message.writes[k - 1], message.writes[k]
    if (previous.old is None) != (value.old is None):
        return False
    if not _follows(message.reads[k - 1].place, message.reads[k].place) or not _follows(previous.place, value.place):
        return False
    return previous.old is None or value.old is None or _follows(previous.old.place, value.old.place)


def _follows(a: Place, b: Place) -> bool:
    return a[0] == b[0] and a[1] + 1 == b[1]


def _joined_copies(
    copies: list[tuple[int, Place, Place, Message | None, int]], longest: int | None, unit: int | None
) -> Iterable[LocalCopy]:
    """Yield `copies` with contiguous ones joined."""
    rows = sorted(copies, key=lambda row: (row[0], row[2][1]))
    start = 0
    for k in range(1, len(rows) + 1):
        if k < len(rows) and k - start != longest:
            (rank, src, dst, writer, _), (rank1, src1, dst1, writer1, chunk) = rows[k - 1], rows[k]
            inside = rank == rank1 and writer is writer1 and (unit is None or chunk % unit)
            if inside and _follows(src, src1) and _follows(dst, dst1):
                continue
        rank, src, dst, writer, _ = rows[start]
        yield LocalCopy(rank, src, dst, k - start, writer)
        start = k

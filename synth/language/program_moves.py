"""The copies and sums of a two-sided Program: its instructions followed on values instead of data.

The program must have been found right: then every order in which its thread blocks can run gives the same values.
"""

from __future__ import annotations

from collections import deque

from synth.errors import VerificationError
from synth.language.recorded_moves import ChunkValue, NamedPlace, RecordedMoves
from synth.model.topology import Topology
from synth.program.buffer_layout import layout_of
from synth.program.program import RECEIVING, REDUCING, SENDING, Program, Span


def recorded(program: Program, machine: Topology | None, file: str) -> RecordedMoves:
    """Return the moves of a two-sided program that lint found right.

    Raises VerificationError where it cannot run to its end.
    """
    layout = layout_of(program)
    moves = RecordedMoves(layout.collective, program.chunks, machine, file)
    memory = _Memory(program)
    for rank, chunks in enumerate(layout.inputs):
        for offset, chunk in enumerate(chunks):
            memory.store(rank, Span("i", offset), [moves.input(chunk, rank)])

    # Every block runs on as far as messages and dependencies allow, until all are at their ends.
    messages: dict[tuple[int, int, int], deque[list[ChunkValue]]] = {}
    done: dict[tuple[int, int], int] = {place: 0 for place, _ in program.blocks()}
    advanced = True
    while advanced:
        advanced = False
        for (rank, b), block in program.blocks():
            for number in range(done[rank, b], len(block.ops)):
                op = block.ops[number]
                incoming = messages.get((block.recv or 0, rank, block.channel), deque[list[ChunkValue]]())
                late = any(done[rank, dep.block] <= dep.op for dep in op.deps)
                if late or (op.code in RECEIVING and not incoming):
                    break

                # What arrives, or is read, is added to what is here, or comes here.
                values: list[ChunkValue] = []
                if op.code != "nop":
                    values = incoming.popleft() if op.code in RECEIVING else memory.load(rank, op.src[0], op.count)
                place = NamedPlace(file, 0, None, _place(rank, b, number))
                if op.code in REDUCING:
                    local = memory.load(rank, op.dst[0] if op.code == "re" else op.src[0], len(values))
                    values = [moves.add(held, value, place) for held, value in zip(local, values, strict=True)]
                elif op.code in RECEIVING:
                    values = [moves.copy(value, rank, place) for value in values]
                for span in op.dst if op.code != "s" else ():
                    memory.store(rank, span, values)
                if op.code in SENDING:
                    messages.setdefault((rank, block.send or 0, block.channel), deque()).append(values)
                done[rank, b] = number + 1
                advanced = True
    for (rank, b), block in program.blocks():
        if done[rank, b] < len(block.ops):
            raise VerificationError("waits for ever", f"{file}: {_place(rank, b, done[rank, b])}")
    return moves


class _Memory:
    """The values in the buffers of all ranks. In a program for calls in place the output is a part of the input."""

    def __init__(self, program: Program) -> None:
        self.in_place = program.in_place == "in"
        self.overlaps = layout_of(program).overlaps
        self.values: dict[tuple[int, str, int], ChunkValue] = {}

    def addresses(self, rank: int, span: Span, count: int) -> list[tuple[int, str, int]]:
        buffer, first = span.buffer, span.offset
        if buffer == "o" and self.in_place:
            buffer, first = "i", first + (self.overlaps[rank] or 0)
        return [(rank, buffer, offset) for offset in range(first, first + count)]

    def store(self, rank: int, span: Span, values: list[ChunkValue]) -> None:
        """Write values from the offset of a span on."""
        self.values.update(zip(self.addresses(rank, span, len(values)), values, strict=True))

    def load(self, rank: int, span: Span, count: int) -> list[ChunkValue]:
        """Return the values from the offset of a span on. Raises VerificationError where nothing was written."""
        found = []
        for address in self.addresses(rank, span, count):
            if address not in self.values:
                raise VerificationError(f"{span} is read before it is written", f"gpu {rank}")
            found.append(self.values[address])
        return found


def _place(rank: int, block: int, op: int) -> str:
    return f"gpu {rank} block {block} step {op}"

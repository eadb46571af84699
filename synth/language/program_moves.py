"""The copies and sums of a two-sided Program: its instructions followed on values instead of data.

The program must have been found right: then every order in which its thread blocks can run gives the same values.
"""

from __future__ import annotations

from collections import deque

from synth.errors import VerificationError
from synth.language.recorded_moves import ChunkValue, NamedPlace, RecordedMoves
from synth.model.topology import Topology
from synth.program.buffer_layout import layout_of
from synth.program.program import RECEIVING, REDUCING, SENDING, Op, Program, Span


def recorded(program: Program, machine: Topology | None, file: str) -> RecordedMoves:
    """Return the moves of a two-sided program that lint found right.

    Raises VerificationError where it cannot run to its end.
    """
    layout = layout_of(program)
    moves = RecordedMoves(layout.collective, program.chunks, machine, file)
    return _Run(program, moves).finished()


class _Run:
    """The state of a run: cells of memory by (rank, buffer, offset), messages on their way, and the next ops."""

    def __init__(self, program: Program, moves: RecordedMoves) -> None:
        self.program, self.moves = program, moves
        layout = layout_of(program)
        self.within = program.in_place == "in"
        self.shift = [shift or 0 for shift in layout.overlaps]
        self.memory: dict[tuple[int, str, int], ChunkValue] = {}
        for rank, chunks in enumerate(layout.inputs):
            for offset, chunk in enumerate(chunks):
                self.memory[rank, "i", offset] = moves.input(chunk, rank)
        self.messages: dict[tuple[int, int, int], deque[list[ChunkValue]]] = {}
        self.done: set[tuple[int, int, int]] = set()

    def finished(self) -> RecordedMoves:
        """Run every block to its end, in any order that dependencies and messages allow."""
        waiting = []
        for gpu in self.program.gpus:
            waiting += [(gpu.rank, b, 0) for b, block in enumerate(gpu.blocks) if block.ops]
        while waiting:
            still = []
            for rank, b, first in waiting:
                reached = self.run_block(rank, b, first)
                if reached < len(self.program.gpus[rank].blocks[b].ops):
                    still.append((rank, b, reached))
            if still == waiting:
                raise VerificationError("waits for ever", f"{self.moves.file}: {_place(*still[0])}")
            waiting = still
        return self.moves

    def run_block(self, rank: int, b: int, first: int) -> int:
        """Run the ops of a block from `first` on as far as they can; return the next one."""
        block = self.program.gpus[rank].blocks[b]
        for number in range(first, len(block.ops)):
            op = block.ops[number]
            if any((rank, dep.block, dep.op) not in self.done for dep in op.deps):
                return number
            incoming = deque[list[ChunkValue]]()
            if op.code in RECEIVING:
                incoming = self.messages.get((block.recv or 0, rank, block.channel), incoming)
                if not incoming:
                    return number
            result = self.result(rank, op, incoming, NamedPlace(self.moves.file, 0, None, _place(rank, b, number)))
            if op.code in SENDING:
                self.messages.setdefault((rank, block.send or 0, block.channel), deque()).append(result)
            self.done.add((rank, b, number))
        return len(block.ops)

    def result(self, rank: int, op: Op, incoming: deque[list[ChunkValue]], place: NamedPlace) -> list[ChunkValue]:
        """Return the chunks that an op sends or writes; write them."""
        if op.code == "nop":
            return []
        arrived = incoming.popleft() if op.code in RECEIVING else self.load(rank, op.src[0], op.count)
        local = None
        if op.code in REDUCING:
            local = op.dst[0] if op.code == "re" else op.src[0]
        made = []
        for i, cell in enumerate(arrived):
            if local is not None:
                held = self.load(rank, Span(local.buffer, local.offset + i), 1)[0]
                made.append(self.moves.add(held, cell, place))
            elif op.code in RECEIVING:
                made.append(self.moves.copy(cell, rank, place))
            else:
                made.append(cell)
        for span in op.dst if op.code != "s" else ():
            for i, cell in enumerate(made):
                self.memory[self.address(rank, span.buffer, span.offset + i)] = cell
        return made

    def load(self, rank: int, span: Span, count: int) -> list[ChunkValue]:
        """Return the chunks of a span. Raises VerificationError where nothing was written."""
        found = []
        for i in range(count):
            address = self.address(rank, span.buffer, span.offset + i)
            if address not in self.memory:
                raise VerificationError(f"{span.buffer}[{span.offset + i}] is read before it is written", f"gpu {rank}")
            found.append(self.memory[address])
        return found

    def address(self, rank: int, buffer: str, offset: int) -> tuple[int, str, int]:
        if buffer == "o" and self.within:
            return rank, "i", offset + self.shift[rank]
        return rank, buffer, offset


def _place(rank: int, block: int, op: int) -> str:
    return f"gpu {rank} block {block} step {op}"

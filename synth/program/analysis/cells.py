"""Numbered cells, one for every chunk of every rank's buffers.

In place, a chunk of the input and a chunk of the output that share memory are one cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from synth.program.analysis.structure import NAMES
from synth.program.buffer_layout import Layout
from synth.program.straight_line import StraightLine


class Junk:
    """An invalid value, such as a sum that counts a rank twice, or a read of memory that was never written.

    `reason`: the cause as text. `place`: the op (gpu, block, step) that computed it.
    """

    def __init__(self, reason: str, place: tuple[int, int, int]) -> None:
        self.reason, self.place = reason, place


# (chunk, the ranks whose contributions it sums as a bit set; 0 where nothing combines); None: never written
Value = tuple[int, int] | Junk | None


@dataclass
class Memory:
    """The cells of `program` for one way to call it.

    `base[rank][buffer]`: the cell of the buffer's chunk 0. `values[cell]`: its content. Without `layout` each input
    chunk is a value of its own. `line`: the program, written out for one size of call.
    """

    line: StraightLine
    layout: Layout | None
    in_place: bool
    base: list[dict[str, int]] = field(init=False)
    values: list[Value] = field(init=False)

    def __post_init__(self) -> None:
        self.program = self.line.program
        self.base, self.values = [], []
        for gpu in self.program.gpus:
            # in place input and output are one range of cells, the smaller inside the larger
            shift = (self.layout.overlaps[gpu.rank] or 0) if self.layout is not None and self.in_place else None
            start = len(self.values)
            if shift is None:
                at = {"i": start, "o": start + gpu.input, "s": start + gpu.input + gpu.output}
                size = gpu.input + gpu.output
            else:
                at = {"i": start + max(0, -shift), "o": start + max(0, shift)}
                size = max(at["i"] + gpu.input, at["o"] + gpu.output) - start
                at["s"] = start + size
            self.base.append(at)
            self.values += [None] * (size + gpu.scratch)
            if self.layout is not None:
                task = self.layout.collective
                for k, chunk in enumerate(self.layout.inputs[gpu.rank]):
                    if k < gpu.input or (shift is not None and at["i"] + k < start + size):
                        self.values[at["i"] + k] = (chunk, 1 << gpu.rank if task.combining else 0)
            else:
                self.values[at["i"] : at["i"] + gpu.input] = [(at["i"] + k, 1) for k in range(gpu.input)]

    def wanted(self, rank: int) -> list[tuple[int, int, tuple[int, int]]]:
        """Return (offset in the output, cell, final value) for every chunk that `rank` must end with."""
        if self.layout is None:
            return []
        task, chunks = self.layout.collective, self.layout.chunks
        masks = {}
        demands = []
        for k, chunk in enumerate(self.layout.outputs[rank]):
            unit = chunk // chunks
            if task.combining and unit not in masks:
                masks[unit] = sum(1 << r for r in task.wanted(unit, rank))
            demands.append((k, self.base[rank]["o"] + k, (chunk, masks.get(unit, 0))))
        return demands

    def name(self, cell: int) -> str:
        """Return the name of the chunk that a cell is a part of, such as ``output 3 of rank 1``."""
        rank = max(r for r, at in enumerate(self.base) if min(at.values()) <= cell)
        gpu, at = self.program.gpus[rank], self.base[rank]
        sizes = {"o": gpu.output, "i": gpu.input, "s": gpu.scratch}
        buffer = next(b for b, size in sizes.items() if at[b] <= cell < at[b] + size)
        return f"{NAMES[buffer]} {(cell - at[buffer]) // self.line.scale(buffer)} of rank {rank}"


def add(a: Value, b: Value, place: tuple[int, int, int]) -> Value:
    """Return the sum of two values at op `place`.

    The result is Junk if a value is Junk or was never written, if the chunks differ, or if a rank is counted twice.
    """
    if isinstance(a, Junk):
        return a
    if isinstance(b, Junk):
        return b
    if a is None or b is None:
        return Junk("adds what was never written", place)
    if a[0] != b[0]:
        return Junk(f"adds chunk {b[0]} to chunk {a[0]}", place)
    if not a[1] or not b[1]:
        return Junk("adds in a collective that does not combine", place)
    if a[1] & b[1]:
        twice = (a[1] & b[1]).bit_length() - 1
        return Junk(f"counts rank {twice}'s contribution to chunk {a[0]} twice", place)
    return a[0], a[1] | b[1]

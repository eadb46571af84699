"""The division of a call's bytes into chunks, slices and parts, as the runtimes do it.

A chunk larger than one FIFO operation is moved in slices; all ops run once for each slice. Smaller chunks share an
operation, so an op of `count` chunks is divided into ceil(count / m) parts of at most m chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError, UsageError, unknown
from synth.model.collective import Collective
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES
from synth.program.straight_line import (
    UNIT,
    even_cells,
    loop_cells,
    loop_unit,
    scratch_stride,
    straight_line,
    turns,
    written_ops,
)
from synth.runtime.dtypes import Dtype

MAX_RUN_OPS = 1 << 21  # ops of a program written out for a run, which takes about a kilobyte for each


class IndivisibleError(SynthError):
    """Error of a size that gives no whole number of elements for each unit of data.

    `nearest`: the size in bytes that `rounded_size` gives. `rounding`: the sentence that says so.
    """

    def __init__(self, message: str, nearest: int, rounding: str) -> None:
        super().__init__(message)
        self.nearest, self.rounding = nearest, rounding


class Slicing(NamedTuple):
    """The division of a call.

    `elements`: of a chunk. `bounds`: (first, end) elements of each slice of one chunk.

    `part`: m, the maximum chunks of a part. `depth`: parts that a connection holds.
    """

    elements: int
    bounds: tuple[tuple[int, int], ...]
    part: int
    depth: int

    @property
    def step(self) -> int:
        """The elements of the longest slice."""
        return max((high - low for low, high in self.bounds), default=0)


def rounded_size(program: Program, size: int, kind: Dtype) -> int:
    """Return `size` rounded down to whole elements for each part of the data, as nccl-tests does; at least one each."""
    return whole_elements(program.loop_chunks // program.chunks, size, kind)


def whole_elements(parts: int, size: int, kind: Dtype) -> int:
    """Return `size` rounded down to whole elements for each of `parts` parts of the data; at least one each."""
    each = parts * kind.size
    return max(size // each, 1) * each


def rounding_text(parts: int, sizes: Sequence[int], kind: Dtype) -> tuple[str, ...]:
    """Return the sentence on the sizes that are rounded for `parts` parts of the data; none where no size is."""
    changes = [f"{size} to {run}" for size in sizes if (run := whole_elements(parts, size, kind)) != size]
    if not changes:
        return ()
    whole = f"whole {kind.name} elements" + (f" for each of {parts} parts of the data" if parts > 1 else "")
    more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
    return (f"sizes are rounded to {whole}: {', '.join(changes[:4])}{more} bytes",)


def written_out(program: Program, unit_bytes: int) -> Program:
    """Return `program` for a call with `unit_bytes` bytes a unit of data, without parts, loops and bounded scratch.

    Its chunks are pieces of those of `program`. Raises SynthError where it would have too many instructions.
    """
    if program.straight:
        return program
    chunk_bytes = max(1, -(-unit_bytes // program.chunks))
    cells, unit = even_cells(program), loop_unit(program)
    cell_bytes = -(-chunk_bytes // UNIT) * UNIT
    if unit is not None:
        if unit % cells:
            raise SynthError(
                f"{program.name}: its pipelines move {unit} bytes, which {cells} equal shares do not divide"
            )
        cells, cell_bytes = loop_cells(program, chunk_bytes)
        if written_ops(program, chunk_bytes) > MAX_RUN_OPS:
            loops = [loop for gpu in program.gpus for block in gpu.blocks for loop in block.loops]
            rounds = max(turns(loop, chunk_bytes) for loop in loops)
            raise SynthError(f"{program.name}: a pipeline has {rounds} turns in this call; choose a smaller size")
    stride = scratch_stride(program)
    if stride is not None and chunk_bytes <= stride:
        program = replace(program, scratch_bytes=None)
    elif stride is not None and stride < cell_bytes:
        raise SynthError(f"{program.name}: a chunk of {chunk_bytes} bytes, its scratch has {stride} for each")
    return straight_line(program, cells, 1 if unit is None else cell_bytes).program


def padding(program: Program, size: int, kind: Dtype) -> Padding:
    """Return the padding of a call of `size` bytes.

    Raises IndivisibleError for a size that gives no whole number of elements for each unit of data.
    """
    units = program.loop_chunks // program.chunks
    each = units * kind.size
    if size % each:
        below, above = size // each * each, (size // each + 1) * each
        near = f"{below} and {above} fit" if below else f"the least is {above}"
        parts = f"{units} parts of whole elements" if units > 1 else "whole elements"
        raise IndivisibleError(
            f"{program.name}: {size} bytes of {kind.name} do not divide into {parts}; sizes are multiples of {each} "
            f"bytes, {near}",
            rounded_size(program, size, kind),
            *rounding_text(units, [size], kind),
        )
    return Padding(size // each, program.chunks)


@dataclass(frozen=True, kw_only=True)
class FifoOptions:
    """Options of the FIFOs of a call, which every executor has.

    `protocol`: the protocol of the FIFOs. None: the program's.
    `depth`: the parts that a connection holds, 1 to 8. None: the protocol's.
    `part`: the maximum chunks of a part. None: as many as an operation takes.
    `runtime`: the runtime whose operations are imitated.
    """

    protocol: str | None = None
    depth: int | None = None
    part: int | None = None
    runtime: str = "synth"


DEFAULT_FIFOS = FifoOptions()


def cut(program: Program, count: int, kind: Dtype, options: FifoOptions = DEFAULT_FIFOS) -> Slicing:
    """Return the division of a call whose chunks have `count` elements each into slices and parts.

    Raises UsageError for options that make no sense.
    """
    used, depth, part, runtime = options.protocol or program.protocol, options.depth, options.part, options.runtime
    if used not in FIFO_DEPTH:
        raise UsageError(f"unknown protocol {used!r}; there are {', '.join(FIFO_DEPTH)}")
    if depth is not None and not 1 <= depth <= 8:
        raise UsageError(f"FIFO depth {depth}: connections hold 1 to 8 operations")
    if part is not None and part < 1:
        raise UsageError(f"parts of {part} chunks: at least 1")
    if runtime not in RUNTIMES:
        raise UsageError(unknown("runtime", runtime, list(RUNTIMES), "exporters"))
    if program.one_sided:
        return Slicing(count, ((0, count),), 1 << 30, depth or FIFO_DEPTH[used])
    name = program.collective.name if program.collective else "custom"
    capacity = RUNTIMES[runtime].operation_bytes(used, name) // kind.size  # elements of one FIFO operation
    step = max(1, min(capacity, count))
    bounds = tuple((low, min(low + step, count)) for low in range(0, count, step)) or ((0, 0),)
    return Slicing(count, bounds, part or max(1, capacity // max(1, count)), depth or FIFO_DEPTH[used])


# Padding of element counts that a program's chunks do not divide.
#
# A unit of u elements in C chunks has chunks of ceil(u/C) elements, for every rank and every unit alike. Chunk i begins
# at element i * ceil(u/C). Elements beyond u are padding, which is moved like data and never visible to the caller. So
# a program serves every count, and a program that is right for counts that its chunks divide is right for all.


class Padding(NamedTuple):
    """The cut of `unit` elements into `chunks` equally long chunks; places beyond the last element are padding."""

    unit: int
    chunks: int

    @property
    def elements(self) -> int:
        """Elements of one chunk, padding included."""
        return -(-self.unit // self.chunks)

    @property
    def row_elements(self) -> int:
        """Elements of a row of `layout`: of a unit where there is padding, else of a chunk."""
        return self.unit if self.padded else self.elements

    @property
    def padded(self) -> bool:
        """True if the chunks do not divide the unit, so that they hold padding."""
        return self.unit != self.elements * self.chunks

    def rows(self, values: np.ndarray, chunks: int) -> np.ndarray:
        """Return `values`, which are `chunks` chunks of whole units, as rows of one chunk each.

        Padding is 0; without padding the result is a view.
        """
        if not self.padded:
            return values.reshape(chunks, self.elements)
        result = np.zeros((chunks // self.chunks, self.chunks * self.elements), values.dtype)
        result[:, : self.unit] = values.reshape(-1, self.unit)
        return result.reshape(chunks, self.elements)

    def units(self, rows: np.ndarray) -> np.ndarray:
        """Return `rows` of one chunk each as rows of one unit each, without the padding: a view.

        Without padding, `rows` are returned as they are.
        """
        return rows.reshape(-1, self.chunks * self.elements)[:, : self.unit] if self.padded else rows

    def layout(self, task: Collective) -> Layout:
        """Return the layout of the rows that `units` returns: one chunk a unit where there is padding."""
        return Layout(task, 1 if self.padded else self.chunks)

    def count(self, chunks: int) -> int:
        """Return the elements of `chunks` chunks of whole units, without the padding."""
        return chunks // self.chunks * self.unit

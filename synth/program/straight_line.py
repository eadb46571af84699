"""A program for one size of call, written out: without parts, loops and bounded scratch.

A chunk becomes as many *cells* as it has pieces of `cell_bytes` bytes, and each cell is a chunk of the new program. An
op with a `Part` moves the cells of its share, a `Loop` is unrolled, and chunks of a bounded scratch begin where it puts
them. Each op of the new program knows the op that it comes from.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from synth.program.program import UNIT, Dep, Gpu, Loop, Op, Part, Program

OFFSET_BYTES = 1 << 32  # no chunk is larger: the kernel's offsets have 32 bits
MAX_TURNS = (1 << 16) - 1  # turns of a loop: the kernel counts them in 16 bits


class StraightLine(NamedTuple):
    """A program without parts, loops and bounded scratch.

    `scratch_cells`, `cells`: the chunks of `program` for each chunk, in scratch and elsewhere, of the program that it
    was made of. ``origin[rank, block]``: the op that each op of the block comes from; a block that is not listed has
    its own ops.
    """

    program: Program
    cells: int = 1
    scratch_cells: int = 1
    origin: dict[tuple[int, int], list[int]] = {}  # noqa: RUF012

    def step(self, rank: int, block: int, op: int) -> int:
        """Return the op that op `op` of `program` comes from."""
        ops = self.origin.get((rank, block))
        return op if ops is None else ops[op]

    def scale(self, buffer: str) -> int:
        """Return the number of cells of each chunk of `buffer`."""
        return self.scratch_cells if buffer == "s" else self.cells


def share(units: int, part: Part) -> tuple[int, int]:
    """Return the first unit and the end of a share of `units` units: the first shares have one more."""
    whole, more = divmod(units, part.of)
    first, end = (k * whole + min(k, more) for k in (part.index, part.index + 1))
    return first, end


def turns(loop: Loop, chunk_bytes: int) -> int:
    """Return the number of turns of `loop` in a call whose chunks have `chunk_bytes` bytes."""
    return -(-loop.chunks * chunk_bytes // loop.unit)


def scratch_stride(program: Program) -> int | None:
    """Return the maximum bytes of a chunk of scratch; None where a chunk has all its bytes at any size."""
    chunks = max((gpu.scratch for gpu in program.gpus), default=0)
    if program.scratch_bytes is None or not chunks:
        return None
    return -(-program.scratch_bytes // chunks // UNIT) * UNIT


def size_limit(program: Program) -> int | None:
    """Return the largest size in bytes at which chunks of scratch have all their bytes and loops no more turns than the
    kernel counts; None: any size."""
    sizes = []
    if (stride := scratch_stride(program)) is not None:
        sizes.append(stride * program.loop_chunks)
    for _, block in program.blocks():
        tops = [MAX_TURNS * loop.unit // loop.chunks for loop in block.loops]
        sizes += [top * program.loop_chunks for top in tops if top < OFFSET_BYTES]
    return min(sizes, default=None)


def even_cells(program: Program) -> int:
    """Return the least number of cells of a chunk with which every share of a part is a whole number of cells."""
    cells = 1
    for _, op in program.placed_ops():
        if op.part is not None:
            cells = math.lcm(cells, op.part.of // math.gcd(op.part.of, op.count))
    return cells


def loop_unit(program: Program) -> int | None:
    """Return the greatest number of bytes that divides the unit of every loop; None of a program without loops."""
    units = [loop.unit for _, block in program.blocks() for loop in block.loops]
    return math.gcd(*units) if units else None


def loop_cells(program: Program, chunk_bytes: int) -> tuple[int, int]:
    """Return (cells of a chunk of `chunk_bytes` bytes, bytes of a cell) for a program with loops.

    All turns move whole cells if the unit of each loop is a multiple of a cell, and all shares of a turn do if the unit
    has `even_cells` cells. So a cell is that share of the largest common unit, and the chunk is rounded up to units.
    """
    unit, even = loop_unit(program) or UNIT, even_cells(program)
    units = -(-chunk_bytes // unit)
    return units * even, unit // even


def written_ops(program: Program, chunk_bytes: int) -> int:
    """Return the number of ops of `program` written out for chunks of `chunk_bytes` bytes."""
    ops = program.ops
    for _, block in program.blocks():
        ops += sum((loop.end - loop.first) * (turns(loop, chunk_bytes) - 1) for loop in block.loops)
    return ops


def straight_line(program: Program, cells: int, cell_bytes: int) -> StraightLine:
    """Return `program` for a call whose chunks have `cells` cells of `cell_bytes` bytes each.

    The units of loops and the maximum chunk of scratch are whole cells.
    """
    if program.straight:
        return StraightLine(program)
    stride_bytes = scratch_stride(program)
    stride = None if stride_bytes is None else stride_bytes // cell_bytes
    scratch_cells = cells if stride is None else min(cells, stride)
    gpus, origin = [], {}
    for gpu in program.gpus:
        # The (op, turn) pairs of each block in order, turn -1 outside loops, and the place of each when written out.
        # The last turn of an op also has the turn -1.
        runs, places = [], []
        for block in gpu.blocks:
            run, at = [], 0
            for loop in sorted(block.loops):
                run += [(i, -1) for i in range(at, loop.first)]
                for turn in range(turns(loop, cells * cell_bytes)):
                    run += [(i, turn) for i in range(loop.first, loop.end)]
                at = loop.end
            runs.append(run + [(i, -1) for i in range(at, len(block.ops))])
            places.append({})
            for place, (i, turn) in enumerate(runs[-1]):
                places[-1][i, turn] = places[-1][i, -1] = place
        blocks = []
        for b, block in enumerate(gpu.blocks):
            units = {i: loop.unit // cell_bytes for loop in block.loops for i in range(loop.first, loop.end)}
            ops = []
            for i, turn in runs[b]:
                op, deps = block.ops[i], []
                for dep in op.deps:
                    # the first turns do not wait; an op without that turn stands for its last one
                    before = places[dep.block]
                    place = before.get((dep.op, turn - dep.turns if turn >= 0 else -1), before.get((dep.op, -1)))
                    if place is not None and (turn < 0 or turn >= dep.turns):
                        deps.append(Dep(dep.block, place))
                moved = _in_cells(op, turn, units.get(i, 0), cells, scratch_cells, stride)
                ops.append(moved._replace(deps=tuple(deps), part=None))
            origin[gpu.rank, b] = [i for i, _ in runs[b]]
            blocks.append(block._replace(ops=tuple(ops), loops=()))
        sizes = (gpu.input * cells, gpu.output * cells, gpu.scratch * scratch_cells)
        gpus.append(Gpu(gpu.rank, *sizes, tuple(blocks)))
    written = replace(program, chunks=program.chunks * cells, gpus=tuple(gpus), scratch_bytes=None)
    return StraightLine(written, cells, scratch_cells, origin)


def _in_cells(op: Op, turn: int, unit: int, cells: int, scratch_cells: int, stride: int | None) -> Op:
    """Return `op` with its spans in cells, in turn `turn` of `unit` cells; a nop if it moves none.

    `stride`: the cells after which turns begin anew in a chunk of scratch.
    """
    if not op.src and not op.dst:
        return op
    size, first = op.count * cells, 0
    if op.part is not None:
        first, end = share(size, op.part)
        size = end - first
    offset = max(0, turn) * unit
    if turn >= 0:
        # the kernel counts unsigned: from beyond the end it moves a whole unit
        size = min(size - offset, unit) if offset <= size else unit
    if size == 0:
        return Op("nop", deps=op.deps, flag=op.flag)
    sides = []
    for spans in (op.src, op.dst):
        side = []
        for span in spans:
            start = span.offset * cells + offset
            if span.buffer == "s":
                start = span.offset * scratch_cells + (offset if stride is None else offset % stride)
            side.append(span._replace(offset=start + first))
        sides.append(tuple(side))
    return op._replace(src=sides[0], dst=sides[1], count=size)

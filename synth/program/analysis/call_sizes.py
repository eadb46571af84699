"""The calls that stand for all sizes of a one-sided program whose parts, loops or scratch depend on the size.

*Parts.* Shares of a span keep their order at every size, so one call in which all shares are equal decides about all in
which no share is empty. An empty share drops accesses, which harms nobody, unless it is of packets: then it also drops
the waits for them. So where the least size leaves shares of packets empty, each such size is analysed.

*Loops.* Every event that turn k waits for is of turn k or before. So the turns of a call are the first turns of a
longer one, and the order of events within a turn, or between turns k and k + d, is the same for every k. Turns touch
the same memory only where they go round a bounded scratch. So a call with two turns decides about all in which no turn
comes round; larger calls are not analysed. Dependencies on a turn d turns before take d turns more, and so do d signals
outside loops on a port of a loop. Signals, waits and barriers that do not pair turn by turn, and loops over several
chunks that share only some, are refused: for them this does not hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from synth.program.program import Program
from synth.program.straight_line import (
    MAX_TURNS,
    UNIT,
    StraightLine,
    even_cells,
    loop_cells,
    loop_unit,
    scratch_stride,
    size_limit,
    straight_line,
    written_ops,
)

MAX_ANALYSED_OPS = 1 << 20  # ops of a program written out for analysis, which has values and clocks for each


class SizeLimit(NamedTuple):
    """The largest size in bytes that the scratch, or the kernel's count of turns, allows, and the reason."""

    size: int
    reason: str


class CallSizes(NamedTuple):
    """The calls to analyse.

    `lines`: the program written out for calls that stand for all sizes up to `limit` (None: for all sizes).
    """

    lines: tuple[StraightLine, ...]
    limit: SizeLimit | None = None


def call_sizes(program: Program) -> CallSizes:
    """Return the calls to analyse of a `program` without structural faults."""
    if program.straight:
        return CallSizes((StraightLine(program),))
    cells, unit, limit = even_cells(program), loop_unit(program), _scratch_limit(program)
    if unit is not None:
        unbounded = replace(program, scratch_bytes=None)  # as it is where no turn comes round
        line = straight_line(unbounded, *loop_cells(unbounded, _least_chunk(program)))
        top = size_limit(unbounded)
        if top is not None and (limit is None or top <= limit.size):
            limit = SizeLimit(top, f"a pipeline has more than {MAX_TURNS} turns")
        return CallSizes((line,), limit)
    lines = [straight_line(program, cells, 1)]
    lines += [straight_line(program, units, UNIT) for units in _sizes_with_empty_packets(program)]
    return CallSizes(tuple(lines), limit)


def written_size(program: Program) -> tuple[int, int]:
    """Return the numbers of cells and of ops of the least call to analyse, before it is written out.

    Of a program without loops, the cells of all calls together.
    """
    chunks = sum(gpu.chunks for gpu in program.gpus)
    cells, unit = even_cells(program), loop_unit(program)
    if unit is None:
        return chunks * (cells + sum(_sizes_with_empty_packets(program))), program.ops
    size = _least_chunk(program)
    return chunks * loop_cells(program, size)[0], written_ops(program, size)


def _least_chunk(program: Program) -> int:
    """Return the bytes of a chunk with which every loop has two turns, and as many more as an op can wait back."""
    # two turns show all orders between neighbouring turns
    piece = max(loop.unit for _, block in program.blocks() for loop in block.loops)
    # the most turns that an op waits back, by a dependency or by signals outside loops on the same port
    back = 0
    for _, block in program.blocks():
        back = max(back, *(dep.turns for op in block.ops for dep in op.deps), 0)
        inside = {i for loop in block.loops for i in range(loop.first, loop.end)}
        turning = {block.ports[p] for i in inside for p in block.ops[i].ports}
        ahead = Counter()
        for i, op in enumerate(block.ops):
            if i not in inside and op.code in ("signal", "wait"):
                ahead.update((op.code, block.ports[p]) for p in op.ports if block.ports[p] in turning)
        back = max(back, *ahead.values(), 0)
    return piece * (2 + back)


def _sizes_with_empty_packets(program: Program) -> range:
    """Return the sizes of a chunk, in units, at which some share of packets is empty."""
    units = 0
    for _, op in program.placed_ops():
        if op.part is not None and any(span.packet for span in op.spans):
            units = max(units, -(-op.part.of // op.count))
    least = max(1, -(-program.min_bytes // (program.loop_chunks * UNIT)))
    return range(least, max(units, least))


def _scratch_limit(program: Program) -> SizeLimit | None:
    """Return the size up to which every chunk of scratch has all its bytes."""
    stride = scratch_stride(program)
    if stride is None:
        return None
    # a scratch chunk holds the bytes of one chunk, which a loop over several shares out
    inside = [loop.chunks for _, block in program.blocks() for loop in block.loops]
    stride = stride // max(inside, default=1) // UNIT * UNIT  # a loop over several chunks comes round after one
    return SizeLimit(
        stride * program.loop_chunks, f"chunks are larger than the {stride} bytes that each has of the scratch"
    )

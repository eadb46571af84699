"""From a size in bytes to chunks, slices and parts: how the runtimes cut what a program moves.

A chunk larger than one FIFO operation is moved in slices, all ops running once for each; smaller chunks share an
operation, so an op of `count` chunks falls into ceil(count / m) parts of at most m chunks.
"""

from __future__ import annotations

from typing import NamedTuple

from synth.errors import SynthError, UsageError, unknown
from synth.program.program import Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES
from synth.runtime.dtypes import Dtype
from synth.runtime.padding import Padding


class IndivisibleError(SynthError):
    """A size that is no whole number of elements a unit of data; `nearest` bytes is one, 0 where none below it is."""

    def __init__(self, message: str, nearest: int) -> None:
        super().__init__(message)
        self.nearest = nearest


class Cut(NamedTuple):
    """How a call is cut. `bounds`: element ranges of the slices of one chunk. `part`: m, the most chunks of a part."""

    elements: int
    bounds: tuple[tuple[int, int], ...]
    part: int
    depth: int


def padding(program: Program, size: int, kind: Dtype) -> Padding:
    """How a call of `size` bytes falls into chunks. Raises IndivisibleError for a size that no call of the collective
    has."""
    units = program.loop_chunks // program.chunks
    each = units * kind.size
    if size % each:
        below, above = size // each * each, (size // each + 1) * each
        near = f"{below} and {above} fit" if below else f"the least is {above}"
        parts = f"{units} parts of whole elements" if units > 1 else "whole elements"
        raise IndivisibleError(
            f"{program.name}: {size} bytes of {kind.name} do not divide into {parts}; sizes are multiples of {each} "
            f"bytes, {near}",
            below,
        )
    return Padding(size // each, program.chunks)


def cut(
    program: Program,
    count: int,
    kind: Dtype,
    *,
    protocol: str | None = None,
    depth: int | None = None,
    part: int | None = None,
    runtime: str = "synth",
) -> Cut:
    """The cut of a call with `count` elements per chunk, as `runtime` makes it by default.

    `protocol` overrides the program's, `depth` the parts that a connection holds (1 to 8), `part` m. Raises SynthError.
    """
    used = protocol or program.protocol
    if used not in FIFO_DEPTH:
        raise UsageError(f"unknown protocol {used!r}; there are {', '.join(FIFO_DEPTH)}")
    if depth is not None and not 1 <= depth <= 8:
        raise UsageError(f"FIFO depth {depth}: connections hold 1 to 8 operations")
    if part is not None and part < 1:
        raise UsageError(f"parts of {part} chunks: at least 1")
    if runtime not in RUNTIMES:
        raise UsageError(unknown("runtime", runtime, list(RUNTIMES), "exporters"))
    if program.one_sided:
        return Cut(count, ((0, count),), 1 << 30, depth or FIFO_DEPTH[used])
    room = (
        RUNTIMES[runtime].operation_bytes(used, program.collective.name if program.collective else "custom")
        // kind.size
    )
    step = max(1, min(room, count))
    bounds = tuple((low, min(low + step, count)) for low in range(0, count, step)) or ((0, 0),)
    return Cut(count, bounds, part or max(1, room // max(1, count)), depth or FIFO_DEPTH[used])

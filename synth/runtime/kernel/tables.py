"""A two-sided Program as the flat arrays that the kernel walks over.

The records mirror the kernel's structs byte by byte; what their fields mean stands there (kernel/tables.cuh). Buffers
are numbered 3 * rank + 0, 1, 2 for input, output and scratch; blocks of all ranks and connections are numbered through,
as in
`compiled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError, UsageError, VerificationError
from synth.program.direct_writes import Place
from synth.program.program import BUFFERS, REDUCING, TWO_SIDED, Program
from synth.runtime.kernel.sources import LL
from synth.runtime.reference.op_tables import Compiled, Step
from synth.runtime.slicing import Cut

BLOCK = np.dtype([("op0", "i4"), ("nops", "i4"), ("into", "i4"), ("out", "i4")])
OP = np.dtype(
    [
        ("flags", "i4"),
        ("src", "i4"),
        ("dst", "i4"),
        ("count", "i4"),
        ("dep0", "i4"),
        ("ndep", "i4"),
        ("src_at", "i8"),
        ("dst_at", "i8"),
        ("put_at", "i8"),
        ("put", "i4"),
        ("padding", "i4"),
    ]
)
DEP = np.dtype([("block", "i4"), ("op", "i4")])
CONN = np.dtype([("fifo", "u8"), ("tail", "u8"), ("head", "u8"), ("entry", "u8"), ("sent", "u8"), ("taken", "u8")])
STATUS = np.dtype([("kind", "i4"), ("op", "i4"), ("slice", "i4"), ("part", "i4"), ("what", "i4"), ("padding", "i4")])
LAUNCH = np.dtype([("beat", "u8"), ("blocks", "u8")])
PROG = np.dtype(
    [
        ("blocks", "u8"),
        ("ops", "u8"),
        ("deps", "u8"),
        ("conns", "u8"),
        ("buffers", "u8"),
        ("done", "u8"),
        ("run", "u8"),
        ("beat", "u8"),
        ("abort", "u8"),
        ("status", "u8"),
        ("launches", "u8"),
        ("clock", "u8"),
        ("elements", "i8"),
        ("step", "i8"),
        ("timeout", "u8"),
        ("nblocks", "i4"),
        ("slices", "i4"),
        ("part", "i4"),
        ("nslots", "i4"),
        ("slot_chunks", "i4"),
        ("nlaunches", "i4"),
    ]
)
RECORDS = (BLOCK, OP, DEP, CONN, STATUS, LAUNCH, PROG)
RECEIVES, SENDS, REDUCES, READS, WRITES, PUBLISHES, PUTS, LANDED = (1 << k for k in range(8))
RUNNING, ENDED, WAITS_DATA, WAITS_CREDIT, WAITS_DEP, WRONG_GRID, WAITS_ENTRY, WAITS_TURN = range(8)
MAX_SLICES, MAX_OPS, MAX_INT = 1 << 24, (1 << 16) - 1, (1 << 31) - 1


class Tables(NamedTuple):
    """What stays the same in every launch. `balanced`: each connection takes all that is sent, so launches can follow
    one another."""

    blocks: np.ndarray
    ops: np.ndarray
    deps: np.ndarray
    balanced: bool
    slot_chunks: int


def tables(code: Compiled, cut: Cut, puts: Mapping[Place, Place] | None = None) -> Tables:
    """The arrays of a compiled program. `puts`: the sends that may write the receiver's buffer, with their receives
    (`synth.program.direct_writes`); kernels without direct put take them as all others. Raises UsageError for a
    one-sided program, SynthError for what the kernel cannot hold, VerificationError where a message is taken as another
    number of chunks than was sent."""
    program = code.program
    if program.one_sided or any(step.code not in TWO_SIDED for steps in code.steps for step in steps):
        raise UsageError(
            f"{program.name} is one-sided (MSCCL++ style); this executor runs programs of sends and receives: use "
            f"reference"
        )
    if max((len(steps) for steps in code.steps), default=0) > MAX_OPS or len(cut.bounds) > MAX_SLICES:
        raise SynthError(
            f"{program.name}: more than {MAX_OPS} ops a block or {MAX_SLICES} slices; choose a smaller size"
        )
    awaited = {dep for steps in code.steps for step in steps for dep in step.deps}
    blocks, ops, deps = np.zeros(len(code.place), BLOCK), np.zeros(sum(map(len, code.steps)), OP), []
    at = 0
    for b, steps in enumerate(code.steps):
        blocks[b] = (at, len(steps), code.into[b], code.out[b])
        for i, step in enumerate(steps):
            ops[at + i] = _row(program, code, b, i, step, len(deps), (b, i) in awaited)
            deps += step.deps
        at += len(steps)
    number = {place: b for b, place in enumerate(code.place)}
    for send, receive in (puts or {}).items():
        here, there = (int(blocks[number[rank, b]]["op0"]) + i for rank, b, i in (send, receive))
        ops[here]["flags"] |= PUTS
        ops[here]["put"], ops[here]["put_at"] = ops[there]["dst"], ops[there]["dst_at"]
        ops[there]["flags"] |= LANDED
    balanced = False not in [_paired(code, cut, w) for w in range(len(code.wires))]  # all are looked at
    most = max((step.count for steps in code.steps for step in steps if step.sends or step.receives), default=1)
    return Tables(blocks, ops, np.array(deps or [(0, 0)], DEP), balanced, min(cut.part, most))


def slot_bytes(tables: Tables, step: int, size: int, feature: str) -> int:
    """Of one slot of a FIFO, for slices of `step` elements of `size` bytes: lines of 16 bytes for 8 of data, where
    there are packets."""
    return tables.slot_chunks * (-(-step * size // 8) * 16 if feature == LL else step * size)


def finer(cut: Cut, most: int) -> Cut:
    """`cut` with slices of at most `most` elements of a chunk (at least 1), in whole 64 bytes where that leaves any.
    The parts of an op stay as they were, so each slice waits for the same messages: what cannot deadlock before cannot
    after."""
    step = max((high - low for low, high in cut.bounds), default=0)
    if step <= most:
        return cut
    most = max(1, most // 64 * 64 or most, -(-cut.elements // MAX_SLICES))
    return cut._replace(bounds=tuple((low, min(low + most, cut.elements)) for low in range(0, cut.elements, most)))


def _row(program: Program, code: Compiled, b: int, i: int, step: Step, dep0: int, awaited: bool) -> tuple:
    rank, block = code.place[b]
    op = program.gpus[rank].blocks[block].ops[i]
    flags = (
        RECEIVES * step.receives | SENDS * step.sends | REDUCES * (step.code in REDUCING) | READS * bool(step.src)
        | WRITES * bool(step.dst) | PUBLISHES * awaited
    )  # fmt: skip
    if (
        step.src
        and step.dst
        and step.src[0].row != step.dst[0].row
        and abs(step.src[0].row - step.dst[0].row) < step.count
    ):
        raise SynthError(
            f"{code.where(b, i)}: source and destination overlap in part; threads would read what others have "
            f"overwritten"
        )
    src = (3 * rank + BUFFERS.index(op.src[0].buffer), op.src[0].offset) if step.src else (0, 0)
    dst = (3 * rank + BUFFERS.index(op.dst[0].buffer), op.dst[0].offset) if step.dst else (0, 0)
    return flags, src[0], dst[0], step.count, dep0, len(step.deps), src[1], dst[1], 0, 0, 0


def _paired(code: Compiled, cut: Cut, w: int) -> bool:
    """Whether what is sent on a connection is just what is taken. Raises VerificationError where the sizes of two
    messages differ."""
    wire = code.wires[w]
    sent, taken = _parts(code, cut, wire.sender, True), _parts(code, cut, wire.receiver, False)
    for (size, op), (other, into) in zip(sent, taken, strict=False):
        if size != other and wire.sender is not None and wire.receiver is not None:
            here, there = code.where(wire.receiver, into), code.where(wire.sender, op)
            raise VerificationError(f"{here} takes {other} chunks, but what arrives is {size} chunks of {there}")
    return len(sent) == len(taken)


def _parts(code: Compiled, cut: Cut, block: int | None, sends: bool) -> list[tuple[int, int]]:
    """The messages of one slice at one end of a connection: how many chunks, and of which op."""
    if block is None:
        return []
    return [
        (min(cut.part, step.count - first), i)
        for i, step in enumerate(code.steps[block])
        if (step.sends if sends else step.receives)
        for first in range(0, step.count, cut.part)
    ]

"""A two-sided Program as the flat arrays that the kernel reads, and the records of all arrays.

The records mirror the kernel's structs byte by byte; kernel/tables.cuh says what their fields mean. Buffer
3 * rank + 0, 1, 2 is the input, output and scratch of a rank. Blocks and connections of all ranks have consecutive
numbers, as in `compiled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from synth.errors import SynthError, VerificationError
from synth.program.direct_writes import Place
from synth.program.program import BUFFERS, REDUCING
from synth.runtime.kernel.sources import LL
from synth.runtime.reference.op_tables import CompiledOp, CompiledProgram
from synth.runtime.slicing import Slicing

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
ACT = np.dtype(
    [
        ("kind", "i4"),
        ("flags", "i4"),
        ("count", "i4"),
        ("pairs", "i4"),
        ("dep0", "i4"),
        ("ndep", "i4"),
        ("src0", "i4"),
        ("nsrc", "i4"),
        ("dst0", "i4"),
        ("ndst", "i4"),
        ("port0", "i4"),
        ("nports", "i4"),
    ]
)
TERM = np.dtype([("buffer", "i4"), ("flag", "i4"), ("at", "i8")])
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
        ("acts", "u8"),
        ("terms", "u8"),
        ("elements", "i8"),
        ("step", "i8"),
        ("stride", "i8"),
        ("timeout", "u8"),
        ("nblocks", "i4"),
        ("slices", "i4"),
        ("part", "i4"),
        ("nslots", "i4"),
        ("slot_chunks", "i4"),
        ("nlaunches", "i4"),
        ("sleeps", "i4"),
        ("padding", "i4"),
    ]
)
RECORDS = (BLOCK, OP, DEP, CONN, STATUS, LAUNCH, PROG)
ONE_SIDED_RECORDS = (ACT, TERM)
RECEIVES, SENDS, REDUCES, READS, WRITES, PUBLISHES, PUTS, LANDED = (1 << k for k in range(8))
RUNNING, ENDED, WAITS_DATA, WAITS_CREDIT, WAITS_DEP, WRONG_GRID, WAITS_ENTRY, WAITS_TURN = range(8)
WAITS_SIGNAL, WAITS_BARRIER, WAITS_PACKETS = range(8, 11)
MAX_SLICES, MAX_OPS, MAX_INT = 1 << 24, (1 << 16) - 1, (1 << 31) - 1


class Tables(NamedTuple):
    """The arrays that stay the same in every launch.

    `balanced`: each connection takes as many messages (signals) as are sent, so launches can follow one another.
    `slot_chunks`: chunks of a FIFO slot. `acts`, `terms`: the ops of a one-sided program, which has no `ops`, and their
    operands. `ends`: the sending and the receiving rank of each connection. `events`: of a one-sided program, the event
    that each connection counts, as the kind and the object of a `WaitReason`.
    """

    blocks: np.ndarray
    ops: np.ndarray
    deps: np.ndarray
    balanced: bool
    slot_chunks: int
    ends: tuple[tuple[int, int], ...]
    acts: np.ndarray = np.zeros(1, ACT)
    terms: np.ndarray = np.zeros(1, TERM)
    events: tuple[tuple[str, Any], ...] = ()


def tables(code: CompiledProgram, cut: Slicing, puts: Mapping[Place, Place] | None = None) -> Tables:
    """Return the arrays of a compiled program.

    `puts`: the sends that may write the receiver's buffer, with their receives (`synth.program.direct_writes`). Kernels
    without direct put treat them as all other sends. Raises SynthError for more ops or slices than the kernel can hold,
    VerificationError where a receive takes another number of chunks than was sent.
    """
    check_sizes(code, len(cut.bounds))
    published = published_ops(code)
    blocks, ops, deps = np.zeros(len(code.place), BLOCK), np.zeros(sum(map(len, code.steps)), OP), []
    at = 0
    for b, steps in enumerate(code.steps):
        blocks[b] = (at, len(steps), code.into[b], code.out[b])
        for i, step in enumerate(steps):
            ops[at + i] = _row(code, (b, i), step, len(deps), (b, i) in published)
            deps += step.deps
        at += len(steps)
    number = {place: b for b, place in enumerate(code.place)}
    for send, receive in (puts or {}).items():
        source, target = (int(blocks[number[rank, b]]["op0"]) + i for rank, b, i in (send, receive))
        ops[source]["flags"] |= PUTS
        ops[source]["put"], ops[source]["put_at"] = ops[target]["dst"], ops[target]["dst_at"]
        ops[target]["flags"] |= LANDED
    pairs = [_paired(code, cut, w) for w in range(len(code.wires))]  # all are evaluated, since each may raise
    largest = max((step.count for steps in code.steps for step in steps if step.sends or step.receives), default=1)
    ends = tuple((wire.src, wire.dst) for wire in code.wires)
    return Tables(blocks, ops, np.array(deps or [(0, 0)], DEP), all(pairs), min(cut.part, largest), ends)


def check_sizes(code: CompiledProgram, slices: int) -> None:
    """Raise SynthError for more ops of a block, or slices, than the kernel can hold."""
    if max((len(steps) for steps in code.steps), default=0) > MAX_OPS or slices > MAX_SLICES:
        raise SynthError(
            f"{code.program.name}: more than {MAX_OPS} ops a block or {MAX_SLICES} slices; choose a smaller size"
        )


def published_ops(code: CompiledProgram) -> set[tuple[int, int]]:
    """Return the ops (block, op) that others wait for."""
    published: set[tuple[int, int]] = set()
    for steps in code.steps:
        for step in steps:
            published.update(step.deps)
    return published


def overlap_message(where: str) -> str:
    """Return the message against the op `where`, of which some operands overlap in part."""
    return f"{where}: source and destination overlap in part; threads would read what others have overwritten"


def slot_bytes(tables: Tables, step: int, size: int, feature: str) -> int:
    """Return the bytes of one FIFO slot if slices have `step` elements of `size` bytes.

    With the feature LL a slot holds packets: a line of 16 bytes for 8 bytes of data.
    """
    return tables.slot_chunks * (-(-step * size // 8) * 16 if feature == LL else step * size)


def with_smaller_slices(cut: Slicing, most: int) -> Slicing:
    """Return `cut` with slices of at most `most` elements of a chunk (at least 1), unless that makes too many slices.

    The new slices have a multiple of 64 elements where `most` is at least 64. Where a chunk would have more than
    `MAX_SLICES` slices they are as much longer as that needs. The parts of an op stay the same, so each slice waits
    for the same messages: a program that cannot deadlock with `cut` cannot with the result.
    """
    step = max((high - low for low, high in cut.bounds), default=0)
    if step <= most:
        return cut
    step = max(1, most // 64 * 64 or most, -(-cut.elements // MAX_SLICES))
    return cut._replace(bounds=tuple((low, min(low + step, cut.elements)) for low in range(0, cut.elements, step)))


def _row(code: CompiledProgram, at: tuple[int, int], step: CompiledOp, dep0: int, published: bool) -> tuple:
    """Return the record of the op `at` (block, op). `dep0`: its first dependency. `published`: others wait for it."""
    b, i = at
    rank, block = code.place[b]
    op = code.program.gpus[rank].blocks[block].ops[i]
    flags = (
        RECEIVES * step.receives | SENDS * step.sends | REDUCES * (step.code in REDUCING) | READS * bool(step.src)
        | WRITES * bool(step.dst) | PUBLISHES * published
    )  # fmt: skip
    if (
        step.src
        and step.dst
        and step.src[0].row != step.dst[0].row
        and abs(step.src[0].row - step.dst[0].row) < step.count
    ):
        raise SynthError(overlap_message(code.where(b, i)))
    src = (3 * rank + BUFFERS.index(op.src[0].buffer), op.src[0].offset) if step.src else (0, 0)
    dst = (3 * rank + BUFFERS.index(op.dst[0].buffer), op.dst[0].offset) if step.dst else (0, 0)
    return flags, src[0], dst[0], step.count, dep0, len(step.deps), src[1], dst[1], 0, 0, 0


def _paired(code: CompiledProgram, cut: Slicing, w: int) -> bool:
    """Return True where connection `w` takes as many messages as are sent on it.

    Raises VerificationError where the sizes of a sent and a taken message differ.
    """
    wire = code.wires[w]
    sent, taken = _parts(code, cut, wire.sender, True), _parts(code, cut, wire.receiver, False)
    for (sent_chunks, send), (taken_chunks, receive) in zip(sent, taken, strict=False):
        if sent_chunks != taken_chunks and wire.sender is not None and wire.receiver is not None:
            receiver, sender = code.where(wire.receiver, receive), code.where(wire.sender, send)
            raise VerificationError(
                f"{receiver} takes {taken_chunks} chunks, but what arrives is {sent_chunks} chunks of {sender}"
            )
    return len(sent) == len(taken)


def _parts(code: CompiledProgram, cut: Slicing, block: int | None, sends: bool) -> list[tuple[int, int]]:
    """Return (chunks, op) of each message of one slice at one end of a connection."""
    parts: list[tuple[int, int]] = []
    for i, step in enumerate(code.steps[block] if block is not None else ()):
        if step.sends if sends else step.receives:
            parts += [(min(cut.part, step.count - first), i) for first in range(0, step.count, cut.part)]
    return parts

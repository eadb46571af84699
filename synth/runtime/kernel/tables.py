"""A two-sided Program as the flat arrays that the kernel reads, and the records of all arrays.

The records mirror the kernel's structs byte by byte; kernel/tables.cuh says what their fields mean. Buffer
3 * rank + 0, 1, 2 is the input, output and scratch of a rank. Blocks and connections of all ranks have consecutive
numbers, as in `compiled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from synth.errors import SynthError, VerificationError
from synth.program.direct_writes import Place as OpPlace
from synth.program.program import BUFFERS, REDUCING, Span
from synth.runtime.kernel.sources import LL
from synth.runtime.reference.op_tables import CompiledProgram, Connection, Place
from synth.runtime.slicing import Slicing


def record(fields: str) -> np.dtype:
    """Return the type of a record whose fields are written as in C, ``i4 first second; u8 third``."""
    found = []
    for part in fields.split(";"):
        kind, *names = part.split()
        found += [(name, kind) for name in names]
    return np.dtype(found)


BLOCK = record("i4 op0 nops into out")
OP = record("i4 flags src dst count dep0 ndep; i8 src_at dst_at put_at; i4 put padding")
ACT = record("i4 kind flags count pairs dep0 ndep src0 nsrc dst0 ndst port0 nports")
TERM = record("i4 buffer flag; i8 at")
DEP = record("i4 block op")
CONN = record("u8 fifo tail head entry sent taken")
STATUS = record("i4 kind op slice part what padding")
LAUNCH = record("u8 beat blocks")
PROG = record(
    "u8 blocks ops deps conns buffers done run beat abort status launches clock acts terms;"
    "i8 elements step stride; u8 timeout; i4 nblocks slices part nslots slot_chunks nlaunches sleeps padding"
)
RECORDS = (BLOCK, OP, DEP, CONN, STATUS, LAUNCH, PROG)
ONE_SIDED_RECORDS = (ACT, TERM)
RECEIVES, SENDS, REDUCES, READS, WRITES, PUBLISHES, PUTS, LANDED = (1 << k for k in range(8))
RUNNING, ENDED, WAITS_DATA, WAITS_CREDIT, WAITS_DEP, WRONG_GRID, WAITS_ENTRY, WAITS_TURN = range(8)
WAITS_SIGNAL, WAITS_BARRIER, WAITS_PACKETS = range(8, 11)
MAX_SLICES, MAX_OPS, MAX_INT = 1 << 24, (1 << 16) - 1, (1 << 31) - 1


def address(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    return array.__array_interface__["data"][0]


def kernel_argument(arrays: Mapping[str, np.ndarray], **values: int) -> np.ndarray:
    """Return a kernel's argument: a `PROG` with the addresses of `arrays`, and `values`, in the fields of their
    names."""
    prog = np.zeros((), PROG)
    for name, array in arrays.items():
        prog[name] = address(array)
    for name, value in values.items():
        prog[name] = value
    return prog


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


def tables(code: CompiledProgram, cut: Slicing, puts: Mapping[OpPlace, OpPlace] | None = None) -> Tables:
    """Return the arrays of a compiled program.

    `puts`: the sends that may write the receiver's buffer, with their receives (`synth.program.direct_writes`). Kernels
    without direct put treat them as all other sends. Raises SynthError for more ops or slices than the kernel can hold,
    VerificationError where a receive takes another number of chunks than was sent.
    """
    check_sizes(code, len(cut.bounds))
    published = published_ops(code)
    blocks, ops, deps = np.zeros(len(code.place), BLOCK), np.zeros(sum(map(len, code.steps)), OP), []
    at, number = 0, {}  # by rank, block and op: the number of the op
    for b, ((rank, block), steps) in enumerate(zip(code.place, code.steps, strict=True)):
        blocks[b] = (at, len(steps), code.into[b], code.out[b])
        for i, step in enumerate(steps):
            check_overlap(code, b, i)
            row, spans = ops[at], code.program.gpus[rank].blocks[block].ops[i]
            row["flags"] = (
                RECEIVES * step.receives | SENDS * step.sends | REDUCES * (step.code in REDUCING)
                | READS * bool(step.src) | WRITES * bool(step.dst) | PUBLISHES * ((b, i) in published)
            )  # fmt: skip
            row["count"], row["dep0"], row["ndep"] = step.count, len(deps), len(step.deps)
            if step.src:
                row["src"], row["src_at"] = operand(step.src[0], spans.src[0])
            if step.dst:
                row["dst"], row["dst_at"] = operand(step.dst[0], spans.dst[0])
            deps += step.deps
            number[rank, block, i] = at
            at += 1
    for send, receive in (puts or {}).items():
        source, target = ops[number[send]], ops[number[receive]]
        source["flags"] |= PUTS
        source["put"], source["put_at"] = target["dst"], target["dst_at"]
        target["flags"] |= LANDED
    pairs = [_paired(code, cut, wire) for wire in code.wires]  # all are evaluated, since each may raise
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
    if cut.step <= most:
        return cut
    step = max(1, most // 64 * 64 or most, -(-cut.elements // MAX_SLICES))
    return cut._replace(bounds=tuple((low, min(low + step, cut.elements)) for low in range(0, cut.elements, step)))


def operand(place: Place, span: Span) -> tuple[int, int]:
    """Return the number of the buffer of a span, and its first chunk there."""
    return 3 * place.rank + BUFFERS.index(span.buffer), span.offset


def check_overlap(code: CompiledProgram, b: int, i: int) -> None:
    """Raise SynthError where operands of op `i` of block `b` overlap in part: threads would read what others wrote."""
    step = code.steps[b][i]
    for one, other in combinations((*step.src, *step.dst), 2):
        if one.rank == other.rank and 0 < abs(one.row - other.row) < step.count:
            raise SynthError(
                f"{code.where(b, i)}: source and destination overlap in part; threads would read what others have "
                f"overwritten"
            )


def _paired(code: CompiledProgram, cut: Slicing, wire: Connection) -> bool:
    """Return True where a connection takes as many messages as are sent on it.

    Raises VerificationError where the sizes of a sent and a taken message differ.
    """
    ends: list[list[tuple[int, int, int]]] = []  # of each message of one slice: its chunks, block and op
    for block, verb in ((wire.sender, "sends"), (wire.receiver, "receives")):
        parts = []
        for i, step in enumerate(() if block is None else code.steps[block]):
            for first in range(0, step.count if getattr(step, verb) else 0, cut.part):
                parts.append((min(cut.part, step.count - first), block, i))
        ends.append(parts)
    for sent, taken in zip(*ends, strict=False):
        if sent[0] != taken[0]:
            receive, send = code.where(*taken[1:]), code.where(*sent[1:])
            raise VerificationError(
                f"{receive} takes {taken[0]} chunks, but what arrives is {sent[0]} chunks of {send}"
            )
    return len(ends[0]) == len(ends[1])

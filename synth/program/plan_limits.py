"""Limits of one MSCCL++ execution plan (microsoft/mscclpp 0.9 and 0.10: execution_common.hpp, execution_plan.cc,
execution_kernel.hpp).

The loader checks only the number of operations; the other limits are sizes of fixed arrays that it writes past.
"""

from __future__ import annotations

from synth.program.program import Gpu, Op, Program

VERSIONS = ("0.9", "0.10")  # of MSCCL++, whose formats plans are written in
NEWEST = VERSIONS[-1]
BLOCK_OPS = 64  # operations of a thread block
BLOCK_CHANNELS = 16  # channels of one kind that a thread block uses
BLOCK_BUFFERS = 16  # remote buffers that a thread block reaches through one kind of channel
OP_CHANNELS = 8  # channels of one operation
OP_BUFFERS = 10  # source buffers, and destination buffers, of one operation
BARRIERS = 16  # barriers of a rank
OP_SEMAPHORES = 16  # semaphores of one operation
OFFSET_BYTES = (1 << 32) - 1  # offsets are 32 bit
ALIGNMENT = 16  # buffer_alignment: every chunk is a multiple of so many bytes
SCRATCH_BYTES = 1 << 26  # of a scratch that plans share (`reuse_resources`); packets take twice as much memory
# blocks of 1024 threads, one a multiprocessor: all must be resident at once, and a V100 has 80 multiprocessors
GPU_BLOCKS = 80
# Port channels of a rank, each a queue pair of its NIC, above which a plan is made of fewer thread blocks. MSCCL++ sets
# no limit, but a NIC keeps the state of a few hundred connections at hand only.
RANK_PORTS = 256
# The most sends of a schedule that a tuner offers to MSCCL++: those of a reduce-scatter and an allgather on 144 ranks
# (two boxes of 72), with one chunk a rank, fit. Of so many sends a plan is written, proved and run in two minutes.
PLAN_SENDS = 3 << 14


def holds_all_pairs(ranks: int) -> bool:
    """Return True if a plan may hold a send between each two of `ranks` ranks, both ways."""
    return ranks * (ranks - 1) <= PLAN_SENDS


def scratch_bytes(double: bool) -> int:
    """Return the bytes of data in a scratch that plans share; `double`: launches use two halves of it in turn."""
    return SCRATCH_BYTES // (1 + double)


def chunk_counts(gpu: Gpu) -> tuple[int, int]:
    """Return `input_chunks` and `output_chunks` of a plan: at least 1 each."""
    return gpu.input or gpu.output or 1, gpu.output or gpu.input or 1


def counted_side(program: Program) -> int:
    """Return the index in `chunk_counts` of the buffer whose size is MSCCL++'s message size: 0, the input; for
    allgather 1, the output."""
    return int(program.collective is not None and program.collective.name == "allgather")


def largest_size(program: Program) -> int:
    """Return the largest size in bytes (nccl-tests' size) for which every offset fits 32 bits in any allocation.

    A packet takes twice its chunk's bytes, and every second launch begins in the middle of the scratch. The loader
    sizes the scratch by the allocation that the input lies in, up to the largest message: in place an allgather's input
    lies in its whole output.
    """
    counts = [chunk_counts(gpu) for gpu in program.gpus]
    scratch = max((gpu.scratch for gpu in program.gpus), default=0)
    if program.scratch_bytes is not None:
        scratch = 0
    if program.protocol == "LL" or program.has_packets:
        message = max((pair[counted_side(program)] for pair in counts), default=1)
        scratch *= 2 + 2 * max((-(-message // input_chunks) for input_chunks, _ in counts), default=1)
    farthest = max(1, scratch, *(max(pair) for pair in counts))
    return OFFSET_BYTES // farthest // ALIGNMENT * ALIGNMENT * program.loop_chunks


def plan_op_count(ops: tuple[Op, ...]) -> int:
    """Return the number of plan operations that the `ops` of a block become.

    In a plan, a wait for another block and a release of waiting blocks are operations of their own.
    """
    return len(ops) + sum(bool(op.deps) + op.flag for op in ops)

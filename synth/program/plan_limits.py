"""What one MSCCL++ execution plan can hold (microsoft/mscclpp 0.9: execution_common.hpp, execution_plan.cc, execution_kernel.hpp).

The loader checks only the number of operations; the other limits are sizes of fixed arrays that it writes past.
"""

from __future__ import annotations

from synth.program.program import Gpu, Op

BLOCK_OPS = 64  # operations of a thread block
BLOCK_CHANNELS = 16  # channels of one kind that a thread block uses
BLOCK_BUFFERS = 16  # remote buffers that a thread block reaches through one kind of channel
OP_CHANNELS = 8  # channels of one operation
OP_BUFFERS = 10  # source buffers, and destination buffers, of one operation
BARRIERS = 16
OP_SEMAPHORES = 16
OFFSET_BYTES = (1 << 32) - 1  # offsets are 32 bit
ALIGNMENT = 16  # buffer_alignment: every chunk is a multiple of so many bytes
# blocks of 1024 threads, one a multiprocessor: all must be resident at once, and a V100 has 80 multiprocessors
GPU_BLOCKS = 80


def index_limit(gpus: tuple[Gpu, ...], packets: bool) -> int:
    """The greatest chunk index that an offset of some rank is computed from; packets double it, and so do two scratch halves."""
    scratch = max((gpu.scratch for gpu in gpus), default=0) * (4 if packets else 1)
    return max(1, scratch, *(max(gpu.input, gpu.output) for gpu in gpus))


def largest_size(gpus: tuple[Gpu, ...], loop_chunks: int, packets: bool) -> int:
    """The most bytes (nccl-tests' size) for which every offset fits 32 bits."""
    chunk = OFFSET_BYTES // index_limit(gpus, packets) // ALIGNMENT * ALIGNMENT
    return chunk * loop_chunks


def plan_ops(ops: tuple[Op, ...]) -> int:
    """How many operations of a plan these ops become: waiting for another block, and being waited for, are operations there."""
    return len(ops) + sum(bool(op.deps) + op.flag for op in ops)

"""MSCCL++ execution plans (JSON), as microsoft/mscclpp 0.9 loads them (execution_plan.cc, execution_kernel.hpp).

What a plan says of an op, and what the program says:

    nop barrier signal wait   the same                     put     put, one source for each destination
    copy cpkt upkt            cpy: plain, to, from packets ppkt    put of a plain chunk into packets (memory channels)
    re res rre rres           reduce of plain chunks       rppkt   put of packets into packets
    repkt respkt recpkt ..    reduce of packets and, last, a plain chunk; to a plain chunk, own packets, others' packets
    sem_release sem_acquire   `flag` and `deps` of a nop: one semaphore from block to block

`flush` gets as many destinations as channels: the kernel flushes as many channels as the op has destinations. Wherever
the kernel needs the threads of a block joined, a `nop` is added (program/thread_joins.py). A buffer that a rank does
not have is given as large as its other one, as the loader divides by the number of chunks. With packets all ranks get
the largest scratch of any.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NoReturn

from synth.errors import SynthError
from synth.export.msccl_xml.limits import root_warning, rooted
from synth.export.mscclpp.connections import Wiring
from synth.export.mscclpp.thread_block import block_document
from synth.export.request import Request
from synth.program import plan_limits as limits
from synth.program.program import ONE_SIDED, Gpu, Program
from synth.program.runtimes import RUNTIMES
from synth.program.thread_joins import joined

COLLECTIVE_NAMES = {"reduce-scatter": "reducescatter"}
THREADS = 1024


@dataclass(frozen=True)
class Mscclpp:
    """The exporter of MSCCL++ execution plans."""

    suffix: str = ".json"
    runtimes: tuple[str, ...] = ("mscclpp",)

    def emit(self, program: Program, request: Request) -> str:
        """The plan. Raises SynthError naming what MSCCL++ cannot take, and what would fit."""
        rooted(program, RUNTIMES["mscclpp"], request)
        return json.dumps(document(program), indent=1) + "\n"

    def remarks(self, program: Program) -> tuple[str, ...]:
        """What the user must know: the sizes served, and where the code is that registers the plan."""
        top = limits.largest_size(program)
        served = f"{program.min_bytes} to {min(top, program.max_bytes or top)}"
        found = [
            f"serves sizes (the larger buffer) of {served} bytes divisible by {program.loop_chunks * limits.ALIGNMENT}"
        ]
        if program.collective is not None and program.collective.combining:
            found.append("MSCCL++'s executor sums whatever the operator: use the plan for sums only")
        found += [warning] if (warning := root_warning(program)) else []
        return (*found, "docs/mscclpp.md says how the plan is registered, and what it asks of buffers")


def document(program: Program) -> dict:
    """The plan of a one-sided program as a JSON document. Raises SynthError where MSCCL++ cannot take it."""
    if any(op.code not in ONE_SIDED for gpu in program.gpus for block in gpu.blocks for op in block.ops):
        _refuse(
            f"{program.name} sends through FIFOs, MSCCL++ puts into peers' memory: export the schedule it was made from"
        )
    if program.in_place == "both":
        _refuse(
            "a plan is for calls in place or out of place, not both: choose one with --in-place in or --in-place out"
        )
    if program.protocol not in ("Simple", "LL"):
        _refuse(f"MSCCL++ has no protocol {program.protocol}; Simple and LL exist")
    packets = program.protocol == "LL"
    reach = limits.largest_size(program)
    if program.max_bytes is not None and program.max_bytes > reach:
        _refuse(
            f"offsets are 32 bit: this program reaches {reach} bytes, not {program.max_bytes}; lower the largest size"
        )
    program = joined(program)
    if (
        packets
    ):  # every second launch counts a packet's place on another rank from the middle of the sender's own scratch
        scratch = max(gpu.scratch for gpu in program.gpus)
        program = replace(program, gpus=tuple(gpu._replace(scratch=scratch) for gpu in program.gpus))
    low, high = message_sizes(program)
    return {
        "name": program.name,
        "collective": collective_name(program),
        "protocol": program.protocol,
        "inplace": program.in_place == "in",
        "reuse_resources": False,
        "gpus": [_gpu(gpu, program) for gpu in program.gpus],
        "num_threads_per_block": THREADS,
        "use_double_scratch_buffer": packets,
        "buffer_alignment": limits.ALIGNMENT,
        "min_message_size": low,
        "max_message_size": high if program.max_bytes is not None else message_size(program, reach),
    }


def collective_name(program: Program) -> str:
    """MSCCL++'s name for what `program` computes; ``custom`` where it is not known."""
    return (
        "custom"
        if program.collective is None
        else COLLECTIVE_NAMES.get(program.collective.name, program.collective.name)
    )


def shares(program: Program) -> tuple[Fraction, Fraction]:
    """The least and the greatest over ranks of: what MSCCL++ calls the message size, divided by nccl-tests' size.

    MSCCL++ compares the bytes of the input, for allgather those of the output.
    """
    counts = [limits.chunk_counts(gpu)[limits.counted_side(program)] for gpu in program.gpus]
    return Fraction(min(counts), program.loop_chunks), Fraction(max(counts), program.loop_chunks)


def message_size(program: Program, size: int) -> int:
    """What the rank with the most data counts at nccl-tests' `size`."""
    return int(size * shares(program)[1])


def message_sizes(program: Program) -> tuple[int, int]:
    """`min_message_size` and `max_message_size`; where ranks count differently, each bound is exact for those it binds
    first."""
    least, _ = shares(program)
    return -int(-program.min_bytes * least // 1), message_size(program, program.max_bytes or 0)


def registration(program: Program) -> str:
    """Python that registers a plan with MSCCL++ 0.9; to be called on every rank before the first communicator is made.

    MSCCL++'s request has one rank's bytes for allgather, the input's for all others, and calls reduce-scatter out of
    place always; so the code looks at the addresses itself.
    """
    name, n = collective_name(program), program.ranks
    low, high = message_sizes(program)
    divisor = limits.ALIGNMENT * max(limits.chunk_counts(gpu)[limits.counted_side(program)] for gpu in program.gpus)
    size = f"request.message_size * {n}" if name == "allgather" else "request.message_size"
    own = {
        "allgather": " - request.rank * request.message_size",
        "reducescatter": f" + request.rank * (request.message_size // {n})",
    }
    match = "==" if program.in_place == "in" else "!="
    return f"""import mscclpp

def register(path, rank, ranks_per_node):  # keep what it returns
    plan = mscclpp.ExecutionPlan(path, rank)
    where = mscclpp.Algorithm.Constraint({n}, ranks_per_node)
    algorithm = mscclpp.Algorithm(id={program.name!r}, execution_plan=plan, constraint=where)
    builder = mscclpp.AlgorithmCollectionBuilder()
    builder.add_algorithm_builder(algorithm)
    builder.set_algorithm_selector(select)
    return algorithm

def select(algorithms, request):
    if request.collective != {name!r}:
        return None  # MSCCL++ chooses
    size = {size}
    fits = {low} <= size <= {high} and size % {divisor} == 0
    if fits and request.output_buffer {match} request.input_buffer{own.get(name, "")}:
        return algorithms[{name!r}][{program.name!r}]
    return None
"""


def _gpu(gpu: Gpu, program: Program) -> dict:
    held, wanted = limits.chunk_counts(gpu)
    wiring = Wiring.of(gpu)
    blocks = [block_document(b, gpu, wiring) for b in range(len(gpu.blocks))]
    return {
        "id": gpu.rank,
        "input_chunks": held,
        "output_chunks": wanted,
        "scratch_chunks": gpu.scratch,
        "threadblocks": blocks,
        "channels": wiring.channel_documents(),
        "remote_buffers": wiring.buffer_documents(),
        "semaphores": [{"init_value": 0} for _ in wiring.semaphores],
    }


def _refuse(what: str) -> NoReturn:
    raise SynthError(what)

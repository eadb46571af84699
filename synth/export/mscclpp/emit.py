"""MSCCL++ execution plans (JSON), as microsoft/mscclpp 0.9 and 0.10 load them (execution_{plan.cc,kernel.hpp}).

Operations of a plan, and ops of the program:

    nop signal wait flush     the same                     put     put, one source for each destination
    pws pwsf                  put, signal (and flush) of the same port channels, by the same threads
    copy cpkt upkt            cpy: plain, to, from packets ppkt    put of a plain chunk into packets (memory channels)
    re res rre rres           reduce of plain chunks       rppkt   put of packets into packets
    repkt respkt recpkt ..    reduce of packets and, last, a plain chunk; to a plain chunk, own packets, others' packets
    glres gstore gstorepkt    the same, over switch channels: one for each buffer that the ranks of a group reach so

`flush` gets as many destinations as channels: the kernel flushes as many channels as the op has destinations. A buffer
that a rank does not have is given as large as its other one, as the loader divides by the number of chunks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from synth.errors import SynthError
from synth.export.msccl_xml.limits import check_root, root_warning
from synth.export.mscclpp.connections import Connections, SwitchChannel, switch_channels
from synth.export.mscclpp.thread_block import block_document
from synth.export.request import Target
from synth.program import plan_limits as limits
from synth.program.program import ONE_SIDED, Gpu, Program

COLLECTIVE_NAMES = {"reduce-scatter": "reducescatter"}
THREADS = 1024  # of a thread block
OP_DEPTH = 6  # containers around an operation: the plan, gpus, a GPU, its blocks, a block, ops


@dataclass(frozen=True)
class Mscclpp:
    """The exporter of MSCCL++ execution plans."""

    suffix: str = ".json"
    runtimes: tuple[str, ...] = ("mscclpp",)

    def emit(self, program: Program, target: Target) -> str:
        """Return the plan. Raises SynthError that names an exceeded limit of MSCCL++ and a remedy."""
        check_root(program, target)
        check_version(program, target.request.plan_version)
        return _text(document(program, target.request.plan_version), OP_DEPTH) + "\n"

    def remarks(self, program: Program, target: Target) -> tuple[str, ...]:
        """Return remarks for the user: the version and sizes served, the operator, the root, and where to read on."""
        top = limits.largest_size(program)
        served = f"{program.min_bytes} to {min(top, program.max_bytes or top)}"
        remarks = [
            f"the plan has the format of MSCCL++ {target.request.plan_version}",
            f"the plan serves sizes (the larger buffer) of {served} bytes that are multiples of "
            f"{program.loop_chunks * limits.ALIGNMENT}",
        ]
        if program.collective is not None and program.collective.combining:
            remarks.append("MSCCL++'s executor sums whatever the operator: use the plan for sums only")
        remarks += [said] if (said := ports_remark(program)) else []
        if switch_channels(program):
            remarks.append(
                "the plan's switch channels (NVLS) need GPUs from sm_90 on, and buffers of MSCCL++'s own allocator"
            )
        remarks += [warning] if (warning := root_warning(program)) else []
        return (*remarks, "docs/export.md says how the plan is registered, and what it asks of buffers")


def document(program: Program, version: str = limits.NEWEST) -> dict:
    """Return the plan of a one-sided program as a JSON document of a version of MSCCL++.

    Raises SynthError if MSCCL++ cannot take it.
    """
    if any(op.code not in ONE_SIDED for gpu in program.gpus for block in gpu.blocks for op in block.ops):
        _refuse(
            f"{program.name} sends through FIFOs, MSCCL++ puts into peers' memory: export the schedule it was made from"
        )
    blocks = [block for gpu in program.gpus for block in gpu.blocks]
    ordered = any(op.deps or op.flag or op.code == "barrier" for block in blocks for op in block.ops)
    if ordered or not program.straight or program.one_scratch:
        _refuse(
            f"{program.name} has blocks that wait for each other, shares, pipelines or one scratch for all launches: "
            "plans are written from schedules, and its file is a plan already"
        )
    if program.in_place == "both":
        _refuse(
            "a plan is for calls in place or out of place, not both: choose one with --in-place in or --in-place out"
        )
    if program.protocol not in ("Simple", "LL"):
        _refuse(f"MSCCL++ has no protocol {program.protocol}; Simple and LL exist")
    if program.has_packets and program.protocol != "LL":
        _refuse("packets in two halves of the scratch need the protocol LL: the loader doubles no other plan's scratch")
    reach = limits.largest_size(program)
    if program.max_bytes is not None and program.max_bytes > reach:
        _refuse(
            f"offsets are 32 bit: this program reaches {reach} bytes, not {program.max_bytes}; lower the largest size"
        )
    switches = switch_channels(program)
    low, high = message_sizes(program)
    return {
        "name": program.name,
        "collective": collective_name(program),
        "protocol": program.protocol,
        "inplace": program.in_place == "in",
        "reuse_resources": False,
        "gpus": [_gpu(gpu, switches, version != "0.9") for gpu in program.gpus],
        "num_threads_per_block": THREADS,
        "use_double_scratch_buffer": program.protocol == "LL",
        "buffer_alignment": limits.ALIGNMENT,
        "min_message_size": low,
        "max_message_size": high if program.max_bytes is not None else message_size(program, reach),
    }


def port_channels(program: Program) -> int:
    """Return the port channels of the rank with the most; MSCCL++ makes a connection (a queue pair) for each."""
    counts = []
    for gpu in program.gpus:
        counts.append(len({port for block in gpu.blocks for port in block.ports if port.kind == "port"}))
    return max(counts, default=0)


def ports_remark(program: Program) -> str:
    """Return a sentence on the port channels of a rank; "" where there are none."""
    entries = port_channels(program)
    if not entries:
        return ""
    said = f"a rank has up to {entries} port channels, each a queue pair (QP) of its NIC"
    if entries > limits.RANK_PORTS:
        said += f", more than the {limits.RANK_PORTS} that a NIC keeps at hand"
    return f"{said}; fewer thread blocks have fewer"


def check_version(program: Program, version: str) -> None:
    """Raise SynthError where `version` of MSCCL++ lacks operations of the program."""
    stores = any(op.code == "gstore" for gpu in program.gpus for block in gpu.blocks for op in block.ops)
    if stores and version == "0.9":
        _refuse("gstore is an operation of MSCCL++ 0.10, not of 0.9; choose --plan-version 0.10")


def collective_name(program: Program) -> str:
    """Return MSCCL++'s name for the collective of `program`; "custom" if it is not known."""
    if program.collective is None:
        return "custom"
    return COLLECTIVE_NAMES.get(program.collective.name, program.collective.name)


def message_ratios(program: Program) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest ratio, over all ranks, of MSCCL++'s message size to nccl-tests' size.

    MSCCL++'s message size is the bytes of a rank's input, for allgather those of its output.
    """
    counts = [limits.chunk_counts(gpu)[limits.counted_side(program)] for gpu in program.gpus]
    return Fraction(min(counts), program.loop_chunks), Fraction(max(counts), program.loop_chunks)


def message_size(program: Program, size: int) -> int:
    """Return the message size, at nccl-tests' `size`, of the rank with the most data."""
    return int(size * message_ratios(program)[1])


def message_sizes(program: Program) -> tuple[int, int]:
    """Return `min_message_size` and `max_message_size` of the plan, in bytes of MSCCL++'s message size.

    If ranks have different message sizes, the lower bound is exact for the ranks with the least data, and the upper
    one for the ranks with the most.
    """
    least, _ = message_ratios(program)
    return -int(-program.min_bytes * least // 1), message_size(program, program.max_bytes or 0)


def _gpu(gpu: Gpu, switches: Sequence[SwitchChannel], put_signal_flush: bool) -> dict:
    inputs, outputs = limits.chunk_counts(gpu)
    wiring = Connections.of(gpu, switches, put_signal_flush)
    blocks = [block_document(b, gpu, wiring) for b in range(len(gpu.blocks))]
    return {
        "id": gpu.rank,
        "input_chunks": inputs,
        "output_chunks": outputs,
        "scratch_chunks": gpu.scratch,
        "threadblocks": blocks,
        "channels": wiring.channel_documents(),
        "remote_buffers": wiring.buffer_documents(),
        "semaphores": [],
    }


def _text(value: object, depth: int, indent: str = "\n") -> str:
    """Return JSON whose containers have a line for each member down to `depth`, and are on one line below it."""
    if depth == 0 or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, list):
        return f"[{inner}" + f",{inner}".join(_text(one, depth - 1, inner) for one in value) + f"{indent}]"
    rows = [f"{json.dumps(key)}: {_text(one, depth - 1, inner)}" for key, one in value.items()]
    return f"{{{inner}" + f",{inner}".join(rows) + f"{indent}}}"


def _refuse(reason: str) -> NoReturn:
    raise SynthError(reason)

"""MSCCL-IR in the forms that msccl, msccl-executor-nccl and RCCL load (`RUNTIMES`), one text for one Program.

The lexers of the three are NCCL's: no declaration, no tabs, one blank between attributes, double quotes, no entities.
Every attribute of a step is written. An operand that the instruction does not use repeats one that it does use, so that
a loader which looks at it finds an offset inside a buffer.

All three count sizes as nccl-tests does: allgather and reduce-scatter as one rank's part times the ranks, alltoall as
the whole buffer, the others as the buffer. The upper end differs: for msccl `maxBytes` is the first size no longer
served; for the others it is the last size served, and 0 stands for no limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from synth.export.msccl_xml.limits import check
from synth.export.request import Target
from synth.program.program import Gpu, Op, Program, Span
from synth.program.runtimes import RUNTIMES, Runtime

PROFILES = ("msccl-executor", "msccl", "rccl")
# msccl counts in signed 64-bit integers; the greatest power of two that leaves room for its arithmetic
MSCCL_UNLIMITED = 1 << 62
NAME_LENGTH = 63  # characters of a name that msccl takes


@dataclass(frozen=True)
class MscclXml:
    """The exporter of MSCCL-IR."""

    suffix: str = ".xml"
    runtimes: tuple[str, ...] = PROFILES

    def emit(self, program: Program, target: Target) -> str:
        """Return the text of the file.

        Raises SynthError that names the exceeded limit and a remedy if the target's runtime cannot take the program.
        """
        runtime = RUNTIMES[target.request.runtime or PROFILES[0]]
        check(program, runtime, target)
        return "\n".join(_lines(program, runtime)) + "\n"


def collective_name(program: Program, runtime: Runtime) -> str | None:
    """Return the runtime's name for the collective of `program`; None if the runtime does not dispatch it.

    For msccl every other collective is ``custom``.
    """
    if program.collective is None:
        return None
    name = (runtime.collectives or {}).get(program.collective.name)
    return name or ("custom" if runtime.name == "msccl" else None)


def upper(program: Program, runtime: Runtime) -> int:
    """Return `maxBytes` in the runtime's sense."""
    if runtime.inclusive_max:
        return program.max_bytes or 0
    return MSCCL_UNLIMITED if program.max_bytes is None else program.max_bytes + 1


def buffers(program: Program, gpu: Gpu, runtime: Runtime) -> tuple[int, int]:
    """Return the attributes `i_chunks` and `o_chunks` of `gpu`.

    They are those of the program. For a custom collective msccl needs each buffer that is not empty to be as large as
    the largest.
    """
    if collective_name(program, runtime) != "custom":
        return gpu.input, gpu.output
    inputs = program.loop_chunks if gpu.input else 0
    outputs = program.loop_chunks if gpu.output else 0
    return inputs, outputs


def written_name(program: Program) -> str:
    """Return the program's name without characters that an attribute cannot have, cut to `NAME_LENGTH`."""
    return re.sub(r"[^ -~]|[\"'&<>]", "_", program.name)[:NAME_LENGTH]


def _lines(program: Program, runtime: Runtime) -> Iterator[str]:
    # The first runtime has one attribute for both kinds of call, the others one for each.
    in_place, out = int(program.in_place != "out"), int(program.in_place != "in")
    places = f'inplace="{in_place}"' if runtime.exact_in_place else f'inplace="{in_place}" outofplace="{out}"'
    yield (
        f'<algo name="{written_name(program)}" proto="{program.protocol}" nchannels="{program.channels}" '
        f'nchunksperloop="{program.loop_chunks}" ngpus="{program.ranks}" coll="{collective_name(program, runtime)}" '
        f"{places} "
        f'minBytes="{program.min_bytes}" maxBytes="{upper(program, runtime)}">'
    )
    for gpu in program.gpus:
        inputs, outputs = buffers(program, gpu, runtime)
        yield f'  <gpu id="{gpu.rank}" i_chunks="{inputs}" o_chunks="{outputs}" s_chunks="{gpu.scratch}">'
        for b, block in enumerate(gpu.blocks):
            send = -1 if block.send is None else block.send
            recv = -1 if block.recv is None else block.recv
            yield f'    <tb id="{b}" send="{send}" recv="{recv}" chan="{block.channel}">'
            yield from map(_step, count(), block.ops)
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"


def _step(number: int, op: Op) -> str:
    if op.code == "nop":  # as msccl-tools writes it; no loader looks at a nop's operands
        src, dst, chunks = Span("i", -1), Span("o", -1), 0
    else:
        src, dst, chunks = (op.src or op.dst)[0], (op.dst or op.src)[0], op.count
    block, step = op.deps[0][:2] if op.deps else (-1, -1)
    return (
        f'      <step s="{number}" type="{op.code}" srcbuf="{src.buffer}" srcoff="{src.offset}" dstbuf="{dst.buffer}" '
        f'dstoff="{dst.offset}" cnt="{chunks}" depid="{block}" deps="{step}" hasdep="{int(op.flag)}"/>'
    )

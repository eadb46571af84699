"""Texts beside a folder of MSCCL-IR files: the variables to set, and a page on the files and how to see that they run.

Facts of the runtimes: see `synth.program.runtimes`, and docs/exporting.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from synth.export.msccl_xml.limits import wrong_root_sentence
from synth.export.point_choice import ServedRange
from synth.model.collective import COLLECTIVES, collective
from synth.program.program import Program

PER_RANK = ("allgather", "reduce-scatter", "alltoall")
ENABLE = {
    "mscclpp": ["MSCCLPP_ENABLE_NCCL_FALLBACK=TRUE"],
    "msccl": ["NCCL_ALGO=MSCCL,RING,TREE"],
    "msccl-executor": ["NCCL_MSCCL_ENABLE=1"],
    "rccl": ["RCCL_MSCCL_ENABLE=1", "RCCL_MSCCL_FORCE_ENABLE=1"],
}
SEEN = {
    "msccl": (
        "With `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV` every rank logs `MSCCL: Parsing algorithm FILE` and "
        "`Connected N MSCCL"
        " algorithms`. A call that runs one launches a kernel with `MSCCL` in its name (`ncclKernel_..._MSCCL_...`)."
    ),
    "msccl-executor": (
        "With `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV` every rank logs `MSCCL: Initialization finished`. A call "
        "that runs an"
        " algorithm launches a kernel called `mscclKernel_...` (Nsight Systems shows it); one that fell back does not."
    ),
    "rccl": (
        "With `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV` every rank logs `Using MSCCL files from FOLDER`. A call "
        "that runs an"
        " algorithm launches a kernel called `mscclKernel_...` (rocprof shows it); one that fell back does not."
    ),
}
CAVEATS = {
    "msccl": ["At most 4 files are loaded.", "Sum, prod, min and max run; avg falls back to NCCL."],
    "msccl-executor": [
        "The folder must hold nothing but these files, and the same on every node: the loader reads every file of it.",
        "One process per GPU. A `libmsccl-scheduler.so` that the loader finds takes over; unset `MSCCL_SCHEDULER`.",
        "Scratch memory grows with the first large call, which a graph capture forbids: warm up with the largest size.",
        "Sum, prod, min and max run; avg falls back to NCCL.",
    ],
    "rccl": [
        "The folder must hold nothing but these files, and the same on every node: the loader reads every file of it.",
        "One process per GPU. A `libmsccl-scheduler.so` that the loader finds takes over; unset `MSCCL_SCHEDULER`.",
        "`RCCL_MSCCL_FORCE_ENABLE` is for machines other than MI300X. RCCL 2.28.3 (ROCm 7.13) removed MSCCL.",
        "Sum, prod, min and max run; avg falls back to RCCL.",
    ],
}


def env(runtime: str, folder: str, files: Sequence[str]) -> str:
    """Return the environment variables with which `runtime` loads the files, one KEY=VALUE a line.

    `folder`: the path of the folder as the job will see it. `files`: the names of the files in it.
    """
    paths = [f"MSCCL_ALGO_DIR={folder}"]
    if runtime == "msccl":
        paths = [f"MSCCL_XML_FILES={':'.join(f'{folder}/{name}' for name in files)}"]
    return "\n".join([*(paths if runtime != "mscclpp" else []), *ENABLE[runtime]]) + "\n"


def call_warnings(runtime: str, calls: Iterable[tuple[str, int | None]]) -> list[str]:
    """Return a sentence for each kind of call that files of `runtime` would answer with wrong data.

    `calls`: the collectives that have files, each with its root, None for those without one.
    """
    names = dict.fromkeys(calls)
    warnings = [wrong_root_sentence(name, root) for name, root in names if root is not None]
    if runtime == "mscclpp" and any(name in COLLECTIVES and collective(name, 2).combining for name, _ in names):
        warnings.append(
            "MSCCL++'s executor sums whatever the operator, and a request does not tell it: for jobs that only sum"
        )
    return warnings


def divisor(program: Program) -> str:
    """Return the element counts that a program serves, as a sentence on the count argument of NCCL's call.

    That argument is per rank for allgather, reduce-scatter and alltoall.
    """
    chunks, task = program.loop_chunks, program.collective
    if task is None or task.name not in PER_RANK:
        return f"the element count is a multiple of {chunks}"
    per_rank = chunks // gcd(chunks, task.ranks)
    return f"the element count per rank is a multiple of {per_rank} ({chunks} in the larger buffer)"


def span(low: int, high: int | None) -> str:
    """Return a range of sizes as text, such as ``0 to 4096 bytes``."""
    return f"{low} bytes and more" if high is None else f"{low} to {high} bytes"


def notes(
    runtime: str,
    title: str,
    served: Sequence[tuple[ServedRange, Sequence[str]]],
    lost: Sequence[str],
    remarks: Sequence[str],
) -> str:
    """Return the Markdown page beside the folder of a frontier.

    `served`: each range of sizes with the names of its files. `lost`: a sentence for each point that is not used.
    `remarks`: further sentences.
    """
    lines = [
        f"# {title}",
        "",
        f"For the runtime `{runtime}`. Source the variables of the `.env` file beside the folder in every rank.",
        "",
    ]
    lines += ["| file | point | sizes | runs when |", "|---|---|---|---|"]
    for item, names in served:
        files = ", ".join(f"`{name}`" for name in names)
        lines.append(
            f"| {files} | {item.candidate.text} | {span(item.low, item.high)} | {divisor(item.candidate.program)} |"
        )
    lines += [
        "",
        "Sizes are nccl-tests': the larger of one rank's send and receive buffers. The ranges meet where the "
        "predicted times",
        "(steps times latency, plus bytes over bandwidth) are equal, and end where the FIFOs would no longer be "
        "deep enough:",
        "that is proved for the default `NCCL_BUFFSIZE`, `NCCL_LL_BUFFSIZE` and `NCCL_LL128_BUFFSIZE`; leave them "
        "unset.",
        "",
        "A count that the divisor does not divide falls back to the library's own algorithm without a word, and so "
        "does a size",
        "outside of the ranges. Pad the buffer to a multiple, or test with sizes that are multiples (nccl-tests: "
        "`-b`, `-e`, `-i`).",
        "",
    ]
    if lost:
        lines += ["## Points that are not used", "", *(f"- {why}" for why in lost), ""]
    lines += ["## How to see that an algorithm ran", "", SEEN[runtime], ""]
    lines += ["## To know", "", *(f"- {fact}" for fact in [*CAVEATS[runtime], *remarks])]
    return "\n".join(lines) + "\n"

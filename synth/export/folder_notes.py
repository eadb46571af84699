"""Texts beside a folder of files for a runtime: the variables to set, and a page on the files and how to see that they
run.

Facts of the runtimes: see `synth.program.runtimes`, and docs/export.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from synth.export.msccl_xml.limits import wrong_root_sentence
from synth.model.collective import COLLECTIVES, collective
from synth.program.plan_limits import ALIGNMENT
from synth.program.program import Program

PER_RANK = ("allgather", "reduce-scatter", "alltoall")  # NCCL's calls whose count is per rank
ENABLE = {
    "mscclpp": ["MSCCLPP_ENABLE_NCCL_FALLBACK=TRUE"],
    "msccl": ["NCCL_ALGO=MSCCL,RING,TREE"],
    "msccl-executor": ["NCCL_MSCCL_ENABLE=1"],
    "rccl": ["RCCL_MSCCL_ENABLE=1", "RCCL_MSCCL_FORCE_ENABLE=1"],
}

PAGE = """\
# {title}

For the runtime `{runtime}`. What the choice rests on: {says}.
Source the variables of the `.env` file beside the folder in every rank.

| file | for | algorithm | sizes | runs when |
|---|---|---|---|---|
{rows}

Sizes are nccl-tests': the larger of one rank's send and receive buffers.
{about}
## To know

{facts}
"""
IR = """\
The ranges are those of the plan, cut where the FIFOs would no longer be deep enough: that is proved for the default
`NCCL_BUFFSIZE`, `NCCL_LL_BUFFSIZE` and `NCCL_LL128_BUFFSIZE`; leave them unset.

A count that the divisor does not divide falls back to the library's own algorithm without a word, and so does a size
outside of the ranges. Pad the buffer to a multiple, or tune for the sizes that the job has (`synth tune --sizes`).

## How to see that an algorithm ran

With `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV` every rank logs {logs}. A call that runs an
algorithm launches a kernel called `{kernel}`; one that fell back does not.
"""
EXECUTOR = """\
- The folder must hold nothing but these files, and the same on every node: the loader reads every file of it.
- One process per GPU. A `libmsccl-scheduler.so` that the loader finds takes over; unset `MSCCL_SCHEDULER`.
"""
ABOUT = {
    "mscclpp": """\
Files and code have them as MSCCL++ counts. A count that the divisor does not divide, or a size outside of the ranges,
is left to MSCCL++, which falls back to NCCL. The loader itself throws for such a count, so plans must be chosen by the
selector of the code here.

## Registration

On every rank, before the first communicator is made (keep what it returns):

    import register  # of this folder
    kept = register.register(rank, ranks, ranks_per_node)

Then run with
`LD_PRELOAD=libmscclpp_nccl.so`; `MSCCLPP_NCCL_LIB_PATH` names the NCCL to fall back to. One selector is installed for
all plans: it replaces one that was set before.
""",
    "msccl": IR.format(logs="`MSCCL: Parsing algorithm FILE` and `Connected N MSCCL algorithms`",
                       kernel="ncclKernel_..._MSCCL_..."),
    "msccl-executor": IR.format(logs="`MSCCL: Initialization finished`", kernel="mscclKernel_..."),
    "rccl": IR.format(logs="`Using MSCCL files from FOLDER`", kernel="mscclKernel_..."),
}  # fmt: skip
FACTS = {
    "mscclpp": """\
- Buffers must lie at the same offset of their allocation on all ranks (docs/export.md).
- Scratch is allocated up to the largest size of a plan.""",
    "msccl": """\
- At most 4 files are loaded.
- Sum, prod, min and max run; avg falls back to NCCL.""",
    "msccl-executor": EXECUTOR + """\
- Scratch memory grows with the first large call, which a graph capture forbids: warm up with the largest size.
- Sum, prod, min and max run; avg falls back to NCCL.""",
    "rccl": EXECUTOR + """\
- `RCCL_MSCCL_FORCE_ENABLE` is for machines other than MI300X. RCCL 2.28.3 (ROCm 7.13) removed MSCCL.
- Sum, prod, min and max run; avg falls back to RCCL.""",
}  # fmt: skip


def page(
    title: str, runtime: str, says: str, rows: Sequence[str], lost: Sequence[str], remarks: Sequence[str]
) -> str:  # fmt: skip
    """Return the Markdown page beside a folder.

    `says`: the source of the plan's times. `rows`: of the table. `lost`: a sentence for each part of the plan that no
    file serves.
    """
    about = ABOUT[runtime]
    if lost:
        about += "\n## What of the plan these files do not do\n\n" + "".join(f"- {why}\n" for why in lost)
    facts = "\n".join([FACTS[runtime], *(f"- {remark}" for remark in remarks)])
    return PAGE.format(title=title, runtime=runtime, says=says, rows="\n".join(rows), about=about, facts=facts)


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


def divisor(program: Program, runtime: str) -> str:
    """Return the counts that a program serves: bytes for MSCCL++, elements of NCCL's call for the others."""
    task, chunks, what = program.collective, program.loop_chunks, "element count"
    if runtime == "mscclpp":
        chunks, what = chunks * ALIGNMENT, "number of bytes"
    if task is None or task.name not in PER_RANK:
        return f"the {what} is a multiple of {chunks}"
    return f"the {what} per rank is a multiple of {chunks // gcd(chunks, task.ranks)} ({chunks} in the larger buffer)"


def span(low: int, high: int | None) -> str:
    """Return a range of sizes as text, such as ``0 to 4096 bytes``."""
    return f"{low} bytes and more" if high is None else f"{low} to {high} bytes"

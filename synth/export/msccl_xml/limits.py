"""Checks, before a file is written, of all that an MSCCL runtime refuses, loads and never runs, or runs wrongly.

Calls, roots, protocols and sizes are judged here, by what the request says of the job. Structure and form are judged by
lint, whose rules are those of the loaders and interpreters named in `synth.program.runtimes`.
"""

from __future__ import annotations

from dataclasses import replace

from synth.errors import SynthError, UsageError
from synth.export.request import Target
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.program.analysis import rules, structure
from synth.program.analysis.connection_tables import unflagged
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.program.runtimes import ROOTED, Runtime

MAX_RANKS = 1024  # children that an element can have


def check(program: Program, runtime: Runtime, target: Target) -> None:
    """Raise SynthError for the first limit of `runtime` that the program exceeds."""
    _dispatched(program, runtime)
    check_root(program, target)
    _protocol(program, runtime, target)
    if program.max_bytes is not None and program.max_bytes < max(program.min_bytes, 1):
        raise SynthError(f"serves no size: from {program.min_bytes} to {program.max_bytes} bytes")
    if runtime.name == "msccl" and program.max_bytes is None and any(gpu.scratch for gpu in program.gpus):
        raise SynthError(
            "msccl allocates scratch for the largest size when it starts, so there must be one; give --max-size"
        )
    if program.ranks > MAX_RANKS:
        raise SynthError(f"{program.ranks} ranks: {runtime.name} reads at most {MAX_RANKS}")

    # The first fault that lint finds in the structure and the form; the file has the name shortened.
    nameless = replace(program, name="")
    for finding in structure.faults(nameless) or [*rules.check(nameless, runtime), *unflagged(nameless)]:
        if finding.severity == "error":
            raise SynthError(f"{finding.place}: {finding.message}")
    # Loaders take the sizes of buffers from the call, whatever the file declares.
    layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    for gpu, inputs, outputs in zip(program.gpus, layout.inputs, layout.outputs, strict=True):
        if (gpu.input, gpu.output) != (len(inputs), len(outputs)):
            sizes = f"{gpu.input} input and {gpu.output} output chunks"
            name, expected = layout.collective.name, f"{len(inputs)} and {len(outputs)}"
            raise SynthError(f"rank {gpu.rank}: {sizes}, a call of {name} has {expected}")


def _dispatched(program: Program, runtime: Runtime) -> None:
    task = program.collective
    if task is None:
        raise SynthError(
            "what the program computes is not known, and the file has to say it; name the collective with --coll"
        )
    if program.one_sided:
        raise SynthError(f"a one-sided program has no FIFOs, which {runtime.name} needs; export it with --to mscclpp")
    known = (runtime.collectives or {}).get(task.name)
    if runtime.name != "msccl" and known is None:
        why = "has no such collective"
        if task.name in ("gather", "scatter"):
            why = "parses its name and never dispatches it"
        raise SynthError(
            f"{task.name}: {runtime.name} {why}; --runtime msccl takes it as a custom collective, synth run executes it"
        )
    if known is not None and known != "custom" and not _standard(task):
        raise SynthError(
            f"{task.name} here is not the collective of that name that {runtime.name} dispatches; give it another name"
        )
    if runtime.exact_in_place and program.in_place == "both":
        raise SynthError(
            f"{runtime.name} wants one file in place and one out of place; choose with --in-place in or --in-place out"
        )


def unnamed_remark(program: Program, runtime: Runtime) -> str:
    """Return how to name the collective to commands that read the file, where the file does not; "" where it does."""
    task = program.collective
    known = (runtime.collectives or {}).get(task.name) if task is not None else None
    if task is None or known not in (None, "custom"):
        return ""
    options = "--coll and a file that defines it"
    if _standard(task):
        options = f"--coll {task.name}"
        options += f" --root {','.join(map(str, task.roots))}" if task.roots else ""
    return (
        f"{runtime.name} has no name for {task.name}, so the file has none: `synth lint` and `synth run` need {options}"
    )


def _standard(task: Collective) -> bool:
    try:
        return task.name in COLLECTIVES and collective(task.name, task.ranks, task.roots) == task
    except UsageError:
        return False


def root_warning(program: Program) -> str | None:
    """Return the warning for files of a rooted collective; None for other collectives."""
    task = program.collective
    if task is None or task.name not in ROOTED:
        return None
    return wrong_root_sentence(task.name, task.roots[0])


def wrong_root_sentence(name: str, root: int) -> str:
    """Return the warning for files of the rooted collective `name` with the root `root`."""
    return (
        f"no loader compares the root: these files also serve a {name} with a root other than {root}, with wrong data"
    )


def check_root(program: Program, target: Target) -> None:
    """Raise SynthError for a rooted collective unless the request's `assume_root` is its root.

    No runtime compares the root of a call with that of the file.
    """
    warning = root_warning(program)
    if warning is None:
        return
    root = program.collective.roots[0]  # type: ignore[union-attr]
    if target.request.assume_root is None:
        raise SynthError(f"{warning}; add --assume-root {root} if every call in the job has root {root}")
    if target.request.assume_root != root:
        raise SynthError(
            f"--assume-root {target.request.assume_root}: the schedule's root is {root}; synthesize it with --root"
        )


def _protocol(program: Program, runtime: Runtime, target: Target) -> None:
    """Raise SynthError for a protocol that the links, or the boxes, do not allow."""
    kinds, nodes = (target.machine.kinds, target.machine.nodes) if target.machine else ({}, ())
    assertion = "name the machine with --topo, or assert --assume-"
    if program.protocol == "LL128" and not target.request.assume_nvlink:
        for pair in sorted({(src, dst) for src, dst, _ in program.senders}):
            pair_kinds = kinds.get(pair, frozenset({"unknown"}))
            if pair_kinds != {"nvlink"}:
                remedy = f", {assertion}nvlink" if pair_kinds == {"unknown"} else ""
                raise SynthError(
                    f"LL128 corrupts data on links other than NVLink, and the link {pair[0]} to {pair[1]} is "
                    f"{' and '.join(sorted(pair_kinds))}; use Simple or LL{remedy}"
                )
    # Broadcasts and reductions over the network need more steps than these runtimes post.
    name = "" if program.collective is None else program.collective.name
    spreads = runtime.name != "msccl" and program.protocol == "Simple" and name in ("broadcast", "reduce")
    if spreads and not target.request.assume_one_node and len(set(nodes)) != 1:
        where, remedy = ("over several boxes", "") if nodes else ("", f", {assertion}one-node")
        raise SynthError(
            f"{name} with Simple {where or 'on a machine whose boxes are not known'}: {runtime.name} posts fewer "
            f"network steps than it waits for; use --protocol LL{remedy}"
        )

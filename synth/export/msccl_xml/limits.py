"""Checks, before a file is written, of all that an MSCCL runtime refuses, loads and never runs, or runs wrongly.

The rules are those of the loaders and interpreters named in `synth.program.runtimes`. One message names one limit, the
place that exceeds it, and a remedy.
"""

from __future__ import annotations

from collections import Counter

from synth.errors import SynthError, UsageError
from synth.export.request import Target
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.program.buffer_layout import Layout
from synth.program.program import RECEIVING, SENDING, Block, Gpu, Op, Program
from synth.program.runtimes import ROOTED, Runtime

MAX_NODES = 4095  # elements that the loaders keep: <algo>, every <gpu>, the own rank's <tb> and <step>
MAX_RANKS = 1024  # children that an element can have
SOURCES = {"s": 1, "rrs": 1, "rrc": 1, "rrcs": 1, "cpy": 1, "re": 1}
TARGETS = {"r": 1, "rcs": 1, "rrc": 1, "rrcs": 1, "cpy": 1, "re": 1}
FEWER = "fewer --instances, or a point with fewer chunks"


def check(program: Program, runtime: Runtime, target: Target) -> None:
    """Raise SynthError for the first limit of `runtime` that the program exceeds."""
    _dispatched(program, runtime)
    check_root(program, target)
    _protocol(program, runtime, target)
    _sizes(program, runtime)
    if program.ranks > MAX_RANKS:
        raise SynthError(f"{program.ranks} ranks: {runtime.name} reads at most {MAX_RANKS}")
    if program.ranks != program.collective.ranks or any(gpu.rank != r for r, gpu in enumerate(program.gpus)):  # type: ignore[union-attr]
        raise SynthError(f"the program has {program.ranks} ranks, not numbered 0.. as its collective has them")
    layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    for gpu, inputs, outputs in zip(program.gpus, layout.inputs, layout.outputs, strict=True):
        if (gpu.input, gpu.output) != (len(inputs), len(outputs)):
            sizes = f"{gpu.input} input and {gpu.output} output chunks"
            name, expected = layout.collective.name, f"{len(inputs)} and {len(outputs)}"
            raise SynthError(f"rank {gpu.rank}: {sizes}, a call of {name} has {expected}")
        _gpu(program, gpu, runtime)


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
        why = (
            "parses its name and never dispatches it"
            if task.name in ("gather", "scatter")
            else "has no such collective"
        )
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
    if program.in_place != "out" and not Layout(task, program.chunks).shares_chunks:
        raise SynthError(f"{task.name} cannot be called in place")


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
    pairs = sorted({(src, dst) for src, dst, _ in program.senders})
    kinds, nodes = (target.machine.kinds, target.machine.nodes) if target.machine else ({}, ())
    if program.protocol == "LL128" and not target.request.assume_nvlink:
        for pair in pairs:
            pair_kinds = kinds.get(pair, frozenset({"unknown"}))
            if pair_kinds != {"nvlink"}:
                link = f"{pair[0]} to {pair[1]} is {' and '.join(sorted(pair_kinds))}"
                remedy = "use Simple or LL"
                if not pair_kinds - {"unknown"}:
                    remedy += ", name the machine with --topo, or assert --assume-nvlink"
                raise SynthError(f"LL128 corrupts data on links other than NVLink, and the link {link}; {remedy}")
    task = program.collective
    if (
        runtime.name == "msccl"
        or program.protocol != "Simple"
        or task is None
        or task.name not in ("broadcast", "reduce")
    ):
        return
    if target.request.assume_one_node or (nodes and len(set(nodes)) == 1):
        return
    where = "over several boxes" if nodes else "on a machine whose boxes are not known"
    remedy = "use --protocol LL" + ("" if nodes else ", name the machine with --topo, or assert --assume-one-node")
    raise SynthError(
        f"{task.name} with Simple {where}: {runtime.name} posts fewer network steps than it waits for; {remedy}"
    )


def _sizes(program: Program, runtime: Runtime) -> None:
    if program.max_bytes is not None and program.max_bytes < max(program.min_bytes, 1):
        raise SynthError(f"serves no size: from {program.min_bytes} to {program.max_bytes} bytes")
    if runtime.name == "msccl" and program.max_bytes is None and any(gpu.scratch for gpu in program.gpus):
        raise SynthError(
            "msccl allocates scratch for the largest size when it starts, so there must be one; give --max-size"
        )


def _gpu(program: Program, gpu: Gpu, runtime: Runtime) -> None:
    where = f"rank {gpu.rank}"
    _at_most(len(gpu.blocks), runtime.blocks, f"{where}: thread blocks", runtime, FEWER)
    _at_most(program.channels, runtime.channels, "channels", runtime, FEWER)
    nodes = 1 + program.ranks + len(gpu.blocks) + sum(len(block.ops) for block in gpu.blocks)
    _at_most(nodes, MAX_NODES, f"{where}: XML elements", runtime, FEWER)
    senders = [block.send for block in gpu.blocks]
    receivers = [block.recv for block in gpu.blocks]
    for way, ends in (("sending", senders), ("receiving", receivers)):
        used = Counter(block.channel for block, peer in zip(gpu.blocks, ends, strict=True) if peer is not None)
        for channel, count in sorted(used.items()):
            _at_most(
                count,
                runtime.channel_blocks,
                f"{where}: {way} thread blocks on channel {channel}",
                runtime,
                FEWER,
            )
        for (peer, channel), count in Counter(
            (p, b.channel) for p, b in zip(ends, gpu.blocks, strict=True) if p is not None
        ).items():
            if count > 1:
                raise SynthError(
                    f"{where}: {count} thread blocks are {way} with rank {peer} on channel {channel}; one may"
                )
            if peer == gpu.rank or not 0 <= peer < program.ranks:
                raise SynthError(
                    f"{where}: a thread block is {way} with rank {peer}, which is no other rank of "
                    f"0..{program.ranks - 1}"
                )
    for b, block in enumerate(gpu.blocks):
        if block.ports:
            raise SynthError(
                f"{where}: thread block {b} has ports, which only one-sided programs do; export it with --to mscclpp"
            )
        _at_most(len(block.ops), runtime.block_ops, f"{where}: instructions of thread block {b}", runtime, FEWER)
        for i, op in enumerate(block.ops):
            _op(gpu, block, op, runtime, f"rank {gpu.rank}, thread block {b}, step {i}")
        _order(block, f"rank {gpu.rank}, thread block {b}")


def _op(gpu: Gpu, block: Block, op: Op, runtime: Runtime, where: str) -> None:
    if op.code not in runtime.codes:
        runs = " ".join(sorted(runtime.codes))
        raise SynthError(
            f"{where}: {op.code}, and {runtime.name} runs only {runs}; lower the schedule for --runtime {runtime.name}"
        )
    if (len(op.src), len(op.dst)) != (SOURCES.get(op.code, 0), TARGETS.get(op.code, 0)) or op.ports or op.group:
        raise SynthError(
            f"{where}: {op.code} takes {SOURCES.get(op.code, 0)} source and {TARGETS.get(op.code, 0)} destination"
        )
    if (op.code in SENDING and block.send is None) or (op.code in RECEIVING and block.recv is None):
        raise SynthError(f"{where}: {op.code} in a thread block without the peer that it needs")
    if op.code != "nop":
        if op.count < 1:
            raise SynthError(f"{where}: moves {op.count} chunks; at least 1")
        _at_most(op.count, runtime.count, f"{where}: chunks at once", runtime, "split it")
    sizes = {"i": gpu.input, "o": gpu.output, "s": gpu.scratch}
    for span in op.src + op.dst:
        if span.rank not in (None, gpu.rank) or span.packet:
            raise SynthError(f"{where}: an operand on another rank or in packets, which only one-sided programs have")
        if span.offset + op.count > sizes[span.buffer]:
            raise SynthError(
                f"{where}: ends at chunk {span.offset + op.count} of {span.buffer}, which has {sizes[span.buffer]}"
            )
    if len(op.deps) > 1:
        raise SynthError(f"{where}: waits for {len(op.deps)} others at once; one, the rest in nops before it")
    for dep in op.deps:
        target = (
            gpu.blocks[dep.block].ops[dep.op]
            if dep.block < len(gpu.blocks) and dep.op < len(gpu.blocks[dep.block].ops)
            else None
        )
        if target is None or not target.flag:
            raise SynthError(
                f"{where}: waits for step {dep.op} of thread block {dep.block}, which does not exist or has no flag"
            )
        _at_most(dep.block, runtime.dep_block, f"{where}: thread block waited for", runtime, FEWER)


def _order(block: Block, where: str) -> None:
    for i, op in enumerate(block.ops):
        if op.code == "nop" and (op.flag or not op.deps):
            raise SynthError(f"{where}, step {i}: a nop waits for one other and nobody waits for it")
        if op.code == "nop" and (i + 1 == len(block.ops) or not block.ops[i + 1].deps):
            raise SynthError(
                f"{where}, step {i}: after a nop comes an instruction that waits for the last of the dependencies"
            )
    run = 0
    for i, (before, op) in enumerate(zip(block.ops, block.ops[1:], strict=False), 1):
        chained = before.code == op.code == "re" and not (before.flag or op.deps)
        chained = chained and before.dst == op.dst and before.src[0].buffer == op.src[0].buffer
        run = run + 1 if chained else 0
        if chained and (before.count != op.count or run > 15):
            raise SynthError(
                f"{where}, step {i}: loaders merge this re with the one before, wrongly; break the chain with a flag"
            )


def _at_most(count: int, limit: int | None, resource: str, runtime: Runtime, remedy: str) -> None:
    if limit is not None and count > limit:
        raise SynthError(f"{resource}: {count}, and {runtime.name} takes at most {limit}; what would fit: {remedy}")

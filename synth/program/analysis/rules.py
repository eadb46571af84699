"""Rules that the loaders and interpreters of a runtime impose on the form of a two-sided program.

A program that breaks one is refused, or runs differently from its text. The runtimes are those named in
`synth.program.runtimes`; docs/lint.md lists the rules by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from synth.program.analysis.finding import Finding, error, not_analysed
from synth.program.analysis.structure import NAMES
from synth.program.buffer_layout import Layout
from synth.program.program import Block, Gpu, InPlace, Op, Program
from synth.program.runtimes import ROOTED, Runtime

FUSED_SUMS = 16  # `re` ops that the loaders merge into one: the kernel sums at most so many sources
XML_NODES = 4095  # elements that a loader keeps: <algo>, every <gpu>, the own rank's <tb> and <step>
NAME = 63  # characters of a program's name that msccl takes
MSCCL_LIKE = ("msccl", "msccl-executor", "rccl")
NOWHERE = (None, None, None)


def check(program: Program, runtime: Runtime) -> list[Finding]:
    """Return a finding for every rule of `runtime` that a two-sided `program` without structural faults breaks."""
    findings = [
        *buffer_faults(program),
        *unknown_collective(program),
        *empty_range(program),
        *_call(program, runtime),
        *_limits(program, runtime),
    ]
    if runtime.name in MSCCL_LIKE:
        findings += _file(program, runtime)
        for gpu in program.gpus:
            for b, block in enumerate(gpu.blocks):
                findings += [*_nops(gpu, b, block), *_fused_sums(gpu, b, block)]
    return findings


def buffer_faults(program: Program) -> Iterator[Finding]:
    """Yield errors for ops that touch chunks beyond the collective's buffers."""
    if program.collective is None:
        return
    layout = Layout(program.collective, program.chunks)
    real = {"i": layout.inputs, "o": layout.outputs}
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                for span in (*op.src, *op.dst):
                    home = gpu.rank if span.rank is None else span.rank
                    if span.buffer in real and span.offset + op.count > len(real[span.buffer][home]):
                        have = len(real[span.buffer][home])
                        last = span.offset + op.count - 1
                        text = (
                            f"{op.code} touches {NAMES[span.buffer]} {last} of rank {home}; a call gives it "
                            f"{have} chunks"
                        )
                        yield error("buffers", (gpu.rank, b, i), text)


def empty_range(program: Program) -> Iterator[Finding]:
    """Yield an error for a program that is offered for no size."""
    if program.max_bytes is not None and program.max_bytes < program.min_bytes:
        yield error("sizes", NOWHERE, f"is offered from {program.min_bytes} bytes to {program.max_bytes}: for no size")


def unknown_collective(program: Program) -> Iterator[Finding]:
    """Yield that outputs are not compared for a program without a collective: what they must hold is not known."""
    if program.collective is None:
        text = "does not say which collective it is for, so its outputs are not compared; name it with --coll"
        yield not_analysed("collective-unknown", NOWHERE, text)


def calls_not_analysed(program: Program, in_place: InPlace) -> Iterator[Finding]:
    """Yield that calls in place are asked for and not analysed: the collective has none."""
    task = program.collective
    if task is not None and in_place != "out" and not Layout(task, program.chunks).can_be_in_place:
        yield not_analysed("in-place", NOWHERE, f"{task.name} has no call in place; --in-place out names the others")


def _call(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """Yield findings on the calls that the program claims to serve and `runtime` never gives it.

    A call has a collective, a size in bytes, and input and output buffers that overlap (in place) or not.
    """
    task, name = program.collective, runtime.name
    if task is None:
        return
    if program.in_place != "out" and not Layout(task, program.chunks).shares_chunks:
        yield error("in-place", NOWHERE, f"{task.name} cannot be called in place")
    if name == "msccl" and task.name == "alltoall" and program.in_place != "out":
        yield error("in-place", NOWHERE, "msccl runs alltoall out of place only")
    if runtime.collectives is not None and name != "msccl" and task.name not in runtime.collectives:
        yield error(
            "dispatch",
            NOWHERE,
            f"{name} never runs a file for {task.name}; it dispatches {', '.join(sorted(runtime.collectives))}",
        )
    if name in MSCCL_LIKE and task.name in ROOTED:
        roots = ", ".join(map(str, task.roots))
        text = (
            f"no loader compares the root: this {task.name} with root {roots} is also taken for other roots, "
            f"with wrong data"
        )
        yield Finding("root", "warning", *NOWHERE, text)
    if name in MSCCL_LIKE and program.protocol == "LL128":
        yield Finding(
            "ll128", "remark", *NOWHERE, "LL128 is safe on NVLink only; elsewhere data are corrupted without a word"
        )


def _limits(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """Yield errors for exceeded limits: blocks, channels, blocks of a channel, steps, counts, dependencies, codes."""
    name = runtime.name
    for gpu in program.gpus:
        if runtime.blocks is not None and len(gpu.blocks) > runtime.blocks:
            text = f"has {len(gpu.blocks)} blocks, {name} takes {runtime.blocks}: fewer instances or channels fit"
            yield error("blocks", (gpu.rank, None, None), text)
        senders = [block for block in gpu.blocks if block.send is not None]
        receivers = [block for block in gpu.blocks if block.recv is not None]
        for blocks, verb in ((senders, "send"), (receivers, "receive")):
            used = Counter(block.channel for block in blocks)
            for channel, n in sorted(used.items()):
                if runtime.channel_blocks is not None and n > runtime.channel_blocks:
                    text = (
                        f"{n} blocks {verb} on channel {channel}, {name} takes {runtime.channel_blocks}: spread "
                        f"them over channels"
                    )
                    yield error("channel-blocks", (gpu.rank, None, None), text)
        for b, block in enumerate(gpu.blocks):
            yield from _block_limits(gpu, b, block, runtime)


def _block_limits(gpu: Gpu, b: int, block: Block, runtime: Runtime) -> Iterator[Finding]:
    name, here = runtime.name, (gpu.rank, b, None)
    if runtime.channels is not None and block.channel >= runtime.channels:
        yield error("channels", here, f"channel {block.channel}; {name} has channels 0..{runtime.channels - 1}")
    if runtime.block_ops is not None and len(block.ops) > runtime.block_ops:
        yield error(
            "steps",
            here,
            f"has {len(block.ops)} steps, {name} takes {runtime.block_ops}: split the block over channels",
        )
    for i, op in enumerate(block.ops):
        place = (gpu.rank, b, i)
        if op.code not in runtime.codes:
            suffix = ", it loads it and fails" if name == "rccl" else ""
            yield error("code", place, f"{name} does not run {op.code}{suffix}")
        if runtime.count is not None and op.count > runtime.count:
            yield error("count", place, f"moves {op.count} chunks, {name} takes at most {runtime.count}: split it")
        if runtime.single_dep and len(op.deps) > 1:
            yield error(
                "deps",
                place,
                f"has {len(op.deps)} dependencies, a step of a file has one: put {len(op.deps) - 1} nops before it",
            )
        for dep in op.deps:
            if runtime.dep_block is not None and dep.block > runtime.dep_block:
                yield error(
                    "dep-block",
                    place,
                    f"waits for block {dep.block}; {name} can wait for blocks 0..{runtime.dep_block} only",
                )


def _file(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """Yield errors that concern the file as a whole: its name, sizes and number of elements."""
    if runtime.name == "msccl" and len(program.name) > NAME:
        yield error("name", NOWHERE, f"the name has {len(program.name)} characters, msccl takes {NAME}")
    if program.max_bytes == 0 and runtime.name == "msccl":
        yield error("sizes", NOWHERE, "is offered up to 0 bytes, which msccl takes literally: it never runs")
    task, loop = program.collective, program.loop_chunks
    for gpu in program.gpus:
        nodes = 1 + program.ranks + len(gpu.blocks) + sum(len(block.ops) for block in gpu.blocks)
        if nodes > XML_NODES:
            text = (
                f"the file has {nodes} elements for this gpu, loaders keep {XML_NODES}: fewer instances or chunks fit"
            )
            yield error("nodes", (gpu.rank, None, None), text)
        if (
            runtime.name == "msccl"
            and task is not None
            and (runtime.collectives or {}).get(task.name, "custom") != "custom"
        ):
            inputs, outputs = gpu.input, gpu.output
            if task.name == "allgather":
                inputs *= program.ranks
            if task.name == "reduce-scatter":
                outputs *= program.ranks
            for chunks, buffer in ((inputs, "input"), (outputs, "output")):
                if chunks not in (0, loop):
                    yield error(
                        "loop-chunks",
                        (gpu.rank, None, None),
                        f"{chunks} {buffer} chunks in all; msccl wants 0 or nchunksperloop = {loop}",
                    )


def _nops(gpu: Gpu, b: int, block: Block) -> Iterator[Finding]:
    for i, op in enumerate(block.ops):
        if op.code != "nop":
            continue
        if not op.deps:
            yield error("nop", (gpu.rank, b, i), "a nop without a dependency: loaders refuse it; remove it")
        after = next((other for other in block.ops[i + 1 :] if other.code != "nop"), None)
        if after is None:
            yield error(
                "nop",
                (gpu.rank, b, i),
                "a nop is the block's last step: its dependency is never waited for; put it on a real step",
            )
        elif not after.deps:
            yield error(
                "nop",
                (gpu.rank, b, i),
                f"a nop before {after.code}, which has no dependency itself: loaders refuse the file",
            )
        if op.flag:
            yield error(
                "nop", (gpu.rank, b, i), "a nop has a flag; loaders drop nops, so who waits for it waits for ever"
            )


def _fused_sums(gpu: Gpu, b: int, block: Block) -> Iterator[Finding]:
    """Yield errors for chains of `re` that the loaders merge wrongly.

    They merge neighbouring `re` with the same destination and source buffer, no dependency, and no flag before the
    last.
    """
    chain = []
    for i, op in enumerate((*block.ops, None)):
        if op is not None and op.code == "nop":
            continue
        last = chain[-1][1] if chain else None
        if op is not None and op.code == "re" and last is not None and _merges(last, op):
            chain.append((i, op))
            continue
        if len(chain) > FUSED_SUMS:
            text = (
                f"{len(chain)} sums into one place are merged, at most {FUSED_SUMS} can be: give every "
                f"{FUSED_SUMS}th a flag"
            )
            yield error("re-chain", (gpu.rank, b, chain[FUSED_SUMS][0]), text)
        odd = next((j for j, other in chain if other.count != chain[0][1].count), None)
        if odd is not None:
            both = f"{chain[0][1].count} and {block.ops[odd].count}"
            text = f"is merged with the sum before it, but their counts are {both}: give the one before a flag"
            yield error("re-chain", (gpu.rank, b, odd), text)
        chain = [(i, op)] if op is not None and op.code == "re" else []


def _merges(last: Op, op: Op) -> bool:
    return last.dst[:1] == op.dst[:1] and last.src[0].buffer == op.src[0].buffer and not op.deps and not last.flag

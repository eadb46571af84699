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
from synth.program.program import Block, InPlace, Op, Place, Program
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
        for where, block in program.blocks():
            findings += [*_nops(where, block), *_fused_sums(where, block)]
    return findings


def buffer_faults(program: Program) -> Iterator[Finding]:
    """Yield errors for ops that touch chunks beyond the collective's buffers."""
    if program.collective is None:
        return
    layout = Layout(program.collective, program.chunks)
    real = {"i": layout.inputs, "o": layout.outputs}
    for place, op in program.placed_ops():
        for span in op.spans:
            home, last = span.owner(place[0]), span.offset + op.count - 1
            if span.buffer in real and last >= (have := len(real[span.buffer][home])):
                text = f"{op.code} touches {NAMES[span.buffer]} {last} of rank {home}; a call gives it {have} chunks"
                yield error("buffers", place, text)


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
        known = ", ".join(sorted(runtime.collectives))
        yield error("dispatch", NOWHERE, f"{name} never runs a file for {task.name}; it dispatches {known}")
    if name in MSCCL_LIKE and task.name in ROOTED:
        roots = ", ".join(map(str, task.roots))
        text = (
            f"no loader compares the root: this {task.name} with root {roots} is also taken for other roots, "
            f"with wrong data"
        )
        yield Finding("root", "warning", *NOWHERE, text)
    if name in MSCCL_LIKE and program.protocol == "LL128":
        text = "LL128 is safe on NVLink only; elsewhere data are corrupted without a word"
        yield Finding("ll128", "remark", *NOWHERE, text)


def _limits(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """Yield errors for exceeded limits: blocks, channels, blocks of a channel, steps, counts, dependencies, codes."""
    name = runtime.name
    for gpu in program.gpus:
        whole = (gpu.rank, None, None)
        if runtime.blocks is not None and len(gpu.blocks) > runtime.blocks:
            text = f"has {len(gpu.blocks)} blocks, {name} takes {runtime.blocks}: fewer instances or channels fit"
            yield error("blocks", whole, text)
        # the two ends of a channel are counted apart: each has a table of its own in the runtime
        for end, verb in (("send", "send"), ("recv", "receive")):
            used = Counter(block.channel for block in gpu.blocks if getattr(block, end) is not None)
            for channel, n in sorted(used.items()):
                if runtime.channel_blocks is not None and n > runtime.channel_blocks:
                    text = f"{n} blocks {verb} on channel {channel}, {name} takes {runtime.channel_blocks}: spread "
                    yield error("channel-blocks", whole, f"{text}them over channels")
        for b, block in enumerate(gpu.blocks):
            if runtime.channels is not None and block.channel >= runtime.channels:
                text = f"channel {block.channel}; {name} has channels 0..{runtime.channels - 1}"
                yield error("channels", (gpu.rank, b, None), text)
            if runtime.block_ops is not None and len(block.ops) > runtime.block_ops:
                text = f"has {len(block.ops)} steps, {name} takes {runtime.block_ops}: split the block over channels"
                yield error("steps", (gpu.rank, b, None), text)
            for i, op in enumerate(block.ops):
                yield from _op_limits((gpu.rank, b, i), op, runtime)


def _op_limits(place: Place, op: Op, runtime: Runtime) -> Iterator[Finding]:
    name, more = runtime.name, len(op.deps) - 1
    if op.code not in runtime.codes:
        yield error("code", place, f"{name} does not run {op.code}" + ", it loads it and fails" * (name == "rccl"))
    if runtime.count is not None and op.count > runtime.count:
        yield error("count", place, f"moves {op.count} chunks, {name} takes at most {runtime.count}: split it")
    if runtime.single_dep and more > 0:
        text = f"has {more + 1} dependencies, a step of a file has one: put {more} nops before it"
        yield error("deps", place, text)
    for dep in op.deps:
        if runtime.dep_block is not None and dep.block > runtime.dep_block:
            text = f"waits for block {dep.block}; {name} can wait for blocks 0..{runtime.dep_block} only"
            yield error("dep-block", place, text)


def _file(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """Yield errors that concern the file as a whole: its name, sizes and number of elements."""
    msccl, task, loop = runtime.name == "msccl", program.collective, program.loop_chunks
    if msccl and len(program.name) > NAME:
        yield error("name", NOWHERE, f"the name has {len(program.name)} characters, msccl takes {NAME}")
    if msccl and program.max_bytes == 0:
        yield error("sizes", NOWHERE, "is offered up to 0 bytes, which msccl takes literally: it never runs")
    name = "" if task is None else task.name
    named = task is not None and (runtime.collectives or {}).get(task.name, "custom") != "custom"
    for gpu in program.gpus:
        whole = (gpu.rank, None, None)
        nodes = 1 + program.ranks + len(gpu.blocks) + sum(len(block.ops) for block in gpu.blocks)
        if nodes > XML_NODES:
            text = f"the file has {nodes} elements for this gpu, loaders keep {XML_NODES}: fewer instances or chunks "
            yield error("nodes", whole, f"{text}fit")
        # msccl compares the sizes of the whole buffers, of which a rank of these has a share only
        inputs = gpu.input * (program.ranks if name == "allgather" else 1)
        outputs = gpu.output * (program.ranks if name == "reduce-scatter" else 1)
        for chunks, buffer in ((inputs, "input"), (outputs, "output")) if msccl and named else ():
            if chunks not in (0, loop):
                text = f"{chunks} {buffer} chunks in all; msccl wants 0 or nchunksperloop = {loop}"
                yield error("loop-chunks", whole, text)


def _nops(where: tuple[int, int], block: Block) -> Iterator[Finding]:
    for i, op in enumerate(block.ops):
        if op.code != "nop":
            continue
        texts = []
        if not op.deps:
            texts.append("a nop without a dependency: loaders refuse it; remove it")
        # loaders fold nops into the next real step, which must have a dependency of its own
        after = next((other for other in block.ops[i + 1 :] if other.code != "nop"), None)
        if after is None:
            texts.append("a nop is the block's last step: its dependency is never waited for; put it on a real step")
        elif not after.deps:
            texts.append(f"a nop before {after.code}, which has no dependency itself: loaders refuse the file")
        if op.flag:
            texts.append("a nop has a flag; loaders drop nops, so who waits for it waits for ever")
        for text in texts:
            yield error("nop", (*where, i), text)


def _fused_sums(where: tuple[int, int], block: Block) -> Iterator[Finding]:
    """Yield errors for chains of `re` that the loaders merge wrongly.

    They merge neighbouring `re` with the same destination and source buffer, no dependency, and no flag before the
    last.
    """
    chain: list[tuple[int, Op]] = []
    for i, op in enumerate((*block.ops, Op(""))):  # an op of no code ends the last chain
        if op.code == "nop":
            continue
        adds = op.code == "re"
        if adds and chain:
            last = chain[-1][1]
            # the sum continues the chain if the loader would merge it into the one before
            same = last.dst[:1] == op.dst[:1] and last.src[0].buffer == op.src[0].buffer
            if same and not op.deps and not last.flag:
                chain.append((i, op))
                continue
        # The chain has ended: the kernel sums a limited number of sources, and by one count.
        if len(chain) > FUSED_SUMS:
            text = f"{len(chain)} sums into one place are merged, at most {FUSED_SUMS} can be: give every "
            yield error("re-chain", (*where, chain[FUSED_SUMS][0]), f"{text}{FUSED_SUMS}th a flag")
        odd = next((j for j, other in chain if other.count != chain[0][1].count), None)
        if odd is not None:
            both = f"{chain[0][1].count} and {block.ops[odd].count}"
            text = f"is merged with the sum before it, but their counts are {both}: give the one before a flag"
            yield error("re-chain", (*where, odd), text)
        chain = [(i, op)] if adds else []

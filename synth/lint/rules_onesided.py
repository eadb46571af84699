"""The limits of an MSCCL++ execution plan, the pairs that ports make, and where a block's threads must meet.

MSCCL++'s kernel does not join the threads of a block between two ops: only some threads wait or signal, and each data
op deals its bytes out anew. A `nop` (or a barrier) joins them, and has to stand where an op needs what an earlier one
of its block did. Facts from microsoft/mscclpp 0.9, as docs/lint.md lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from synth.lint.finding import Finding, error
from synth.lint.memory import Memory
from synth.lint.onesided import other_end
from synth.program.layout import Layout
from synth.program.program import Block, Gpu, Program
from synth.program.runtimes import Runtime

BLOCK_PORTS = 16  # of one kind, per block
OP_PORTS = 8
OP_SPANS = 10
BARRIERS = 16  # per rank


def pairs(program: Program) -> Iterator[Finding]:
    """Every port that is signalled or waited on has its other end on the peer."""
    known = {(gpu.rank, port) for gpu in program.gpus for block in gpu.blocks for port in block.ports}
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            used = {p for op in block.ops for p in op.ports if op.code in ("signal", "wait")}
            for p in sorted(used):
                port = block.ports[p]
                if other_end(gpu.rank, port) not in known:
                    text = f"{port.kind} channel {port.index} to rank {port.peer}: rank {port.peer} has no such channel back"
                    yield error("port-pair", (gpu.rank, b, None), text)


def counts(program: Program) -> Iterator[Finding]:
    """As many signals as waits on every port: a signal left over would let the next call's wait pass too early."""
    signals: Counter = Counter()
    waits: Counter = Counter()
    for gpu in program.gpus:
        for block in gpu.blocks:
            for op in block.ops:
                if op.code == "signal":
                    signals.update(other_end(gpu.rank, block.ports[p]) for p in op.ports)
                elif op.code == "wait":
                    waits.update((gpu.rank, block.ports[p]) for p in op.ports)
    for (rank, port), n in sorted(signals.items()):
        if n > waits[rank, port]:
            name = f"{port.kind} channel {port.index} of rank {port.peer}"
            text = f"gets {n} signals on {name} and waits for {waits[rank, port]}: a wait of the next call would pass too early"
            yield error("signals-left", (rank, None, None), text)


def check(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """The plan's limits, and the joins that are missing."""
    if runtime.name not in ("mscclpp", "synth"):
        yield error("code", (None, None, None), f"reaches into other ranks' memory, which {runtime.name} cannot: it sends through FIFOs")
    if runtime.name != "mscclpp":
        return
    for gpu in program.gpus:
        groups = {tuple(sorted(set(op.group))) for block in gpu.blocks for op in block.ops if op.code == "barrier"}
        if len(groups) > BARRIERS:
            yield error("barriers", (gpu.rank, None, None), f"has {len(groups)} barriers, a plan {BARRIERS}")
        for b, block in enumerate(gpu.blocks):
            yield from _block(gpu, b, block, runtime)
    yield from _joins(program)


def _block(gpu: Gpu, b: int, block: Block, runtime: Runtime) -> Iterator[Finding]:
    # waiting for another block and being waited for are ops of their own in a plan
    ops = len(block.ops) + sum(bool(op.deps) + op.flag for op in block.ops)
    if runtime.block_ops is not None and ops > runtime.block_ops:
        yield error("steps", (gpu.rank, b, None), f"has {ops} operations, a plan's block {runtime.block_ops}: split the block")
    for kind, n in sorted(Counter(port.kind for port in set(block.ports)).items()):
        if n > BLOCK_PORTS:
            yield error("channels", (gpu.rank, b, None), f"has {n} {kind} channels, a plan's block {BLOCK_PORTS}")
    for i, op in enumerate(block.ops):
        place = (gpu.rank, b, i)
        if op.code not in runtime.codes:
            yield error("code", place, f"{runtime.name} does not run {op.code}")
        if op.code == "cpy" and any(span.rank not in (None, gpu.rank) for span in (*op.src, *op.dst)):
            yield error("operands", place, "cpy stays on its rank in a plan: put writes to another, get reads from one")
        if len(op.ports) > OP_PORTS:
            yield error("channels", place, f"uses {len(op.ports)} channels at once, an operation {OP_PORTS}")
        if max(len(op.src), len(op.dst)) > OP_SPANS:
            yield error("operands", place, f"has {max(len(op.src), len(op.dst))} buffers on one side, an operation {OP_SPANS}")


def _joins(program: Program) -> Iterator[Finding]:
    layout = None if program.collective is None else Layout(program.collective, program.chunks)
    memory = Memory(program, layout, program.in_place != "out" and layout is not None and layout.placeable)
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            yield from _block_joins(memory, gpu, b, block)


def _block_joins(memory: Memory, gpu: Gpu, b: int, block: Block) -> Iterator[Finding]:
    reads: set[int] = set()
    writes: set[int] = set()
    used: set[tuple[str, int]] = set()
    data = waited = None
    for i, op in enumerate(block.ops):
        if op.code in ("nop", "barrier"):
            reads, writes, used, data, waited = set(), set(), set(), None, None
            continue
        on = {(op.code, p) for p in op.ports} if op.code in ("signal", "wait") else set()
        touched = [
            {
                memory.base[gpu.rank if s.rank is None else s.rank][s.buffer] + s.offset + k
                for s in spans
                if not s.packet
                for k in range(op.count)
            }
            for spans in (op.src, op.dst)
        ]
        moves = bool(op.src or op.dst)
        why = None
        if waited is not None and op.code not in ("wait", "flush"):
            why = f"after step {waited} has waited"
        elif data is not None and op.code in ("signal", "flush"):
            why = f"after step {data} has moved data"
        elif on & used:
            why = f"after another {op.code} on the same channel"
        elif moves and (touched[0] & writes or touched[1] & (reads | writes)):
            why = "on chunks that an earlier step touches too"
        if why is not None:
            text = f"{op.code} {why}, and the block's threads have not met in between: put a nop before it"
            yield error("join", (gpu.rank, b, i), text)
        elif op.deps or op.flag:
            text = f"{op.code} waits for, or is waited for by, another block: only a nop or barrier does that for all threads"
            yield error("join", (gpu.rank, b, i), text)
        reads |= touched[0]
        writes |= touched[1]
        used |= on
        data = i if moves else data
        waited = i if op.code in ("wait", "flush") else waited

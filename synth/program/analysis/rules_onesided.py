"""The limits of an MSCCL++ execution plan, the pairs that ports make, and where a block's threads must meet.

MSCCL++'s kernel does not join the threads of a block between two ops: only some threads wait or signal, and each data
op deals its bytes out anew. A `nop` (or a barrier) joins them, and has to stand where an op needs what an earlier one
of its block did. Facts from microsoft/mscclpp 0.9, as docs/lint.md lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from synth.program.analysis.cells import Memory
from synth.program.analysis.finding import Finding, error
from synth.program.analysis.onesided_order import other_end
from synth.program.analysis.structure import NAMES
from synth.program.buffer_layout import Layout
from synth.program.program import Block, Gpu, Program
from synth.program.runtimes import Runtime

BLOCK_PORTS = 16  # of one kind, per block
OP_PORTS = 8
OP_SPANS = 10
BARRIERS = 16  # per rank
OFFSET_BITS = 32


def pairs(program: Program) -> Iterator[Finding]:
    """Every port that is signalled or waited on has its other end on the peer."""
    known = {(gpu.rank, port) for gpu in program.gpus for block in gpu.blocks for port in block.ports}
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            used = {p for op in block.ops for p in op.ports if op.code in ("signal", "wait")}
            for p in sorted(used):
                port = block.ports[p]
                if other_end(gpu.rank, port) not in known:
                    text = (
                        f"{port.kind} channel {port.index} to rank {port.peer}: rank {port.peer} has no such "
                        f"channel back"
                    )
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
            text = (
                f"gets {n} signals on {name} and waits for {waits[rank, port]}: a wait of the next call would "
                f"pass too early"
            )
            yield error("signals-left", (rank, None, None), text)


def halves(program: Program) -> Iterator[Finding]:
    """Ranks between which packets go have equally much scratch.

    The scratch of packets is double, and every second launch uses the upper halves. There a packet's place on another
    rank is counted from the middle of the *writer's* scratch: with unequal ones it lands elsewhere, and its reader
    waits for ever, or it lands beyond the owner's memory.
    """
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                for span in op.dst:
                    owner = gpu.rank if span.rank is None else span.rank
                    there = program.gpus[owner].scratch
                    if span.packet and there != gpu.scratch:
                        text = (
                            f"puts a packet into the scratch of rank {owner}, which has {there} chunks, and has "
                            f"{gpu.scratch} itself: every"
                            " second launch counts its place from the middle of the writer's scratch; give all "
                            "ranks equally many"
                        )
                        yield error("packet-half", (gpu.rank, b, i), text)


def check(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """The plan's limits, and the joins that are missing."""
    if runtime.name not in ("mscclpp", "synth"):
        yield error(
            "code",
            (None, None, None),
            f"reaches into other ranks' memory, which {runtime.name} cannot: it sends through FIFOs",
        )
    if runtime.name != "mscclpp":
        return
    for gpu in program.gpus:
        groups = {tuple(sorted(set(op.group))) for block in gpu.blocks for op in block.ops if op.code == "barrier"}
        if len(groups) > BARRIERS:
            yield error("barriers", (gpu.rank, None, None), f"has {len(groups)} barriers, a plan {BARRIERS}")
        for b, block in enumerate(gpu.blocks):
            yield from _block(gpu, b, block, runtime)
    yield from _offsets(program)
    yield from _starts(program)
    yield from _joins(program)


def _starts(program: Program) -> Iterator[Finding]:
    """In place, whether memory is named so that MSCCL++ finds it.

    It counts a place in another rank's input or output from where the own one begins in its allocation, and what is
    sent through a port channel from the beginning of the allocation: of two buffers in one, the larger is to be named.
    """
    layout = None if program.collective is None else Layout(program.collective, program.chunks)
    if program.in_place != "in" or layout is None or not layout.placeable:
        return
    begins = [{"i": max(0, -(shift or 0)), "o": max(0, shift or 0), "s": 0} for shift in layout.overlaps]
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                by_port = op.code == "put" and any(block.ports[p].kind == "port" for p in op.ports)
                own = op.src if by_port else ()
                for span in (
                    *(s for s in (*op.src, *op.dst) if s.rank is not None),
                    *(s for s in own if s.rank is None),
                ):
                    owner = gpu.rank if span.rank is None else span.rank
                    counted = 0 if span.rank is None else begins[gpu.rank][span.buffer]
                    if counted != begins[owner][span.buffer]:
                        what = f"{NAMES[span.buffer]} {span.offset} of rank {owner}"
                        text = (
                            f"{what} begins {begins[owner][span.buffer]} chunks into its allocation, and is counted "
                            f"from {counted}:"
                            " name it as a part of the larger buffer, or go through scratch"
                        )
                        yield error("buffer-start", (gpu.rank, b, i), text)


def _offsets(program: Program) -> Iterator[Finding]:
    """Whether an offset passes 32 bits at the largest size of the plan: an error, or a warning where it sets none."""
    top = program.max_bytes
    least, most = 0, 1 << 64  # sizes that fit, and that do not
    if top is not None and _farthest(program, top) < 1 << OFFSET_BITS:
        return
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if _farthest(program, middle) < 1 << OFFSET_BITS else (least, middle)
    what = (
        "an offset passes 32 bits above"
        if top is None
        else f"at its largest size, {top} bytes, an offset passes 32 bits; the limit is"
    )
    finding = error("offsets", (None, None, None), f"{what} {least} bytes: set the largest size to that or less")
    yield finding if top is not None else finding._replace(severity="warning")


def _farthest(program: Program, size: int) -> int:
    """The last offset in bytes of a call of `size`, in the larger of a rank's buffers, over all ranks and both halves
    of the scratch.

    A packet takes twice its chunk. The loader makes the scratch as if the whole allocation that the input lies in were
    input, up to the largest message (of allgather the output, of others the input); half of that comes first.
    """
    chunk = -(-size // program.loop_chunks)
    whole = program.collective is not None and program.collective.name == "allgather"
    message = chunk * max((gpu.output or gpu.input) if whole else (gpu.input or gpu.output) for gpu in program.gpus)
    ends = [0]
    for gpu in program.gpus:
        ends += [gpu.input * chunk, gpu.output * chunk, gpu.scratch * chunk]
        if program.protocol == "LL":
            ends.append(gpu.scratch * (2 * -(-message // max(1, gpu.input or gpu.output)) + 2 * chunk))
    return max(ends)


def _block(gpu: Gpu, b: int, block: Block, runtime: Runtime) -> Iterator[Finding]:
    # waiting for another block and being waited for are ops of their own in a plan
    ops = len(block.ops) + sum(bool(op.deps) + op.flag for op in block.ops)
    if runtime.block_ops is not None and ops > runtime.block_ops:
        yield error(
            "steps", (gpu.rank, b, None), f"has {ops} operations, a plan's block {runtime.block_ops}: split the block"
        )
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
            yield error(
                "operands", place, f"has {max(len(op.src), len(op.dst))} buffers on one side, an operation {OP_SPANS}"
            )


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
            text = (
                f"{op.code} waits for, or is waited for by, another block: only a nop or barrier does that for "
                f"all threads"
            )
            yield error("join", (gpu.rank, b, i), text)
        reads |= touched[0]
        writes |= touched[1]
        used |= on
        data = i if moves else data
        waited = i if op.code in ("wait", "flush") else waited

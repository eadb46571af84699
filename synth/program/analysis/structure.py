"""Structural rules that give a program a meaning: on ranks, peers, operands, buffers, dependencies, ports and groups.

A program with a structural fault is not analysed further, because its behaviour is not defined.
"""

from __future__ import annotations

from collections.abc import Iterator

from synth.program.analysis.finding import Finding, error
from synth.program.program import BUFFERS, ONE_SIDED, SWITCHED, TWO_SIDED, Block, Gpu, Op, Program, Span, owners

# code → (source spans, destination spans), None: one or more
SHAPES: dict[str, tuple[int | None, int | None]] = {
    "s": (1, 0),
    "r": (0, 1),
    "rcs": (0, 1),
    "rrs": (1, 0),
    "rrc": (1, 1),
    "rrcs": (1, 1),
    "re": (1, 1),
    "nop": (0, 0),
    "put": (None, None),
    "get": (1, 1),
    "reduce": (None, None),
    "glres": (None, None),
    "gstore": (1, None),
    "signal": (0, 0),
    "wait": (0, 0),
    "flush": (0, 0),
    "barrier": (0, 0),
}
MAX_CELLS = 1 << 24  # chunks of all buffers of a program that is analysed; each takes memory for its value and clocks
MAX_BLOCKS = 1 << 15  # thread blocks of a program that is analysed; each takes a row of clocks
NAMES = {"i": "input", "o": "output", "s": "scratch"}


def faults(program: Program) -> list[Finding]:
    """Return all structural faults, in the order of the program."""
    if [gpu.rank for gpu in program.gpus] != list(range(program.ranks)) or not program.gpus:
        text = f"ranks are {[gpu.rank for gpu in program.gpus][:8]}; they are numbered from 0 without gaps, in order"
        return [error("ranks", (None, None, None), text)]
    task = program.collective
    if task is not None and task.ranks != program.ranks:
        text = f"{task.name} is over {task.ranks} ranks, the program has {program.ranks}"
        return [error("ranks", (None, None, None), text)]
    cells = sum(gpu.input + gpu.output + gpu.scratch for gpu in program.gpus)
    if cells > MAX_CELLS:
        return [
            error(
                "too-large", (None, None, None), f"{cells} chunks of buffers in all; at most {MAX_CELLS} are analysed"
            )
        ]
    blocks = sum(len(gpu.blocks) for gpu in program.gpus)
    if blocks > MAX_BLOCKS:
        return [error("too-large", (None, None, None), f"{blocks} blocks in all; at most {MAX_BLOCKS} are analysed")]
    found: list[Finding] = []
    if program.chunks < 1:
        found.append(error("chunks", (None, None, None), f"{program.chunks} chunks per unit; at least one is needed"))
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            found += _block(program, gpu, b, block)
    return found


def _block(program: Program, gpu: Gpu, b: int, block: Block) -> Iterator[Finding]:
    here = (gpu.rank, b, None)
    for peer, verb in ((block.send, "sends to"), (block.recv, "receives from")):
        if peer is not None and not 0 <= peer < program.ranks:
            yield error("peer", here, f"{verb} rank {peer}, ranks are 0..{program.ranks - 1}")
        elif peer == gpu.rank:
            yield error("self-peer", here, f"{verb} its own rank; use cpy")
    if block.channel < 0:
        yield error("channel", here, f"channel {block.channel} is negative")
    for port in block.ports:
        if not 0 <= port.peer < program.ranks or port.peer == gpu.rank:
            yield error(
                "peer", here, f"has a port to rank {port.peer}; a port leads to another rank of 0..{program.ranks - 1}"
            )
    for i, op in enumerate(block.ops):
        yield from _op(program, gpu, b, block, i, op)


def _op(program: Program, gpu: Gpu, b: int, block: Block, i: int, op: Op) -> Iterator[Finding]:
    here = (gpu.rank, b, i)
    style, other = (ONE_SIDED, "one-sided") if program.one_sided else (TWO_SIDED, "two-sided")
    if op.code not in style:
        yield error("code", here, f"{op.code} does not exist in a {other} program")
        return
    shape = SHAPES.get(op.code, (1, None if program.one_sided else 1))
    for spans, wanted, name in ((op.src, shape[0], "source"), (op.dst, shape[1], "destination")):
        if len(spans) != wanted if wanted is not None else not spans:
            yield error(
                "operands",
                here,
                f"{op.code} has {len(spans)} {name} operands, expected {'some' if wanted is None else wanted}",
            )
    if op.code == "put" and len(op.src) not in (1, len(op.dst)):
        yield error("operands", here, f"put has {len(op.src)} sources for {len(op.dst)} destinations; one, or one each")
    if op.code in SWITCHED:
        yield from _group(gpu, here, op)
    if op.count < 1:
        yield error("count", here, f"count is {op.count}; at least 1 is needed")
    for span in (*op.src, *op.dst):
        yield from _span(program, gpu, here, op, span)
    for dep in op.deps:
        if not 0 <= dep.block < len(gpu.blocks):
            yield error(
                "dep-missing", here, f"waits for block {dep.block}, this gpu has blocks 0..{len(gpu.blocks) - 1}"
            )
        elif not 0 <= dep.op < len(gpu.blocks[dep.block].ops):
            yield error(
                "dep-missing",
                here,
                f"waits for step {dep.op} of block {dep.block}, which has {len(gpu.blocks[dep.block].ops)} steps",
            )
        elif dep.block == b and dep.op >= i:
            yield error(
                "dep-self", here, f"waits for step {dep.op} of its own block, which comes no earlier: it waits for ever"
            )
    for port in op.ports:
        if not 0 <= port < len(block.ports):
            yield error("port", here, f"uses port {port}, the block has {len(block.ports)} ports")
    if op.code in ("signal", "wait") and not op.ports:
        yield error("port", here, f"{op.code} without a port does nothing")
    if op.code == "barrier" and (b not in op.group or not all(0 <= member < len(gpu.blocks) for member in op.group)):
        yield error(
            "group",
            here,
            f"the barrier's group {list(op.group)} is not a set of this gpu's blocks with block {b} in it",
        )


def _group(gpu: Gpu, here: tuple[int, int, int], op: Op) -> Iterator[Finding]:
    """Yield errors where the operands of a switch are not one span on each rank of one group with this rank in it."""
    groups = []
    for spans in (op.dst, op.src) if op.code == "glres" else (op.dst,):
        groups.append(sorted(owners(gpu.rank, spans)))
        if len({(span.buffer, span.offset) for span in spans}) > 1:
            yield error("group-place", here, f"{op.code} names different places on the ranks of its group: one for all")
    group = set(groups[0])
    if len(group) < 2 or gpu.rank not in group or any(ranks != sorted(group) for ranks in groups):
        text = (
            f"{op.code} is over ranks {groups[0]}: a group of two ranks or more, once each, rank {gpu.rank} among them"
        )
        yield error("group-place", here, text)
    if op.code == "gstore" and any(span.rank not in (None, gpu.rank) for span in op.src):
        yield error("operands", here, "gstore reads the memory of its own rank")
    if any(span.packet for span in (*op.src, *op.dst)):
        yield error("operands", here, f"{op.code} moves plain chunks, no packets")


def _span(program: Program, gpu: Gpu, here: tuple[int, int, int], op: Op, span: Span) -> Iterator[Finding]:
    rank = gpu.rank if span.rank is None else span.rank
    if span.buffer not in BUFFERS or not 0 <= rank < program.ranks:
        yield error("operands", here, f"there is no buffer {span.buffer} on rank {rank}")
        return
    if not program.one_sided and (rank != gpu.rank or span.packet):
        yield error("operands", here, "a two-sided program touches its own rank's memory only, and without packets")
    owner = program.gpus[rank]
    size = {"i": owner.input, "o": owner.output, "s": owner.scratch}[span.buffer]
    if span.offset < 0 or span.offset + op.count > size:
        end = span.offset + op.count - 1
        text = f"{op.code} touches {NAMES[span.buffer]} chunks {span.offset}..{end} of rank {rank}, which has {size}"
        yield error("bounds", here, text)

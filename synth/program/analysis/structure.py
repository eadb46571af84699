"""Structural rules that give a program a meaning: on ranks, peers, operands, buffers, dependencies, ports and groups.

A program with a structural fault is not analysed further, because its behaviour is not defined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from synth.program.analysis.call_sizes import MAX_ANALYSED_OPS, written_size
from synth.program.analysis.finding import Finding, error, not_analysed
from synth.program.buffer_layout import Layout
from synth.program.program import (
    BUFFERS,
    MAX_PARTS,
    ONE_SIDED,
    SWITCHED,
    TWO_SIDED,
    Block,
    Gpu,
    Op,
    Place,
    Program,
    checked_loops,
    owners,
)
from synth.program.straight_line import even_cells, loop_unit, scratch_stride

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
MAX_TOUCHED = 1 << 21  # chunks that all ops together read or write; each takes some ten microseconds
NAMES = {"i": "input", "o": "output", "s": "scratch"}


def faults(program: Program) -> list[Finding]:
    """Return all structural faults, in the order of the program."""
    nowhere = (None, None, None)
    if [gpu.rank for gpu in program.gpus] != list(range(program.ranks)) or not program.gpus:
        text = f"ranks are {[gpu.rank for gpu in program.gpus][:8]}; they are numbered from 0 without gaps, in order"
        return [error("ranks", nowhere, text)]
    task = program.collective
    if task is not None and task.ranks != program.ranks:
        text = f"{task.name} is over {task.ranks} ranks, the program has {program.ranks}"
        return [error("ranks", nowhere, text)]
    cells = sum(gpu.chunks for gpu in program.gpus)
    if cells > MAX_CELLS:
        return [
            not_analysed("too-large", nowhere, f"{cells} chunks of buffers in all; at most {MAX_CELLS} are analysed")
        ]
    blocks = sum(len(gpu.blocks) for gpu in program.gpus) - len(idle_blocks(program))
    if blocks > MAX_BLOCKS:
        text = f"{blocks} blocks that do something; at most {MAX_BLOCKS} are analysed"
        return [not_analysed("too-large", nowhere, text)]
    found = []
    if program.chunks < 1:
        found.append(error("chunks", nowhere, f"{program.chunks} chunks per unit; at least one is needed"))
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            found += _block(program, gpu, b, block)
            if block.loops:
                found += _loops((gpu.rank, b), block)
    if found:
        return found

    # Programs whose ops together touch more chunks than can be followed: the op that touches most.
    sizes = {place: op.count * (len(op.src) + len(op.dst)) for place, op in program.placed_ops()}
    touched = sum(sizes.values())
    if touched > MAX_TOUCHED:
        place = max(sizes, key=sizes.__getitem__)
        text = f"touches {sizes[place]} chunks, and all steps {touched} together; at most {MAX_TOUCHED} are analysed"
        return [not_analysed("too-large", place, text)]
    return list(_written_out(program, touched)) if not program.straight else []


def idle_blocks(program: Program) -> set[tuple[int, int]]:
    """Return the blocks (rank, block) that only `nop`, and for which no other block waits: they order nothing."""
    needed = set()
    for (rank, b, _), op in program.placed_ops():
        needed.update((rank, dep.block) for dep in op.deps if dep.block != b)
    for place, block in program.blocks():
        if any(op.code != "nop" for op in block.ops):
            needed.add(place)
    return {place for place, _ in program.blocks()} - needed


def _written_out(program: Program, touched: int) -> Iterator[Finding]:
    """Yield what is not analysed: calls that are too large, and shares without common ends at all sizes.

    `touched`: the chunks that all ops touch together.
    """
    cells, unit = even_cells(program), loop_unit(program)
    stride = scratch_stride(program)
    if program.scratch_bytes is not None and stride is None:
        return
    written, ops = written_size(program)
    chunks = sum(gpu.chunks for gpu in program.gpus)
    touched = touched * written // max(1, chunks)
    text = ""
    if touched > MAX_TOUCHED:
        text = f"its parts and pipelines make steps that touch {touched} chunks; at most {MAX_TOUCHED} are analysed"
    elif written > MAX_CELLS or ops > MAX_ANALYSED_OPS or (stride is not None and cells > stride):
        text = (
            f"its parts and pipelines make {written} pieces of chunks, {ops} steps; at most {MAX_CELLS} and "
            f"{MAX_ANALYSED_OPS} are analysed, and {stride or 'any number of'} pieces of a chunk of scratch"
        )
    if text:
        yield not_analysed("too-large", (None, None, None), text)
        return
    if unit is not None and unit % cells:
        text = f"its pipelines move units of {unit} bytes, which {cells} equal shares do not divide"
        yield not_analysed("loop", (None, None, None), text)
    yield from _unlike_parts(program)


def _unlike_parts(program: Program) -> Iterator[Finding]:
    """Yield the ops in shares, or in a pipeline over several chunks, whose chunks others divide in another way, each
    once.

    A share ends at a whole chunk, or where its span's own division ends: two divisions end in an order that depends on
    the size. The turns of a pipeline that touch the same bytes are as far apart as its chunks are long.
    """
    # the chunk of each rank's input at which its output begins, where the two are one memory
    shifts: Sequence[int | None] = [None] * program.ranks
    if program.in_place != "out" and program.collective is not None:
        shifts = Layout(program.collective, program.chunks).overlaps
    divided = []
    for place, block in program.blocks():
        for i, op in enumerate(block.ops):
            if op.part is not None and op.count % op.part.of:  # shares that are no whole chunks
                divided.append(((*place, i), op, "part", op.count, op.part.of))
        for loop in block.loops:
            for i in range(loop.first, loop.end):
                divided.append(((*place, i), block.ops[i], "loop", loop.chunks, 1))
    first = {}
    for here, op, kind, length, divisor in divided:
        found = None
        for span in op.spans:
            owner = span.owner(here[0])
            shift = shifts[owner] if span.buffer == "o" else None
            buffer, start = (span.buffer, span.offset) if shift is None else ("i", span.offset + shift)
            division = (start, length, divisor)
            for chunk in range(start, start + length):
                other, place = first.setdefault((kind, owner, buffer, chunk), (division, here))
                if other != division:
                    found = found or (chunk - start + span.offset, span.buffer, owner, place)
        if found is not None:
            chunk, buffer, owner, place = found
            text = (
                f"divides {NAMES[buffer]} {chunk} of rank {owner} otherwise than gpu {place[0]} block {place[1]} step "
                f"{place[2]} does, in shares or in the turns of a pipeline: their order depends on the size"
            )
            yield not_analysed("part", here, text)


def _loops(where: tuple[int, int], block: Block) -> Iterator[Finding]:
    """Yield errors for loops that overlap or are empty, and for ops that the kernel does not run in turns."""
    try:
        checked_loops(block.loops, len(block.ops))
    except ValueError as fault:
        yield error("loop", (*where, None), str(fault))
        return
    for loop in block.loops:
        for i in range(loop.first, loop.end):
            op = block.ops[i]
            if any(span.packet for span in op.spans):
                yield error("loop", (*where, i), f"{op.code} moves all packets in every turn of the pipeline")
            elif (op.src or op.dst) and (op.part is not None or op.count != loop.chunks):
                size = f"{op.count} chunks" if op.part is None else f"share {op.part.index} of {op.part.of}"
                text = (
                    f"{op.code} moves {size} in a pipeline over {loop.chunks} chunks: it ends early, or passes its end"
                )
                yield error("loop", (*where, i), text)


def loop_size(block: Block, op: int) -> tuple[int, int] | None:
    """Return (chunks, unit) of the loop of an op, which give its number of turns; None outside loops."""
    return next(((loop.chunks, loop.unit) for loop in block.loops if loop.first <= op < loop.end), None)


def _block(program: Program, gpu: Gpu, b: int, block: Block) -> Iterator[Finding]:
    here, last = (gpu.rank, b, None), program.ranks - 1
    for peer, verb in ((block.send, "sends to"), (block.recv, "receives from")):
        if peer is not None and not 0 <= peer <= last:
            yield error("peer", here, f"{verb} rank {peer}, ranks are 0..{last}")
        elif peer == gpu.rank:
            yield error("self-peer", here, f"{verb} its own rank; use cpy")
    if block.channel < 0:
        yield error("channel", here, f"channel {block.channel} is negative")
    for port in block.ports:
        if not 0 <= port.peer <= last or port.peer == gpu.rank:
            yield error("peer", here, f"has a port to rank {port.peer}; a port leads to another rank of 0..{last}")
    style, other = (ONE_SIDED, "one-sided") if program.one_sided else (TWO_SIDED, "two-sided")
    for i, op in enumerate(block.ops):
        if op.code in style:
            yield from _op(program, gpu, b, i, op)
        else:
            yield error("code", (gpu.rank, b, i), f"{op.code} does not exist in a {other} program")


def _op(program: Program, gpu: Gpu, b: int, i: int, op: Op) -> Iterator[Finding]:
    here, blocks = (gpu.rank, b, i), gpu.blocks

    # Operands: their number, the group of a switch, and their places.
    shape = SHAPES.get(op.code, (1, None if program.one_sided else 1))
    for spans, wanted, name in ((op.src, shape[0], "source"), (op.dst, shape[1], "destination")):
        if len(spans) != wanted if wanted is not None else not spans:
            expected = "some" if wanted is None else wanted
            yield error("operands", here, f"{op.code} has {len(spans)} {name} operands, expected {expected}")
    if op.code == "put" and len(op.src) not in (1, len(op.dst)):
        yield error("operands", here, f"put has {len(op.src)} sources for {len(op.dst)} destinations; one, or one each")
    if op.code in SWITCHED:
        yield from _group(gpu, here, op)
    if op.count < 1:
        yield error("count", here, f"count is {op.count}; at least 1 is needed")
    for span in op.spans:
        rank = span.owner(gpu.rank)
        if span.buffer not in BUFFERS or not 0 <= rank < program.ranks:
            yield error("operands", here, f"there is no buffer {span.buffer} on rank {rank}")
            continue
        if not program.one_sided and (rank != gpu.rank or span.packet):
            yield error("operands", here, "a two-sided program touches its own rank's memory only, and without packets")
        owner, end = program.gpus[rank], span.offset + op.count
        size = {"i": owner.input, "o": owner.output, "s": owner.scratch}[span.buffer]
        if span.offset < 0 or end > size:
            name = f"{NAMES[span.buffer]} chunks {span.offset}..{end - 1}"
            yield error("bounds", here, f"{op.code} touches {name} of rank {rank}, which has {size}")

    # What it waits for.
    for dep in op.deps:
        waits = f"waits for step {dep.op} of block {dep.block}"
        mine, theirs = loop_size(blocks[b], i), None
        if 0 <= dep.block < len(blocks):
            theirs = loop_size(blocks[dep.block], dep.op)
        if not 0 <= dep.block < len(blocks):
            yield error("dep-missing", here, f"waits for block {dep.block}, this gpu has blocks 0..{len(blocks) - 1}")
        elif not 0 <= dep.op < len(blocks[dep.block].ops):
            yield error("dep-missing", here, f"{waits}, which has {len(blocks[dep.block].ops)} steps")
        elif dep.block == b and dep.op >= i and not dep.turns:
            text = f"waits for step {dep.op} of its own block, which comes no earlier: it waits for ever"
            yield error("dep-self", here, text)
        elif (mine != theirs and (dep.turns or (mine and theirs))) or (dep.turns and mine is None):
            yield error("dep-missing", here, f"{waits}, {dep.turns} turns before: they have no turns in common")

    # Shares, ports and groups.
    if op.part is not None and not 0 <= op.part.index < op.part.of <= MAX_PARTS:
        yield error("part", here, f"does share {op.part.index} of {op.part.of}; shares are numbered from 0")
    for port in op.ports:
        if not 0 <= port < len(blocks[b].ports):
            yield error("port", here, f"uses port {port}, the block has {len(blocks[b].ports)} ports")
    if op.code in ("signal", "wait") and not op.ports:
        yield error("port", here, f"{op.code} without a port does nothing")
    if op.code == "barrier" and (b not in op.group or not all(0 <= member < len(blocks) for member in op.group)):
        text = f"the barrier's group {list(op.group)} is not a set of this gpu's blocks with block {b} in it"
        yield error("group", here, text)


def _group(gpu: Gpu, here: Place, op: Op) -> Iterator[Finding]:
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
    packets = {span.packet for span in op.spans}
    if packets != {False} and (op.code == "glres" or packets != {True}):
        yield error("operands", here, f"{op.code} moves plain chunks; gstore alone stores packets, from packets")

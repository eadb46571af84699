"""Rules for one-sided programs: limits of an MSCCL++ execution plan, pairs of ports, and joins of a block's threads.

MSCCL++'s kernel does not join the threads of a block between two ops: only some threads wait or signal, and each data
op deals its bytes out to threads anew. A `nop` (or a barrier) joins them. It must stand wherever an op needs the effect
of an earlier op of its block. Facts from microsoft/mscclpp 0.9 and 0.10, as docs/lint.md lists them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby

from synth.program.analysis.call_sizes import call_sizes
from synth.program.analysis.cells import Memory
from synth.program.analysis.finding import Finding, error, not_analysed
from synth.program.analysis.onesided_order import other_end
from synth.program.analysis.report import size_text
from synth.program.analysis.structure import NAMES, loop_size
from synth.program.buffer_layout import Layout
from synth.program.program import SWITCHED, Block, Op, Place, Port, Program, Span
from synth.program.runtimes import Runtime

# written here again rather than taken from plan_limits.py: the analysis shares no code with the lowering
BLOCK_PORTS = 16  # ports of one kind that a block uses
OP_PORTS = 8  # ports of one operation
OP_SPANS = 10  # source spans, and destination spans, of one operation
BARRIERS = 16  # barriers of a rank
OFFSET_BITS = 32  # bits of an offset in bytes


def unpaired_ports(program: Program) -> Iterator[Finding]:
    """Yield an error for every port that is signalled or waited on and has no other end on the peer."""
    # a channel exists if both of its ranks list it
    known = {(rank, port) for (rank, _), block in program.blocks() for port in block.ports}
    for (rank, b), block in program.blocks():
        used = {p for op in block.ops for p in op.ports if op.code in ("signal", "wait")}
        for port in map(block.ports.__getitem__, sorted(used)):
            if other_end(rank, port) not in known:
                text = (
                    f"{port.kind} channel {port.index} to rank {port.peer}: rank {port.peer} has no such channel back"
                )
                yield error("port-pair", (rank, b, None), text)


def surplus_signals(program: Program) -> Iterator[Finding]:
    """Yield a warning for every port with more signals than waits: after some launches its waits order nothing.

    Those in pipelines must pair turn by turn (`unlike_turns`).
    """
    signals, waits = Counter(), Counter()
    for (rank, b, i), op in program.placed_ops():
        block = program.gpus[rank].blocks[b]
        for port in map(block.ports.__getitem__, op.ports if loop_size(block, i) is None else ()):
            if op.code == "signal":
                signals[other_end(rank, port)] += 1
            elif op.code == "wait":
                waits[rank, port] += 1
    for (rank, port), n in sorted(signals.items()):
        waited = waits[rank, port]
        if n > waited:
            text = (
                f"gets {n} signals on {port.kind} channel {port.index} of rank {port.peer} and waits for {waited}: in "
                "later launches the waits pass for earlier signals, and order nothing"
            )
            yield Finding("signals-left", "warning", rank, None, None, text)


def unlike_turns(program: Program) -> Iterator[Finding]:
    """Yield the signals, waits and barriers in pipelines that do not pair turn by turn, which are not analysed.

    They pair at some numbers of turns, and so at some sizes, only.
    """
    signals, waits = defaultdict(list), defaultdict(list)
    for gpu in program.gpus:
        # the blocks of a barrier must come there in the same turns
        met = defaultdict(list)  # group of a barrier -> (block, its stretches)
        for b, block in enumerate(gpu.blocks):
            for port in set(block.ports):
                signals[other_end(gpu.rank, port)] += [s for s in _stretches(block, "signal", port) if s[0]]
                waits[gpu.rank, port] += [s for s in _stretches(block, "wait", port) if s[0]]
            for group in {_group(op) for op in block.ops if op.code == "barrier"}:
                met[group].append((b, _stretches(block, "barrier", group)))
        for (first, expected), *others in met.values():
            for b, stretches in others:
                if stretches != expected and any(turns for turns, _ in (*stretches, *expected)):
                    text = (
                        f"meets block {first} at a barrier in other turns than that: whether one waits for ever "
                        f"depends on the size"
                    )
                    yield not_analysed("barrier", (gpu.rank, b, None), text)
    for rank, port in sorted({*signals, *waits}):
        if signals[rank, port] != waits[rank, port]:
            text = (
                f"waits for signals on {port.kind} channel {port.index} of rank {port.peer} in pipelines other than "
                f"those that signal: which signal a wait gets depends on the size"
            )
            yield not_analysed("signals-left", (rank, None, None), text)


def _group(op: Op) -> tuple[int, ...]:
    return tuple(sorted(set(op.group)))


def _stretches(block: Block, code: str, key: Port | tuple[int, ...]) -> list[tuple[tuple[int, int] | None, int]]:
    """Return (size of the loop, ops in each turn) of the ops that meet at the barrier of a group, or signal or wait on
    a port, for each loop in order; the ops between two loops have no loop, None."""
    uses = []
    for i, op in enumerate(block.ops):
        count = sum(block.ports[p] == key for p in op.ports)
        if code == "barrier":
            count = int(_group(op) == key)
        if op.code == code and count:
            uses.append((next((loop for loop in block.loops if loop.first <= i < loop.end), None), count))
    found = []
    for loop, same in groupby(uses, key=lambda use: use[0]):
        found.append((loop and (loop.chunks, loop.unit), sum(count for _, count in same)))
    return found


def unequal_packet_scratch(program: Program) -> Iterator[Finding]:
    """Yield an error for every packet that goes to a rank with more or less scratch than its writer.

    The scratch of packets is double, and every second launch uses the upper halves. There the offset of a packet on
    another rank is counted from the middle of the *writer's* scratch. With unequal sizes it lands in the wrong place,
    and its reader waits for ever, or it lands beyond the owner's memory.
    """
    for place, op in program.placed_ops() if not program.one_scratch else ():
        for span in op.dst:
            owner, own = span.owner(place[0]), program.gpus[place[0]].scratch
            scratch = program.gpus[owner].scratch
            if span.packet and scratch != own:
                text = (
                    f"puts a packet into the scratch of rank {owner}, which has {scratch} chunks, and has {own} itself:"
                    " every second launch counts its place from the middle of the writer's scratch; give all ranks "
                    "equally many"
                )
                yield error("packet-half", place, text)


def check(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """Yield errors for exceeded limits of a plan, memory that MSCCL++ would address wrongly, and missing joins."""
    if runtime.name not in ("mscclpp", "synth"):
        text = f"reaches into other ranks' memory, which {runtime.name} cannot: it sends through FIFOs"
        yield error("code", (None, None, None), text)
    if runtime.name != "mscclpp":
        return
    for gpu in program.gpus:
        groups = {_group(op) for block in gpu.blocks for op in block.ops if op.code == "barrier"}
        if len(groups) > BARRIERS:
            yield error("barriers", (gpu.rank, None, None), f"has {len(groups)} barriers, a plan {BARRIERS}")
        for b, block in enumerate(gpu.blocks):
            yield from _block_limits((gpu.rank, b), block, runtime)
    yield from _offsets(program)
    yield from _packet_memory(program)
    yield from _starts(program)
    yield from _joins(program)


def _block_limits(where: tuple[int, int], block: Block, runtime: Runtime) -> Iterator[Finding]:
    # waiting for another block and being waited for are ops of their own in a plan
    ops = len(block.ops) + len(block.loops) + sum(bool(op.deps) + op.flag for op in block.ops)
    if runtime.block_ops is not None and ops > runtime.block_ops:
        text = f"has {ops} operations, a plan's block {runtime.block_ops}: split the block"
        yield error("steps", (*where, None), text)
    for kind, n in sorted(Counter(port.kind for port in set(block.ports)).items()):
        if n > BLOCK_PORTS:
            yield error("channels", (*where, None), f"has {n} {kind} channels, a plan's block {BLOCK_PORTS}")
    for i, op in enumerate(block.ops):
        place, widest = (*where, i), max(len(op.src), len(op.dst))
        if op.code not in runtime.codes:
            yield error("code", place, f"{runtime.name} does not run {op.code}")
        if op.code == "cpy" and any(span.rank not in (None, where[0]) for span in op.spans):
            yield error("operands", place, "cpy stays on its rank in a plan: put writes to another, get reads from one")
        if len(op.ports) > OP_PORTS:
            yield error("channels", place, f"uses {len(op.ports)} channels at once, an operation {OP_PORTS}")
        if widest > OP_SPANS and op.code not in SWITCHED:
            yield error("operands", place, f"has {widest} buffers on one side, an operation {OP_SPANS}")


def _packet_memory(program: Program) -> Iterator[Finding]:
    """Yield errors for packets beyond the scratch, and for plain data in it that miss the half in turn.

    Packet k of a scratch lies where its chunks 2 k and 2 k + 1 would; the loader doubles the scratch of plans of
    protocol LL alone. With two halves, what a rank itself copies goes to the half in turn, plain data that go to other
    ranks, or through a port channel or a switch, to the first one. Plain data that lie on packets are not analysed.
    """
    # Where packets and plain data lie, in units of a chunk; a packet takes two.
    packets, plain = {}, {}  # (rank, chunk of its scratch) -> the first op that uses it so
    for place, op in program.placed_ops() if program.has_packets else ():
        by_port = _by_port(program, place, op)
        carries = by_port and any(span.packet for span in op.dst)  # a port channel that carries packets reads packets
        for span in (*(span._replace(packet=span.packet or carries) for span in op.src), *op.dst):
            if span.buffer != "s":
                continue
            owner, first, end = span.owner(place[0]), span.offset, span.offset + op.count
            scratch = program.gpus[owner].scratch
            if span.packet and program.protocol != "LL" and program.scratch_bytes is None and 2 * end > scratch:
                text = (
                    f"packets {first}..{end - 1} of rank {owner} take twice their chunks, {2 * end} of its scratch of "
                    f"{scratch}: declare as much, or the protocol LL"
                )
                yield error("bounds", place, text)
            away = by_port or op.code in SWITCHED or span.rank is not None
            if not span.packet and not program.one_scratch and away:
                text = (
                    f"plain data in scratch {first} of rank {owner}: with use_double_scratch_buffer they are in the "
                    f"first half in every launch, and the rank itself takes them from the half in turn"
                )
                yield error("packet-half", place, text)
            used, step = (packets, 2) if span.packet else (plain, 1)
            for k in range(step * first, step * end):
                used.setdefault((owner, k), place)
    for rank, chunk in sorted({*packets} & {*plain}):
        other = packets[rank, chunk]
        text = (
            f"plain data in scratch {chunk} of rank {rank} lie where packet {chunk // 2} does, which gpu {other[0]} "
            f"block {other[1]} step {other[2]} uses"
        )
        yield not_analysed("packet-mix", plain[rank, chunk], text)


def _by_port(program: Program, place: Place, op: Op) -> bool:
    """Return True for a put through port channels."""
    ports = program.gpus[place[0]].blocks[place[1]].ports
    return op.code == "put" and any(ports[p].kind == "port" for p in op.ports)


def _starts(program: Program) -> Iterator[Finding]:
    """Yield errors for memory that MSCCL++ would address wrongly in place.

    MSCCL++ adds an offset in another rank's input or output to the offset of the writer's own buffer in its allocation.
    It counts the source of a put through a port channel from the beginning of the allocation. So of two buffers in one
    allocation the larger must be named.
    """
    layout = None if program.collective is None else Layout(program.collective, program.chunks)
    if program.in_place != "in" or layout is None or not layout.can_be_in_place:
        return
    # where input and output begin in the allocation that has both
    begins = [{"i": max(0, -(shift or 0)), "o": max(0, shift or 0), "s": 0} for shift in layout.overlaps]
    for place, op in program.placed_ops():
        spans = [(span, begins[place[0]][span.buffer]) for span in op.spans if span.rank is not None]
        if _by_port(program, place, op):
            spans += [(span, 0) for span in op.src if span.rank is None]
        for span, counted in spans:
            owner = span.owner(place[0])
            begin = begins[owner][span.buffer]
            if counted != begin:
                text = (
                    f"{NAMES[span.buffer]} {span.offset} of rank {owner} begins {begin} chunks into its allocation, "
                    f"and is counted from {counted}: name it as a part of the larger buffer, or go through scratch"
                )
                yield error("buffer-start", place, text)


def _offsets(program: Program) -> Iterator[Finding]:
    """Yield an error if an offset passes 32 bits at the plan's largest size, a warning if the plan has no such size."""
    top = program.max_bytes
    if top is not None and _farthest(program, top) < 1 << OFFSET_BITS:
        return
    fault = "an offset passes 32 bits above"
    if top is not None:
        fault = f"at its largest size, {size_text(top)}, an offset passes 32 bits; the limit is"
    fitting = size_text(largest_with_short_offsets(program))
    text = f"{fault} {fitting}: set the largest size (max_message_size) to that or less"
    yield Finding("offsets", "warning" if top is None else "error", None, None, None, text)


def largest_with_short_offsets(program: Program) -> int:
    """Return the largest size in bytes at which no offset passes 32 bits."""
    sizes = range(1 << 62)
    return bisect_left(sizes, 1 << OFFSET_BITS, key=lambda size: _farthest(program, size)) - 1


def _farthest(program: Program, size: int) -> int:
    """Return the greatest offset in bytes for a call of `size` bytes, over all ranks, buffers and halves of scratch.

    A packet takes twice its chunk. The loader sizes the scratch as if the whole allocation that the input lies in were
    input, up to the largest message (for allgather the output, for others the input). Half of that comes first.
    """
    chunk = -(-size // program.loop_chunks)
    gathers = program.collective is not None and program.collective.name == "allgather"
    first, second = ("output", "input") if gathers else ("input", "output")
    message = chunk * max(getattr(gpu, first) or getattr(gpu, second) for gpu in program.gpus)
    ends = [0]
    for gpu in program.gpus:
        ends.append(chunk * max(gpu.input, gpu.output, gpu.scratch))
        if program.protocol == "LL" or program.has_packets:
            ends.append(gpu.scratch * (2 * -(-message // max(1, gpu.input or gpu.output)) + 2 * chunk))
    return max(ends)


def _joins(program: Program) -> Iterator[Finding]:
    """Yield errors for ops whose threads may run before those of an earlier op of their block that they rely on."""
    line = call_sizes(program).lines[0]
    program = line.program
    layout = None if program.collective is None else Layout(program.collective, program.chunks)
    memory = Memory(line, layout, program.in_place != "out" and layout is not None and layout.can_be_in_place)
    for (rank, b), block in program.blocks():
        found = {}
        threads = _UnjoinedThreads(memory, rank, b)
        # the threads of a block meet at each nop and barrier, and forget what was before
        for i, op in enumerate(block.ops):
            if op.code in ("nop", "barrier"):
                threads = _UnjoinedThreads(memory, rank, b)
                continue
            why = threads.fault(op)
            text = f"{op.code} {why}, and the block's threads have not met in between: put a nop before it"
            if why is None and (op.deps or op.flag):
                text = f"{op.code} waits for, or is waited for by, another block: only a nop or barrier does that for "
                text += "all threads"
            if why is not None or op.deps or op.flag:
                found[error("join", (rank, b, line.step(rank, b, i)), text)] = None
            # the threads meet inside a put of packets through a port channel, after reading them
            if op.code == "put" and threads.serves(op) and op.src[0].packet:
                threads = _UnjoinedThreads(memory, rank, b)
            threads.record(i, op)
        yield from found


class _UnjoinedThreads:
    """The steps of one block since its threads have last met, and the rules of the kernel on what may follow.

    Thread k of the block serves the k-th channel of a signal, a wait, a flush, and of a put through port channels: it
    hands them to one queue, so what the same thread hands over for one channel is in order. All threads move other
    data. Ops with packets deal the elements of their spans out in one way: the same place is the same thread. A packet
    is read when the thread that wrote it is done with the elements beside it. An access is (step, element): the place
    of the cell in the op's span, None if it names no thread.
    """

    def __init__(self, memory: Memory, rank: int, number: int) -> None:
        self.memory, self.place = memory, (rank, number)
        self.ports = memory.program.gpus[rank].blocks[number].ports
        self.writes = {}  # the last write of each cell
        self.reads = defaultdict(list)  # its reads since then
        self.packets = {}  # packet → its writer, and the cells beside it
        self.served = {}  # (code, port) → the thread that serves it
        self.data: int | None = None  # the last step in which all threads moved data
        self.waited: int | None = None  # the last step that waited
        self.one_waits = True  # no more than the first thread has waited

    def serves(self, op: Op) -> bool:
        """Return True if single threads act, one for each port of `op`."""
        through_port = op.code == "put" and any(self.ports[p].kind == "port" for p in op.ports)
        return through_port or op.code in ("signal", "wait", "flush")

    def fault(self, op: Op) -> str | None:
        """Return the order that `op` takes for granted and does not have, as text."""
        # a single thread keeps its own order: what it waited for, it may act on
        one = self.serves(op) and len(op.ports) == 1
        if self.waited is not None and op.code not in ("wait", "flush") and not (one and self.one_waits):
            return f"after step {self.memory.line.step(*self.place, self.waited)} has waited"
        if self.data is not None and op.code in ("signal", "flush"):
            return f"after step {self.memory.line.step(*self.place, self.data)} has moved data"
        if op.code in ("signal", "wait", "flush"):
            for thread, port in enumerate(op.ports):
                for code in (op.code, "put") if op.code != "wait" else ("wait",):
                    if self.served.get((code, port), thread) != thread:
                        return f"after a {code} on the same channel by another thread"
        for cells, packets, element in self._elements(op):
            for cell, writes in cells:
                earlier = [self.writes[cell]] if cell in self.writes else []
                earlier += self.reads[cell] if writes else ()
                for step, before in earlier:
                    # in order: of the same thread, or read beside a packet that this op waits for
                    same_thread = before is not None and before == element
                    writers = [self.packets[packet] for packet in packets if packet in self.packets]
                    if not same_thread and not any(writer == step and cell in beside for writer, beside in writers):
                        return "on chunks that an earlier step touches too"
        return None

    def record(self, step: int, op: Op) -> None:
        """Record `op` as the next step of the block."""
        if self.serves(op):
            self.served |= {(op.code, port): thread for thread, port in enumerate(op.ports)}
            if op.code in ("wait", "flush"):
                self.waited = step
                self.one_waits &= len(op.ports) == 1
        elif op.src or op.dst:
            self.data = step
        for cells, _, element in self._elements(op):
            for cell, writes in cells:
                if writes:
                    self.writes[cell] = step, element
                    self.reads.pop(cell, None)
                else:
                    self.reads[cell].append((step, element))
        for k in range(op.count):
            beside = frozenset(self._cell(span, k) for span in op.spans if not span.packet)
            for span in op.dst:
                if span.packet:
                    self.packets[self._cell(span, k)] = step, beside
                    self.writes[self._cell(span, k)] = step, k  # a port channel reads it without its flag

    def _elements(self, op: Op) -> Iterator[tuple[list[tuple[int, bool]], list[int], int | None]]:
        """Yield, for each chunk of the op's spans, the plain cells with whether they are written, the packets that are
        read, and the element, None if it names no thread. Reads come first."""
        spans = [(span, False) for span in op.src]
        spans += [(span, True) for span in op.dst]
        dealt = any(span.packet for span, _ in spans) and not self.serves(op)
        for k in range(op.count if spans else 0):
            cells = [(self._cell(span, k), writes) for span, writes in spans if not span.packet]
            packets = [self._cell(span, k) for span, writes in spans if span.packet and not writes]
            yield cells, packets, k if dealt else None

    def _cell(self, span: Span, k: int) -> int:
        owner = span.owner(self.place[0])
        return self.memory.base[owner][span.buffer] + span.offset + k

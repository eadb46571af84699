"""Rules for one-sided programs: limits of an MSCCL++ execution plan, pairs of ports, and joins of a block's threads.

MSCCL++'s kernel does not join the threads of a block between two ops: only some threads wait or signal, and each data
op deals its bytes out to threads anew. A `nop` (or a barrier) joins them. It must stand wherever an op needs the effect
of an earlier op of its block. Facts from microsoft/mscclpp 0.9 and 0.10, as docs/lint.md lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from synth.program.analysis.call_sizes import call_sizes
from synth.program.analysis.cells import Memory
from synth.program.analysis.finding import Finding, error, not_analysed
from synth.program.analysis.onesided_order import other_end
from synth.program.analysis.report import size_text
from synth.program.analysis.structure import NAMES, loop_size
from synth.program.buffer_layout import Layout
from synth.program.program import SWITCHED, Block, Gpu, Op, Port, Program, Span
from synth.program.runtimes import Runtime

# written here again rather than taken from plan_limits.py: the analysis shares no code with the lowering
BLOCK_PORTS = 16  # ports of one kind that a block uses
OP_PORTS = 8  # ports of one operation
OP_SPANS = 10  # source spans, and destination spans, of one operation
BARRIERS = 16  # barriers of a rank
OFFSET_BITS = 32  # bits of an offset in bytes
# A rank and its end of a port.
End = tuple[int, Port]


def unpaired_ports(program: Program) -> Iterator[Finding]:
    """Yield an error for every port that is signalled or waited on and has no other end on the peer."""
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


def surplus_signals(program: Program) -> Iterator[Finding]:
    """Yield a warning for every port with more signals than waits: after some launches its waits order nothing.

    Those in pipelines are compared turn by turn: with other numbers of turns they differ at some sizes, which is not
    analysed.
    """
    signals: Counter = Counter()
    waits: Counter = Counter()
    for gpu in program.gpus:
        for block in gpu.blocks:
            for i, op in enumerate(block.ops):
                loop = loop_size(block, i) or (0, 0)
                if op.code == "signal":
                    signals.update((*other_end(gpu.rank, block.ports[p]), loop) for p in op.ports)
                elif op.code == "wait":
                    waits.update((gpu.rank, block.ports[p], loop) for p in op.ports)
    for rank, port, loop in sorted({*signals, *(key for key in waits if key[2] != (0, 0))}):
        n, waited = signals[rank, port, loop], waits[rank, port, loop]
        if n > waited or (n != waited and loop != (0, 0)):
            name = f"{port.kind} channel {port.index} of rank {port.peer}"
            if loop == (0, 0):
                text = (
                    f"gets {n} signals on {name} and waits for {waited}: in later launches the waits pass for earlier "
                    f"signals, and order nothing"
                )
                yield error("signals-left", (rank, None, None), text)._replace(severity="warning")
            else:
                text = (
                    f"gets {n} signals on {name} in each turn of {loop[1]} bytes and waits for {waited}: which signal "
                    f"a wait gets depends on the size"
                )
                yield not_analysed("signals-left", (rank, None, None), text)


def unlike_turns(program: Program) -> Iterator[Finding]:
    """Yield the signals, waits and barriers in pipelines that do not pair turn by turn, which are not analysed.

    They pair at some numbers of turns, and so at some sizes, only.
    """
    signals: dict[End, list[Stretch]] = {}
    waits: dict[End, list[Stretch]] = {}
    for gpu in program.gpus:
        met: dict[tuple[int, ...], list[tuple[int, list[Stretch]]]] = {}
        for b, block in enumerate(gpu.blocks):
            for port in set(block.ports):
                by_code = {code: _stretches(block, code, port) for code in ("signal", "wait")}
                signals.setdefault(other_end(gpu.rank, port), []).extend(s for s in by_code["signal"] if s.turns)
                waits.setdefault((gpu.rank, port), []).extend(s for s in by_code["wait"] if s.turns)
            for group in {tuple(sorted(set(op.group))) for op in block.ops if op.code == "barrier"}:
                met.setdefault(group, []).append((b, _stretches(block, "barrier", group)))
        for members in met.values():
            for b, stretches in members[1:]:
                if stretches != members[0][1] and any(s.turns for s in (*stretches, *members[0][1])):
                    text = (
                        f"meets block {members[0][0]} at a barrier in other turns than that: whether one waits for "
                        f"ever depends on the size"
                    )
                    yield not_analysed("barrier", (gpu.rank, b, None), text)
    for rank, port in sorted({*signals, *waits}):
        if signals.get((rank, port), []) != waits.get((rank, port), []):
            text = (
                f"waits for signals on {port.kind} channel {port.index} of rank {port.peer} in pipelines other than "
                f"those that signal: which signal a wait gets depends on the size"
            )
            yield not_analysed("signals-left", (rank, None, None), text)


class Stretch(NamedTuple):
    """Ops of one kind in one loop, `count` in each turn, or between loops: `turns` is then None."""

    turns: tuple[int, int] | None
    count: int


def _stretches(block: Block, code: str, key: Port | tuple[int, ...]) -> list[Stretch]:
    """Return the stretches of the ops that meet at the barrier of a group, or signal or wait on a port."""
    found: list[Stretch] = []
    last = None
    for i, op in enumerate(block.ops):
        loop = next((loop for loop in block.loops if loop.first <= i < loop.end), None)
        count = sum(block.ports[p] == key for p in op.ports)
        if code == "barrier":
            count = int(tuple(sorted(set(op.group))) == key)
        if op.code != code or not count:
            continue
        if found and loop == last:
            found[-1] = Stretch(found[-1].turns, found[-1].count + count)
        else:
            found.append(Stretch(None if loop is None else (loop.chunks, loop.unit), count))
        last = loop
    return found


def unequal_packet_scratch(program: Program) -> Iterator[Finding]:
    """Yield an error for every packet that goes to a rank with more or less scratch than its writer.

    The scratch of packets is double, and every second launch uses the upper halves. There the offset of a packet on
    another rank is counted from the middle of the *writer's* scratch. With unequal sizes it lands in the wrong place,
    and its reader waits for ever, or it lands beyond the owner's memory.
    """
    if program.one_scratch:
        return
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                for span in op.dst:
                    owner = gpu.rank if span.rank is None else span.rank
                    scratch = program.gpus[owner].scratch
                    if span.packet and scratch != gpu.scratch:
                        text = (
                            f"puts a packet into the scratch of rank {owner}, which has {scratch} chunks, and has "
                            f"{gpu.scratch} itself: every"
                            " second launch counts its place from the middle of the writer's scratch; give all "
                            "ranks equally many"
                        )
                        yield error("packet-half", (gpu.rank, b, i), text)


def check(program: Program, runtime: Runtime) -> Iterator[Finding]:
    """Yield errors for exceeded limits of a plan, memory that MSCCL++ would address wrongly, and missing joins."""
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
    yield from _packet_memory(program)
    yield from _starts(program)
    yield from _joins(program)


def _packet_memory(program: Program) -> Iterator[Finding]:
    """Yield errors for packets beyond the scratch, and for plain data in it that miss the half in turn.

    Packet k of a scratch lies where its chunks 2 k and 2 k + 1 would; the loader doubles the scratch of plans of
    protocol LL alone. With two halves, what a rank itself copies goes to the half in turn, plain data that go to other
    ranks, or through a port channel or a switch, to the first one. Plain data that lie on packets are not analysed.
    """
    if not program.has_packets:
        return
    packets: dict[tuple[int, int], tuple[int, int, int]] = {}
    plain: dict[tuple[int, int], tuple[int, int, int]] = {}
    for place, owner, span, count, through in _scratch_spans(program):
        scratch = program.gpus[owner].scratch
        reached = 2 * (span.offset + count)
        if span.packet and program.protocol != "LL" and program.scratch_bytes is None and reached > scratch:
            text = (
                f"packets {span.offset}..{span.offset + count - 1} of rank {owner} take twice their chunks, {reached} "
                f"of its scratch of {scratch}: declare as much, or the protocol LL"
            )
            yield error("bounds", place, text)
        if not span.packet and not program.one_scratch and (through or span.rank is not None):
            text = (
                f"plain data in scratch {span.offset} of rank {owner}: with use_double_scratch_buffer they are in the "
                f"first half in every launch, and the rank itself takes them from the half in turn"
            )
            yield error("packet-half", place, text)
        for k in range(span.offset, span.offset + count):
            if span.packet:
                packets.setdefault((owner, 2 * k), place)
                packets.setdefault((owner, 2 * k + 1), place)
            else:
                plain.setdefault((owner, k), place)
    for rank, chunk in sorted({*packets} & {*plain}):
        other = packets[rank, chunk]
        text = (
            f"plain data in scratch {chunk} of rank {rank} lie where packet {chunk // 2} does, which gpu {other[0]} "
            f"block {other[1]} step {other[2]} uses"
        )
        yield not_analysed("packet-mix", plain[rank, chunk], text)


def _scratch_spans(program: Program) -> Iterator[tuple[tuple[int, int, int], int, Span, int, bool]]:
    """Yield (place, owner, span, chunks, through) of each use of scratch. A port channel that carries packets reads
    packets. `through`: plain data that a port channel or a switch takes or brings."""
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                by_port = op.code == "put" and any(block.ports[p].kind == "port" for p in op.ports)
                carries = by_port and any(span.packet for span in op.dst)
                spans = [span._replace(packet=span.packet or carries) for span in op.src]
                for span in (*spans, *op.dst):
                    if span.buffer == "s":
                        owner = gpu.rank if span.rank is None else span.rank
                        yield (gpu.rank, b, i), owner, span, op.count, by_port or op.code in SWITCHED


def _starts(program: Program) -> Iterator[Finding]:
    """Yield errors for memory that MSCCL++ would address wrongly in place.

    MSCCL++ adds an offset in another rank's input or output to the offset of the writer's own buffer in its allocation.
    It counts the source of a put through a port channel from the beginning of the allocation. So of two buffers in one
    allocation the larger must be named.
    """
    layout = None if program.collective is None else Layout(program.collective, program.chunks)
    if program.in_place != "in" or layout is None or not layout.can_be_in_place:
        return
    begins = [{"i": max(0, -(shift or 0)), "o": max(0, shift or 0), "s": 0} for shift in layout.overlaps]
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                by_port = op.code == "put" and any(block.ports[p].kind == "port" for p in op.ports)
                spans = [span for span in (*op.src, *op.dst) if span.rank is not None]
                if by_port:
                    spans += [span for span in op.src if span.rank is None]
                for span in spans:
                    owner = gpu.rank if span.rank is None else span.rank
                    counted = 0 if span.rank is None else begins[gpu.rank][span.buffer]
                    if counted != begins[owner][span.buffer]:
                        memory = f"{NAMES[span.buffer]} {span.offset} of rank {owner}"
                        text = (
                            f"{memory} begins {begins[owner][span.buffer]} chunks into its allocation, and is counted "
                            f"from {counted}:"
                            " name it as a part of the larger buffer, or go through scratch"
                        )
                        yield error("buffer-start", (gpu.rank, b, i), text)


def _offsets(program: Program) -> Iterator[Finding]:
    """Yield an error if an offset passes 32 bits at the plan's largest size, a warning if the plan has no such size."""
    top = program.max_bytes
    if top is not None and _farthest(program, top) < 1 << OFFSET_BITS:
        return
    fitting = largest_with_short_offsets(program)
    fault = (
        "an offset passes 32 bits above"
        if top is None
        else f"at its largest size, {size_text(top)}, an offset passes 32 bits; the limit is"
    )
    finding = error(
        "offsets",
        (None, None, None),
        f"{fault} {size_text(fitting)}: set the largest size (max_message_size) to that or less",
    )
    yield finding if top is not None else finding._replace(severity="warning")


def largest_with_short_offsets(program: Program) -> int:
    """Return the largest size in bytes at which no offset passes 32 bits."""
    fitting, too_large = 0, 1 << 64  # narrowed by bisection
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        if _farthest(program, middle) < 1 << OFFSET_BITS:
            fitting = middle
        else:
            too_large = middle
    return fitting


def _farthest(program: Program, size: int) -> int:
    """Return the greatest offset in bytes for a call of `size` bytes, over all ranks, buffers and halves of scratch.

    A packet takes twice its chunk. The loader sizes the scratch as if the whole allocation that the input lies in were
    input, up to the largest message (for allgather the output, for others the input). Half of that comes first.
    """
    chunk = -(-size // program.loop_chunks)
    message_chunks = [gpu.input or gpu.output for gpu in program.gpus]
    if program.collective is not None and program.collective.name == "allgather":
        message_chunks = [gpu.output or gpu.input for gpu in program.gpus]
    message = chunk * max(message_chunks)
    ends = [0]
    for gpu in program.gpus:
        ends += [gpu.input * chunk, gpu.output * chunk, gpu.scratch * chunk]
        if program.protocol == "LL" or program.has_packets:
            ends.append(gpu.scratch * (2 * -(-message // max(1, gpu.input or gpu.output)) + 2 * chunk))
    return max(ends)


def _block(gpu: Gpu, b: int, block: Block, runtime: Runtime) -> Iterator[Finding]:
    # waiting for another block and being waited for are ops of their own in a plan
    ops = len(block.ops) + len(block.loops) + sum(bool(op.deps) + op.flag for op in block.ops)
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
        if max(len(op.src), len(op.dst)) > OP_SPANS and op.code not in SWITCHED:
            yield error(
                "operands", place, f"has {max(len(op.src), len(op.dst))} buffers on one side, an operation {OP_SPANS}"
            )


def _joins(program: Program) -> Iterator[Finding]:
    line = call_sizes(program).lines[0]
    program = line.program
    layout = None if program.collective is None else Layout(program.collective, program.chunks)
    memory = Memory(line, layout, program.in_place != "out" and layout is not None and layout.can_be_in_place)
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for finding in dict.fromkeys(_block_joins(memory, gpu, b, block)):
                yield finding._replace(op=line.step(gpu.rank, b, finding.op or 0))


def _block_joins(memory: Memory, gpu: Gpu, b: int, block: Block) -> Iterator[Finding]:
    threads = _UnjoinedThreads(memory, gpu.rank, b)
    for i, op in enumerate(block.ops):
        if op.code in ("nop", "barrier"):
            threads = _UnjoinedThreads(memory, gpu.rank, b)
            continue
        why = threads.fault(op)
        if why is not None:
            text = f"{op.code} {why}, and the block's threads have not met in between: put a nop before it"
            yield error("join", (gpu.rank, b, i), text)
        elif op.deps or op.flag:
            text = (
                f"{op.code} waits for, or is waited for by, another block: only a nop or barrier does that for "
                f"all threads"
            )
            yield error("join", (gpu.rank, b, i), text)
        if threads.joins(op):
            threads = _UnjoinedThreads(memory, gpu.rank, b)
        threads.record(i, op)


class _Access(NamedTuple):
    """An access to a cell by op `step`; `element`: the place of the cell in the op's span, None if it names no thread.

    Ops with packets deal the elements of their spans out in one way: the same place is the same thread.
    """

    step: int
    element: int | None


class _UnjoinedThreads:
    """The steps of one block since its threads have last met, and the rules of the kernel on what may follow.

    Thread k of the block serves the k-th channel of a signal, a wait, a flush, and of a put through port channels: it
    hands them to one queue, so what the same thread hands over for one channel is in order. All threads move other
    data. A packet is read when the thread that wrote it is done with the elements beside it.
    """

    def __init__(self, memory: Memory, rank: int, number: int) -> None:
        self.memory, self.rank, self.number = memory, rank, number
        self.block = memory.program.gpus[rank].blocks[number]
        self.writes: dict[int, _Access] = {}  # the last write of each cell
        self.reads: dict[int, list[_Access]] = {}  # its reads since then
        self.packets: dict[int, tuple[int, frozenset[int]]] = {}  # packet → its writer, and the cells beside it
        self.served: dict[tuple[str, int], int] = {}  # (code, port) → the thread that serves it
        self.data: int | None = None  # the last step in which all threads moved data
        self.waited: int | None = None  # the last step that waited
        self.one_waits = True  # no more than the first thread has waited

    def serves(self, op: Op) -> bool:
        """Return True if single threads act, one for each port of `op`."""
        through_port = op.code == "put" and any(self.block.ports[p].kind == "port" for p in op.ports)
        return through_port or op.code in ("signal", "wait", "flush")

    def joins(self, op: Op) -> bool:
        """Return True if the threads meet inside `op`: a put of packets through a port channel, after reading them."""
        return op.code == "put" and self.serves(op) and op.src[0].packet

    def fault(self, op: Op) -> str | None:
        """Return the order that `op` takes for granted and does not have, as text."""
        one = self.serves(op) and len(op.ports) == 1
        if self.waited is not None and op.code not in ("wait", "flush") and not (one and self.one_waits):
            return f"after step {self._step(self.waited)} has waited"
        if self.data is not None and op.code in ("signal", "flush"):
            return f"after step {self._step(self.data)} has moved data"
        if op.code in ("signal", "wait", "flush"):
            for thread, port in enumerate(op.ports):
                for code in (op.code, "put") if op.code != "wait" else ("wait",):
                    if self.served.get((code, port), thread) != thread:
                        return f"after a {code} on the same channel by another thread"
        for cells, packets, element in self._elements(op):
            for cell, writes in cells:
                earlier = [self.writes[cell]] if cell in self.writes else []
                earlier += self.reads.get(cell, ()) if writes else ()
                if not all(self._ordered(access, cell, packets, element) for access in earlier):
                    return "on chunks that an earlier step touches too"
        return None

    def _ordered(self, access: _Access, cell: int, packets: list[int], element: int | None) -> bool:
        """Return True if `access` to `cell` is before that of an op for `element`, which reads `packets` there."""
        if access.element is not None and access.element == element:
            return True
        for packet in packets:
            writer, beside = self.packets.get(packet, (None, frozenset()))
            if writer == access.step and cell in beside:
                return True
        return False

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
            access = _Access(step, element)
            for cell, writes in cells:
                if writes:
                    self.writes[cell] = access
                    self.reads.pop(cell, None)
                else:
                    self.reads.setdefault(cell, []).append(access)
        for k in range(op.count):
            beside = frozenset(self._cell(span, k) for span in (*op.src, *op.dst) if not span.packet)
            for span in op.dst:
                if span.packet:
                    cell = self._cell(span, k)
                    self.packets[cell] = step, beside
                    self.writes[cell] = _Access(step, k)  # a port channel reads it without its flag

    def _elements(self, op: Op) -> Iterator[tuple[list[tuple[int, bool]], list[int], int | None]]:
        """Yield, for each chunk of the op's spans, the plain cells with whether they are written, the packets that are
        read, and the element, None if it names no thread. Reads come first."""
        spans = [(span, False) for span in op.src]
        spans += [(span, True) for span in op.dst]
        packed = any(span.packet for span, _ in spans)
        for k in range(op.count if spans else 0):
            cells, packets = [], []
            for span, writes in spans:
                if not span.packet:
                    cells.append((self._cell(span, k), writes))
                elif not writes:
                    packets.append(self._cell(span, k))
            yield cells, packets, k if packed and not self.serves(op) else None

    def _step(self, op: int) -> int:
        return self.memory.line.step(self.rank, self.number, op)

    def _cell(self, span: Span, k: int) -> int:
        owner = self.rank if span.rank is None else span.rank
        return self.memory.base[owner][span.buffer] + span.offset + k

"""Symbolic execution of one-sided programs: puts into other ranks' memory, ordered by signals, barriers, packets.

The actors of the vector clocks are the blocks, then one engine for each port channel that moves data, then the entry of
each rank into the call. An engine reads the source of a put and writes its destination some time later, in order with
its signals; `flush` waits for it. Until a rank has entered the call its buffers belong to its user, so another rank
needs a signal from it before it touches them. Packet scratch is exempt (its flags change from call to call), and so are
a rank's accesses to its own memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

import numpy as np

from synth.program.analysis.cells import Value, add
from synth.program.analysis.finding import Finding, error
from synth.program.analysis.onesided_order import other_end
from synth.program.analysis.symbolic_execution import (
    PART,
    ExecutionOutcome,
    SymbolicExecution,
    merge_outcomes,
    parts_of,
)
from synth.program.analysis.vector_clocks import Row
from synth.program.program import Gpu, Op, Port, Program, Span
from synth.program.straight_line import StraightLine


def execute_one_sided(
    line: StraightLine, done: list[tuple[int, int, int]], in_place: bool, part: int = PART
) -> ExecutionOutcome:
    """Execute a one-sided program, written out for one size, symbolically and return its findings.

    `done`: an order in which its ops can end, as (rank, block, op). `part`: number of actors (blocks, entries, port
    channels) whose clocks are in memory at once.
    """
    program = line.program
    actors = sum(len(gpu.blocks) + 1 for gpu in program.gpus) + len(_engines(program))
    return merge_outcomes([OneSidedExecution(line, in_place, watched).run(done) for watched in parts_of(actors, part)])


def _engines(program: Program) -> dict[tuple[int, Port], int]:
    """Return the port channels of all ranks that move data, in order, and the first block that has each.

    A channel that only signals or is waited on touches no memory, and its signals tell what their block knows.
    """
    moving: set[tuple[int, Port]] = set()
    first: dict[tuple[int, Port], int] = {}
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for port in block.ports:
                first.setdefault((gpu.rank, port), b)
            for op in block.ops:
                if op.code in ("put", "get"):
                    moving.update((gpu.rank, block.ports[p]) for p in op.ports)
    return {(rank, port): first[rank, port] for rank, port in sorted(moving) if port.kind == "port"}


class LaunchOrder:
    """Order between the packets of one launch and those of the next that lie in the same scratch.

    A rank enters a launch after it has ended the one before. So the writer of a packet knows all that any rank knew at
    the end of the launch before, if it knows that this rank has entered; and from there one launch further back. A port
    channel that sends packets from scratch may do so after its rank has ended, but not two launches later.
    `reads`: cell → (actor, time) of each read of a packet. `writes`: (cell, the ranks known to have entered, place).
    `engines`: the rank of each port channel, by actor. Sets of ranks are bit masks.
    """

    def __init__(self, program: Program, entry: int, engines: dict[int, int]) -> None:
        self.entry, self.ranks, self.engines = entry, program.ranks, engines
        self.reads: dict[int, list[tuple[int, int]]] = {}
        self.writes: list[tuple[int, int, tuple[int, int, int]]] = []

    def entered(self, row: Row) -> int:
        """Return the ranks that have entered the launch before `row`."""
        bits = np.packbits(row[self.entry : self.entry + self.ranks] > 0, bitorder="little")
        return int.from_bytes(bits.tobytes(), "little")

    def overwritten(self, ends: list[Row], one_scratch: bool) -> Iterator[tuple[int, tuple[int, int, int], str]]:
        """Yield (cell, place, launch) of each write of a packet that does not know that all have read the last one.

        ``ends[rank]``: the row of a rank at its end. `one_scratch`: the last packet there is of the launch before,
        otherwise of the one before that.
        """
        before = [self.entered(row) for row in ends]
        for cell, known, place in self.writes:
            ranks = known
            if not one_scratch:
                ranks = 0
                for rank in range(self.ranks):
                    ranks |= before[rank] if known >> rank & 1 else 0
            for actor, time in self.reads.get(cell, ()):
                if not one_scratch and actor in self.engines and ranks >> self.engines[actor] & 1:
                    continue
                if not any(ranks >> rank & 1 and ends[rank][actor] >= time for rank in range(self.ranks)):
                    yield cell, place, "that of the launch before" if one_scratch else "that of two launches before"
                    break


class OneSidedExecution(SymbolicExecution):
    """Symbolic execution of a one-sided program, with blocks, port engines and entries as actors."""

    def __init__(self, line: StraightLine, in_place: bool, watched: range) -> None:
        program = line.program
        blocks = [(gpu.rank, b) for gpu in program.gpus for b in range(len(gpu.blocks))]
        engines = _engines(program)
        self.number = {place: i for i, place in enumerate(blocks)}
        self.engines = {key: len(blocks) + i for i, key in enumerate(engines)}
        # (rank, block) of each block, and of the first block that has each engine's channel
        self.places = [*blocks, *((rank, b) for (rank, _), b in engines.items())]
        self.entry = len(self.places)
        self.carriers = set(self.engines.values())
        super().__init__(line, in_place, self.entry + program.ranks, watched)
        self.signals: dict[tuple[int, Port], deque[Row]] = {}
        self.ended: dict[tuple[int, int, int], Row] = {}
        self.waited = {
            (g.rank, d.block, d.op) for g in program.gpus for block in g.blocks for op in block.ops for d in op.deps
        }
        # barrier → the joined clock of its members, and the members that have not left yet
        self.meeting: dict[tuple, tuple[Row, set[int]]] = {}
        self.packets: dict[int, Row | None] = {}  # cell → the row of its writer
        self.launches: LaunchOrder | None = None
        if len(watched) == self.entry + program.ranks:
            ranks = {actor: rank for (rank, _), actor in self.engines.items()}
            self.launches = LaunchOrder(program, self.entry, ranks)
        for rank in range(program.ranks):
            for cell in self.cells(rank):
                self.clocks.writer[cell], self.clocks.write_time[cell] = self.entry + rank, 1
        for (rank, _), actor in self.number.items():
            self.clocks.learn(actor, self.entry + rank, 1)

    def cells(self, rank: int) -> range:
        """Return the cells of a rank."""
        bases = self.memory.base
        end = min(bases[rank + 1].values()) if rank + 1 < len(bases) else len(self.memory.values)
        return range(min(bases[rank].values()), end)

    def run(self, done: list[tuple[int, int, int]]) -> ExecutionOutcome:
        """Execute the ops in the order `done`; the outputs are compared if all ops have run."""
        for rank, b, i in done:
            self.execute_op(rank, b, i)
        complete = len(done) == self.program.ops
        if complete:
            self.check_end()
            self.check_next_launches()
        self.report_entries()
        return self.outcome(self.places, complete)

    def execute_op(self, rank: int, b: int, i: int) -> None:
        """Execute op `i` of block `b` of `rank`: its dependencies, then its signals, waits or data."""
        block, clocks, me = self.program.gpus[rank].blocks[b], self.clocks, self.number[rank, b]
        op = block.ops[i]
        clocks.tick(me)
        for dep in op.deps:
            if dep.block != b:
                clocks.join(me, self.ended[rank, dep.block, dep.op])
        if op.code == "signal":
            mine: Row | None = None  # one row for all signals of the block itself
            for port in (block.ports[p] for p in op.ports):
                actor = self.engine(rank, port, me)
                if actor != me:
                    clocks.join(actor, clocks.tick(me))
                    clocks.tick(actor)
                    row = clocks.rows[actor].copy()
                else:
                    row = mine = clocks.rows[me].copy() if mine is None else mine
                self.signals.setdefault(other_end(rank, port), deque()).append(row)
        elif op.code == "wait":
            for p in op.ports:
                clocks.join(me, self.signals[rank, block.ports[p]].popleft())
        elif op.code == "flush":
            for p in op.ports:
                clocks.join(me, clocks.rows[self.engine(rank, block.ports[p], me)])
        elif op.code == "barrier":
            self.leave_barrier(rank, b, op)
        elif op.src or op.dst:
            self.execute_data_op(rank, b, i, op)
        if (rank, b, i) in self.waited:
            self.ended[rank, b, i] = clocks.rows[me].copy()

    def engine(self, rank: int, port: Port, block: int) -> int:
        """Return the actor that performs transfers on `port`: the engine of a port channel, else the block itself."""
        return self.engines.get((rank, port), block)

    def leave_barrier(self, rank: int, b: int, op: Op) -> None:
        """Give block `b` the joined clock of all members of its barrier.

        The first member that leaves computes that clock: by then every member has arrived.
        """
        key = (rank, tuple(sorted(set(op.group))))
        if key not in self.meeting:
            row = self.clocks.rows[[self.number[rank, member] for member in key[1]]].max(axis=0)
            self.meeting[key] = (row, set(key[1]))
        row, left = self.meeting[key]
        self.clocks.join(self.number[rank, b], row)
        left.discard(b)
        if not left:
            del self.meeting[key]

    def execute_data_op(self, rank: int, b: int, i: int, op: Op) -> None:
        """Execute put, get, cpy or reduce, chunk by chunk: the sum of the sources goes to every destination."""
        i = self.line.step(rank, b, i)
        clocks, me, place = self.clocks, self.number[rank, b], (rank, b, i)
        sources, targets = self.operands(rank, op, place)
        block = self.program.gpus[rank].blocks[b]
        for at in range(len(targets)) if op.code == "put" else (None,):
            actor = me
            if op.code in ("put", "get") and op.ports:
                p = op.ports[at] if at is not None and len(op.ports) == len(targets) else op.ports[0]
                self.check_port_target(place, block.ports[p], op, at)
                actor = self.engine(rank, block.ports[p], me)
                if actor != me:
                    clocks.join(actor, clocks.rows[me])
            spans, firsts = op.dst, targets
            reads, starts = op.src, sources
            if at is not None:
                spans, firsts = op.dst[at : at + 1], targets[at : at + 1]
                if len(op.src) > 1:
                    reads, starts = op.src[at : at + 1], sources[at : at + 1]
            for k in range(op.count):
                clocks.tick(actor)
                value: Value = None
                for n, (span, start) in enumerate(zip(reads, starts, strict=True)):
                    operand = self.fetch(start + k, span, actor, i, place)
                    row = self.packets.get(start + k) if span.packet else None
                    if actor != me and row is not None:
                        clocks.join(me, row)  # the block waits for the flags before it hands the put over
                    value = operand if n == 0 else add(value, operand, place)
                for span, start in zip(spans, firsts, strict=True) if op.code != "cpy" or firsts != starts else ():
                    self.put(start + k, span, value, actor, i, place)

    def check_port_target(self, place: tuple[int, int, int], port: Port, op: Op, at: int | None) -> None:
        """Add a finding if the port of a put or get leads to another rank than the span that it writes or reads.

        `at`: the index of the put's destination, None for a get.
        """
        span = op.src[0] if at is None else op.dst[at]
        if span.rank != port.peer:
            where = "its own rank" if span.rank is None else f"rank {span.rank}"
            self.add_finding("port", place, f"{op.code} by a port to rank {port.peer}, but its data lie on {where}")

    def fetch(self, cell: int, span: Span, actor: int, i: int, place: tuple[int, int, int]) -> Value:
        """Return the value of a source's cell; a packet orders its writer before the reader.

        Adds a finding if the cell was written as a packet and is read as plain data, unless by a port channel, which
        carries the flags with the data.
        """
        if span.packet:
            row = self.packets.get(cell)
            if row is not None:
                self.clocks.join(actor, row)
            if self.launches is not None:
                self.launches.reads.setdefault(cell, []).append((actor, self.clocks.now[actor]))
        elif cell in self.packets and actor not in self.carriers:
            self.add_finding(
                "packet-mix", place, f"reads {self.memory.name(cell)} as plain data; it was written as a packet"
            )
        return self.load(cell, actor, i, place)

    def put(self, cell: int, span: Span, value: Value, actor: int, i: int, place: tuple[int, int, int]) -> None:
        """Write `value` to a destination's cell. Adds a finding if a packet is written twice in one call."""
        if span.packet:
            if cell in self.packets:
                text = (
                    f"writes packet {self.memory.name(cell)} for the second time in a call: its readers cannot "
                    f"tell the two apart"
                )
                self.add_finding("packet-twice", place, text)
            if span.buffer == "s" and self.clocks.writer[cell] >= self.entry:
                self.clocks.writer[cell] = -1  # flags tell this call's packets from the last one's
        else:
            self.packets.pop(cell, None)
        self.store(cell, value, actor, i)
        if span.packet:
            if self.launches is not None:
                self.launches.writes.append((cell, self.launches.entered(self.clocks.rows[actor]), place))
            self.packets[cell] = self.clocks.rows[actor].copy()

    def check_end(self) -> None:
        """Report accesses to a rank's input and output that may come after all its blocks have ended: the call has
        returned there by then."""
        for gpu in self.program.gpus:
            mine = [self.number[gpu.rank, b] for b in range(len(gpu.blocks))]
            if not mine:
                continue
            end = self.clocks.rows[mine].max(axis=0)
            base = self.memory.base[gpu.rank]
            inputs, outputs = range(base["i"], base["i"] + gpu.input), range(base["o"], base["o"] + gpu.output)
            for cell in chain(inputs, outputs):
                for (actor, i), how in self.clocks.unordered(cell, end):
                    if actor < self.entry:
                        self._add_late_access(gpu.rank, cell, actor, i, how)

    def _add_late_access(self, rank: int, cell: int, actor: int, i: int, how: str) -> None:
        """Add the finding that op `i` of `actor` may access `cell` of `rank` after the call has returned there."""
        home, b = self.places[actor]
        verb = "written" if how == "write" else "read"
        own_engine = home == rank and actor in self.carriers
        cure = "must flush the port channel first" if own_engine else "must wait for a signal of it"
        text = f"{self.memory.name(cell)} may be {verb} after rank {rank} has returned, which {cure}"
        self.add_finding("unfinished", (home, b, i), text)

    def check_next_launches(self) -> None:
        """Report packets that overwrite those of an earlier launch, whose readers may not have read them."""
        if self.program.protocol != "LL":
            return
        if self.launches is None:
            if self.program.one_scratch:
                text = f"packets in one scratch are analysed for up to {PART} blocks and channels"
                self.add_finding("too-large", (None, None, None), text)
            return
        ends = []
        for rank in range(self.program.ranks):
            mine = [self.number[rank, b] for b in range(len(self.program.gpus[rank].blocks))]
            ends.append(self.clocks.rows[mine].max(axis=0) if mine else self.clocks.rows[self.entry + rank])
        for cell, place, ago in self.launches.overwritten(ends, self.program.one_scratch):
            text = (
                f"writes packet {self.memory.name(cell)}, of which {ago} may not have been read yet: its reader would "
                f"wait for ever; let the reader's rank signal first"
            )
            self.add_finding("packet-launch", place, text)

    def report_entries(self) -> None:
        """Report ops that touch the memory of another rank that may not have entered the call yet."""
        for cell, (first, _), (then, j), _ in self.clocks.races:
            if first >= self.entry and then < self.entry:
                gpu, b = self.places[then]
                rank = first - self.entry
                text = (
                    f"touches {self.memory.name(cell)}, which may not have entered the call yet: let rank {rank} "
                    f"signal first"
                )
                self.add_finding("entry", (gpu, b, j), text, "warning")


def shared_ports(program: Program) -> list[Finding]:
    """Return errors for ports on which two blocks of a rank signal, or two wait: their signals cannot be paired."""
    findings = []
    for gpu in program.gpus:
        for code in ("signal", "wait"):
            first: dict[Port, int] = {}
            for b, i, port in _port_uses(gpu, code):
                if first.setdefault(port, b) != b:
                    name = f"{port.kind} channel {port.index} to rank {port.peer}"
                    text = f"{code}s on {name}, as block {first[port]} does: one block may"
                    findings.append(error("two-ends", (gpu.rank, b, i), text))
    return findings


def _port_uses(gpu: Gpu, code: str) -> Iterator[tuple[int, int, Port]]:
    """Yield (block, op, port) of each port that an op with this code names."""
    for b, block in enumerate(gpu.blocks):
        for i, op in enumerate(block.ops):
            if op.code == code:
                for port in {block.ports[p] for p in op.ports}:
                    yield b, i, port

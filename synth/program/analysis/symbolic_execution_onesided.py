"""Symbolic execution of one-sided programs: puts into other ranks' memory, ordered by signals, barriers, packets.

*Launches.* A program is run launch after launch, with other data each time. The blocks of a launch of a rank begin when
all its blocks of the launch before have ended: the kernels of a rank are ordered on its stream. Nothing else orders
ranks. Between two launches, and before the first, a rank's input and output belong to its user, who reads and writes
them; scratch stays as it is. What must hold of any number of launches is decided by two, or by three where packets use
two halves of the scratch in turn. Proof: every order between two events of different launches leads from the earlier
launch to the later one and through no others, since the waits of a launch are for signals of the same launch (those on
ports with surplus signals order nothing, see `OneSidedExecution.execute_op`). So orders are the same for launches
k and k + d at every k. An event ordered behind one of d launches before is also behind that of d + 1 launches before,
since the same event of two launches is always ordered: by the stream, or by the queue of a port channel. Thus
neighbouring launches decide about plain memory, and every second one about the halves of packets.

*Actors* of the vector clocks are the blocks that do something, then one engine for each port channel that moves data,
then the user of each rank. An engine reads the source of a put and writes its destination some time later, in order
with its signals, maybe after the launch has ended; `flush` waits for it. The writer of a packet is before its readers;
readers must be before the next write of the same packet, or they wait for ever.
"""

from __future__ import annotations

from collections import Counter, deque

from synth.program.analysis.cells import Value, add
from synth.program.analysis.finding import Finding, error, not_analysed
from synth.program.analysis.onesided_order import other_end
from synth.program.analysis.structure import idle_blocks
from synth.program.analysis.symbolic_execution import (
    PART,
    ExecutionOutcome,
    SymbolicExecution,
    merge_outcomes,
    parts_of,
)
from synth.program.analysis.vector_clocks import Row
from synth.program.program import Op, Port, Program
from synth.program.program import Place as OpPlace
from synth.program.straight_line import StraightLine

LAUNCH = 1 << 32  # the clocks know op i of launch k as i + k * LAUNCH


def execute_one_sided(line: StraightLine, done: list[OpPlace], in_place: bool, part: int = PART) -> ExecutionOutcome:
    """Execute a one-sided program, written out for one size, symbolically and return its findings.

    `done`: an order in which its ops can end, as (rank, block, op). `part`: number of actors (blocks, port channels,
    users) whose clocks are in memory at once.
    """
    program = line.program
    blocks = sum(len(gpu.blocks) for gpu in program.gpus) - len(idle_blocks(program))
    actors = blocks + len(_engines(program)) + program.ranks
    return merge_outcomes([OneSidedExecution(line, in_place, watched).run(done) for watched in parts_of(actors, part)])


def _engines(program: Program) -> dict[tuple[int, Port], int]:
    """Return the port channels of all ranks that move data, in order, and the first block that has each.

    A channel that only signals or is waited on touches no memory, and its signals tell what their block knows.
    """
    first = {}
    moving = set()
    for (rank, b), block in program.blocks():
        for port in block.ports:
            first.setdefault((rank, port), b)
        for op in block.ops:
            ports = map(block.ports.__getitem__, op.ports if op.code in ("put", "get") else ())
            moving.update((rank, port) for port in ports if port.kind == "port")
    return {key: first[key] for key in sorted(moving)}


class OneSidedExecution(SymbolicExecution):
    """Symbolic execution of a one-sided program, with blocks, port engines and users as actors."""

    def __init__(self, line: StraightLine, in_place: bool, watched: range) -> None:
        program = line.program
        idle = idle_blocks(program)
        blocks = [place for place, _ in program.blocks() if place not in idle]
        engines = _engines(program)
        self.number = {place: i for i, place in enumerate(blocks)}
        self.engines = {key: len(blocks) + i for i, key in enumerate(engines)}
        # (rank, block) of each block, and of the first block that has each engine's channel
        self.places = [*blocks, *((rank, b) for (rank, _), b in engines.items())]
        self.users = len(self.places)  # the user of rank r is actor users + r
        self.carriers = set(self.engines.values())
        super().__init__(line, in_place, self.users + program.ranks, watched)
        self.signals = {}
        left = Counter()  # signals that a port, as (rank, port), gets in each launch more than are waited for
        for (rank, b, _), op in program.placed_ops():
            for port in map(program.gpus[rank].blocks[b].ports.__getitem__, op.ports):
                left[other_end(rank, port)] += op.code == "signal"
                left[rank, port] -= op.code == "wait"
        self.surplus = {end for end, signals in left.items() if signals > 0}
        self.ended = {}
        self.waited = {(rank, dep.block, dep.op) for (rank, _, _), op in program.placed_ops() for dep in op.deps}
        # barrier → the joined clock of its members, and the members that have not left yet
        self.meeting = {}
        self.packets = {}  # cell → the row of the writer of a packet of this launch
        self.packet_cells = set()  # cells to which a packet was ever written
        self.halves = 2 if program.has_packets and not program.one_scratch else 1
        if self.halves == 2:
            self.clocks.double_cells()  # packets of every second launch lie in cells of their own
        self.launch = 0

    def run(self, done: list[OpPlace]) -> ExecutionOutcome:
        """Execute the ops of each launch in the order `done`; the outputs are compared if all ops have run.

        An order that does not end is run once.
        """
        complete = len(done) == self.program.ops
        outputs = 0
        for launch in range(1 + self.halves if complete else 1):
            self.launch = launch
            for rank in range(self.program.ranks):
                self.begin_launch(rank)
            self.packets.clear()
            for rank, b, i in done:
                if (rank, b) in self.number:
                    self.execute_op(rank, b, i)
            if self.launch == 0 and complete:
                outputs = self.check_outputs()
        self.report_conflicts()
        return ExecutionOutcome(self.findings, outputs, self.accesses)

    def begin_launch(self, rank: int) -> None:
        """Let the user of `rank` read and write its input and output, between its last launch and this one."""
        clocks, user = self.clocks, self.users + rank
        mine = [self.number[rank, b] for b in range(len(self.program.gpus[rank].blocks)) if (rank, b) in self.number]
        for block in mine:
            clocks.join(user, clocks.rows[block])
        clocks.tick(user)
        at, gpu = self.memory.base[rank], self.program.gpus[rank]
        inputs, outputs = range(at["i"], at["i"] + gpu.input), range(at["o"], at["o"] + gpu.output)
        for cell in dict.fromkeys((*inputs, *outputs)):
            clocks.write(cell, user, self.launch * LAUNCH)
        for block in mine:
            clocks.join(block, clocks.rows[user])

    def execute_op(self, rank: int, b: int, i: int) -> None:
        """Execute op `i` of block `b` of `rank`: its dependencies, then its signals, waits or data.

        A port that gets more signals in each launch than are waited for has, after some launches, a signal of any
        launch before for each wait: a wait there orders nothing.
        """
        block, clocks, me = self.program.gpus[rank].blocks[b], self.clocks, self.number[rank, b]
        op = block.ops[i]
        clocks.tick(me)
        for dep in op.deps:
            if dep.block != b and (rank, dep.block) in self.number:
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
                if other_end(rank, port) not in self.surplus:
                    self.signals.setdefault(other_end(rank, port), deque()).append(row)
        elif op.code == "wait":
            for port in (block.ports[p] for p in op.ports):
                if (rank, port) not in self.surplus:
                    clocks.join(me, self.signals[rank, port].popleft())
        elif op.code == "flush":
            for p in op.ports:
                clocks.join(me, clocks.rows[self.engine(rank, block.ports[p], me)])
        elif op.code == "barrier":
            # the first member that leaves computes the joined clock of all: by then every member has arrived
            key = (rank, tuple(sorted(set(op.group))))
            if key not in self.meeting:
                row = clocks.rows[[self.number[rank, member] for member in key[1]]].max(axis=0)
                self.meeting[key] = (row, set(key[1]))
            row, left = self.meeting[key]
            clocks.join(me, row)
            left.discard(b)
            if not left:
                del self.meeting[key]
        elif op.src or op.dst:
            self.execute_data_op(rank, b, i, op)
        if (rank, b, i) in self.waited:
            self.ended[rank, b, i] = clocks.rows[me].copy()

    def engine(self, rank: int, port: Port, block: int) -> int:
        """Return the actor that performs transfers on `port`: the engine of a port channel, else the block itself."""
        return self.engines.get((rank, port), block)

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
                # the port of a put or get leads to the rank of the span that it writes or reads
                port = block.ports[p]
                span = (op.src if at is None else op.dst)[at or 0]
                if span.rank != port.peer:
                    where = "its own rank" if span.rank is None else f"rank {span.rank}"
                    text = f"{op.code} by a port to rank {port.peer}, but its data lie on {where}"
                    self.add_finding("port", place, text)
                actor = self.engine(rank, port, me)
                if actor != me:
                    clocks.join(actor, clocks.rows[me])
            spans, firsts = op.dst, targets
            reads, starts = op.src, sources
            if at is not None:
                spans, firsts = op.dst[at : at + 1], targets[at : at + 1]
                if len(op.src) > 1:
                    reads, starts = op.src[at : at + 1], sources[at : at + 1]
            carries = actor != me and spans[0].packet  # packets as they lie in scratch
            for k in range(op.count):
                clocks.tick(actor)
                value: Value = None
                for n, (span, start) in enumerate(zip(reads, starts, strict=True)):
                    cell = self.cell(start + k, span.packet or carries)
                    if span.packet and actor != me and cell in self.packets:
                        # the block waits for the flags, and so reads, before it hands the put over
                        clocks.join(me, self.packets[cell])
                        clocks.tick(me)
                        clocks.read(cell, me, i + self.launch * LAUNCH)
                        clocks.join(actor, clocks.rows[me])
                    operand = self.fetch(cell, span.packet, carries, actor, i, place)
                    value = operand if n == 0 else add(value, operand, place)
                # in place a copy onto itself writes nothing, unless it makes packets or plain data of the other
                kinds = {span.packet for span in (*spans, *reads)}
                same = op.code == "cpy" and firsts == starts and len(kinds) == 1
                for span, start in zip(spans, firsts, strict=True) if not same else ():
                    self.put(self.cell(start + k, span.packet), span.packet, value, actor, i, place)

    def cell(self, cell: int, packet: bool) -> int:
        """Return the cell of a chunk, which is another one for the packets of every second launch."""
        second = packet and self.halves == 2 and self.launch % 2 == 1
        return cell + len(self.memory.values) if second else cell

    def fetch(self, cell: int, packet: bool, carries: bool, actor: int, i: int, place: OpPlace) -> Value:
        """Return the value of a source's cell; a packet orders its writer before the reader.

        Adds a finding if plain data are read as a packet (`packet`, or `carries` of a port channel that takes packets
        along with their flags), or a packet as plain data.
        """
        if packet and cell in self.packets:
            self.clocks.join(actor, self.packets[cell])
        elif packet or (carries and cell not in self.packets):
            verb = "reads" if packet else "sends"
            text = f"{verb} {self.name(cell)} as a packet; nothing in this launch has written a packet there"
            self.add_finding("packet-mix", place, text)
        elif cell in self.packets and not carries:
            self.add_finding("packet-mix", place, f"reads {self.name(cell)} as plain data; it was written as a packet")
        return self.load(cell, actor, i, place)

    def put(self, cell: int, packet: bool, value: Value, actor: int, i: int, place: OpPlace) -> None:
        """Write `value` to a destination's cell. Adds a finding if a packet is written twice in one launch."""
        if packet and cell in self.packets:
            text = (
                f"writes packet {self.name(cell)} for the second time in a call: its readers cannot tell the two apart"
            )
            self.add_finding("packet-twice", place, text)
        self.store(cell, value, actor, i)
        if packet:
            self.packets[cell] = self.clocks.rows[actor].copy()
            self.packet_cells.add(cell)
        else:
            self.packets.pop(cell, None)

    def load(self, cell: int, actor: int, op: int, place: OpPlace) -> Value:
        """As `SymbolicExecution.load`; values are those of the first launch, later ones differ in the data only."""
        if self.launch == 0:
            return super().load(cell, actor, op, place)
        self.clocks.read(cell, actor, op + self.launch * LAUNCH)
        return None

    def store(self, cell: int, value: Value, actor: int, op: int) -> None:
        """As `SymbolicExecution.store`; values are those of the first launch."""
        if self.launch == 0:
            super().store(cell, value, actor, op)
        else:
            self.clocks.write(cell, actor, op + self.launch * LAUNCH)

    def name(self, cell: int) -> str:
        """Return the name of the chunk that a cell is a part of."""
        return self.memory.name(cell % len(self.memory.values))

    def report_conflicts(self) -> None:
        """Add a finding for each pair of ops whose accesses to one cell are unordered, in one launch or in two."""
        for cell, (first, earlier), (then, later), kind in self.clocks.races:
            (before, i), (after, j), name = divmod(earlier, LAUNCH), divmod(later, LAUNCH), self.name(cell)

            # One of the two is the user of a rank, before the call or after it.
            if first >= self.users:
                text = f"touches {name}, which may not have entered the call yet: let rank {first - self.users} signal "
                self.add_finding("entry", (*self.places[then], j), f"{text}first")
                continue
            if then >= self.users:
                verb = "read" if kind == "read-write" else "written"
                text = f"{name} may be {verb} after rank {then - self.users} has returned, which must flush the port "
                self.add_finding("unfinished", (*self.places[first], i), f"{text}channel or wait for a signal first")
                continue

            # Two ops of one launch, or of two.
            one, other = (*self.places[first], i), (*self.places[then], j)
            key = ("race", *sorted((one, other)))
            if before == after:
                self.add_race(name, one, other, kind)
            elif key not in self.reported_places and cell in self.packet_cells and kind == "read-write":
                self.reported_places.add(key)
                text = (
                    f"writes packet {name}, of which that of an earlier launch may not have been read yet: its reader "
                    "would wait for ever; let the reader's rank signal first"
                )
                self.add_finding("packet-launch", other, text)
            elif key not in self.reported_places:
                self.reported_places.add(key)
                does = "reads" if kind == "write-read" else "overwrites"
                may = "read" if kind == "read-write" else "write"
                cure = "flush the port channel" if first in self.carriers else f"let rank {one[0]} signal that it has"
                text = (
                    f"{does} {name} in the next launch, while gpu {one[0]} block {one[1]} step {one[2]} of this one "
                    f"may still {may} it: {cure} first"
                )
                self.findings.append(error("launch", other, text))


def shared_ports(program: Program) -> list[Finding]:
    """Return errors for ports on which two blocks of a rank signal, or two wait: their signals cannot be paired.

    A port channel through which two blocks hand over data is not analysed: the order in its queue is open, also where
    an op flushes it or signals.
    """
    findings, moving = [], _engines(program)
    for gpu in program.gpus:
        for code, codes in (("signal", {"signal"}), ("wait", {"wait"}), ("put", {"put", "get", "signal", "flush"})):
            first = {}
            for b, block in enumerate(gpu.blocks):
                for i, op in enumerate(block.ops):
                    for port in set(map(block.ports.__getitem__, op.ports if op.code in codes else ())):
                        if (code == "put" and (gpu.rank, port) not in moving) or first.setdefault(port, b) == b:
                            continue
                        name, place = f"{port.kind} channel {port.index} to rank {port.peer}", (gpu.rank, b, i)
                        text = f"{code}s on {name}, as block {first[port]} does: one block may"
                        if code == "put":
                            text = (
                                f"hands over to the queue of {name}, as block {first[port]} does, in no certain order"
                            )
                            findings.append(not_analysed("two-ends", place, text))
                        else:
                            findings.append(error("two-ends", place, text))
    return findings

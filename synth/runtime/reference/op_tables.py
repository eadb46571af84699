"""A Program as flat integer tables for the event loop, checked to be well-formed.

Blocks of all ranks have consecutive numbers. Spans become (rank, first row) of the arena. A connection is (src rank,
dst rank, channel) and has at most one block at each end.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from synth.errors import SynthError
from synth.program import text
from synth.program.program import RECEIVING, SENDING, TWO_SIDED, Block, Op, Program, Span
from synth.runtime.reference.buffers import Arena

PortKey = tuple[int, str, int, int]  # rank, kind, peer, index


class Place(NamedTuple):
    """The first row of a span. `packet`: the span carries flags."""

    rank: int
    row: int
    packet: bool


class CompiledOp(NamedTuple):
    """An op. `deps`: (block, op). `group`: the blocks of a barrier. Blocks are numbered over all ranks."""

    code: str
    receives: bool
    sends: bool
    src: tuple[Place, ...]
    dst: tuple[Place, ...]
    count: int
    deps: tuple[tuple[int, int], ...]
    ports: tuple[PortKey, ...]
    group: tuple[int, ...]


class Connection(NamedTuple):
    """A connection: its ranks and channel, the blocks at its ends (None: no block), the switches on its path."""

    src: int
    dst: int
    channel: int
    sender: int | None
    receiver: int | None
    via: tuple[str, ...]

    def __str__(self) -> str:
        return f"rank {self.src} to rank {self.dst}, channel {self.channel}"


class CompiledProgram(NamedTuple):
    """A compiled program.

    `place[b]`: (rank, block) of block b. `steps[b]`: its ops. `into[b]`, `out[b]`: indices of the connections on which
    it receives and sends; -1 for none.
    """

    program: Program
    place: tuple[tuple[int, int], ...]
    steps: tuple[tuple[CompiledOp, ...], ...]
    wires: tuple[Connection, ...]
    into: tuple[int, ...]
    out: tuple[int, ...]

    def where(self, b: int, op: int) -> str:
        """Return the name of an op in messages: ``rank 0 block 1 op 2 (rcs -> o[3])``."""
        rank, block = self.place[b]
        return f"rank {rank} block {block} op {op} ({text.op_text(self.program.gpus[rank].blocks[block].ops[op])})"


# The minimum number of sources and destinations of each op code.
_SPANS = {
    "s": (1, 0),
    "r": (0, 1),
    "rcs": (0, 1),
    "rrs": (1, 0),
    "rrc": (1, 1),
    "rrcs": (1, 1),
    "cpy": (1, 1),
    "re": (1, 1),
    "nop": (0, 0),
    "put": (1, 1),
    "get": (1, 1),
    "reduce": (1, 1),
    "glres": (1, 1),
    "gstore": (1, 1),
    "signal": (0, 0),
    "wait": (0, 0),
    "flush": (0, 0),
    "barrier": (0, 0),
}


def compile_program(program: Program, arena: Arena, *, in_place: bool) -> CompiledProgram:
    """Return the tables of `program`, with spans as rows of `arena`. Raises SynthError that names a malformed op."""
    if not program.straight:
        raise SynthError(
            f"{program.name}: its parts, pipelines or scratch depend on the size of the call: synth run runs it"
        )
    first, place = [], []
    for r, gpu in enumerate(program.gpus):
        if gpu.rank != r:
            raise SynthError(f"{program.name}: rank {gpu.rank} stands where rank {r} should")
        first.append(len(place))
        place += [(r, b) for b in range(len(gpu.blocks))]
    first, place = first, tuple(place)
    total = sum(len(gpu.blocks) for gpu in program.gpus)
    into, out = [-1] * total, [-1] * total
    wires = []
    for key in sorted(program.senders.keys() | program.receivers.keys()):
        ends: list[int | None] = []
        for verb, codes, candidates in (("send", SENDING, program.senders), ("receive", RECEIVING, program.receivers)):
            # a block that names a peer but never uses it is no end of the connection
            users = [(r, b) for r, b in candidates.get(key, []) if _uses(program.gpus[r].blocks[b], codes)]
            if len(users) > 1:
                blocks = " and ".join(str(b) for _, b in users)
                raise SynthError(
                    f"{program.name}: blocks {blocks} of rank {users[0][0]} all {verb} on rank {key[0]} to rank "
                    f"{key[1]}, channel {key[2]}"
                )
            ends.append(first[users[0][0]] + users[0][1] if users else None)
        sender, receiver = ends
        via = () if sender is None else program.gpus[key[0]].blocks[sender - first[key[0]]].via
        if sender is not None:
            out[sender] = len(wires)
        if receiver is not None:
            into[receiver] = len(wires)
        if sender is not None or receiver is not None:
            wires.append(Connection(*key, sender, receiver, via))
    wires, into, out = tuple(wires), tuple(into), tuple(out)
    steps = []
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            rows = []
            for i, op in enumerate(block.ops):
                rows.append(_OpCompiler(program, arena, first, gpu.rank, b, block, i, in_place).step(op))
            steps.append(tuple(rows))
    return CompiledProgram(program, place, tuple(steps), wires, into, out)


def _uses(block: Block, codes: Container[str]) -> bool:
    return any(op.code in codes for op in block.ops)


class _OpCompiler(NamedTuple):
    """One op of a program, with its surroundings for the checks."""

    program: Program
    arena: Arena
    first: list[int]
    rank: int
    block: int
    holder: Block
    index: int
    in_place: bool

    def step(self, op: Op) -> CompiledOp:
        sources, destinations = _SPANS[op.code]
        if len(op.src) < sources or len(op.dst) < destinations:
            self._refuse(op, f"{op.code} needs {sources} source and {destinations} destination")
        if op.count < 1:
            self._refuse(op, "moves no chunk")
        if op.code in SENDING and self._bad(self.holder.send):
            self._refuse(op, f"sends, but the block's send peer is {self.holder.send}")
        if op.code in RECEIVING and self._bad(self.holder.recv):
            self._refuse(op, f"receives, but the block's receive peer is {self.holder.recv}")
        if op.code in ("signal", "wait", "flush") and not op.ports:
            self._refuse(op, f"{op.code} needs a port")
        if any(self._bad(port.peer) for port in self.holder.ports):
            self._refuse(op, "a port of the block leads to no other rank")
        if (
            op.code in TWO_SIDED
            and not self.program.one_sided
            and any(span.rank not in (None, self.rank) for span in (*op.src, *op.dst))
        ):
            self._refuse(op, "only put, get and reduce reach another rank's memory")
        gpu = self.program.gpus[self.rank]
        for dep in op.deps:
            if dep.block >= len(gpu.blocks) or dep.op >= len(gpu.blocks[dep.block].ops):
                self._refuse(op, f"waits for op {dep.op} of block {dep.block}, which does not exist")
        if op.code == "barrier" and (self.block not in op.group or max(op.group) >= len(gpu.blocks)):
            self._refuse(op, f"its group is blocks of rank {self.rank}, itself among them")
        if any(port >= len(self.holder.ports) for port in op.ports):
            self._refuse(op, f"the block has {len(self.holder.ports)} ports")
        own = [self.holder.ports[port] for port in op.ports]
        base = self.first[self.rank]
        # a foreign file may name operands that its instruction does not use
        sources, destinations = _SPANS[op.code]
        return CompiledOp(
            op.code,
            op.code in RECEIVING,
            op.code in SENDING,
            src=self._places(op, op.src if sources else ()),
            dst=self._places(op, op.dst if destinations else ()),
            count=op.count,
            deps=tuple((base + dep.block, dep.op) for dep in op.deps),
            ports=tuple((self.rank, port.kind, port.peer, port.index) for port in own),
            group=tuple(sorted({base + b for b in op.group})),
        )

    def _bad(self, peer: int | None) -> bool:
        return peer is None or peer == self.rank or peer >= self.program.ranks

    def _places(self, op: Op, spans: tuple[Span, ...]) -> tuple[Place, ...]:
        places = []
        for span in spans:
            rank = self.rank if span.rank is None else span.rank
            if rank >= self.program.ranks:
                self._refuse(op, f"there is no rank {rank}")
            if span.buffer == "i" and spans is op.dst and not self.in_place:
                self._refuse(op, "writes the input of an out-of-place call")
            row = self.arena.row(rank, span, op.count, lambda: self._where(op), self.rank)
            places.append(Place(rank, row, span.packet))
        return tuple(places)

    def _where(self, op: Op) -> str:
        return f"rank {self.rank} block {self.block} op {self.index} ({text.op_text(op)})"

    def _refuse(self, op: Op, why: str) -> None:
        raise SynthError(f"{self._where(op)}: {why}")

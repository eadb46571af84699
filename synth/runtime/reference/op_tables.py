"""A Program as flat integer tables for the event loop, checked to be well-formed.

Blocks of all ranks have consecutive numbers. Spans become (rank, first row) of the arena. A connection is (src rank,
dst rank, channel) and has at most one block at each end.
"""

from __future__ import annotations

from typing import NamedTuple

from synth.errors import SynthError
from synth.program import text
from synth.program.program import RECEIVING, SENDING, TWO_SIDED, Op, Program
from synth.runtime.reference.buffers import Arena


class PortKey(NamedTuple):
    """A port of `rank` to `peer`: its kind (memory or port), and its index among those of the kind to that peer."""

    rank: int
    kind: str
    peer: int
    index: int

    @property
    def opposite(self) -> PortKey:
        """The port of the peer at the other end."""
        return PortKey(self.peer, self.kind, self.rank, self.index)


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


# The op codes by the minimum number of their sources and destinations.
_SPANS = {
    (1, 0): "s rrs",
    (0, 1): "r rcs",
    (1, 1): "rrc rrcs cpy re put get reduce glres gstore",
    (0, 0): "nop signal wait flush barrier",
}
_OPERANDS = {code: counts for counts, codes in _SPANS.items() for code in codes.split()}


def compile_program(program: Program, arena: Arena, *, in_place: bool) -> CompiledProgram:
    """Return the tables of `program`, with spans as rows of `arena`. Raises SynthError that names a malformed op."""
    if not program.straight:
        raise SynthError(
            f"{program.name}: its parts, pipelines or scratch depend on the size of the call: synth run runs it"
        )
    first: list[int] = []
    place: list[tuple[int, int]] = []
    for r, gpu in enumerate(program.gpus):
        if gpu.rank != r:
            raise SynthError(f"{program.name}: rank {gpu.rank} stands where rank {r} should")
        first.append(len(place))
        place += [(r, b) for b in range(len(gpu.blocks))]

    # A connection and its ends. A block that names a peer but never uses it is no end.
    into, out = [-1] * len(place), [-1] * len(place)
    wires: list[Connection] = []
    for key in sorted(program.senders.keys() | program.receivers.keys()):
        ends: list[int | None] = []
        for verb, codes, candidates in (("send", SENDING, program.senders), ("receive", RECEIVING, program.receivers)):
            users = []
            for r, b in candidates.get(key, []):
                if any(op.code in codes for op in program.gpus[r].blocks[b].ops):
                    users.append((r, b))
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
        if users or sender is not None:
            wires.append(Connection(*key, sender, receiver, via))

    steps = []
    for r, b in place:
        rows = []
        for i, op in enumerate(program.gpus[r].blocks[b].ops):
            why = _fault(program, r, b, op)
            if why:
                raise SynthError(f"rank {r} block {b} op {i} ({text.op_text(op)}): {why}")
            rows.append(_compiled(program, arena, (r, b, i), first[r], in_place))
        steps.append(tuple(rows))
    return CompiledProgram(program, tuple(place), tuple(steps), tuple(wires), tuple(into), tuple(out))


def _fault(program: Program, rank: int, b: int, op: Op) -> str:
    """Return what is wrong with an op of block `b` of `rank`, "" for nothing."""
    gpu = program.gpus[rank]
    block = gpu.blocks[b]
    sources, destinations = _OPERANDS[op.code]

    def no_peer(peer: int | None) -> bool:
        return peer is None or peer == rank or peer >= program.ranks

    if len(op.src) < sources or len(op.dst) < destinations:
        return f"{op.code} needs {sources} source and {destinations} destination"
    if op.count < 1:
        return "moves no chunk"
    if op.code in SENDING and no_peer(block.send):
        return f"sends, but the block's send peer is {block.send}"
    if op.code in RECEIVING and no_peer(block.recv):
        return f"receives, but the block's receive peer is {block.recv}"
    if op.code in ("signal", "wait", "flush") and not op.ports:
        return f"{op.code} needs a port"
    if any(no_peer(port.peer) for port in block.ports):
        return "a port of the block leads to no other rank"
    far = any(span.rank not in (None, rank) for span in op.spans)
    if far and op.code in TWO_SIDED and not program.one_sided:
        return "only put, get and reduce reach another rank's memory"
    for dep in op.deps:
        if dep.block >= len(gpu.blocks) or dep.op >= len(gpu.blocks[dep.block].ops):
            return f"waits for op {dep.op} of block {dep.block}, which does not exist"
    if op.code == "barrier" and (b not in op.group or max(op.group) >= len(gpu.blocks)):
        return f"its group is blocks of rank {rank}, itself among them"
    if any(port >= len(block.ports) for port in op.ports):
        return f"the block has {len(block.ports)} ports"
    return ""


def _compiled(program: Program, arena: Arena, at: tuple[int, int, int], base: int, in_place: bool) -> CompiledOp:
    """Return the op `at` (rank, block, op). `base`: the number of the rank's first block."""
    rank, b, i = at
    block = program.gpus[rank].blocks[b]
    op = block.ops[i]

    def where() -> str:
        return f"rank {rank} block {b} op {i} ({text.op_text(op)})"

    # a foreign file may name operands that its instruction does not use
    sources, destinations = _OPERANDS[op.code]
    places: list[Place] = []
    used = op.src if sources else ()
    used += op.dst if destinations else ()
    for span in used:
        owner = span.owner(rank)
        if owner >= program.ranks:
            raise SynthError(f"{where()}: there is no rank {owner}")
        places.append(Place(owner, arena.row(owner, span, op.count, where, rank), span.packet))
    split = len(op.src) if sources else 0
    if not in_place and destinations and any(span.buffer == "i" for span in op.dst):
        raise SynthError(f"{where()}: writes the input of an out-of-place call")
    ports = [block.ports[port] for port in op.ports]
    return CompiledOp(
        op.code,
        op.code in RECEIVING,
        op.code in SENDING,
        src=tuple(places[:split]),
        dst=tuple(places[split:]),
        count=op.count,
        deps=tuple((base + dep.block, dep.op) for dep in op.deps),
        ports=tuple(PortKey(rank, port.kind, port.peer, port.index) for port in ports),
        group=tuple(sorted({base + b for b in op.group})),
    )

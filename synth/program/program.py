"""The Program and its parts; the whole grammar:

    Program  name collective chunks gpus protocol in_place min_bytes max_bytes scratch_bytes one_scratch
    Gpu      rank input output scratch blocks             sizes of the three buffers, in chunks
    Block    send recv channel ops via ports loops        a thread block: its ops run in order
    Loop     first end chunks unit                        ops that run in turns, for `unit` bytes at a time
    Op       code src dst count deps flag ports group part
    Span     buffer offset rank packet                    `count` chunks from `offset`; rank None: one's own
    Part     index of                                     the share of an op that several blocks have together
    Dep      block op turns                               an op of another block of the same rank
    Port     kind peer index                              the index-th memory or port channel to `peer`

A program is one of two styles. *Two-sided* (MSCCL-IR): block (send, recv, channel) owns the sending end of the FIFO
(rank → send, channel) and the receiving end of (recv → rank, channel); messages of `count` chunks arrive in order:

    s     FIFO ← src             rcs   dst ← FIFO, and forward         cpy   dst ← src
    r     dst ← FIFO             rrs   forward FIFO ⊕ src              re    dst ← dst ⊕ src
    rrc   dst ← FIFO ⊕ src       rrcs  dst ← FIFO ⊕ src, and forward   nop   only waits for its dependencies

*One-sided* (MSCCL++): no FIFOs; spans may lie on other ranks, and ports order them:

    put   dst.. ← src, dst on other ranks       signal   one signal to the peer of each port
    get   dst ← src, src on another rank        wait     for one signal from the peer of each port
    reduce  dst.. ← src0 ⊕ src1 ⊕ ..            barrier  the blocks of `group` (this rank's) meet
    cpy   dst.. ← src                           flush    the ports' puts have left
    glres   dst.. ← src0 ⊕ src1 ⊕ ..            gstore   dst.. ← src            through a switch that multicasts

`glres` (group load-reduce-store) reads a span on each rank of a group, this rank among them, and writes one on each.
`gstore` writes a span of this rank to one on each rank of a group. Spans on one side have one buffer and offset.

An op starts when the op before it in its block has ended and every op of `deps` has. `flag`: others may wait for it.
A span with `packet` carries its own flags: who reads it waits for the writer of this use of the span. A put through a
port channel from plain scratch to packets sends packets that lie there, and waits for no flag.

Three things depend on the size of a call, and `synth/program/straight_line.py` writes them out for one size: an op with
`part` does one of equal shares of its spans, a `Loop` moves its spans piece by piece, and `scratch_bytes` bounds the
chunks of scratch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from synth.model.collective import Collective
from synth.model.registry import NOTEBOOK, load

SCHEMA = "synth.program/1"
SENDING = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVING = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
REDUCING = frozenset({"rrs", "rrc", "rrcs", "re", "reduce", "glres"})
TWO_SIDED = frozenset({"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"})
SWITCHED = frozenset({"glres", "gstore"})
ONE_SIDED = SWITCHED | {"put", "get", "reduce", "cpy", "signal", "wait", "flush", "barrier", "nop"}
CODES = TWO_SIDED | ONE_SIDED
BUFFERS = ("i", "o", "s")
PROTOCOLS = ("Simple", "LL", "LL128")
PORT_KINDS = ("memory", "port")
MAX_INSTANCES = 256  # copies side by side that lowering makes: no runtime has as many channels
UNIT = 16  # bytes of the units in which a span is divided into parts, and a loop into turns
MAX_PARTS = 1 << 10  # shares of an op: a plan has at most so many blocks
InPlace = Literal["out", "in", "both"]


Place = tuple[int, int, int]  # rank, block, op


class Span(NamedTuple):
    """Consecutive chunks of a buffer, as many as the op's `count`: ``i`` input, ``o`` output, ``s`` scratch."""

    buffer: str
    offset: int
    rank: int | None = None
    packet: bool = False

    def owner(self, rank: int) -> int:
        """Return the rank on which the span lies, in an op of `rank`."""
        return rank if self.rank is None else self.rank


def owners(rank: int, spans: Iterable[Span]) -> list[int]:
    """Return the rank on which each of `spans` lies, as an op of `rank` names them."""
    return [span.owner(rank) for span in spans]


class Dep(NamedTuple):
    """Wait until op `op` of block `block` of the same rank has ended.

    `turns`: in a loop, the op's turn so many turns before; the first turns do not wait.
    """

    block: int
    op: int
    turns: int = 0


class Part(NamedTuple):
    """Share `index` of `of` shares, in which an op moves its spans.

    The 16-byte units of a span are divided as evenly as they can be; the first shares have one more.
    """

    index: int
    of: int


class Loop(NamedTuple):
    """The ops `first` to `end` - 1 of a block run in turns; turn k moves the bytes from k * `unit` on of each span.

    There are as many turns as `chunks` chunks have units of `unit` bytes. Signals, waits, dependencies and flags count
    in every turn.
    """

    first: int
    end: int
    chunks: int
    unit: int


class Port(NamedTuple):
    """The `index`-th channel of `kind` to `peer`; the same index at both ends makes a pair."""

    kind: str
    peer: int
    index: int


class Op(NamedTuple):
    """One instruction; see the grammar above."""

    code: str
    src: tuple[Span, ...] = ()
    dst: tuple[Span, ...] = ()
    count: int = 1
    deps: tuple[Dep, ...] = ()
    flag: bool = False
    ports: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    part: Part | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """The sources, then the destinations."""
        return (*self.src, *self.dst)


class Block(NamedTuple):
    """A thread block. `via`: the switches that its sends pass, where there is a choice (`Route.via`)."""

    send: int | None
    recv: int | None
    channel: int
    ops: tuple[Op, ...]
    via: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    loops: tuple[Loop, ...] = ()


class Gpu(NamedTuple):
    """One rank: buffer sizes in chunks, and its thread blocks."""

    rank: int
    input: int
    output: int
    scratch: int
    blocks: tuple[Block, ...]

    @property
    def chunks(self) -> int:
        """The chunks of all three buffers."""
        return self.input + self.output + self.scratch


@dataclass(frozen=True)
class Program:
    """The ops of all ranks for one call of a collective.

    `collective` is None only for a foreign file that does not name its collective. `chunks`: per unit of data, after
    instances. `in_place`: the calls that the program is for. It is offered for `min_bytes` <= size <= `max_bytes`
    (None: no limit), sizes in nccl-tests' sense. `scratch_bytes`: the bytes of a rank's scratch, which its chunks share
    evenly where they would be larger (None: as many as the chunks need). `one_scratch`: packets of every launch use the
    same scratch; otherwise those of successive launches use two halves in turn.
    """

    name: str
    collective: Collective | None
    chunks: int
    gpus: tuple[Gpu, ...]
    protocol: str = "Simple"
    in_place: InPlace = "out"
    min_bytes: int = 0
    max_bytes: int | None = None
    scratch_bytes: int | None = None
    one_scratch: bool = False

    def __repr__(self) -> str:
        name = "unknown collective" if self.collective is None else self.collective.name
        return f"<Program {self.name}: {name}, {self.ranks} ranks, {self.ops} instructions, {self.protocol}>"

    def _repr_html_(self) -> str | None:
        return load(NOTEBOOK["program"])(self)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.gpus)

    @property
    def loop_chunks(self) -> int:
        """The number of chunks in the larger buffer of one rank (MSCCL's nchunksperloop).

        The number of elements in that buffer must be a multiple of it.
        """
        return self.chunks * (1 if self.collective is None else self.collective.buffer_units)

    def blocks(self) -> Iterator[tuple[tuple[int, int], Block]]:
        """Yield ((rank, block), Block) of each thread block."""
        for gpu in self.gpus:
            for b, block in enumerate(gpu.blocks):
                yield (gpu.rank, b), block

    def placed_ops(self) -> Iterator[tuple[Place, Op]]:
        """Yield ((rank, block, op), Op) of each instruction."""
        for place, block in self.blocks():
            for i, op in enumerate(block.ops):
                yield (*place, i), op

    @cached_property
    def channels(self) -> int:
        """One more than the greatest channel."""
        return 1 + max((block.channel for _, block in self.blocks()), default=0)

    @cached_property
    def through_switches(self) -> bool:
        """True if an op passes a switch that multicasts and reduces."""
        return any(op.code in SWITCHED for _, op in self.placed_ops())

    @cached_property
    def has_packets(self) -> bool:
        """True if an op writes or reads packets."""
        return any(span.packet for _, op in self.placed_ops() for span in op.spans)

    @cached_property
    def ops(self) -> int:
        """The number of instructions of all ranks together."""
        return sum(len(block.ops) for _, block in self.blocks())

    @cached_property
    def one_sided(self) -> bool:
        """True if ranks write into each other's memory (ports) rather than send through FIFOs."""
        # ports are of one-sided programs alone; without ports and FIFOs the instructions tell
        blocks = [block for _, block in self.blocks()]
        if any(block.ports for block in blocks):
            return True
        fifos = any(block.send is not None or block.recv is not None for block in blocks)
        return not fifos and any(op.code in ONE_SIDED - TWO_SIDED for _, op in self.placed_ops())

    @cached_property
    def straight(self) -> bool:
        """True if nothing in the program depends on the size of a call: no parts, loops or bounded scratch."""
        if self.scratch_bytes is not None or any(block.loops for _, block in self.blocks()):
            return False
        return not any(op.part for _, op in self.placed_ops())

    @cached_property
    def senders(self) -> dict[tuple[int, int, int], list[tuple[int, int]]]:
        """(src rank, dst rank, channel) → the blocks (rank, block) that send on it; more than one is a fault."""
        senders = defaultdict(list)
        for place, block in self.blocks():
            if block.send is not None:
                senders[place[0], block.send, block.channel].append(place)
        return dict(senders)

    @cached_property
    def receivers(self) -> dict[tuple[int, int, int], list[tuple[int, int]]]:
        """(src rank, dst rank, channel) → the blocks (rank, block) that receive on it; more than one is a fault."""
        receivers = defaultdict(list)
        for place, block in self.blocks():
            if block.recv is not None:
                receivers[block.recv, place[0], block.channel].append(place)
        return dict(receivers)

    def to_json(self) -> dict:
        """Return the program as a JSON document (schema: docs/formats.md); fields with default values are omitted."""
        # what has its default value is left out, so that files of older versions stay equal
        doc: dict = {"schema": SCHEMA}
        doc |= {name: getattr(self, name) for name in ("name", "chunks", "protocol", "in_place")}
        if self.collective is not None:
            doc["collective"] = self.collective.to_json(1)
        doc |= {"min_bytes": self.min_bytes, "max_bytes": self.max_bytes}
        if self.scratch_bytes is not None:
            doc["scratch_bytes"] = self.scratch_bytes
        if self.one_scratch:
            doc["one_scratch"] = True
        doc["gpus"] = [gpu._asdict() | {"blocks": list(map(_block_json, gpu.blocks))} for gpu in self.gpus]
        return doc

    @staticmethod
    def from_json(doc: dict) -> Program:
        """Return the program of a document that `to_json` gave. Raises KeyError, ValueError, TypeError if malformed."""
        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        collective = Collective.from_json(doc["collective"], 1) if doc.get("collective") is not None else None
        if doc["protocol"] not in PROTOCOLS or doc["in_place"] not in ("out", "in", "both"):
            raise ValueError(f"protocol {doc['protocol']!r}, in_place {doc['in_place']!r}")
        # each number is checked on its way in: the file may be anybody's
        gpus = []
        for gpu in doc["gpus"]:
            rank, *sizes = (_natural(gpu[name]) for name in ("rank", "input", "output", "scratch"))
            gpus.append(Gpu(rank, sizes[0], sizes[1], sizes[2], tuple(map(block_from_json, gpu["blocks"]))))
        return Program(
            str(doc["name"]), collective, _natural(doc["chunks"]), tuple(gpus), doc["protocol"], doc["in_place"],
            _natural(doc["min_bytes"]), _optional(doc["max_bytes"]), _optional(doc.get("scratch_bytes")),
            bool(doc.get("one_scratch", False)),
        )  # fmt: skip


def checked_part(part: Part) -> Part:
    """Return `part`. Raises ValueError unless it is one of 1 to `MAX_PARTS` shares."""
    if not 0 <= part.index < part.of <= MAX_PARTS:
        raise ValueError(f"share {part.index} of {part.of}; shares are numbered from 0, at most {MAX_PARTS} exist")
    return part


def checked_loops(loops: Sequence[Loop], ops: int) -> tuple[Loop, ...]:
    """Return the loops of a block with `ops` ops. Raises ValueError unless they are ranges of its ops, in order."""
    # loops follow each other and do not nest
    end = 0
    for loop in loops:
        if not end <= loop.first < loop.end <= ops or loop.chunks < 1 or loop.unit < UNIT or loop.unit % UNIT:
            raise ValueError(
                f"loop {loop.first}-{loop.end}:{loop.chunks}:{loop.unit} of a block of {ops} ops: loops are ranges of "
                f"ops, in order, in units of {UNIT} bytes"
            )
        end = loop.end
    return tuple(loops)


def _block_json(block: Block) -> dict:
    doc: dict = {"send": block.send, "recv": block.recv, "channel": block.channel}
    for name in ("via", "ports", "loops"):
        if getattr(block, name):
            doc[name] = _json(getattr(block, name))
    doc["ops"] = []
    for op in block.ops:
        fields = op._asdict().items()
        doc["ops"].append({name: _json(value) for name, value in fields if value != Op._field_defaults.get(name)})
    return doc


def _json(value: Any) -> Any:
    """Return tuples as lists; spans and dependencies without default values at their end."""
    if not isinstance(value, tuple):
        return value
    row = list(map(_json, value))
    if isinstance(value, Span | Dep):
        # a span has a buffer and an offset, a dependency a block and an op; the rest may be missing
        while len(row) > 2 and row[-1] == value._field_defaults[value._fields[len(row) - 1]]:
            row.pop()
    return row


def block_from_json(doc: dict) -> Block:
    """Return the block of its document. Raises KeyError, ValueError, TypeError."""
    ports = tuple(Port(str(k), _natural(p), _natural(i)) for k, p, i in doc.get("ports", ()))
    if any(port.kind not in PORT_KINDS for port in ports):
        raise ValueError(f"port kinds are {', '.join(PORT_KINDS)}; got {doc['ports']}")
    return Block(
        _optional(doc["send"]), _optional(doc["recv"]), _natural(doc["channel"]), tuple(map(op_from_json, doc["ops"])),
        tuple(map(str, doc.get("via", ()))), ports,
        checked_loops([Loop(*map(_natural, loop)) for loop in doc.get("loops", ())], len(doc["ops"])),
    )  # fmt: skip


def op_from_json(doc: dict) -> Op:
    """Return the op of its document. Raises KeyError, ValueError, TypeError."""
    if doc["code"] not in CODES:
        raise ValueError(f"unknown instruction {doc['code']!r}")
    src, dst = (tuple(map(_span, doc.get(side, ()))) for side in ("src", "dst"))
    deps = tuple(Dep(*map(_natural, dep)) for dep in doc.get("deps", ()))
    ports, group = (tuple(map(_natural, doc.get(name, ()))) for name in ("ports", "group"))
    part = checked_part(Part(*map(_natural, doc["part"]))) if "part" in doc else None
    count, flag = _natural(doc.get("count", 1)), bool(doc.get("flag", False))
    return Op(doc["code"], src, dst, count, deps, flag, ports, group, part)


def _span(row: list) -> Span:
    buffer, offset, *rest = row
    if buffer not in BUFFERS:
        raise ValueError(f"buffer {buffer!r}; i, o and s exist")
    return Span(buffer, _natural(offset), _optional(rest[0]) if rest else None, bool(rest[1:2] and rest[1]))


def _optional(value: object) -> int | None:
    return None if value is None else _natural(value)


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a whole number >= 0")
    return value

"""Chakra execution traces, which simulators run: a schedule as nodes of a trace for each rank.

Data alone order the nodes, not the steps: a send waits for the node that made its chunk on its rank. What overwrites a
value (a sum, a copy in its place) waits also for the sends that read it. Sends of a rank do not wait for each other: a
send ends when it has arrived.

Format: mlcommons/chakra, schema/protobuf/et_def.proto. A file is messages, each behind its length as a varint:
GlobalMetadata {1 version}, then Node {1 id, 2 name, 3 type, 4 ctrl_deps, 5 data_deps, 7 duration_micros, 10 attr};
AttributeProto {1 name, 7 int32, 9 int64, 27 bool}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from synth.model.schedule import Schedule, Send

VERSION = "0.0.4"
COMP, COMM_SEND, COMM_RECV = 4, 5, 6  # NodeType
INT32, INT64, BOOL = 7, 9, 27  # fields of AttributeProto
VARINT, BYTES = 0, 2  # wire types


class TraceNode(NamedTuple):
    """A node of a trace.

    `data_deps`: nodes whose data it needs. `ctrl_deps`: nodes that read what it overwrites. `attributes`: (name, field
    of AttributeProto, value) each.
    """

    number: int
    name: str
    kind: int
    data_deps: Sequence[int] = ()
    ctrl_deps: Sequence[int] = ()
    attributes: Sequence[tuple[str, int, int]] = ()


def _file(nodes: Iterable[TraceNode]) -> bytes:
    """Return the content of a trace file."""
    parts = [_delimited(_text(1, VERSION))]
    for node in nodes:
        fields = [_number(1, node.number), _text(2, node.name), _number(3, node.kind)]
        for field, dependencies in ((4, node.ctrl_deps), (5, node.data_deps)):
            if dependencies:
                fields.append(_bytes(field, b"".join(map(_varint, dependencies))))
        for name, field, value in node.attributes:
            fields.append(_bytes(10, _text(1, name) + _number(field, value)))
        parts.append(_delimited(b"".join(fields)))
    return b"".join(parts)


def _varint(value: int) -> bytes:
    """Return a number of at least 0 in base 128, the low digits first."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _delimited(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _delimited(value: bytes) -> bytes:
    return _varint(len(value)) + value


class RankTraces:
    """The nodes of each rank's trace, appended step by step.

    ``made[chunk, rank]``: the number of the node that made the value that the rank has; none for its input.
    ``readers[chunk, rank]``: the numbers of the sends that have read that value.
    """

    def __init__(self, ranks: int, chunk_bytes: int) -> None:
        self.nodes = [[] for _ in range(ranks)]
        self.chunk_bytes = chunk_bytes
        self.made = {}
        self.readers = {}
        self.tags = Counter[tuple[int, int]]()

    def step(self, sends: list[Send]) -> None:
        """Append the nodes of a step, all of whose sends read the state before it; copies land before sums."""
        arrivals = []
        read = []
        for send in sends:
            received = 0
            if not send.local:
                sent, received = self._message(send)
                if not send.kind.endswith("-input"):
                    read.append((send.chunk, send.src, sent))
            arrivals.append((send, received))
        for chunk, rank, sent in read:
            self.readers.setdefault((chunk, rank), []).append(sent)
        arrivals.sort(key=lambda one: one[0].kind.startswith("reduce"))
        for send, received in arrivals:
            self._write(send, received)

    def _message(self, send: Send) -> tuple[int, int]:
        """Append a send and its receive; return their numbers."""
        tag = self.tags[send.src, send.dst]
        self.tags[send.src, send.dst] += 1
        made = 0 if send.kind.endswith("-input") else self.made.get((send.chunk, send.src), 0)
        attributes = [
            ("comm_size", INT64, self.chunk_bytes), ("comm_src", INT32, send.src), ("comm_dst", INT32, send.dst),
            ("comm_tag", INT32, tag), ("is_cpu_op", BOOL, 0),
        ]  # fmt: skip
        sent = self._append(send.src, f"send chunk {send.chunk} to {send.dst}", COMM_SEND, [made], (), attributes)
        name = f"receive chunk {send.chunk} from {send.src}"
        return sent, self._append(send.dst, name, COMM_RECV, (), (), attributes)

    def _write(self, send: Send, received: int) -> None:
        """Append the sum of a send, or the copy of one in the place of another value."""
        key = send.chunk, send.dst
        adds = send.kind.startswith("reduce")
        old, readers = self.made.get(key, 0), self.readers.pop(key, [])
        number = received
        if adds or old or readers:
            data = [received, old] if adds else [received]
            control = readers if adds else [old, *readers]
            name = f"{'add' if adds else 'place'} chunk {send.chunk}"
            number = self._append(send.dst, name, COMP, data, control, [("is_cpu_op", BOOL, 0)])
        self.made[key] = number

    def _append(
        self, rank: int, name: str, kind: int, data: list[int] | tuple[()], control: list[int] | tuple[()],
        attributes: list[tuple[str, int, int]],
    ) -> int:  # fmt: skip
        number = len(self.nodes[rank]) + 1
        needed = [one for one in data if one]
        reading = sorted({one for one in control if one} - set(needed))
        self.nodes[rank].append(TraceNode(number, name, kind, needed, reading, attributes))
        return number


class TraceFiles(NamedTuple):
    """The files, (name, content) each, and remarks."""

    files: tuple[tuple[str, bytes], ...]
    remarks: tuple[str, ...]


def traces(schedule: Schedule, size: int) -> TraceFiles:
    """Return ``collective.R.et`` of each rank R for a call of `size` bytes (nccl-tests' size); chunks are rounded up to
    bytes.
    """
    share = size * schedule.collective.unit_share / schedule.chunks
    found = RankTraces(schedule.collective.ranks, max(1, -(-share.numerator // share.denominator)))
    for step in schedule.steps:
        found.step(sorted(step.unicast_sends))
    files = tuple((f"collective.{rank}.et", _file(nodes)) for rank, nodes in enumerate(found.nodes))
    said = "traces have no switches that multicast: their sends are written as sends from rank to rank"
    return TraceFiles(files, (said,) if schedule.uses_multicast else ())

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
from typing import NamedTuple

from synth.model.schedule import Schedule, Send

VERSION = "0.0.4"
COMP, COMM_SEND, COMM_RECV = 4, 5, 6  # NodeType
INT32, INT64, BOOL = 7, 9, 27  # fields of AttributeProto
VARINT, BYTES = 0, 2  # wire types


# An attribute of a node: its name, its field of AttributeProto, and its value.
Attributes = list[tuple[str, int, int]]


def _varint(value: int) -> bytes:
    """Return a number of at least 0 in base 128, the low digits first."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _field(number: int, value: int | str | bytes) -> bytes:
    """Return a field of a message: a number, or a text or a message behind its length."""
    if isinstance(value, int):
        return _varint(number << 3 | VARINT) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content


class RankTraces:
    """The trace file of each rank, appended step by step.

    ``made[chunk, rank]``: the number of the node that made the value that the rank has; none for its input.
    ``readers[chunk, rank]``: the numbers of the sends that have read that value.
    """

    def __init__(self, ranks: int, chunk_bytes: int) -> None:
        head = _field(1, VERSION)
        self.files = [bytearray(_varint(len(head)) + head) for _ in range(ranks)]
        self.nodes = [0] * ranks
        self.chunk_bytes = chunk_bytes
        self.made = {}
        self.readers = {}
        self.tags = Counter[tuple[int, int]]()

    def step(self, sends: list[Send]) -> None:
        """Append the nodes of a step, all of whose sends read the state before it; copies land before sums."""
        # All sends of the step first: what arrives changes nothing that they read.
        arrivals = []
        read = []
        for send in sends:
            received = 0
            if not send.local:
                sent, received = self._message(send)
                if not send.kind.endswith("-input"):
                    read.append((send.chunk, send.src, sent))
            arrivals.append((send.kind.startswith("reduce"), send, received))
        for chunk, rank, sent in read:
            self.readers.setdefault((chunk, rank), []).append(sent)
        arrivals.sort(key=lambda arrival: arrival[0])
        for adds, send, received in arrivals:
            # The sum of a send, or the copy of one in the place of another value.
            key = send.chunk, send.dst
            old, readers = self.made.get(key, 0), self.readers.pop(key, [])
            if adds:
                received = self._append(send.dst, f"add chunk {send.chunk}", COMP, [received, old], readers)
            elif old or readers:
                received = self._append(send.dst, f"place chunk {send.chunk}", COMP, [received], [old, *readers])
            self.made[key] = received

    def _message(self, send: Send) -> tuple[int, int]:
        """Append a send and its receive; return their numbers."""
        # Messages between two ranks differ in their number.
        tag = self.tags[send.src, send.dst]
        self.tags[send.src, send.dst] += 1
        made = 0 if send.kind.endswith("-input") else self.made.get((send.chunk, send.src), 0)
        attributes = [
            ("comm_size", INT64, self.chunk_bytes), ("comm_src", INT32, send.src), ("comm_dst", INT32, send.dst),
            ("comm_tag", INT32, tag),
        ]  # fmt: skip
        sent = self._append(send.src, f"send chunk {send.chunk} to {send.dst}", COMM_SEND, [made], [], attributes)
        name = f"receive chunk {send.chunk} from {send.src}"
        return sent, self._append(send.dst, name, COMM_RECV, [], [], attributes)

    def _append(
        self, rank: int, name: str, kind: int, data: list[int], control: list[int], attributes: Attributes | None = None
    ) -> int:  # fmt: skip
        """Append a node to the trace of a rank; return its number. Its dependencies are numbers of nodes, 0 for none.

        `data`: nodes whose data it needs. `control`: nodes that read what it overwrites.
        """
        self.nodes[rank] += 1
        # The fields of a node in the order of the format.
        fields = [_field(1, self.nodes[rank]), _field(2, name), _field(3, kind)]
        needed = [number for number in data if number]
        for field, numbers in ((4, sorted(set(control) - {0, *needed})), (5, needed)):
            if numbers:
                fields.append(_field(field, b"".join(map(_varint, numbers))))
        for attribute, field, value in [*(attributes or ()), ("is_cpu_op", BOOL, 0)]:
            fields.append(_field(10, _field(1, attribute) + _field(field, value)))
        node = b"".join(fields)
        self.files[rank] += _varint(len(node)) + node
        return self.nodes[rank]


class TraceFiles(NamedTuple):
    """The files, (name, content) each, and remarks."""

    files: tuple[tuple[str, bytes], ...]
    remarks: tuple[str, ...]


def traces(schedule: Schedule, size: int) -> TraceFiles:
    """Return ``collective.R.et`` of each rank R for a call of `size` bytes (nccl-tests' size); chunks are rounded up to
    bytes.
    """
    # A unit's share of the buffer, cut into chunks.
    share = size * schedule.collective.unit_share / schedule.chunks
    found = RankTraces(schedule.collective.ranks, max(1, -(-share.numerator // share.denominator)))
    for step in schedule.steps:
        found.step(sorted(step.unicast_sends))
    files = tuple((f"collective.{rank}.et", bytes(content)) for rank, content in enumerate(found.files))
    said = "traces have no switches that multicast: their sends are written as sends from rank to rank"
    return TraceFiles(files, (said,) if schedule.uses_multicast else ())

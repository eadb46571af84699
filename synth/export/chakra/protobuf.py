"""Writer of Chakra's protobuf messages (mlcommons/chakra, schema/protobuf/et_def.proto).

A file is messages, each behind its length as a varint: GlobalMetadata {1 version}, then Node {1 id, 2 name, 3 type,
4 ctrl_deps, 5 data_deps, 7 duration_micros, 10 attr}; AttributeProto {1 name, 7 int32, 9 int64, 27 bool}.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


def file(nodes: Iterable[TraceNode]) -> bytes:
    """Return the content of a trace file."""
    parts = [_delimited(_text(1, VERSION))]
    for node in nodes:
        parts.append(_delimited(_node(node)))
    return b"".join(parts)


def _node(node: TraceNode) -> bytes:
    parts = [_number(1, node.number), _text(2, node.name), _number(3, node.kind)]
    for field, dependencies in ((4, node.ctrl_deps), (5, node.data_deps)):
        if dependencies:
            parts.append(_bytes(field, b"".join(map(_varint, dependencies))))
    for name, field, value in node.attributes:
        parts.append(_bytes(10, _text(1, name) + _number(field, value)))
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

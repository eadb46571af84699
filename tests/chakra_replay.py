"""A reader of Chakra's traces, and a run of them on lists of contributions; it shares no code with the writer.

A node starts when the nodes that it names have ended. A receive ends when the message with its tag, ends and size has
come. Any order that the dependencies allow must give every rank what the collective wants.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from synth.model.schedule import Schedule

SUM, SEND, RECEIVE = 4, 5, 6


@dataclass
class TraceNode:
    """A node as the file has it; `attributes` by name."""

    number: int = 0
    name: str = ""
    kind: int = 0
    deps: set[int] = field(default_factory=set)
    attributes: dict[str, int] = field(default_factory=dict)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of base 128 and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a message."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7:
            assert key & 7 == 2 and at + value <= len(data), "only varints and bytes are written"
            value, at = data[at : at + value], at + value
        found.append((key >> 3, value))
    return found


def read(data: bytes) -> list[TraceNode]:
    """Return the nodes of a trace file."""
    messages, at = [], 0
    while at < len(data):
        length, at = varint(data, at)
        messages.append(fields(data[at : at + length]))
        at += length
    assert dict(messages[0])[1]  # a version
    nodes = []
    for message in messages[1:]:
        one = dict(message)
        node = TraceNode(one[1], one[2].decode(), one[3])
        for key, value in message:
            at = 0
            while key in (4, 5) and at < len(value):
                dep, at = varint(value, at)
                node.deps.add(dep)
            if key == 10:
                (_, name), (_, number) = fields(value)
                node.attributes[name.decode()] = number
        nodes.append(node)
    return nodes


def run(traces: list[list[TraceNode]], schedule: Schedule, size: int | Fraction, seed: int) -> bool:
    """Run traces of a schedule in an order of chance; return whether every rank ends with what it must.

    A send takes what is in its place when it starts, and what it read must still be there when it has arrived.
    """
    task, order = schedule.collective, random.Random(seed)
    share = size * task.unit_share / schedule.chunks
    memory = {}
    for unit, ranks in enumerate(task.pre):
        for rank in ranks:
            for chunk in range(unit * schedule.chunks, (unit + 1) * schedule.chunks):
                memory[rank, chunk] = (rank,) if task.combining else (chunk,)
    arrived, messages, ended, left = {}, {}, set(), []
    placed = []  # of each rank the receives that are added, or put in place, by a node of their own
    for rank, trace in enumerate(traces):
        left += [(rank, node) for node in trace]
        placed.append(set().union(*[node.deps for node in trace if node.kind == SUM]))
    while left:
        order.shuffle(left)
        waiting = []
        for rank, node in left:
            message = tuple(node.attributes.get(f"comm_{key}") for key in ("tag", "src", "dst", "size"))
            late = node.kind == RECEIVE and message not in messages
            if late or any((rank, dep) not in ended for dep in node.deps):
                waiting.append((rank, node))
                continue
            ended.add((rank, node.number))
            chunk = int(node.name.split()[2])
            if node.kind == SEND:
                assert (message[1], message[3]) == (rank, max(1, -(-share.numerator // share.denominator)))
                assert message not in messages
                messages[message] = memory.get((rank, chunk))
            elif node.kind == RECEIVE:
                assert message[2] == rank
                arrived[rank, node.number] = messages[message]
                if node.number not in placed[rank]:
                    memory[rank, chunk] = messages[message]
            else:
                own = memory.get((rank, chunk), ()) if node.name.startswith("add") else ()
                came = [arrived.get((rank, dep)) or () for dep in node.deps]
                memory[rank, chunk] = tuple(sorted(sum(came, own)))
        assert len(waiting) < len(left), "nodes wait for ever"
        left = waiting
    for unit, ranks in enumerate(task.post):
        for rank in ranks:
            for chunk in range(unit * schedule.chunks, (unit + 1) * schedule.chunks):
                wanted = tuple(sorted(task.wanted(unit, rank))) if task.combining else (chunk,)
                if memory.get((rank, chunk)) != wanted:
                    return False
    return True

"""A reader of Chakra's traces and a replay by ASTRA-sim's rules; it shares no code with the writer.

A node starts when the nodes that it names have ended. A send ends when it has arrived, a receive when the message with
its tag, ends and size has; a sum takes 1 ns.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.runtime.link_schedule import LinkSchedule

SUM, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7


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


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Return the fields of a message."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            assert key & 7 == 2, "only varints and bytes are written"
            length, at = varint(data, at)
            assert at + length <= len(data)
            value, at = data[at : at + length], at + length
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
    return [_node(message) for message in messages[1:]]


def _node(message: list[tuple[int, int | bytes]]) -> TraceNode:
    node = TraceNode()
    for key, value in message:
        if key == 1:
            node.number = int(value)
        elif key == 2:
            node.name = bytes(value).decode()
        elif key == 3:
            node.kind = int(value)
        elif key in (4, 5):
            at = 0
            while at < len(bytes(value)):
                dep, at = varint(bytes(value), at)
                node.deps.add(dep)
        else:
            assert key == 10
            (name, content), (_, number) = fields(bytes(value))
            assert name == 1
            node.attributes[bytes(content).decode()] = int(number)
    return node


class LinkNetwork:
    """Links and limits by this project's rules, in ps; parallel routes are used in turn where none is named."""

    def __init__(self, network: Network) -> None:
        self.links = LinkSchedule(network)

    def route(self, src: int, dst: int, tag: int, via: tuple[str, ...] = ()) -> Any:
        """Return the route of a message."""
        return self.links.route(src, dst, tag, via)

    def begin(self, link: Any, now: Any) -> Any:
        """Return the time at which a message may ask for a route."""
        return self.links.free(link, now)

    def arrival(self, link: Any, size: int, now: Any) -> Any:
        """Return the time at which a message that wants a route at `now` arrives."""
        return self.links.send(link, size, now)[2]


@dataclass
class Job:
    """A node of a replay: a message (`link` is its tag, ends and size), or a sum. It starts when `deps` have ended."""

    deps: set[Any]
    message: tuple[int, int, int, int] | None = None
    via: tuple[str, ...] = ()
    joins: bool = False


def run(jobs: dict[Any, Job], network: LinkNetwork, sum_time: int) -> Any:
    """Return the time at which all jobs have ended.

    Of messages that ask for a link at the same time the one with the lesser (tag, src, dst) is first; what ends at that
    time is seen before.
    """
    left = {key: len(job.deps) for key, job in jobs.items()}
    after: dict[Any, list[Any]] = {}
    for key, job in jobs.items():
        for dep in job.deps:
            after.setdefault(dep, []).append(key)
    ended: dict[Any, Any] = {}
    events: list[tuple] = []

    def start(key: Any) -> None:
        job = jobs[key]
        now = max((ended[dep] for dep in job.deps), default=0)
        if job.message is None:
            heapq.heappush(events, (now + (0 if job.joins else sum_time), 0, (0, 0, 0), len(events), key, None))
        else:
            tag, src, dst, _ = job.message
            route = network.route(src, dst, tag, job.via)
            heapq.heappush(events, (now, 1, (tag, src, dst), len(events), key, route))

    for key in jobs:
        if not left[key]:
            start(key)
    count = len(jobs)
    while events:
        now, asks, order, _, key, route = heapq.heappop(events)
        if asks:
            count += 1
            begin = network.begin(route, now)
            if begin > now:
                heapq.heappush(events, (begin, 1, order, count, key, route))
            else:
                message = jobs[key].message
                assert message is not None
                at = network.arrival(route, message[3], now)
                heapq.heappush(events, (at, 0, order, count, key, None))
            continue
        ended[key] = now
        for follower in after.get(key, ()):
            left[follower] -= 1
            if not left[follower]:
                start(follower)
    assert len(ended) == len(jobs), "nodes wait for ever"
    return max(ended.values())


def jobs_of(traces: list[list[TraceNode]]) -> dict[Any, Job]:
    """Return the jobs of traces: a receive joins its send and its own dependencies. Asserts that all is matched."""
    jobs: dict[Any, Job] = {}
    sends: dict[tuple, list[Any]] = {}
    receives: dict[tuple, list[Any]] = {}
    for rank, trace in enumerate(traces):
        for node in trace:
            key = rank, node.number
            assert key not in jobs
            assert all((rank, dep) in jobs for dep in node.deps), "a node names nodes before it"
            jobs[key] = Job({(rank, dep) for dep in node.deps}, joins=node.kind == RECEIVE)
            if node.kind in (SEND, RECEIVE):
                a = node.attributes
                message = a["comm_tag"], a["comm_src"], a["comm_dst"], a["comm_size"]
                assert rank == message[1 if node.kind == SEND else 2]
                (sends if node.kind == SEND else receives).setdefault(message, []).append(key)
                jobs[key].message = message if node.kind == SEND else None
    assert {key: len(row) for key, row in sends.items()} == {key: len(row) for key, row in receives.items()}
    for message, row in receives.items():
        for send, receive in zip(sends[message], row, strict=True):
            jobs[receive].deps.add(send)
    return jobs


def jobs_of_schedule(schedule: Schedule, size: int) -> dict[Any, Job]:
    """Return the jobs of a schedule, each chunk as large as the data are; derived from the schedule alone."""
    jobs: dict[Any, Job] = {}
    share = size * schedule.collective.unit_share / schedule.chunks
    size_of_chunk = -(-share.numerator // share.denominator)
    value: dict[tuple[int, int], Any] = {}
    readers: dict[tuple[int, int], set[Any]] = {}
    tags: dict[tuple[int, int], int] = {}
    for t, step in enumerate(schedule.steps):
        writes = []
        for send in sorted(step.sends):
            key = None
            if not send.local:
                key = t, send
                tag = tags[send.src, send.dst] = tags.get((send.src, send.dst), -1) + 1
                source = None if send.kind.endswith("-input") else value.get((send.chunk, send.src))
                message = tag, send.src, send.dst, size_of_chunk
                jobs[key] = Job({source} if source else set(), message, send.via)
            writes.append((send.kind.startswith("reduce"), send, key))
        for _, send, key in writes:
            if key and not send.kind.endswith("-input"):
                readers.setdefault((send.chunk, send.src), set()).add(key)
        for adds, send, key in sorted(writes, key=lambda row: row[0]):
            place = send.chunk, send.dst
            waits = readers.pop(place, set()) | ({value[place]} if place in value else set())
            if adds or waits:
                jobs["write", t, send] = Job(waits | ({key} if key else set()))
                key = "write", t, send
            value[place] = key
    return jobs

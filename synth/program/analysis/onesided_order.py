"""An order in which the ops of a one-sided program can run, or the blocks that stand still.

Waits depend on counts alone. The k-th wait on a port needs the k-th signal of its other end; a barrier needs all blocks
of its group; a read of a packet needs its write; an op needs its dependencies. None of these events is ever undone. So
one order of execution that ends proves that all do, and sizes do not matter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from synth.program.analysis.finding import WaitingBlock, cycle_first
from synth.program.program import Op, Place, Port
from synth.program.straight_line import StraightLine

Event = tuple  # ("op", place), ("signal", rank, port), ("barrier", rank, blocks) or ("packet", rank, buffer, offset)


def other_end(rank: int, port: Port) -> tuple[int, Port]:
    """Return the rank and port at which a signal of `rank` on `port` arrives."""
    return port.peer, Port(port.kind, rank, port.index)


def execution_order(line: StraightLine) -> tuple[list[Place], list[WaitingBlock]]:
    """Return the ops (rank, block, op) in an order in which they can run, and the waits of the blocks that then remain.

    No wait remains if the program ends. Otherwise a cycle of waits comes first, which names the ops of the program that
    `line` was made of.
    """
    blocks = dict(line.program.blocks())
    at = dict.fromkeys(blocks, 0)
    happened = Counter[Event]()
    passed = Counter[Event]()  # signals that were waited for
    met = Counter[tuple]()  # (block, barrier): how often the block has left it
    sleeping = defaultdict(list)
    order = []
    ready = list(blocks)[::-1]
    arrived = set()  # ops at a barrier that have been counted

    def missing(rank: int, b: int) -> Event | None:
        """Return an event that the next op of a block still waits for."""
        op, here = blocks[rank, b].ops[at[rank, b]], (rank, b)
        for event, count in _needs(rank, op, blocks[here].ports).items():
            wanted = 1
            if event[0] == "signal":
                wanted = passed[event] + count
            elif event[0] == "barrier":
                wanted = (met[here, event] + 1) * len(event[2])
            if happened[event] < wanted:
                return event
        return None

    # Run each block as far as it goes; an event wakes those who wait for it.
    while ready:
        rank, b = here = ready.pop()
        ops, ports = blocks[here].ops, blocks[here].ports
        while at[here] < len(ops):
            op, place = ops[at[here]], (rank, b, at[here])
            if op.code == "barrier" and place not in arrived:
                arrived.add(place)
                for event in _needs(rank, op, ports):
                    happened[event] += event[0] == "barrier"
            event = missing(rank, b)
            if event is not None:
                sleeping[event].append(here)
                break
            for event, count in _needs(rank, op, ports).items():
                passed[event] += count
                met[here, event] += 1
            order.append(place)
            at[here] += 1
            for event in _causes(rank, b, place[2], op, ports):
                happened[event] += event[0] != "barrier"
                ready += sleeping.pop(event, ())

    # What the remaining blocks wait for, and a block whose later op would cause it.
    waits = []
    for (rank, b), i in at.items():
        if i == len(blocks[rank, b].ops):
            continue
        event = missing(rank, b)
        assert event is not None
        cause = None
        for other, first in at.items():
            for j in range(first, len(blocks[other].ops)):
                op = blocks[other].ops[j]
                counted = op.code == "barrier" and (*other, j) in arrived
                if cause is None and not counted and event in _causes(*other, j, op, blocks[other].ports):
                    cause = other
        waits.append(WaitingBlock(rank, b, line.step(rank, b, i), _reason(line, event), cause))
    return order, cycle_first(waits)


def _needs(rank: int, op: Op, ports: tuple[Port, ...]) -> Counter[Event]:
    """Return the events that an op waits for, with their number."""
    needed = Counter[Event](("op", rank, dep.block, dep.op) for dep in op.deps)
    if op.code == "wait":
        needed.update(("signal", rank, ports[p]) for p in op.ports)
    if op.code == "barrier":
        needed["barrier", rank, tuple(sorted(set(op.group)))] += 1
    for owner, buffer, offset in _packets(rank, op, op.src):
        needed["packet", owner, buffer, offset] = 1
    return needed


def _causes(rank: int, b: int, i: int, op: Op, ports: tuple[Port, ...]) -> Iterator[Event]:
    """Yield the events that an op causes: a barrier when its block arrives, the others when it ends."""
    yield "op", rank, b, i
    if op.code == "signal":
        for p in op.ports:
            yield "signal", *other_end(rank, ports[p])
    if op.code == "barrier":
        yield "barrier", rank, tuple(sorted(set(op.group)))
    for owner, buffer, offset in _packets(rank, op, op.dst):
        yield "packet", owner, buffer, offset


def _packets(rank: int, op: Op, spans: tuple) -> Iterator[tuple[int, str, int]]:
    """Yield the cells of the packets among `spans` of an op of `rank`."""
    for span in spans:
        for k in range(op.count if span.packet else 0):
            yield span.owner(rank), span.buffer, span.offset + k


def _reason(line: StraightLine, event: Event) -> str:
    """Return what a block waits for, in words."""
    kind, rank, *what = event
    if kind == "op":
        return f"for block {what[0]} step {line.step(rank, what[0], what[1])}"
    if kind == "signal":
        return f"for a signal of rank {what[0].peer} on {what[0].kind} channel {what[0].index}"
    if kind == "barrier":
        return f"at the barrier of blocks {', '.join(map(str, what[0]))}"
    return f"for packet {what[0]}[{what[1] // line.scale(what[0])}] of rank {rank}"

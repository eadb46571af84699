"""An order in which the ops of a one-sided program can run, or the blocks that stand still.

Waits depend on counts alone. The k-th wait on a port needs the k-th signal of its other end; a barrier needs all blocks
of its group; a read of a packet needs its write; an op needs its dependencies. None of these events is ever undone. So
one order of execution that ends proves that all do, and sizes do not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from synth.program.analysis.finding import WaitingBlock, cycle_first
from synth.program.program import Op, Place, Port, Span
from synth.program.straight_line import StraightLine

Cell = tuple[int, str, int]


def other_end(rank: int, port: Port) -> tuple[int, Port]:
    """Return the rank and port at which a signal of `rank` on `port` arrives."""
    return port.peer, Port(port.kind, rank, port.index)


def execution_order(line: StraightLine) -> tuple[list[Place], list[WaitingBlock]]:
    """Return the ops (rank, block, op) in an order in which they can run, and the waits of the blocks that then remain.

    No wait remains if the program ends. Otherwise a cycle of waits comes first, which names the ops of the program that
    `line` was made of.
    """
    return _Run(line).result()


def _packets(rank: int, spans: Iterable[Span], count: int) -> Iterator[Cell]:
    """Yield the cells of the packets that an op of `rank` names."""
    for span in spans:
        for k in range(count if span.packet else 0):
            yield (rank if span.rank is None else span.rank), span.buffer, span.offset + k


class _Run:
    def __init__(self, line: StraightLine) -> None:
        self.line, self.program = line, line.program
        self.at = {(gpu.rank, b): 0 for gpu in line.program.gpus for b in range(len(gpu.blocks))}
        self.signals = Counter()  # sent and not yet waited for
        self.met = Counter()  # arrivals at the barriers of a group
        self.barriers = {}  # (block, group): its arrivals there
        self.waiting = set()  # blocks that stand at a barrier
        self.written = set()
        self.sleeping = {}
        self.done = []

    def result(self) -> tuple[list[Place], list[WaitingBlock]]:
        ready = list(self.at)[::-1]
        while ready:
            rank, b = place = ready.pop()
            ops = self.program.gpus[rank].blocks[b].ops
            while self.at[place] < len(ops):
                op = ops[self.at[place]]
                need = next(self.missing(rank, b, op), None)
                if need is not None:
                    self.sleeping.setdefault(need[0], []).append(place)
                    break
                self.done.append((rank, b, self.at[place]))
                self.at[place] += 1
                for key in self.effects(rank, b, op):
                    ready += self.sleeping.pop(key, ())
        waits = []
        for (rank, b), i in self.at.items():
            ops = self.program.gpus[rank].blocks[b].ops
            if i < len(ops):
                key, reason = next(self.missing(rank, b, ops[i]))
                waits.append(WaitingBlock(rank, b, self.line.step(rank, b, i), reason, self.giver(key)))
        return self.done, cycle_first(waits)

    def missing(self, rank: int, b: int, op: Op) -> Iterator[tuple[tuple, str]]:
        """Yield (key, text) for each event that `op` still waits for; `effects` yields the key when it may be due."""
        for dep in op.deps:
            if self.at[rank, dep.block] <= dep.op:
                step = self.line.step(rank, dep.block, dep.op)
                yield ("block", rank, dep.block), f"for block {dep.block} step {step}"
        if op.code == "wait":
            for port, n in self.ports(rank, b, op).items():
                if self.signals[rank, port] < n:
                    yield ("port", rank, port), f"for a signal of rank {port.peer} on {port.kind} channel {port.index}"
        if op.code == "barrier":
            key = ("barrier", rank, tuple(sorted(set(op.group))))
            if (rank, b) not in self.waiting:
                self.waiting.add((rank, b))
                self.barriers[b, key] = self.barriers.get((b, key), 0) + 1
                self.met[key] += 1
            if self.met[key] < self.barriers[b, key] * len(key[2]):
                yield key, f"at the barrier of blocks {', '.join(map(str, key[2]))}"
        for cell in _packets(rank, op.src, op.count):
            if cell not in self.written:
                owner, buffer, offset = cell
                yield ("cell", *cell), f"for packet {buffer}[{offset // self.line.scale(buffer)}] of rank {owner}"

    def effects(self, rank: int, b: int, op: Op) -> Iterator[tuple]:
        """Record that `op` has ended, and yield the keys of the events that it causes."""
        yield ("block", rank, b)
        if op.code == "signal":
            for port, n in self.ports(rank, b, op).items():
                end = other_end(rank, port)
                self.signals[end] += n
                yield ("port", *end)
        elif op.code == "wait":
            for port, n in self.ports(rank, b, op).items():
                self.signals[rank, port] -= n
        elif op.code == "barrier":
            self.waiting.discard((rank, b))
            yield ("barrier", rank, tuple(sorted(set(op.group))))
        for cell in _packets(rank, op.dst, op.count):
            self.written.add(cell)
            yield ("cell", *cell)

    def ports(self, rank: int, b: int, op: Op) -> Counter[Port]:
        ports = self.program.gpus[rank].blocks[b].ports
        return Counter(ports[p] for p in op.ports)

    def giver(self, key: tuple) -> tuple[int, int] | None:
        """Return a block with a future op that would cause event `key`; None if there is none."""
        for (rank, b), i in self.at.items():
            for op in self.program.gpus[rank].blocks[b].ops[i:]:
                if key == ("block", rank, b) or (
                    op.code == "barrier"
                    and (rank, b) not in self.waiting
                    and key[:2] == ("barrier", rank)
                    and set(op.group) == set(key[2])
                ):
                    return rank, b
                arrivals = {other_end(rank, port) for port in self.ports(rank, b, op)}
                if op.code == "signal" and key[0] == "port" and key[1:] in arrivals:
                    return rank, b
                if key[0] == "cell" and key[1:] in set(_packets(rank, op.dst, op.count)):
                    return rank, b
        return None

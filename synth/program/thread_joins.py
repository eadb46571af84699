"""Thread joins (`nop`) that MSCCL++'s kernel needs so that the ops of a block take effect in order.

The kernel runs the ops of a block without joining its threads in between (executor kernel, execution_kernel.hpp):
only some threads wait and signal, and each data op deals the bytes out to threads in its own way. So a `nop` stands
after a wait or flush before anything but a wait; after data before a signal or flush; between two data ops that touch
the same chunk of the rank's memory, one of them writing; between two waits, or two signals, on one port. Packets need
none: each thread reads the flag of what it takes. Nor does a signal or flush after a put through a port channel, if one
thread does both: thread k serves the k-th port of an op, and what it hands over for a channel stays in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from synth.program.buffer_layout import Layout
from synth.program.program import SWITCHED, Block, Gpu, Op, Program, Span

Key = tuple[str, int]  # one chunk of a rank's memory; input and output have the same keys where they are one memory
Keys = Callable[[int, Span, int], tuple[Key, ...]]
DATA = SWITCHED | {"put", "get", "cpy", "reduce"}
JOINING = frozenset({"nop", "barrier"})


class UnjoinedAccesses:
    """The accesses of a block's threads since they were last joined: memory read and written, ports, waits."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.reads: set[Key] = set()
        self.writes: set[Key] = set()
        self.data = self.waited = False
        self.port_ops: set[tuple[str, int]] = set()  # (wait or signal, port)
        self.handed: dict[int, set[int]] = {}  # port → the threads that have handed puts to it

    def must_join(self, op: Op, reads: set[Key], writes: set[Key]) -> bool:
        """True if a `nop` is needed before `op`, which reads and writes the memory keys `reads` and `writes`."""
        if op.code in ("wait", "signal") and any((op.code, port) in self.port_ops for port in op.ports):
            return True
        if op.code in ("signal", "flush"):
            others = any(self.handed.get(port, {thread}) != {thread} for thread, port in enumerate(op.ports))
            return self.data or others or (op.code == "signal" and self.waited)
        return op.code in DATA and (self.waited or bool(reads & self.writes or writes & (self.reads | self.writes)))

    def record(self, op: Op, reads: set[Key], writes: set[Key], handed: bool = False) -> None:
        """Record `op` as the next op of the block. `handed`: single threads hand it to port channels (`is_handed`)."""
        if op.code in JOINING:
            self._reset()
        elif op.code in DATA:
            self.data |= not handed
            for thread, port in enumerate(op.ports if handed else ()):
                self.handed.setdefault(port, set()).add(thread)
            self.reads |= reads
            self.writes |= writes
        else:
            self.waited |= op.code in ("wait", "flush")
            self.port_ops |= {(op.code, port) for port in op.ports}


def is_handed(op: Op, kind: Callable[[int], str]) -> bool:
    """Return True for a put of plain chunks through port channels. ``kind(port)``: the kind of a port of its block."""
    return op.code == "put" and not op.src[0].packet and any(kind(port) == "port" for port in op.ports)


def touched(rank: int, op: Op, keys: Keys) -> tuple[set[Key], set[Key]]:
    """Return the keys of the rank's own plain memory that `op` reads, and of that which it writes."""
    accessed: list[set[Key]] = []
    for spans in (op.src, op.dst):
        accessed.append(
            {key for span in spans if span.rank is None and not span.packet for key in keys(rank, span, op.count)}
        )
    return accessed[0], accessed[1]


def memory_keys(program: Program) -> Keys:
    """Return the function that gives the memory keys of a span of `program`.

    If the memory that input and output share is not known, both buffers together count as one chunk.
    """
    layout = None if program.collective is None else Layout(program.collective, program.chunks)

    def keys(rank: int, span: Span, count: int) -> tuple[Key, ...]:
        if span.buffer == "s" or program.in_place == "out":
            return tuple((span.buffer, span.offset + i) for i in range(count))
        shift = None if layout is None else layout.overlaps[rank]
        if shift is None:
            return (("io", 0),)
        start = span.offset + (shift if span.buffer == "o" else 0)
        return tuple(("i", start + i) for i in range(count))

    return keys


def with_joins(program: Program) -> Program:
    """Return the one-sided `program` with every `nop` that the kernel needs; an equal program if it has them all.

    A single thread waits for, or releases, other blocks of the rank. So dependencies and flags move from the ops to
    `nop` ops before and after them; those of a `nop` or `barrier` stay.
    """
    keys = memory_keys(program)
    return replace(program, gpus=tuple(_gpu(gpu, keys) for gpu in program.gpus))


def _gpu(gpu: Gpu, keys: Keys) -> Gpu:
    bodies = [_joined_ops(gpu.rank, block, keys) for block in gpu.blocks]
    new_index = [index for _, index in bodies]

    def renumbered(op: Op) -> Op:
        if not op.deps:
            return op
        return op._replace(deps=tuple(dep._replace(op=new_index[dep.block][dep.op]) for dep in op.deps))

    blocks = []
    for block, (ops, index) in zip(gpu.blocks, bodies, strict=True):
        loops = []
        for loop in block.loops:
            first = index[loop.first - 1] + 1 if loop.first else 0
            loops.append(loop._replace(first=first, end=index[loop.end - 1] + 1))
        blocks.append(block._replace(ops=tuple(map(renumbered, ops)), loops=tuple(loops)))
    return gpu._replace(blocks=tuple(blocks))


def _joined_ops(rank: int, block: Block, keys: Keys) -> tuple[list[Op], list[int]]:
    """Return the ops with joins, and the new index of each old op: that of the `nop` after it, if it has a flag.

    A turn of a loop follows another one: the first op of a loop needs a join if its last is none, or if it would need
    one after what stands before the loop.
    """
    threads, ops, new_index = UnjoinedAccesses(), [], []
    starts = {loop.first for loop in block.loops if block.ops[loop.end - 1].code not in JOINING}
    for i, op in enumerate(block.ops):
        reads, writes = touched(rank, op, keys)
        plain = op.code not in JOINING
        if (plain and (op.deps or i in starts)) or threads.must_join(op, reads, writes):
            ops.append(Op("nop", deps=op.deps if plain else ()))
            threads.record(ops[-1], set(), set())
        ops.append(op._replace(deps=(), flag=False) if plain else op)
        threads.record(op, reads, writes, is_handed(op, lambda port: block.ports[port].kind))
        if plain and op.flag:
            ops.append(Op("nop", flag=True))
            threads.record(ops[-1], set(), set())
        new_index.append(len(ops) - 1)
    return ops, new_index

"""Thread joins (`nop`) that MSCCL++'s kernel needs so that the ops of a block take effect in order.

The kernel runs the ops of a block without joining its threads in between (executor kernel, execution_kernel.hpp):
only some threads wait and signal, and each data op deals the bytes out to threads in its own way. So a `nop` stands
after a wait or flush before anything but a wait; after data before a signal or flush; between two data ops that touch
the same chunk of the rank's memory, one of them writing; between two waits, or two signals, on one port. Packets need
none: each thread reads the flag of what it takes. Ops with packets deal out their spans in one way: one thread moves
the k-th chunk of all, so two of them on the same k-th chunk are in order. Nor does a signal or flush need one after a
put through a port channel, if one thread does both: thread k serves the k-th port of an op, and what it hands over for
a channel stays in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from synth.program.buffer_layout import Layout
from synth.program.program import SWITCHED, Block, Gpu, Op, Program, Span

Key = tuple[str, int]  # one chunk of a rank's memory; input and output have the same keys where they are one memory
Keys = Callable[[int, Span, int], tuple[Key, ...]]
UNKNOWN = "io"  # the name in keys of input and output together, where the memory that they share is not known
DATA = SWITCHED | {"put", "get", "cpy", "reduce"}
JOINING = frozenset({"nop", "barrier"})


class ChunkAccess(NamedTuple):
    """An access of an op to a chunk of the rank's own plain memory.

    `element`: the place of the chunk in its span, where it names the threads that move it; else None.
    """

    key: Key
    writes: bool
    element: int | None


class UnjoinedAccesses:
    """The accesses of a block's threads since they were last joined: memory read and written, ports, waits."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.reads: dict[Key, set[int | None]] = {}  # chunk → the elements as which it was read
        self.writes: dict[Key, set[int | None]] = {}
        self.data = self.waited = False
        self.port_ops: set[tuple[str, int]] = set()  # (wait or signal, port)
        self.handed: dict[int, set[int]] = {}  # port → the threads that have handed puts to it

    def must_join(self, op: Op, accesses: Sequence[ChunkAccess]) -> bool:
        """True if a `nop` is needed before `op`, which accesses the rank's memory so."""
        if op.code in ("wait", "signal") and any((op.code, port) in self.port_ops for port in op.ports):
            return True
        if op.code in ("signal", "flush"):
            others = any(self.handed.get(port, {thread}) != {thread} for thread, port in enumerate(op.ports))
            return self.data or others or (op.code == "signal" and self.waited)
        return op.code in DATA and (self.waited or any(map(self._by_other_threads, accesses)))

    def _by_other_threads(self, access: ChunkAccess) -> bool:
        """Return True if other threads have made an access that must come before `access`."""
        earlier = set(self.writes.get(access.key, ()))
        if access.writes:
            earlier |= self.reads.get(access.key, set())
        return bool(earlier) and (access.element is None or earlier != {access.element})

    def record(self, op: Op, accesses: Sequence[ChunkAccess], handed: bool = False) -> None:
        """Record `op` as the next op of the block. `handed`: single threads hand it to port channels (`is_handed`)."""
        if op.code in JOINING:
            self._reset()
        elif op.code in DATA:
            self.data |= not handed
            for thread, port in enumerate(op.ports if handed else ()):
                self.handed.setdefault(port, set()).add(thread)
            for access in accesses:
                known = self.writes if access.writes else self.reads
                known.setdefault(access.key, set()).add(access.element)
        else:
            self.waited |= op.code in ("wait", "flush")
            self.port_ops |= {(op.code, port) for port in op.ports}


def is_handed(op: Op, kind: Callable[[int], str]) -> bool:
    """Return True for a put of plain chunks through port channels. ``kind(port)``: the kind of a port of its block."""
    return op.code == "put" and not op.src[0].packet and any(kind(port) == "port" for port in op.ports)


def accesses(rank: int, op: Op, keys: Keys, handed: bool) -> list[ChunkAccess]:
    """Return the accesses of `op` to the rank's own plain memory. `handed`: as in `UnjoinedAccesses.record`.

    Shares of ops (`part`) are dealt out anew each.
    """
    dealt = not handed and op.part is None and any(span.packet for span in (*op.src, *op.dst))
    found = []
    for writes, spans in ((False, op.src), (True, op.dst)):
        for span in spans:
            if span.rank is not None or span.packet:
                continue
            for k, key in enumerate(keys(rank, span, op.count)):
                found.append(ChunkAccess(key, writes, k if dealt and key[0] != UNKNOWN else None))
    return found


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
            return ((UNKNOWN, 0),)
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
        handed = is_handed(op, lambda port: block.ports[port].kind)
        touched = accesses(rank, op, keys, handed)
        plain = op.code not in JOINING
        if (plain and (op.deps or i in starts)) or threads.must_join(op, touched):
            ops.append(Op("nop", deps=op.deps if plain else ()))
            threads.record(ops[-1], ())
        ops.append(op._replace(deps=(), flag=False) if plain else op)
        threads.record(op, touched, handed)
        if plain and op.flag:
            ops.append(Op("nop", flag=True))
            threads.record(ops[-1], ())
        new_index.append(len(ops) - 1)
    return ops, new_index

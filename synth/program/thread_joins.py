"""Where MSCCL++'s kernel needs the threads of a block joined (`nop`) so that its ops take effect in order.

The kernel runs the ops of a block without joining its threads in between (executor kernel, execution_kernel.hpp):
only some threads wait and signal, and each data op deals the bytes out to threads in its own way. So a `nop` stands
after a wait or flush before anything but a wait; after data before a signal or flush; between two data ops that touch
the same chunk of the rank's memory, one of them writing; between two waits, or two signals, on one port. Packets need
none: each thread reads the flag of what it takes.
"""

from __future__ import annotations

from collections.abc import Callable

from synth.program.buffer_layout import Layout
from synth.program.program import Block, Dep, Gpu, Op, Program, Span

Key = tuple[str, int]  # one chunk of a rank's memory; input and output have the same keys where they are one memory
Keys = Callable[[int, Span, int], tuple[Key, ...]]
DATA = frozenset({"put", "get", "cpy", "reduce"})
JOINING = frozenset({"nop", "barrier"})


class Threads:
    """What the threads of a block have done since they were last joined."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.reads: set[Key] = set()
        self.writes: set[Key] = set()
        self.data = self.waited = False
        self.on: set[tuple[str, int]] = set()  # (wait or signal, port)

    def must_join(self, op: Op, reads: set[Key], writes: set[Key]) -> bool:
        """Whether a `nop` is needed before `op`, which reads and writes this memory of the rank."""
        if op.code in ("wait", "signal") and any((op.code, port) in self.on for port in op.ports):
            return True
        if op.code == "signal":
            return self.data or self.waited
        if op.code == "flush":
            return self.data
        return op.code in DATA and (self.waited or bool(reads & self.writes or writes & (self.reads | self.writes)))

    def did(self, op: Op, reads: set[Key], writes: set[Key]) -> None:
        """`op` comes next."""
        if op.code in JOINING:
            self._reset()
        elif op.code in DATA:
            self.data = True
            self.reads |= reads
            self.writes |= writes
        else:
            self.waited |= op.code in ("wait", "flush")
            self.on |= {(op.code, port) for port in op.ports}


def touched(rank: int, op: Op, keys: Keys) -> tuple[set[Key], set[Key]]:
    """The plain memory of the rank itself that `op` reads, and that it writes."""
    found: list[set[Key]] = []
    for spans in (op.src, op.dst):
        found.append(
            {key for span in spans if span.rank is None and not span.packet for key in keys(rank, span, op.count)}
        )
    return found[0], found[1]


def memory_keys(program: Program) -> Keys:
    """The keys of a program's memory. Where it is not known what input and output share, they are all one chunk."""
    task = program.collective
    layout = None if task is None else Layout(task, program.chunks)

    def keys(rank: int, span: Span, count: int) -> tuple[Key, ...]:
        if span.buffer == "s" or program.in_place == "out":
            return tuple((span.buffer, span.offset + i) for i in range(count))
        shift = None if layout is None else layout.overlaps[rank]
        if shift is None:
            return (("io", 0),)
        start = span.offset + (shift if span.buffer == "o" else 0)
        return tuple(("i", start + i) for i in range(count))

    return keys


def joined(program: Program) -> Program:
    """The one-sided `program` with every `nop` that the kernel needs; itself, if it has them.

    Waiting for another block of the rank and being waited for is done by `nop` too (or `barrier`), as it is done by
    one thread.
    """
    keys = memory_keys(program)
    return Program(
        program.name,
        program.collective,
        program.chunks,
        tuple(_gpu(gpu, keys) for gpu in program.gpus),
        program.protocol,
        program.in_place,
        program.min_bytes,
        program.max_bytes,
    )


def _gpu(gpu: Gpu, keys: Keys) -> Gpu:
    bodies = [_body(gpu.rank, block, keys) for block in gpu.blocks]
    places = [place for _, place in bodies]

    def moved(op: Op) -> Op:
        return op._replace(deps=tuple(Dep(d.block, places[d.block][d.op]) for d in op.deps)) if op.deps else op

    blocks = (block._replace(ops=tuple(map(moved, ops))) for block, (ops, _) in zip(gpu.blocks, bodies, strict=True))
    return gpu._replace(blocks=tuple(blocks))


def _body(rank: int, block: Block, keys: Keys) -> tuple[list[Op], list[int]]:
    """The ops with joins, and where each old op went (the `nop` after it, if others wait for that)."""
    threads, ops, places = Threads(), [], []
    for op in block.ops:
        reads, writes = touched(rank, op, keys)
        plain = op.code not in JOINING
        if (plain and op.deps) or threads.must_join(op, reads, writes):
            ops.append(Op("nop", deps=op.deps if plain else ()))
            threads.did(ops[-1], set(), set())
        ops.append(op._replace(deps=(), flag=False) if plain else op)
        threads.did(op, reads, writes)
        if plain and op.flag:
            ops.append(Op("nop", flag=True))
            threads.did(ops[-1], set(), set())
        places.append(len(ops) - 1)
    return ops, places

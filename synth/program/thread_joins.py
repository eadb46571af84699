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
from typing import NamedTuple

from synth.program.program import SWITCHED, Op, Span

Key = tuple[str, int]  # one chunk of a rank's memory; input and output have the same keys where they are one memory
Keys = Callable[[int, Span, int], tuple[Key, ...]]
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
        self.reads = {}  # chunk → the elements as which it was read
        self.writes = {}
        self.data = self.waited = False
        self.port_ops = set()  # (wait or signal, port)
        self.handed = {}  # port → the threads that have handed puts to it

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
    """Return the accesses of `op` to the rank's own plain memory. `handed`: as in `UnjoinedAccesses.record`."""
    dealt = not handed and any(span.packet for span in (*op.src, *op.dst))
    found = []
    for writes, spans in ((False, op.src), (True, op.dst)):
        for span in spans:
            if span.rank is not None or span.packet:
                continue
            for k, key in enumerate(keys(rank, span, op.count)):
                found.append(ChunkAccess(key, writes, k if dealt else None))
    return found

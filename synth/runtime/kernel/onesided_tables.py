"""A one-sided Program as the flat arrays that the kernel reads (kernel/tables.cuh says what their fields mean).

Each pair of a sending and a waiting port is a connection whose counters are its signals and waits. So is each barrier,
and each chunk that holds packets. Programs that send through FIFOs, too, are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from synth.errors import SynthError, UsageError
from synth.program.program import BUFFERS, REDUCING
from synth.runtime.kernel import tables as flat
from synth.runtime.reference.op_tables import CompiledOp, CompiledProgram, Place, PortKey

RESTS, MOVES, SIGNALS, AWAITS, MEETS = range(5)
_KINDS = {"nop": RESTS, "flush": RESTS, "signal": SIGNALS, "wait": AWAITS, "barrier": MEETS}
NO_PACKETS = -1


def onesided_tables(code: CompiledProgram) -> flat.Tables:
    """Return the arrays of a compiled one-sided program.

    Raises UsageError for a program that also sends or receives through FIFOs, SynthError for more ops than the kernel
    can hold, an op whose operands overlap in part, or two blocks that signal on one port.
    """
    flat.check_sizes(code, 1)
    builder = _TableBuilder(code)
    published = flat.published_ops(code)
    for b, steps in enumerate(code.steps):
        for i, step in enumerate(steps):
            builder.add(b, i, step, (b, i) in published)
    return builder.tables()


class _TableBuilder:
    """The arrays, op by op."""

    def __init__(self, code: CompiledProgram) -> None:
        self.code = code
        self.acts: list[tuple] = []
        self.terms: list[tuple] = []
        self.deps: list[tuple[int, int]] = []
        self.ends: list[tuple[int, int]] = []  # by connection: the rank that sends, the rank that waits
        self.events: list[tuple[str, Any]] = []  # by connection: the event that it counts, as in `WaitReason`
        self.numbers: dict[tuple[str, Any], int] = {}
        self.signals: Counter[int] = Counter()  # by connection: its signals in a launch, less its waits
        self.signalling: dict[int, int] = {}  # by connection: the block that signals
        for rank in range(code.program.ranks):
            # Give each chunk of `rank` that some op writes or reads as packets a connection, consecutive
            # ones in order.
            rows: set[int] = set()
            for steps in self.code.steps:
                for step in steps:
                    for place in (*step.src, *step.dst):
                        if place.packet and place.rank == rank:
                            rows.update(range(place.row, place.row + step.count))
            for row in sorted(rows):
                self._connection(("packet", Place(rank, row, True)), (rank, rank))

    def _connection(self, event: tuple[str, Any], ends: tuple[int, int]) -> int:
        if event not in self.numbers:
            self.numbers[event] = len(self.ends)
            self.ends.append(ends)
            self.events.append(event)
        return self.numbers[event]

    def add(self, b: int, i: int, step: CompiledOp, published: bool) -> None:
        """Append op `i` of block `b`."""
        if step.sends or step.receives:
            raise UsageError(f"{self.code.where(b, i)}: a program with ports does not send through FIFOs, too")
        rank, block = self.code.place[b]
        op = self.code.program.gpus[rank].blocks[block].ops[i]
        sources = list(zip(step.src, op.src, strict=False))  # a foreign file may name operands that nothing uses
        targets = list(zip(step.dst, op.dst, strict=False))
        kind = _KINDS.get(step.code, MOVES)
        pairs = step.code == "put" and len(sources) == len(targets) > 1
        if step.code == "re":  # dst ⊕ src
            sources = [*targets, *sources]
        elif not pairs and step.code not in REDUCING:
            sources = sources[:1]
        places = [place for place, _ in (*sources, *targets)]
        for k, place in enumerate(places):
            for other in places[:k]:
                if place.rank == other.rank and 0 < abs(place.row - other.row) < step.count:
                    raise SynthError(flat.overlap_message(self.code.where(b, i)))
        flags = flat.PUBLISHES * published + flat.REDUCES * (step.code in REDUCING)
        first_dep = len(self.deps)
        self.deps += step.deps
        runs: list[int] = []
        for rows in (self._spans(rank, sources), self._spans(rank, targets), self._ports(b, i, step)):
            runs += [len(self.terms), len(rows)]
            self.terms += rows
        self.acts.append((kind, flags, step.count, int(pairs), first_dep, len(step.deps), *runs))

    def _spans(self, rank: int, operands: list) -> list[tuple[int, int, int]]:
        rows = []
        for place, span in operands:
            flag = self.numbers["packet", place] if place.packet else NO_PACKETS
            rows.append((3 * place.rank + BUFFERS.index(span.buffer), flag, span.offset))
        return rows

    def _ports(self, b: int, i: int, step: CompiledOp) -> list[tuple[int, int, int]]:
        rank = self.code.place[b][0]
        if step.code == "barrier":
            return [(0, self._connection(("barrier", step.group), (rank, rank)), len(step.group))]
        if step.code not in ("signal", "wait"):
            return []
        rows = []
        for port in step.ports:
            taken, sign = (_other_end(port), 1) if step.code == "signal" else (port, -1)
            number = self._connection(("signal", taken), (taken[2], taken[0]))
            self.signals[number] += sign
            if step.code == "signal" and self.signalling.setdefault(number, b) != b:
                raise SynthError(
                    f"{self.code.where(b, i)}: another block signals on this port, too; the kernel takes one a port"
                )
            rows.append((0, number, 0))
        return rows

    def tables(self) -> flat.Tables:
        """Return the arrays of all ops."""
        blocks, at = np.zeros(len(self.code.place), flat.BLOCK), 0
        for b, steps in enumerate(self.code.steps):
            blocks[b] = (at, len(steps), -1, -1)
            at += len(steps)
        return flat.Tables(
            blocks,
            np.zeros(1, flat.OP),
            np.array(self.deps or [(0, 0)], flat.DEP),
            balanced=not any(self.signals.values()),
            slot_chunks=0,
            acts=np.array(self.acts or [(0,) * 12], flat.ACT),
            terms=np.array(self.terms or [(0,) * 3], flat.TERM),
            ends=tuple(self.ends),
            events=tuple(self.events),
        )


def _other_end(port: PortKey) -> PortKey:
    rank, kind, peer, index = port
    return peer, kind, rank, index

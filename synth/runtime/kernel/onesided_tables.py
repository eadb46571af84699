"""A one-sided Program as the flat arrays that the kernel reads (kernel/tables.cuh says what their fields mean).

Each pair of a sending and a waiting port is a connection whose counters are its signals and waits. So is each barrier,
and each chunk that holds packets. Programs that send through FIFOs, too, are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from synth.errors import SynthError, UsageError
from synth.program.program import REDUCING
from synth.runtime.kernel import tables as flat
from synth.runtime.reference.op_tables import CompiledProgram, Place

RESTS, MOVES, SIGNALS, AWAITS, MEETS = range(5)
_KINDS = {"nop": RESTS, "flush": RESTS, "signal": SIGNALS, "wait": AWAITS, "barrier": MEETS}
NO_PACKETS = -1


def onesided_tables(code: CompiledProgram) -> flat.Tables:
    """Return the arrays of a compiled one-sided program.

    Raises UsageError for a program that also sends or receives through FIFOs, SynthError for more ops than the kernel
    can hold, an op whose operands overlap in part, or two blocks that signal on one port.
    """
    flat.check_sizes(code, 1)
    connections = _packets(code)
    blocks, at = np.zeros(len(code.place), flat.BLOCK), 0
    acts: list[tuple] = []
    terms: list[tuple[int, int, int]] = []
    deps: list[tuple[int, int]] = []
    signals: Counter[tuple] = Counter()  # by event: its signals in a launch, less its waits
    signalling: dict[tuple, int] = {}  # by event: the block that signals
    published = flat.published_ops(code)
    for b, steps in enumerate(code.steps):
        rank, block = code.place[b]
        blocks[b] = (at, len(steps), -1, -1)
        at += len(steps)
        for i, step in enumerate(steps):
            if step.sends or step.receives:
                raise UsageError(f"{code.where(b, i)}: a program with ports does not send through FIFOs, too")
            flat.check_overlap(code, b, i)

            # The operands: a foreign file may name some that nothing uses.
            op = code.program.gpus[rank].blocks[block].ops[i]
            sources = list(zip(step.src, op.src, strict=False))
            targets = list(zip(step.dst, op.dst, strict=False))
            pairs = step.code == "put" and len(sources) == len(targets) > 1
            if step.code == "re":  # dst ⊕ src
                sources = [*targets, *sources]
            elif not pairs and step.code not in REDUCING:
                sources = sources[:1]
            rows: list[list[tuple[int, int, int]]] = []
            for operands in (sources, targets):
                spans = []
                for place, span in operands:
                    buffer, offset = flat.operand(place, span)
                    spans.append((buffer, connections["packet", place][0] if place.packet else NO_PACKETS, offset))
                rows.append(spans)

            # What the op signals, waits for or meets at.
            events = []
            if step.code == "barrier":
                meeting = connections.setdefault(("barrier", step.group), (len(connections), (rank, rank)))
                events.append((0, meeting[0], len(step.group)))
            for port in step.ports if step.code in ("signal", "wait") else ():
                taken = ("signal", port.opposite if step.code == "signal" else port)
                ends = (taken[1].peer, taken[1].rank)
                events.append((0, connections.setdefault(taken, (len(connections), ends))[0], 0))
                signals[taken] += 1 if step.code == "signal" else -1
                if step.code == "signal" and signalling.setdefault(taken, b) != b:
                    raise SynthError(
                        f"{code.where(b, i)}: another block signals on this port, too; the kernel takes one a port"
                    )
            runs: list[int] = []
            for added in (*rows, events):
                runs += [len(terms), len(added)]
                terms += added
            flags = flat.PUBLISHES * ((b, i) in published) + flat.REDUCES * (step.code in REDUCING)
            kind = _KINDS.get(step.code, MOVES)
            acts.append((kind, flags, step.count, int(pairs), len(deps), len(step.deps), *runs))
            deps += step.deps
    return flat.Tables(
        blocks,
        np.zeros(1, flat.OP),
        np.array(deps or [(0, 0)], flat.DEP),
        balanced=not any(signals.values()),
        slot_chunks=0,
        acts=np.array(acts or [(0,) * 12], flat.ACT),
        terms=np.array(terms or [(0,) * 3], flat.TERM),
        ends=tuple(ends for _, ends in connections.values()),
        events=tuple(connections),
    )


def _packets(code: CompiledProgram) -> dict[tuple[str, Any], tuple[int, tuple[int, int]]]:
    """Return a connection (number, sending and waiting rank) for each chunk that some op writes or reads as packets.

    They are numbered by rank and chunk, so those of a span follow one another.
    """
    chunks = set()
    for steps in code.steps:
        for step in steps:
            for place in (*step.src, *step.dst):
                if place.packet:
                    chunks.update((place.rank, place.row + k) for k in range(step.count))
    return {("packet", Place(rank, row, True)): (k, (rank, rank)) for k, (rank, row) in enumerate(sorted(chunks))}

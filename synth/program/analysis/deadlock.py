"""Does every rank come to an end, with FIFOs as short as they are in the machine, for every way that messages are
split?

A connection has one writer and one reader and each block is a sequence, so what blocks do depends on no timing (a Kahn
process network; bounded FIFOs keep that): if one order of execution comes to an end, all do, and one run per split
decides. An op of `count` chunks moves in ``parts = ceil(count / m)`` parts, ``m = max(1, floor(B / chunk bytes))``, B
the bytes of one FIFO operation; only the values of m that give different parts are run.

Larger messages go through the program in several loops over slices, every loop all ops. That adds no deadlock: order
the ops by (loop, the order that ends one loop). Program order, dependencies and messages lead within a loop or to the
next one. Both ends move the same number of parts a loop, so part j waits for room left by part j - depth: of the same
loop, where the order has it first, or of an earlier one. Every wait leads backwards, so there is no cycle.
"""

from __future__ import annotations

from typing import NamedTuple

from synth.program.analysis import onesided_order, structure
from synth.program.analysis.connection_tables import Wiring, unflagged, wire
from synth.program.analysis.finding import Wait, cycle_first
from synth.program.program import Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES, Runtime

MESSAGE, ROOM = 1, 2  # what a block at a message waits for


class Split(NamedTuple):
    """Operations of up to `chunks` chunks are one part, for sizes up to `limit` bytes; None: for any size."""

    chunks: int
    limit: int | None


def safe_sizes(program: Program, runtime: str | Runtime) -> int | None:
    """The largest size in bytes (nccl-tests': the larger of one rank's buffers) up to which no rank waits for ever.

    None: at any size; 0: at none, or the program has a fault that leaves it without meaning. Assumes the runtime's
    default buffer sizes. `runtime`: a Runtime or the name of one.
    """
    runtime = RUNTIMES[runtime] if isinstance(runtime, str) else runtime
    if structure.faults(program) or any(f.severity == "error" for f in unflagged(program)):
        return 0
    if program.one_sided:
        return 0 if onesided_order.order(program)[1] else None
    wired = wire(program)
    return 0 if wired.faults else first_deadlock(program, wired, runtime)[0]


def first_deadlock(program: Program, wired: Wiring, runtime: Runtime) -> tuple[int | None, list[Wait]]:
    """What `safe_sizes` says of a program whose wiring has no fault, and the waits at the first size above it."""
    safe = 0
    for split in splits(program, runtime):
        waits = stuck(wired, FIFO_DEPTH[program.protocol], split.chunks)
        if waits:
            return safe, waits
        if split.limit is None:
            break
        safe = split.limit
    return None, []


def splits(program: Program, runtime: Runtime) -> list[Split]:
    """The ways to split the program's ops, from whole messages to single chunks, each with its sizes' upper end."""
    name = "broadcast" if program.collective is None else program.collective.name  # unknown: the smallest operations
    most = runtime.operation_bytes(program.protocol, name) * program.loop_chunks
    counts = sorted({op.count for gpu in program.gpus for block in gpu.blocks for op in block.ops} | {1})
    found: list[Split] = []
    before: list[int] = []
    for m in range(counts[-1], 0, -1):
        parts = [-(-count // m) for count in counts]
        if parts == before:
            found.pop()  # the same parts down to a smaller m: for larger sizes too
        found.append(Split(m, None if m == 1 else most // m))
        before = parts
    return found


def stuck(wired: Wiring, depth: int, chunks: int, done: list[tuple[int, int]] | None = None) -> list[Wait]:
    """Run every block to its end, connections holding `depth` parts of up to `chunks` chunks: [] if all end.

    Else the blocks that stand still, a cycle of waits first. `done` takes the (flat block, op) in the order they ended.
    """
    at, part, idle = [0] * len(wired.blocks), [0] * len(wired.blocks), [0] * len(wired.blocks)
    sent, got = [0] * len(wired.ends), [0] * len(wired.ends)
    sleeping: list[dict[int, list[int]]] = [{} for _ in wired.blocks]  # of each block: op → who waits for it
    ready = list(range(len(wired.blocks)))[::-1]
    while ready:
        b = ready.pop()
        moves, counts, waits, out, into = (
            wired.moves[b],
            wired.counts[b],
            wired.waits[b],
            wired.sends[b],
            wired.receives[b],
        )
        sleepers, i, before, idle[b] = sleeping[b], at[b], part[b], 0
        passed = False  # whether a message went in or out
        for i in range(at[b], len(moves)):
            if before == 0 and i in waits:
                missing = next(((d, o) for d, o in waits[i] if (i if d == b else at[d]) <= o), None)
                if missing is not None:
                    sleeping[missing[0]].setdefault(missing[1], []).append(b)
                    break
            if move := moves[i]:
                parts = -(-counts[i] // chunks)
                n = parts - before
                if move & 2 and sent[into] - got[into] < n:
                    n, idle[b] = sent[into] - got[into], MESSAGE
                if move & 1 and depth - sent[out] + got[out] < n:
                    n, idle[b] = depth - sent[out] + got[out], ROOM
                if n:
                    passed = True
                    if move & 1:
                        sent[out] += n
                    if move & 2:
                        got[into] += n
                before += n
                if before < parts:
                    break
                before = 0
            if done is not None:
                done.append((b, i))
            if i in sleepers:
                ready += sleepers.pop(i)
        else:
            i = len(moves)
        at[b], part[b] = i, before
        if passed:
            if out >= 0 and idle[wired.ends[out][1]] == MESSAGE:
                ready.append(wired.ends[out][1])
            if into >= 0 and idle[wired.ends[into][0]] == ROOM:
                ready.append(wired.ends[into][0])
    return _explain(wired, depth, at, sent, got)


def _explain(wired: Wiring, depth: int, at: list[int], sent: list[int], got: list[int]) -> list[Wait]:
    waits = []
    for b, (rank, number) in enumerate(wired.blocks):
        i = at[b]
        if i == len(wired.moves[b]):
            continue
        missing = next(((d, o) for d, o in wired.waits[b].get(i, ()) if at[d] <= o), None)
        out, into = wired.sends[b], wired.receives[b]
        if missing is not None:
            other, reason = missing[0], f"for block {wired.blocks[missing[0]][1]} step {missing[1]}"
        elif wired.moves[b][i] & 2 and sent[into] == got[into]:
            other, reason = wired.ends[into][0], f"for a message on {_text(wired, into)}"
        else:
            other, reason = wired.ends[out][1], f"for room on {_text(wired, out)}, which holds {depth} unread parts"
        waits.append(Wait(rank, number, i, reason, None if other < 0 else wired.blocks[other]))
    return cycle_first(waits)


def _text(wired: Wiring, c: int) -> str:
    src, dst, channel = wired.names[c]
    return f"{src} -> {dst} channel {channel}"

"""Deadlock analysis of two-sided programs, with FIFOs as short as the runtime's, for every split of the messages.

A connection has one writer and one reader and each block is a sequence, so the ops that blocks reach depend on no
timing (a Kahn process network; bounded FIFOs keep that property). If one order of execution ends, all do, and one run
for each split decides. An op of `count` chunks moves in ``parts = ceil(count / m)`` parts, with
``m = max(1, floor(B / chunk bytes))`` and B the bytes of one FIFO operation. Only the values of m that give different
parts are run.

If the run of single chunks (m = 1) ends, so do those of all other m, which are left out. Proof: order the parts of
another m by the time at which their last chunk moves in the run of single chunks. That run moves a chunk after the one
before it in its block, after the same chunk of the sender, after the ops that its op depends on, and after the chunk
that precedes it by the depth of the FIFO on its connection was taken out. The last chunk of part j - depth precedes
that of part j by the depth or more, since each part in between holds a chunk or more. So every wait of a part leads
backwards in that order, and there is no cycle.

Larger messages go through the program in several loops over slices, and every loop runs all ops. That adds no deadlock.
Proof: order the ops by (loop, the order that ends one loop). Program order, dependencies and messages lead within a
loop or to the next one. Both ends move the same number of parts in each loop, so part j waits for the space of part
j - depth, which belongs to an earlier loop, or to the same one, where the order has it first. Every wait leads
backwards in that order, so there is no cycle.
"""

from __future__ import annotations

from typing import NamedTuple

from synth.program.analysis import onesided_order, structure
from synth.program.analysis.call_sizes import call_sizes
from synth.program.analysis.connection_tables import ConnectionTables, build_connection_tables, unflagged
from synth.program.analysis.finding import WaitingBlock, cycle_first
from synth.program.program import Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES, Runtime

MESSAGE, ROOM = 1, 2  # reasons why a block waits at a message: none has arrived, or the FIFO is full


class OpSplit(NamedTuple):
    """A split of ops into parts of up to `chunks` chunks, for sizes up to `limit` bytes (None: any size)."""

    chunks: int
    limit: int | None


def largest_safe_size(program: Program, runtime: str | Runtime) -> int | None:
    """Return the largest size in bytes up to which no rank waits for ever; None if that holds at every size.

    Size is in nccl-tests' sense: the larger of one rank's buffers. The result is 0 if no size is safe, or if a
    structural fault leaves the behaviour undefined. `runtime`: a Runtime or the name of one; its default FIFO sizes are
    assumed.
    """
    runtime = RUNTIMES[runtime] if isinstance(runtime, str) else runtime
    if structure.faults(program) or unflagged(program):
        return 0
    if program.one_sided:
        sizes = call_sizes(program)
        if any(onesided_order.execution_order(line)[1] for line in sizes.lines):
            return 0
        return None if sizes.limit is None else sizes.limit.size
    wired = build_connection_tables(program)
    return 0 if wired.faults else first_deadlock(program, wired, runtime)[0]


def first_deadlock(
    program: Program, wired: ConnectionTables, runtime: Runtime
) -> tuple[int | None, list[WaitingBlock]]:
    """Return (largest safe size in bytes, the waits of the deadlock just above it).

    The result is (None, []) if no size has a deadlock. The program must have no structural fault, and `wired` no fault.
    """
    # if the run of single chunks ends, all do (the module's docstring)
    safe, depth = 0, FIFO_DEPTH[program.protocol]
    if not run_with_fifos(wired, depth, 1):
        return None, []
    for split in splits(program, runtime):
        waits = run_with_fifos(wired, depth, split.chunks)
        if waits:
            return safe, waits
        if split.limit is None:
            break
        safe = split.limit
    return None, []


def splits(program: Program, runtime: Runtime) -> list[OpSplit]:
    """Return the different splits of the program's ops, from unsplit messages to single chunks."""
    name = "broadcast" if program.collective is None else program.collective.name  # unknown: the smallest operations
    # largest size at which a FIFO operation holds one chunk
    one_chunk_bytes = runtime.operation_bytes(program.protocol, name) * program.loop_chunks
    counts = sorted({op.count for _, op in program.placed_ops()} | {1})
    result = []
    before = []
    for m in range(counts[-1], 0, -1):
        parts = [-(-count // m) for count in counts]
        if parts == before:
            result.pop()  # a smaller m gives the same parts, and so extends this split to larger sizes
        result.append(OpSplit(m, None if m == 1 else one_chunk_bytes // m))
        before = parts
    return result


def run_with_fifos(
    wired: ConnectionTables, depth: int, chunks: int, done: list[tuple[int, int]] | None = None
) -> list[WaitingBlock]:
    """Run the program without data, and return the blocks that cannot go on: [] if all end, a cycle of waits first.

    The FIFO of a connection holds `depth` parts of up to `chunks` chunks. If the list `done` is given, each op is
    appended to it when it ends, as (flat block, op).
    """
    at, part, idle = [0] * len(wired.blocks), [0] * len(wired.blocks), [0] * len(wired.blocks)
    sent, received = [0] * len(wired.ends), [0] * len(wired.ends)
    sleeping = [{} for _ in wired.blocks]  # of each block: op → blocks that wait for it
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
        passed = False  # True once a part was sent or received
        # The block runs until an op lacks a dependency, a message or room.
        for i in range(at[b], len(moves)):
            if before == 0 and i in waits:
                at[b] = i
                missing = next(((d, o) for d, o in waits[i] if at[d] <= o), None)
                if missing is not None:
                    sleeping[missing[0]].setdefault(missing[1], []).append(b)
                    break
            # as many parts as have arrived, and as find room, move at once
            if move := moves[i]:
                parts = -(-counts[i] // chunks)
                n = parts - before
                if move & 2 and sent[into] - received[into] < n:
                    n, idle[b] = sent[into] - received[into], MESSAGE
                if move & 1 and depth - sent[out] + received[out] < n:
                    n, idle[b] = depth - sent[out] + received[out], ROOM
                if n:
                    passed = True
                    if move & 1:
                        sent[out] += n
                    if move & 2:
                        received[into] += n
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
            # a block at the other end of a connection that waits for what has now happened runs again
            if out >= 0 and idle[wired.ends[out][1]] == MESSAGE:
                ready.append(wired.ends[out][1])
            if into >= 0 and idle[wired.ends[into][0]] == ROOM:
                ready.append(wired.ends[into][0])
    return _explain(wired, depth, at, sent, received)


def _explain(
    wired: ConnectionTables, depth: int, at: list[int], sent: list[int], received: list[int]
) -> list[WaitingBlock]:
    waits = []
    for b, (rank, number) in enumerate(wired.blocks):
        i = at[b]
        if i == len(wired.moves[b]):
            continue
        missing = next(((d, o) for d, o in wired.waits[b].get(i, ()) if at[d] <= o), None)
        out, into = wired.sends[b], wired.receives[b]
        if missing is not None:
            other, reason = missing[0], f"for block {wired.blocks[missing[0]][1]} step {missing[1]}"
        elif wired.moves[b][i] & 2 and sent[into] == received[into]:
            other, reason = wired.ends[into][0], f"for a message on {_text(wired, into)}"
        else:
            other, reason = wired.ends[out][1], f"for room on {_text(wired, out)}, which holds {depth} unread parts"
        waits.append(WaitingBlock(rank, number, i, reason, None if other < 0 else wired.blocks[other]))
    return cycle_first(waits)


def _text(wired: ConnectionTables, c: int) -> str:
    src, dst, channel = wired.names[c]
    return f"{src} -> {dst} channel {channel}"

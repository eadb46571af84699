"""Flat tables of a two-sided program: its blocks in one list, numbered connections, and the messages and waits of ops.

The program must be free of structural faults (`synth.program.analysis.structure`). Several blocks at one end of a
connection, and counts that differ at its two ends, are listed in `faults`; the tables then describe the first of them.
"""

from __future__ import annotations

from typing import NamedTuple

from synth.program.analysis.finding import Finding, error
from synth.program.program import RECEIVING, SENDING, Program


class ConnectionTables(NamedTuple):
    """`blocks[b]` = (rank, number on the rank); all tables per block are indexed by the flat number b.

    `moves[b][i]` of op i: 0 local, 1 sends, 2 receives, 3 both. `waits[b]`: op → the (flat block, op) pairs it waits
    for. `sends[b]`, `receives[b]`: the connection, or -1. `ends[c]`: (sending block, receiving block), -1: none.
    `names[c]`: (src rank, dst rank, channel).
    """

    blocks: list[tuple[int, int]]
    moves: list[list[int]]
    counts: list[list[int]]
    waits: list[dict[int, list[tuple[int, int]]]]
    sends: list[int]
    receives: list[int]
    ends: list[list[int]]
    names: list[tuple[int, int, int]]
    faults: list[Finding]


def build_connection_tables(program: Program) -> ConnectionTables:
    """Return the flat tables of a two-sided `program` without structural faults.

    Faults of its connections are in the field `faults`: no peer, several blocks at one end, counts that differ, and
    messages that are never received or sent.
    """
    blocks = [place for place, _ in program.blocks()]
    number = {place: i for i, place in enumerate(blocks)}
    wired = ConnectionTables(blocks, [], [], [], [-1] * len(blocks), [-1] * len(blocks), [], [], [])
    for (rank, b), block in program.blocks():
        moves = [(op.code in SENDING) + 2 * (op.code in RECEIVING) for op in block.ops]
        wired.moves.append(moves)
        wired.counts.append([op.count for op in block.ops])
        waits = {}
        for i, op in enumerate(block.ops):
            if op.deps:
                waits[i] = [(number[rank, dep.block], dep.op) for dep in op.deps]
        wired.waits.append(waits)
        for peer, bit, verb in ((block.send, 1, "send"), (block.recv, 2, "receive")):
            i = next((i for i, move in enumerate(moves) if move & bit), None)
            if peer is None and i is not None:
                text = f"{block.ops[i].code} in a block without a {verb} peer"
                wired.faults.append(error("no-peer", (rank, b, i), text))

    # Number the connections, and enter the block at each end: the first one with an op that uses the connection.
    ids = {}
    for side, owners, connection_of, verb in (
        (0, program.senders, wired.sends, "sends"),
        (1, program.receivers, wired.receives, "receives"),
    ):
        for name, places in owners.items():
            used = []
            for b in map(number.__getitem__, places):
                if any(move & (1 << side) for move in wired.moves[b]):
                    used.append(b)
            for b in used[1:]:
                first = wired.blocks[used[0]][1]
                text = (
                    f"{verb} on connection {_text(name)}, as block {first} does: one block may, so give one of "
                    f"them another channel"
                )
                wired.faults.append(error("two-ends", (*wired.blocks[b], None), text))
            if not used:
                continue
            if name not in ids:
                ids[name] = len(wired.ends)
                wired.ends.append([-1, -1])
                wired.names.append(name)
            wired.ends[ids[name]][side] = used[0]
            connection_of[used[0]] = ids[name]

    # The two ends of each connection must have the same counts in the same order.
    for (a, b), name in zip(wired.ends, wired.names, strict=True):
        out, into = _messages(wired, a, 1), _messages(wired, b, 2)
        for k, ((i, sent), (j, received)) in enumerate(zip(out, into, strict=False)):
            if sent != received:
                rank, block = wired.blocks[a]
                text = (
                    f"receives {received} chunks as message {k} of connection {_text(name)}; "
                    f"gpu {rank} block {block} step {i} sends {sent}: make the counts equal"
                )
                wired.faults.append(error("counts-differ", (*wired.blocks[b], j), text))
                break
        counts = f"({len(out)} sent, {len(into)} received)"
        if len(out) > len(into):
            text = f"sends message {len(into)} of connection {_text(name)}, which nobody receives {counts}"
            wired.faults.append(error("unreceived", (*wired.blocks[a], out[len(into)][0]), text))
        elif len(into) > len(out):
            text = f"waits for message {len(out)} of connection {_text(name)}, which nobody sends {counts}"
            wired.faults.append(error("unsent", (*wired.blocks[b], into[len(out)][0]), text))
    return wired


def _messages(wired: ConnectionTables, block: int, bit: int) -> list[tuple[int, int]]:
    """Return (op, chunks) of each message that `block` sends (bit 1) or receives (bit 2); [] for block -1."""
    if block < 0:
        return []
    return [(i, wired.counts[block][i]) for i, move in enumerate(wired.moves[block]) if move & bit]


def _text(name: tuple[int, int, int]) -> str:
    return f"{name[0]} -> {name[1]} channel {name[2]}"


def unflagged(program: Program) -> list[Finding]:
    """Return errors for dependencies on ops without `flag`: an op that waits for one never starts."""
    findings = []
    for place, op in program.placed_ops():
        for dep in op.deps:
            if not program.gpus[place[0]].blocks[dep.block].ops[dep.op].flag:
                text = f"waits for block {dep.block} step {dep.op}, which has no flag and so tells nobody: set its flag"
                findings.append(error("dep-unflagged", place, text))
    return findings

"""Diagnosis of a run that cannot go on: a cycle of blocks, or a block that waits for an event that never comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from synth.errors import SynthError
from synth.runtime.reference.event_loop import Engine, WaitReason
from synth.runtime.reference.op_tables import CompiledProgram
from synth.runtime.slicing import Slicing

SHOWN = 6  # maximum blocks of a cycle that a message lists


class StuckBlock(NamedTuple):
    """A block that waits at `op`. `waits_for`: in words. `holder`: the (rank, block) that it waits for, or None."""

    rank: int
    block: int
    op: int
    text: str
    waits_for: str
    holder: tuple[int, int] | None


class DeadlockError(SynthError):
    """Error of a run in which no block can go on. Exit code 1.

    `cycle`: each block waits for the next. Where `closed`, the last waits for the first, else for an event that will
    never come.
    """

    def __init__(self, name: str, cycle: tuple[StuckBlock, ...], closed: bool) -> None:
        self.name, self.cycle, self.closed = name, cycle, closed
        parts = [f"rank {s.rank} block {s.block} op {s.op} ({s.text}) waits for {s.waits_for}" for s in cycle[:SHOWN]]
        if len(cycle) > SHOWN:
            parts.append(f"{len(cycle) - SHOWN} more blocks likewise")
        end = "the last is held up by the first" if closed else "which never comes"
        super().__init__(f"{name}: {'deadlock' if closed else 'stuck'}: {'; '.join(parts)}, {end}")

    def __reduce__(self) -> tuple:  # errors go from process to process
        return DeadlockError, (self.name, self.cycle, self.closed)


class Halted(NamedTuple):
    """The state of a run that is stuck, as an executor other than the reference reports it; fields as in `Engine`."""

    code: CompiledProgram
    cut: Slicing
    done: Sequence[bool]
    pc: Sequence[int]
    waiting: Sequence[WaitReason | None]
    held: Mapping[int, int]


def halted_state(
    code: CompiledProgram, cut: Slicing, waits: Sequence[tuple[int, tuple[str, Any] | None] | None]
) -> Halted:
    """Return the state of a run that was cut short, for `diagnose`.

    `waits[b]`: None if block b has ended, else (op, wait). A wait is (kind, object), None if the block was working.
    """
    done, ops, waiting = [], [], []
    for entry in waits:
        op, wait = (0, None) if entry is None else entry
        done.append(entry is None)
        ops.append(op)
        waiting.append(None if wait is None else WaitReason(*wait))
    held = {wait.what: cut.depth for wait in waiting if wait and wait.kind == "credit"}
    return Halted(code, cut, done, ops, waiting, held)


def diagnose(engine: Engine | Halted) -> DeadlockError:
    """Return the error of a run that cannot go on.

    It names a cycle of blocks that wait for each other. If there is none, it names a chain of waits to an event that
    never comes.
    """
    seen: set[int] = set()
    dead_end: list[int] = []
    for start, done in enumerate(engine.done):
        path: list[int] = []
        at: int | None = start
        while at is not None and not engine.done[at] and at not in seen:
            seen.add(at)
            path.append(at)
            at = _wait(engine, at)[1]
        if at in path:
            return _error(engine, path[path.index(at) :], True)
        dead_end = dead_end or ([] if done else path)
    return _error(engine, dead_end, False)


def _error(engine: Engine | Halted, path: list[int], closed: bool) -> DeadlockError:
    stuck = []
    for b in path:
        rank, block = engine.code.place[b]
        text, holder = _wait(engine, b)
        instruction = engine.code.where(b, engine.pc[b]).partition("(")[2][:-1]
        by = None if holder is None else engine.code.place[holder]
        stuck.append(StuckBlock(rank, block, engine.pc[b], instruction, text, by))
    return DeadlockError(engine.code.program.name, tuple(stuck), closed)


def _wait(engine: Engine | Halted, b: int) -> tuple[str, int | None]:
    """Return what block b waits for in words, and the block that could end its wait; None where none is known."""
    wait, place = engine.waiting[b], engine.code.place
    if wait is None:
        return "nothing", None
    if wait.kind == "dep":
        other, op = wait.what
        return f"block {place[other][1]} op {op}", other
    if wait.kind == "barrier":
        missing = [other for other in wait.what if engine.waiting[other] != wait]
        blocks = ", ".join(str(place[other][1]) for other in missing)
        return f"block{'s' if len(missing) > 1 else ''} {blocks} at the barrier", next(iter(missing), None)
    if wait.kind == "signal":
        _, kind, peer, index = wait.what
        return f"a signal from rank {peer} ({kind} port {index})", None
    if wait.kind == "packet":
        # the packets by the name that the op has for them
        (rank, block), op = place[b], engine.pc[b]
        spans = engine.code.program.gpus[rank].blocks[block].ops[op].src
        index = engine.code.steps[b][op].src.index(wait.what)
        return f"packets in {spans[index].buffer}[{spans[index].offset}]", None

    # the others wait at a connection
    wire = engine.code.wires[wait.what]
    if wait.kind == "data":
        nobody = "" if wire.sender is not None else ", where no block sends"
        return f"data from rank {wire.src} on channel {wire.channel}{nobody}", wire.sender
    if wait.kind == "credit":
        nobody = "" if wire.receiver is not None else ", where no block receives"
        full = f"{engine.held[wait.what]} of {engine.cut.depth} in flight"
        return f"room to rank {wire.dst} on channel {wire.channel} ({full}){nobody}", wire.receiver
    if wait.kind == "entry":
        return f"rank {wire.dst} to begin this launch", wire.receiver
    return f"its turn on the link from rank {wire.src} to rank {wire.dst}", None

"""Diagnosis of a run that cannot go on: a cycle of blocks, or a block that waits for an event that never comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from synth.errors import SynthError
from synth.runtime.reference.event_loop import Engine, WaitReason
from synth.runtime.reference.op_tables import CompiledOp, CompiledProgram
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
            at = _holder(engine, at)
        if at in path:
            return _error(engine, path[path.index(at) :], True)
        dead_end = dead_end or ([] if done else path)
    return _error(engine, dead_end, False)


def _error(engine: Engine | Halted, path: list[int], closed: bool) -> DeadlockError:
    return DeadlockError(engine.code.program.name, tuple(_stuck(engine, b) for b in path), closed)


def _holder(engine: Engine | Halted, b: int) -> int | None:
    """Return the block that block b waits for; None if no block could end its wait."""
    wait = engine.waiting[b]
    if wait is None:
        return None
    wires = engine.code.wires
    if wait.kind == "data":
        return wires[wait.what].sender
    if wait.kind in ("credit", "entry"):
        return wires[wait.what].receiver
    if wait.kind == "dep":
        return wait.what[0]
    if wait.kind == "barrier":
        return next(iter(_missing(engine, wait)), None)
    unfinished = [o for o, done in enumerate(engine.done) if not done and o != b]
    if wait.kind == "signal":
        rank, kind, peer, index = wait.what

        def sends_signal(step: CompiledOp) -> bool:
            return step.code == "signal" and (peer, kind, rank, index) in step.ports

        return next((other for other in unfinished if _will(engine, other, sends_signal)), None)
    if wait.kind != "packet":
        return None
    place, count = wait.what, engine.code.steps[b][engine.pc[b]].count

    def writes_packets(step: CompiledOp) -> bool:
        for target in step.dst:
            overlaps = target.row < place.row + count and place.row < target.row + step.count
            if target.packet and target.rank == place.rank and overlaps:
                return True
        return False

    return next((other for other in unfinished if _will(engine, other, writes_packets)), None)


def _will(engine: Engine | Halted, b: int, condition: Callable[[CompiledOp], bool]) -> bool:
    """Return True where a remaining op of block b meets the condition."""
    return any(map(condition, engine.code.steps[b][engine.pc[b] :]))


def _stuck(engine: Engine | Halted, b: int) -> StuckBlock:
    rank, block = engine.code.place[b]
    wait, op = engine.waiting[b], engine.pc[b]
    text = engine.code.where(b, op).partition("(")[2][:-1]
    holder = _holder(engine, b)
    return StuckBlock(
        rank, block, op, text, _words(engine, b, wait), None if holder is None else engine.code.place[holder]
    )


def _words(engine: Engine | Halted, b: int, wait: WaitReason | None) -> str:
    if wait is None:
        return "nothing"
    if wait.kind in ("data", "credit"):
        wire = engine.code.wires[wait.what]
        if wait.kind == "data":
            return (
                f"data from rank {wire.src} on channel "
                f"{wire.channel}{'' if wire.sender is not None else ', where no block sends'}"
            )
        full = f"{engine.held[wait.what]} of {engine.cut.depth} in flight"
        return (
            f"room to rank {wire.dst} on channel {wire.channel} "
            f"({full}){'' if wire.receiver is not None else ', where no block receives'}"
        )
    if wait.kind == "entry":
        return f"rank {engine.code.wires[wait.what].dst} to begin this launch"
    if wait.kind == "turn":
        wire = engine.code.wires[wait.what]
        return f"its turn on the link from rank {wire.src} to rank {wire.dst}"
    if wait.kind == "dep":
        other, op = wait.what
        return f"block {engine.code.place[other][1]} op {op}"
    if wait.kind == "barrier":
        missing = [engine.code.place[other][1] for other in _missing(engine, wait)]
        return f"block{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} at the barrier"
    if wait.kind == "signal":
        _, kind, peer, index = wait.what
        return f"a signal from rank {peer} ({kind} port {index})"
    return f"packets in {_packets_name(engine, b)}"


def _missing(engine: Engine | Halted, wait: WaitReason) -> list[int]:
    """Return the blocks that have not come to the barrier for which a block waits."""
    return [other for other in wait.what if engine.waiting[other] != wait]


def _packets_name(engine: Engine | Halted, b: int) -> str:
    """Return the name of the packets that block b waits for, as its op names them."""
    wait, (rank, block), op = engine.waiting[b], engine.code.place[b], engine.pc[b]
    spans = engine.code.program.gpus[rank].blocks[block].ops[op].src
    names = []
    for place, span in zip(engine.code.steps[b][op].src, spans, strict=False):
        if wait is not None and place == wait.what:
            names.append(f"{span.buffer}[{span.offset}]")
    return names[0] if names else "scratch"

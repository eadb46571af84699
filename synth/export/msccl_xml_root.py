"""Which rank a broadcast, reduce, gather or scatter is rooted at: no file says it, the movement of the data does."""

from __future__ import annotations

from synth.program.program import Gpu, Program

Place = tuple[str, int]


def root_of(program: Program, name: str) -> int | None:
    """The root, None where it does not follow.

    Data of a broadcast or scatter comes from the one rank that reads what it never wrote; data of a reduce or gather
    goes to the one rank that keeps, in a buffer of the user's, what it wrote and never sent on.
    """
    spreads = name in ("broadcast", "scatter")
    found = [gpu.rank for gpu in program.gpus if (_originates(program, gpu) if spreads else _keeps(program, gpu))]
    return found[0] if len(found) == 1 else None


def _originates(program: Program, gpu: Gpu) -> bool:
    written: set[Place] = set()
    reads: set[Place] = set()
    for block in gpu.blocks:
        for op in block.ops:
            src, dst = _places(program, op.src, op.count), _places(program, op.dst, op.count)
            written |= dst - src  # a copy onto itself, as in place, brings nothing
            reads |= src
    return bool(reads - written)


def _keeps(program: Program, gpu: Gpu) -> bool:
    kept: set[Place] = set()
    passed: set[Place] = set()
    for block in gpu.blocks:
        for op in block.ops:
            src, dst = _places(program, op.src, op.count), _places(program, op.dst, op.count)
            if op.code in ("r", "rrc", "cpy", "re"):
                kept |= {place for place in dst if place[0] != "s"}
            # a sum onto itself stays where it is
            passed |= src if op.code in ("s", "rrs", "rrcs") else src - dst
    return bool(kept - passed)


def _places(program: Program, spans: tuple, count: int) -> set[Place]:
    """Chunks as places in memory; in place, these collectives have input and output at the same address."""
    same = program.in_place == "in"
    return {("o" if same and span.buffer == "i" else span.buffer, span.offset + k) for span in spans for k in range(count)}

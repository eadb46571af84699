"""Programs with one thing changed: what a careless hand, or a bug in a compiler, would do to a good one.

A kind is a function of a program and a `Random`; it gives the changed program and what was changed, or None where
there is nothing of that kind to change. Where ops appear or go, dependencies of others still mean the op they meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from synth.program.program import Block, Dep, Gpu, Op, Program, Span
from synth.program.text import op_text

Made = tuple[Program, str] | None


class At(NamedTuple):
    """An op: rank, block, number."""

    rank: int
    block: int
    op: int


def change(kind: str, program: Program, random: Random) -> Made:
    """`program` with one random change of `kind`."""
    return KINDS[kind](program, random)


def _ops(program: Program, wanted: Callable[[Op], bool] = lambda op: True) -> list[At]:
    return [
        At(g.rank, b, i)
        for g in program.gpus
        for b, block in enumerate(g.blocks)
        for i, op in enumerate(block.ops)
        if wanted(op)
    ]


def _op(program: Program, at: At) -> Op:
    return program.gpus[at.rank].blocks[at.block].ops[at.op]


def _with_gpu(program: Program, gpu: Gpu) -> Program:
    return replace(program, gpus=(*program.gpus[: gpu.rank], gpu, *program.gpus[gpu.rank + 1 :]))


def _with_block(program: Program, rank: int, b: int, block: Block) -> Program:
    gpu = program.gpus[rank]
    return _with_gpu(program, gpu._replace(blocks=(*gpu.blocks[:b], block, *gpu.blocks[b + 1 :])))


def _with_op(program: Program, at: At, op: Op) -> Program:
    block = program.gpus[at.rank].blocks[at.block]
    return _with_block(
        program, at.rank, at.block, block._replace(ops=(*block.ops[: at.op], op, *block.ops[at.op + 1 :]))
    )


def _edit(program: Program, random: Random, wanted: Callable[[Op], bool], edit: Callable[[At, Op], Op | None]) -> Made:
    """One random op that is `wanted`, changed by `edit`; others are tried where it does not apply."""
    places = _ops(program, wanted)
    random.shuffle(places)
    for at in places:
        old = _op(program, at)
        new = edit(at, old)
        if new is not None and new != old:
            return _with_op(
                program, at, new
            ), f"rank {at.rank} block {at.block} op {at.op}: {op_text(old)} => {op_text(new)}"
    return None


def _pick(random: Random, values: Sequence) -> object | None:
    return random.choice(values) if values else None


# ---------------------------------------------------------------- dependencies and flags


def drop_dependency(program: Program, random: Random) -> Made:
    """One of an op's dependencies less."""

    def edit(_: At, op: Op) -> Op:
        k = random.randrange(len(op.deps))
        return op._replace(deps=(*op.deps[:k], *op.deps[k + 1 :]))

    return _edit(program, random, lambda op: bool(op.deps), edit)


def other_dependency(program: Program, random: Random) -> Made:
    """A dependency on another op, of the same block or any; a flagged one if there is."""

    def edit(at: At, op: Op) -> Op | None:
        k = random.randrange(len(op.deps))
        blocks = program.gpus[at.rank].blocks
        near = [Dep(op.deps[k].block, i) for i, other in enumerate(blocks[op.deps[k].block].ops) if other.flag]
        far = [
            Dep(b, i)
            for b, block in enumerate(blocks)
            for i, other in enumerate(block.ops)
            if other.flag and b != at.block
        ]
        found = _pick(random, [dep for dep in (near if random.random() < 0.5 else far) if dep not in op.deps])
        return None if found is None else op._replace(deps=(*op.deps[:k], found, *op.deps[k + 1 :]))  # type: ignore[arg-type]

    return _edit(program, random, lambda op: bool(op.deps), edit)


def clear_flag(program: Program, random: Random) -> Made:
    """A flag less."""
    return _edit(program, random, lambda op: op.flag, lambda _, op: op._replace(flag=False))


def set_flag(program: Program, random: Random) -> Made:
    """A flag that nobody waits for."""
    return _edit(program, random, lambda op: not op.flag, lambda _, op: op._replace(flag=True))


# ---------------------------------------------------------------- operands


def _size(gpu: Gpu, buffer: str) -> int:
    return {"i": gpu.input, "o": gpu.output, "s": gpu.scratch}[buffer]


def _moved(program: Program, at: At, op: Op, span: Span, random: Random, buffer: bool) -> Span | None:
    """`span` elsewhere within its buffer, or at the same or any place of another one."""
    gpu = program.gpus[at.rank if span.rank is None else span.rank]
    name = span.buffer
    if buffer:
        others = [b for b in "ios" if b != name and _size(gpu, b) >= op.count]
        if not others:
            return None
        name = random.choice(others)
        if span.offset + op.count <= _size(gpu, name) and random.random() < 0.5:
            return span._replace(buffer=name)
    room = [k for k in range(_size(gpu, name) - op.count + 1) if (name, k) != (span.buffer, span.offset)]
    if random.random() < 0.5:
        room = [k for k in room if abs(k - span.offset) == 1] or room
    return span._replace(buffer=name, offset=random.choice(room)) if room else None


def _operand(side: str, buffer: bool) -> Callable[[Program, Random], Made]:
    def kind(program: Program, random: Random) -> Made:
        def edit(at: At, op: Op) -> Op | None:
            spans = getattr(op, side)
            k = random.randrange(len(spans))
            span = _moved(program, at, op, spans[k], random, buffer)
            return None if span is None else op._replace(**{side: (*spans[:k], span, *spans[k + 1 :])})

        return _edit(program, random, lambda op: bool(getattr(op, side)), edit)

    return kind


def other_count(program: Program, random: Random) -> Made:
    """A chunk more or less."""
    return _edit(
        program,
        random,
        lambda op: bool(op.src or op.dst),
        lambda _, op: op._replace(count=max(1, op.count + random.choice((-1, 1)))),
    )


# ---------------------------------------------------------------- ops that go, come and move


def _renumbered(gpu: Gpu, place: Callable[[Dep], Dep | None]) -> Gpu:
    """`gpu` with its dependencies sent through `place`."""

    def op(old: Op) -> Op:
        return old._replace(deps=tuple(dep for dep in map(place, old.deps) if dep is not None)) if old.deps else old

    return gpu._replace(blocks=tuple(block._replace(ops=tuple(map(op, block.ops))) for block in gpu.blocks))


def _removed(gpu: Gpu, b: int, i: int) -> Gpu:
    def place(dep: Dep) -> Dep | None:
        if dep.block != b or dep.op < i:
            return dep
        return Dep(b, dep.op - 1) if dep.op else None

    block = gpu.blocks[b]
    gpu = gpu._replace(
        blocks=(*gpu.blocks[:b], block._replace(ops=(*block.ops[:i], *block.ops[i + 1 :])), *gpu.blocks[b + 1 :])
    )
    return _flagged(_renumbered(gpu, place))


def _inserted(gpu: Gpu, b: int, i: int, op: Op) -> Gpu:
    gpu = _renumbered(gpu, lambda dep: Dep(b, dep.op + 1) if dep.block == b and dep.op >= i else dep)
    block = gpu.blocks[b]
    return gpu._replace(
        blocks=(*gpu.blocks[:b], block._replace(ops=(*block.ops[:i], op, *block.ops[i:])), *gpu.blocks[b + 1 :])
    )


def _flagged(gpu: Gpu) -> Gpu:
    """Flags on all that is waited for: who removes an op would see to that."""
    wanted = {dep for block in gpu.blocks for op in block.ops for dep in op.deps}
    return gpu._replace(
        blocks=tuple(
            block._replace(
                ops=tuple(op._replace(flag=op.flag or Dep(b, i) in wanted) for i, op in enumerate(block.ops))
            )
            for b, block in enumerate(gpu.blocks)
        )
    )


def drop_op(program: Program, random: Random) -> Made:
    """An op less; who waited for it waits for the one before."""
    at = random.choice(_ops(program))
    return _with_gpu(
        program, _removed(program.gpus[at.rank], at.block, at.op)
    ), f"{_name(at)}: without {op_text(_op(program, at))}"


def repeat_op(program: Program, random: Random) -> Made:
    """An op twice."""
    at = random.choice(_ops(program))
    op = _op(program, at)
    gpu = _inserted(program.gpus[at.rank], at.block, at.op + 1, op._replace(deps=(), flag=False))
    return _with_gpu(program, gpu), f"{_name(at)}: twice {op_text(op)}"


def swap_ops(program: Program, random: Random) -> Made:
    """Two neighbours in the other order; dependencies follow them."""
    pairs = [at for at in _ops(program) if at.op + 1 < len(program.gpus[at.rank].blocks[at.block].ops)]
    at = _pick(random, pairs)
    if not isinstance(at, At):
        return None
    gpu, i = program.gpus[at.rank], at.op
    turn = {i: i + 1, i + 1: i}
    gpu = _renumbered(gpu, lambda dep: Dep(dep.block, turn.get(dep.op, dep.op)) if dep.block == at.block else dep)
    ops = list(gpu.blocks[at.block].ops)
    ops[i], ops[i + 1] = ops[i + 1], ops[i]
    made = _with_block(_with_gpu(program, gpu), at.rank, at.block, gpu.blocks[at.block]._replace(ops=tuple(ops)))
    return made, f"{_name(at)}: after the next"


def move_op(program: Program, random: Random) -> Made:
    """An op in another block of its rank; who waited for it follows it."""
    places = [at for at in _ops(program) if len(program.gpus[at.rank].blocks) > 1]
    at = _pick(random, places)
    if not isinstance(at, At):
        return None
    gpu, op = program.gpus[at.rank], _op(program, at)
    to = random.choice([b for b in range(len(gpu.blocks)) if b != at.block])
    i = random.randint(0, len(gpu.blocks[to].ops))
    waiting = [
        (b, j, k)
        for b, block in enumerate(gpu.blocks)
        for j, o in enumerate(block.ops)
        for k, d in enumerate(o.deps)
        if d == Dep(at.block, at.op)
    ]
    gpu = _removed(gpu, at.block, at.op)
    gpu = _inserted(gpu, to, i, op)
    for b, j, k in waiting:
        j = j - (b == at.block and j > at.op) + (b == to and j >= i)
        other = gpu.blocks[b].ops[j]
        if k < len(other.deps):
            deps = (*other.deps[:k], Dep(to, i), *other.deps[k + 1 :])
            block = gpu.blocks[b]
            block = block._replace(ops=(*block.ops[:j], other._replace(deps=deps), *block.ops[j + 1 :]))
            gpu = gpu._replace(blocks=(*gpu.blocks[:b], block, *gpu.blocks[b + 1 :]))
    return _with_gpu(program, gpu), f"{_name(at)}: {op_text(op)} to block {to} op {i}"


def _name(at: At) -> str:
    return f"rank {at.rank} block {at.block} op {at.op}"


# ---------------------------------------------------------------- blocks


def _connected(program: Program, random: Random) -> tuple[int, int] | None:
    """(rank, block) of a block that sends or receives."""
    places = [
        (g.rank, b)
        for g in program.gpus
        for b, block in enumerate(g.blocks)
        if block.send is not None or block.recv is not None
    ]
    found = _pick(random, places)
    return found if isinstance(found, tuple) else None


def other_peer(program: Program, random: Random) -> Made:
    """A block sends to, or receives from, another rank."""
    found = _connected(program, random)
    if found is None:
        return None
    rank, b = found
    block = program.gpus[rank].blocks[b]
    side = random.choice([name for name in ("send", "recv") if getattr(block, name) is not None])
    peer = random.choice([r for r in range(program.ranks) if r not in (rank, getattr(block, side))])
    return _with_block(
        program, rank, b, block._replace(**{side: peer})
    ), f"rank {rank} block {b}: {side} {getattr(block, side)} => {peer}"


def other_channel(program: Program, random: Random) -> Made:
    """A block on another channel, used or new."""
    found = _connected(program, random)
    if found is None:
        return None
    rank, b = found
    block = program.gpus[rank].blocks[b]
    channel = random.choice([c for c in range(program.channels + 1) if c != block.channel])
    return _with_block(
        program, rank, b, block._replace(channel=channel)
    ), f"rank {rank} block {b}: channel {block.channel} => {channel}"


# ---------------------------------------------------------------- one-sided


def drop_order(program: Program, random: Random) -> Made:
    """A signal, wait, flush, barrier or nop less."""
    at = _pick(random, _ops(program, lambda op: op.code in ("signal", "wait", "flush", "barrier", "nop")))
    if not isinstance(at, At):
        return None
    return _with_gpu(
        program, _removed(program.gpus[at.rank], at.block, at.op)
    ), f"{_name(at)}: without {op_text(_op(program, at))}"


def other_port(program: Program, random: Random) -> Made:
    """One of an op's ports is another of its block."""

    def edit(at: At, op: Op) -> Op | None:
        k = random.randrange(len(op.ports))
        found = _pick(random, [p for p in range(len(program.gpus[at.rank].blocks[at.block].ports)) if p != op.ports[k]])
        return None if found is None else op._replace(ports=(*op.ports[:k], found, *op.ports[k + 1 :]))  # type: ignore[arg-type]

    return _edit(program, random, lambda op: bool(op.ports), edit)


def other_rank(program: Program, random: Random) -> Made:
    """Data go to, or come from, another rank's memory."""

    def edit(at: At, op: Op) -> Op | None:
        side = random.choice([name for name in ("src", "dst") if getattr(op, name)])
        spans = getattr(op, side)
        k = random.randrange(len(spans))
        ranks = [r for r in range(program.ranks) if r not in (spans[k].rank, at.rank)]
        if spans[k].rank is None or not ranks:
            return None
        return op._replace(**{side: (*spans[:k], spans[k]._replace(rank=random.choice(ranks)), *spans[k + 1 :])})

    return _edit(program, random, lambda op: bool(op.src or op.dst), edit)


KINDS: Mapping[str, Callable[[Program, Random], Made]] = {
    "drop-dependency": drop_dependency,
    "other-dependency": other_dependency,
    "clear-flag": clear_flag,
    "set-flag": set_flag,
    "source-moved": _operand("src", False),
    "source-buffer": _operand("src", True),
    "target-moved": _operand("dst", False),
    "target-buffer": _operand("dst", True),
    "count": other_count,
    "drop-op": drop_op,
    "repeat-op": repeat_op,
    "swap-ops": swap_ops,
    "move-op": move_op,
    "peer": other_peer,
    "channel": other_channel,
    "drop-order": drop_order,
    "port": other_port,
    "rank": other_rank,
}

"""Programs with one thing changed: what a careless hand, or a bug in a compiler, would do to a good one.

A kind is a function of a program and a `Random`; it gives the changed program and what was changed, or None where
there is nothing of that kind to change. Where ops appear or go, dependencies of others still mean the op they meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from synth.program.program import Dep, Gpu, Op, Program, Span
from synth.program.text import op_text

Made = tuple[Program, str] | None
Kind = Callable[[Program, Random], Made]


class At(NamedTuple):
    """An op: rank, block, number."""

    rank: int
    block: int
    op: int


def change(kind: str, program: Program, random: Random) -> Made:
    """`program` with one random change of `kind`."""
    return KINDS[kind](program, random)


def _put(row: tuple, k: int, *new: Any) -> tuple:
    """`row` with `new` in place of its entry `k`."""
    return (*row[:k], *new, *row[k + 1 :])


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
    return replace(program, gpus=_put(program.gpus, gpu.rank, gpu))


def _with_block(gpu: Gpu, b: int, **new: Any) -> Gpu:
    """`gpu` with other fields of block `b`."""
    return gpu._replace(blocks=_put(gpu.blocks, b, gpu.blocks[b]._replace(**new)))


def _with_ops(gpu: Gpu, b: int, i: int, *new: Op) -> Gpu:
    """`gpu` with `new` in place of op `i` of block `b`."""
    return _with_block(gpu, b, ops=_put(gpu.blocks[b].ops, i, *new))


def _name(at: At) -> str:
    return f"rank {at.rank} block {at.block} op {at.op}"


def _edit(program: Program, random: Random, wanted: Callable[[Op], bool], edit: Callable[[At, Op], Op | None]) -> Made:
    """One random op that is `wanted`, changed by `edit`; others are tried where it does not apply."""
    places = _ops(program, wanted)
    random.shuffle(places)
    for at in places:
        old = _op(program, at)
        new = edit(at, old)
        if new is not None and new != old:
            gpu = _with_ops(program.gpus[at.rank], at.block, at.op, new)
            return _with_gpu(program, gpu), f"{_name(at)}: {op_text(old)} => {op_text(new)}"
    return None


def _pick(random: Random, values: Sequence) -> Any:
    return random.choice(values) if values else None


# ---------------------------------------------------------------- dependencies and flags


def drop_dependency(program: Program, random: Random) -> Made:
    """One of an op's dependencies less."""

    def edit(_: At, op: Op) -> Op:
        return op._replace(deps=_put(op.deps, random.randrange(len(op.deps))))

    return _edit(program, random, lambda op: bool(op.deps), edit)


def other_dependency(program: Program, random: Random) -> Made:
    """A dependency on another op, of the same block or any; a flagged one if there is."""

    def edit(at: At, op: Op) -> Op | None:
        k = random.randrange(len(op.deps))
        blocks = program.gpus[at.rank].blocks
        near = [Dep(op.deps[k].block, i) for i, other in enumerate(blocks[op.deps[k].block].ops) if other.flag]
        flagged = [a for a in _ops(program, lambda other: other.flag) if a.rank == at.rank and a.block != at.block]
        far = [Dep(a.block, a.op) for a in flagged]
        found = _pick(random, [dep for dep in (near if random.random() < 0.5 else far) if dep not in op.deps])
        return None if found is None else op._replace(deps=_put(op.deps, k, found))

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


def _operand(side: str, buffer: bool) -> Kind:
    def kind(program: Program, random: Random) -> Made:
        def edit(at: At, op: Op) -> Op | None:
            spans = getattr(op, side)
            k = random.randrange(len(spans))
            span = _moved(program, at, op, spans[k], random, buffer)
            return None if span is None else op._replace(**{side: _put(spans, k, span)})

        return _edit(program, random, lambda op: bool(getattr(op, side)), edit)

    return kind


def other_count(program: Program, random: Random) -> Made:
    """A chunk more or less."""

    def edit(_: At, op: Op) -> Op:
        return op._replace(count=max(1, op.count + random.choice((-1, 1))))

    return _edit(program, random, lambda op: bool(op.src or op.dst), edit)


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

    gpu = _renumbered(_with_ops(gpu, b, i), place)
    # Flags on all that is waited for: who removes an op would see to that.
    for dep in {dep for block in gpu.blocks for op in block.ops for dep in op.deps}:
        gpu = _with_ops(gpu, dep.block, dep.op, gpu.blocks[dep.block].ops[dep.op]._replace(flag=True))
    return gpu


def _inserted(gpu: Gpu, b: int, i: int, op: Op) -> Gpu:
    gpu = _renumbered(gpu, lambda dep: Dep(b, dep.op + 1) if dep.block == b and dep.op >= i else dep)
    ops = gpu.blocks[b].ops
    return _with_block(gpu, b, ops=(*ops[:i], op, *ops[i:]))


def _dropped(wanted: Callable[[Op], bool]) -> Kind:
    """An op less that is `wanted`; who waited for it waits for the one before."""

    def kind(program: Program, random: Random) -> Made:
        at = _pick(random, _ops(program, wanted))
        if at is None:
            return None
        gpu = _removed(program.gpus[at.rank], at.block, at.op)
        return _with_gpu(program, gpu), f"{_name(at)}: without {op_text(_op(program, at))}"

    return kind


def repeat_op(program: Program, random: Random) -> Made:
    """An op twice."""
    at = random.choice(_ops(program))
    op = _op(program, at)
    gpu = _inserted(program.gpus[at.rank], at.block, at.op + 1, op._replace(deps=(), flag=False))
    return _with_gpu(program, gpu), f"{_name(at)}: twice {op_text(op)}"


def swap_ops(program: Program, random: Random) -> Made:
    """Two neighbours in the other order; dependencies follow them."""
    at = _pick(random, [at for at in _ops(program) if at.op + 1 < len(program.gpus[at.rank].blocks[at.block].ops)])
    if at is None:
        return None
    gpu, i = program.gpus[at.rank], at.op
    turn = {i: i + 1, i + 1: i}
    gpu = _renumbered(gpu, lambda dep: Dep(dep.block, turn.get(dep.op, dep.op)) if dep.block == at.block else dep)
    ops = list(gpu.blocks[at.block].ops)
    ops[i], ops[i + 1] = ops[i + 1], ops[i]
    return _with_gpu(program, _with_block(gpu, at.block, ops=tuple(ops))), f"{_name(at)}: after the next"


def move_op(program: Program, random: Random) -> Made:
    """An op in another block of its rank; who waited for it follows it."""
    at = _pick(random, [at for at in _ops(program) if len(program.gpus[at.rank].blocks) > 1])
    if at is None:
        return None
    gpu, op = program.gpus[at.rank], _op(program, at)
    to = random.choice([b for b in range(len(gpu.blocks)) if b != at.block])
    i = random.randint(0, len(gpu.blocks[to].ops))
    waiting = [other for other in _ops(program) if other.rank == at.rank]
    uses = [(b, j, k) for _, b, j in waiting for k, d in enumerate(gpu.blocks[b].ops[j].deps) if d == Dep(*at[1:])]
    gpu = _inserted(_removed(gpu, at.block, at.op), to, i, op)
    for b, j, k in uses:
        j = j - (b == at.block and j > at.op) + (b == to and j >= i)
        other = gpu.blocks[b].ops[j]
        if k < len(other.deps):
            gpu = _with_ops(gpu, b, j, other._replace(deps=_put(other.deps, k, Dep(to, i))))
    return _with_gpu(program, gpu), f"{_name(at)}: {op_text(op)} to block {to} op {i}"


# ---------------------------------------------------------------- blocks


def _rewired(*fields: str) -> Kind:
    """A block sends to, or receives from, another rank, or is on another channel, used or new."""

    def kind(program: Program, random: Random) -> Made:
        blocks = [(g.rank, b, block) for g in program.gpus for b, block in enumerate(g.blocks)]
        places = [at for at in blocks if at[2].send is not None or at[2].recv is not None]
        if not places:
            return None
        rank, b, block = random.choice(places)
        field = random.choice([name for name in fields if getattr(block, name) is not None])
        old = getattr(block, field)
        others = set(range(program.channels + 1)) if field == "channel" else set(range(program.ranks)) - {rank}
        new = random.choice(sorted(others - {old}))
        gpu = _with_block(program.gpus[rank], b, **{field: new})
        return _with_gpu(program, gpu), f"rank {rank} block {b}: {field} {old} => {new}"

    return kind


# ---------------------------------------------------------------- one-sided


def other_port(program: Program, random: Random) -> Made:
    """One of an op's ports is another of its block."""

    def edit(at: At, op: Op) -> Op | None:
        k = random.randrange(len(op.ports))
        found = _pick(random, [p for p in range(len(program.gpus[at.rank].blocks[at.block].ports)) if p != op.ports[k]])
        return None if found is None else op._replace(ports=_put(op.ports, k, found))

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
        return op._replace(**{side: _put(spans, k, spans[k]._replace(rank=random.choice(ranks)))})

    return _edit(program, random, lambda op: bool(op.src or op.dst), edit)


KINDS: Mapping[str, Kind] = {
    "drop-dependency": drop_dependency,
    "other-dependency": other_dependency,
    "clear-flag": clear_flag,
    "set-flag": set_flag,
    "source-moved": _operand("src", False),
    "source-buffer": _operand("src", True),
    "target-moved": _operand("dst", False),
    "target-buffer": _operand("dst", True),
    "count": other_count,
    "drop-op": _dropped(lambda op: True),
    "repeat-op": repeat_op,
    "swap-ops": swap_ops,
    "move-op": move_op,
    "peer": _rewired("send", "recv"),
    "channel": _rewired("channel"),
    "drop-order": _dropped(lambda op: op.code in ("signal", "wait", "flush", "barrier", "nop")),
    "port": other_port,
    "rank": other_rank,
}

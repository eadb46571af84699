"""Last pass of lowering: instances, the form and the limits of a runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from synth.errors import SynthError
from synth.program.buffer_layout import Layout
from synth.program.program import Block, Dep, Gpu, Op, Span
from synth.program.runtimes import RUNTIMES, Runtime

INSTRUCTIONS = "instructions in a thread block"


def awaited_first(gpu: Gpu, highest: int | None) -> Gpu:
    """`gpu` with the blocks that others wait for at the front, where blocks above `highest` cannot be waited for."""
    if highest is None or len(gpu.blocks) <= highest + 1:
        return gpu
    order = sorted(range(len(gpu.blocks)), key=lambda b: not any(op.flag for op in gpu.blocks[b].ops))
    place = {b: n for n, b in enumerate(order)}
    return gpu._replace(blocks=tuple(_shifted(gpu.blocks[b], place, lambda span: span, 0) for b in order))


def replicate(gpus: Sequence[Gpu], layout: Layout, instances: int) -> tuple[Gpu, ...]:
    """`instances` copies of the blocks side by side, on channels and scratch of their own, each for its share of every
    unit.

    Instance k takes the chunks ``unit * C * instances + k * C + c`` for c < C = ``layout.chunks``. No span may cross
    units.
    """
    if instances == 1:
        return tuple(gpus)
    chunks = layout.chunks
    channels = 1 + max((block.channel for gpu in gpus for block in gpu.blocks), default=0)
    found = []
    for gpu in gpus:
        blocks: list[Block] = []
        for k in range(instances):

            def moved(span: Span, k: int = k, gpu: Gpu = gpu) -> Span:
                if span.buffer == "s":
                    return span._replace(offset=span.offset + k * gpu.scratch)
                unit, chunk = divmod(span.offset, chunks)
                return span._replace(offset=(unit * instances + k) * chunks + chunk)

            place = {b: b + k * len(gpu.blocks) for b in range(len(gpu.blocks))}
            blocks += [_shifted(block, place, moved, k * channels) for block in gpu.blocks]
        found.append(
            Gpu(gpu.rank, gpu.input * instances, gpu.output * instances, gpu.scratch * instances, tuple(blocks))
        )
    return tuple(found)


def _shifted(block: Block, place: dict[int, int], moved: Callable[[Span], Span], channel: int) -> Block:
    def op(op: Op) -> Op:
        deps = tuple(sorted(Dep(place[dep.block], dep.op) for dep in op.deps))
        return op._replace(src=tuple(map(moved, op.src)), dst=tuple(map(moved, op.dst)), deps=deps)

    return block._replace(channel=block.channel + channel, ops=tuple(map(op, block.ops)))


def check(gpus: Sequence[Gpu], runtime: Runtime, instances: int) -> None:
    """Raises SynthError where `gpus` exceeds a limit of `runtime`, naming it and what would fit."""
    for what, need, limit in _exceeded(gpus, runtime):
        fit = limit * instances // need if what != INSTRUCTIONS else 0
        if instances > 1 and fit:
            way = f"{fit} instance{'s' if fit > 1 else ''} would fit"
        else:
            others = [other.name for other in RUNTIMES.values() if "s" in other.codes and not _exceeded(gpus, other)]
            way = f"a schedule with fewer chunks or steps would fit, or runtime {' or '.join(others)}"
        raise SynthError(f"{runtime.name} has at most {limit} {what}, this program needs {need}; {way}")


def _exceeded(gpus: Sequence[Gpu], runtime: Runtime) -> list[tuple[str, int, int]]:
    """The limits that `gpus` exceeds: of what, how many it needs, the limit."""
    blocks = [block for gpu in gpus for block in gpu.blocks]
    awaited = max((dep.block for block in blocks for op in block.ops for dep in op.deps), default=-1)
    needs = (
        ("thread blocks of a rank", max((len(gpu.blocks) for gpu in gpus), default=0), runtime.blocks),
        ("channels", 1 + max((block.channel for block in blocks), default=0), runtime.channels),
        (
            "thread blocks that can be waited for",
            awaited + 1,
            None if runtime.dep_block is None else runtime.dep_block + 1,
        ),
        (INSTRUCTIONS, max((len(block.ops) for block in blocks), default=0), runtime.block_ops),
    )
    return [(what, need, limit) for what, need, limit in needs if limit is not None and need > limit]

"""Last pass of lowering: instances, and the limits of a runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from synth.errors import SynthError
from synth.model.schedule import Schedule
from synth.program.buffer_layout import Layout
from synth.program.program import Gpu, Span
from synth.program.runtimes import RUNTIMES, Runtime

BLOCKS, CHANNELS = "thread blocks of a rank", "channels"
INSTRUCTIONS = "instructions in a thread block"  # the one resource that fewer instances do not save


def replicate(gpus: Sequence[Gpu], layout: Layout, instances: int) -> tuple[Gpu, ...]:
    """Return `instances` copies of the blocks side by side, each for its share of every unit.

    Each copy has channels and scratch of its own.

    Instance k takes the chunks ``unit * C * instances + k * C + c`` for c < C = ``layout.chunks``. No span may cross
    units.
    """
    if instances == 1:
        return tuple(gpus)
    chunks = layout.chunks
    channels = 1 + max((block.channel for gpu in gpus for block in gpu.blocks), default=0)
    replicas = []
    for gpu in gpus:
        blocks = []
        for k in range(instances):
            # scratch of the copies lies side by side, chunks of a unit in turn
            def moved(span: Span, k: int = k, gpu: Gpu = gpu) -> Span:
                if span.buffer == "s":
                    return span._replace(offset=span.offset + k * gpu.scratch)
                unit, chunk = divmod(span.offset, chunks)
                return span._replace(offset=(unit * instances + k) * chunks + chunk)

            for block in gpu.blocks:
                ops = []
                for op in block.ops:
                    deps = tuple(dep._replace(block=dep.block + k * len(gpu.blocks)) for dep in op.deps)
                    ops.append(op._replace(src=tuple(map(moved, op.src)), dst=tuple(map(moved, op.dst)), deps=deps))
                blocks.append(block._replace(channel=block.channel + k * channels, ops=tuple(ops)))
        replicas.append(
            Gpu(gpu.rank, gpu.input * instances, gpu.output * instances, gpu.scratch * instances, tuple(blocks))
        )
    return tuple(replicas)


def check_schedule(schedule: Schedule, runtime: Runtime) -> None:
    """Raise SynthError if no program of `schedule` can be within the limits of `runtime`, by a count of its sends.

    Neighbouring chunks of a step that take the same route may travel as one instruction. The instructions of a route
    are divided over thread blocks, each on a channel of its own, and a block sends to one rank at most and receives
    from one at most. `schedule` has no unneeded sends.
    """
    if runtime.block_ops is None:
        return
    # A run of neighbouring chunks may be one message, each gap begins another.
    messages = Counter()  # at least, by source and destination
    for step in schedule.steps:
        chunks = {}
        for send in step.sends:
            if not send.local:
                chunks.setdefault((send.src, send.dst), []).append(send.chunk)
        for route, row in chunks.items():
            row.sort()
            messages[route] += 1 + sum(b > a + 1 for a, b in pairwise(row))
    # The blocks that so many messages fill at least.
    sending, receiving, channels = Counter[int](), Counter[int](), 0
    for (src, dst), count in messages.items():
        blocks = -(-count // runtime.block_ops)
        sending[src] += blocks
        receiving[dst] += blocks
        channels = max(channels, blocks)
    blocks = max([*sending.values(), *receiving.values()], default=0)
    for resource, need, limit in ((BLOCKS, blocks, runtime.blocks), (CHANNELS, channels, runtime.channels)):
        if limit is not None and need > limit:
            raise SynthError(
                f"{runtime.name} has at most {limit} {resource}, a program of {schedule.sends} sends needs at least "
                f"{need}; a schedule with fewer chunks or steps would fit, or runtime synth"
            )


def check(gpus: Sequence[Gpu], runtime: Runtime, instances: int) -> None:
    """Raise SynthError if `gpus` exceeds a limit of `runtime`; the message names the limit and a remedy."""
    for resource, need, limit in _exceeded(gpus, runtime):
        # instances share all resources but the length of a block
        fit = limit * instances // need if resource != INSTRUCTIONS else 0
        if instances > 1 and fit:
            remedy = f"{fit} instance{'s' if fit > 1 else ''} would fit"
        else:
            others = [other.name for other in RUNTIMES.values() if "s" in other.codes and not _exceeded(gpus, other)]
            remedy = f"a schedule with fewer chunks or steps would fit, or runtime {' or '.join(others)}"
        raise SynthError(f"{runtime.name} has at most {limit} {resource}, this program needs {need}; {remedy}")


def _exceeded(gpus: Sequence[Gpu], runtime: Runtime) -> list[tuple[str, int, int]]:
    """Return (resource, need, limit) for each limit that `gpus` exceeds."""
    blocks = [block for gpu in gpus for block in gpu.blocks]
    last_target = max((dep.block for block in blocks for op in block.ops for dep in op.deps), default=-1)
    needs = (
        (BLOCKS, max((len(gpu.blocks) for gpu in gpus), default=0), runtime.blocks),
        (CHANNELS, 1 + max((block.channel for block in blocks), default=0), runtime.channels),
        (
            "thread blocks that can be waited for",
            last_target + 1,
            None if runtime.dep_block is None else runtime.dep_block + 1,
        ),
        (INSTRUCTIONS, max((len(block.ops) for block in blocks), default=0), runtime.block_ops),
    )
    return [(resource, need, limit) for resource, need, limit in needs if limit is not None and need > limit]

"""What one rank of an MSCCL++ plan is connected to: channels, remote buffers, and semaphores between its thread
blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from synth.errors import SynthError
from synth.program import plan_limits as limits
from synth.program.program import BUFFERS, PORT_KINDS, Dep, Gpu, Op, Port, Span


@dataclass(frozen=True)
class Wiring:
    """The numbers that a plan gives to a rank's channels (by kind), remote buffers (rank, buffer) and semaphores (from,
    to block).

    `deps[block, op]`: what an op still has to wait for, after what its block waited for before.
    """

    channels: Mapping[str, tuple[Port, ...]]
    buffers: tuple[tuple[int, str], ...]
    access: Mapping[tuple[int, str], tuple[str, ...]]
    semaphores: tuple[tuple[int, int], ...]
    deps: Mapping[tuple[int, int], tuple[Dep, ...]]
    barriers: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(gpu: Gpu) -> Wiring:
        """The wiring of `gpu`. Raises SynthError where a plan cannot express it."""
        ports = {
            kind: tuple(sorted({p for b in gpu.blocks for p in b.ports if p.kind == kind}, key=lambda p: p[1:]))
            for kind in PORT_KINDS
        }
        for kind, every in ports.items():
            for port in every:
                if port.index and Port(kind, port.peer, port.index - 1) not in every:
                    raise SynthError(
                        f"rank {gpu.rank} uses {kind} channel {port.index} to rank {port.peer} without the one "
                        f"before it"
                    )
        access: dict[tuple[int, str], set[str]] = {}
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                kind = access_kind(gpu, b, i)
                for span in (*op.src, *op.dst):
                    if span.rank is not None:
                        access.setdefault((span.rank, span.buffer), set()).add(kind)
        buffers = tuple(sorted(access, key=lambda item: (item[0], BUFFERS.index(item[1]))))
        deps = _deps(gpu)
        pairs = sorted({(dep.block, b) for (b, _), found in deps.items() for dep in found})
        groups = dict.fromkeys(op.group for block in gpu.blocks for op in block.ops if op.code == "barrier")
        if len(groups) > limits.BARRIERS:
            raise SynthError(
                f"rank {gpu.rank} has {len(groups)} groups of blocks that meet in barriers, MSCCL++ takes "
                f"{limits.BARRIERS}"
            )
        kinds = {key: tuple(kind for kind in PORT_KINDS if kind in found) for key, found in access.items()}
        return Wiring(ports, buffers, kinds, tuple(pairs), deps, tuple(groups))

    def channel_documents(self) -> list[dict]:
        """`channels` of the gpu."""
        return [
            {"channel_type": kind, "connected_to": [port.peer for port in ports]}
            for kind, ports in self.channels.items()
            if ports
        ]

    def buffer_documents(self) -> list[dict]:
        """`remote_buffers` of the gpu."""
        return [
            {"rank": key[0], "type": key[1], "access_channel_types": list(self.access[key])} for key in self.buffers
        ]


def access_kind(gpu: Gpu, block: int, op: int) -> str:
    """The kind of channel through which an op reaches other ranks: that of its ports, memory where it has none."""
    found = gpu.blocks[block].ops[op]
    kinds = {gpu.blocks[block].ports[port].kind for port in found.ports}
    if len(kinds) > 1:
        raise SynthError(f"{place(gpu, block, op)} uses memory and port channels at once: split it")
    return kinds.pop() if kinds else "memory"


def place(gpu: Gpu, block: int, op: int) -> str:
    """Where an op is, for messages."""
    return f"rank {gpu.rank} block {block} op {op} ({gpu.blocks[block].ops[op].code})"


def remote(op: Op) -> list[Span]:
    """The spans of `op` on other ranks."""
    return [span for span in (*op.src, *op.dst) if span.rank is not None]


def _deps(gpu: Gpu) -> dict[tuple[int, int], tuple[Dep, ...]]:
    """What each op waits for: per block the last of its ops, and only if that is later than what was waited for
    before."""
    found: dict[tuple[int, int], tuple[Dep, ...]] = {}
    for b, block in enumerate(gpu.blocks):
        seen: dict[int, int] = {}
        for i, op in enumerate(block.ops):
            last = {dep.block: max(d.op for d in op.deps if d.block == dep.block) for dep in op.deps}
            new = tuple(Dep(p, last[p]) for p in sorted(last) if p != b and last[p] > seen.get(p, -1))
            seen.update(new)
            for dep in new:
                if dep.block >= len(gpu.blocks) or dep.op >= len(gpu.blocks[dep.block].ops):
                    raise SynthError(
                        f"{place(gpu, b, i)} waits for block {dep.block} op {dep.op}, which does not exist"
                    )
                if not gpu.blocks[dep.block].ops[dep.op].flag:
                    raise SynthError(f"{place(gpu, b, i)} waits for block {dep.block} op {dep.op}, which has no flag")
            if new:
                found[b, i] = new
    return found

"""Limits and FIFO sizes of each runtime: the facts that lowering, exporters and the analysis share.

From microsoft/msccl b23e9cd (`msccl`, NCCL 2.12), Azure/msccl-executor-nccl c6f6b36 (`msccl-executor`, NCCL 2.23),
ROCm/rccl 0cbce2a7 (`rccl`) and microsoft/mscclpp 1f5f065d (`mscclpp`, 0.9). `synth` is this project's own
executors, which interpret any Program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from synth.errors import UsageError, unknown
from synth.program.program import ONE_SIDED, TWO_SIDED

KIB, MIB = 1 << 10, 1 << 20
# operations that a connection holds before its sender waits: of NCCL_STEPS = 8 a Simple operation takes 4
FIFO_DEPTH: Mapping[str, int] = {"Simple": 2, "LL": 8, "LL128": 8}
LL128_BYTES = 576_000  # bytes of one LL128 operation
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})


@dataclass(frozen=True)
class Runtime:
    """The limits of one runtime; None stands for no limit of its own.

    `codes`: the instructions that it runs. `collectives`: our name → the name in the runtime's files, for the
    collectives that it dispatches. `blocks`: the most thread blocks of a rank. `channels`: the most channels.
    `channel_blocks`: the most blocks of a rank that send, or that receive, on one channel. `block_ops`: the most
    instructions of a thread block. `count`: the most chunks of an instruction. `dep_block`: the greatest block that may
    be waited for. `single_dep`: an instruction has at most one dependency. `inclusive_max`: the largest size is itself
    served. `exact_in_place`: a file is for calls in place or for calls out of place, not for both. `operators`: the
    reductions that it runs.
    """

    name: str
    codes: frozenset[str]
    collectives: Mapping[str, str] | None = None
    blocks: int | None = None
    channels: int | None = None
    channel_blocks: int | None = None
    block_ops: int | None = None
    count: int | None = None
    dep_block: int | None = None
    single_dep: bool = False
    inclusive_max: bool = True
    exact_in_place: bool = False
    operators: tuple[str, ...] = ("sum", "prod", "min", "max")

    def operation_bytes(self, protocol: str, collective: str) -> int:
        """Return the most bytes of one FIFO operation, at the default NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE and
        NCCL_LL128_BUFFSIZE."""
        if protocol == "LL":
            return 16 * KIB if self.name == "rccl" else 32 * KIB
        if protocol == "LL128":
            return LL128_BYTES
        return (
            512 * KIB if self.name in ("msccl-executor", "rccl") and collective in ("broadcast", "reduce") else 2 * MIB
        )


_NCCL = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "alltoall": "alltoall",
    "reduce-scatter": "reducescatter",
}
# msccl runs these where the application asks for them by name
_CUSTOM = (
    "gather",
    "scatter",
    "scan",
    "multi-broadcast",
    "multi-reduce",
    "multi-scatter",
    "multi-gather",
    "alltonext",
    "sendrecv",
    "allgatherv",
    "reduce-scatterv",
    "alltoallv",
)

RUNTIMES: Mapping[str, Runtime] = {
    "msccl": Runtime(
        "msccl",
        TWO_SIDED,
        {**_NCCL, "reduce-scatter": "reduce_scatter", **dict.fromkeys(_CUSTOM, "custom")},
        blocks=216,
        channels=32,
        channel_blocks=32,
        block_ops=256,
        count=71,
        dep_block=127,
        single_dep=True,
        inclusive_max=False,
        exact_in_place=True,
    ),
    "msccl-executor": Runtime(
        "msccl-executor",
        TWO_SIDED,
        _NCCL,
        blocks=1024,
        channels=32,
        channel_blocks=32,
        block_ops=64,
        count=71,
        dep_block=127,
        single_dep=True,
    ),
    "rccl": Runtime(
        "rccl",
        frozenset({"s", "r", "cpy", "re", "nop"}),
        _NCCL,
        blocks=64,
        channels=128,
        channel_blocks=32,
        block_ops=64,
        count=71,
        dep_block=127,
        single_dep=True,
    ),
    "mscclpp": Runtime("mscclpp", ONE_SIDED, None, block_ops=64, operators=("sum",)),
    "synth": Runtime("synth", TWO_SIDED, None, operators=("sum", "prod", "min", "max", "avg")),
}


def named(name: str) -> Runtime:
    """Return the runtime of that name. Raises UsageError."""
    if name.lower() not in RUNTIMES:
        raise UsageError(unknown("runtime", name, list(RUNTIMES), "exporters"))
    return RUNTIMES[name.lower()]

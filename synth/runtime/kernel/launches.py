"""A program carried out by several launches at once, one a rank: on several GPUs, or several side by side on one.

The blocks of a rank have consecutive numbers and depend on blocks of their own rank alone. So each launch gets tables
of its own blocks, numbered from 0; connections join it to the other launches. Each launch has its own counters, flags
and statuses. All share one abort flag, and read each other's progress counters (beats) before one of them sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError
from synth.runtime.kernel import tables as flat
from synth.runtime.reference.op_tables import CompiledProgram

# The reasons why blocks that were cut short waited, read from the statuses that the kernel leaves.

_WAITS = {flat.WAITS_DATA: "data", flat.WAITS_CREDIT: "credit", flat.WAITS_ENTRY: "entry", flat.WAITS_TURN: "turn"}
_ONE_SIDED = (flat.WAITS_SIGNAL, flat.WAITS_BARRIER, flat.WAITS_PACKETS)


def waits(tables: flat.Tables, status: np.ndarray) -> list[tuple[int, tuple[str, Any] | None] | None]:
    """Return, for each block, the op at which it was cut short and its wait; None for a block that ended.

    A wait is (kind, object) as in the reference executor's `WaitReason`; None where the block was working.
    """
    result: list[tuple[int, tuple[str, Any] | None] | None] = []
    for row in status:
        kind, op, what = int(row["kind"]), int(row["op"]), int(row["what"])
        if kind == flat.ENDED:
            result.append(None)
        elif kind in _ONE_SIDED:
            result.append((op, tables.events[int(tables.terms[what]["flag"])]))
        elif kind == flat.WAITS_DEP:
            result.append((op, ("dep", (int(tables.deps[what]["block"]), int(tables.deps[what]["op"])))))
        else:
            result.append((op, (_WAITS[kind], what) if kind in _WAITS else None))
    return result


# Pointers in the kernel's Prog to arrays with one record a block, and the bytes of such a record.
PER_BLOCK = {"blocks": flat.BLOCK.itemsize, "done": 8, "run": 8, "beat": 8, "status": flat.STATUS.itemsize}


class Launch(NamedTuple):
    """One launch: the blocks `first` to `first + count - 1`, on `device`. `rank`: their rank; None: all ranks."""

    rank: int | None
    first: int
    count: int
    device: int


def plan_launches(code: CompiledProgram, on: Sequence[int] | None, device: int = 0) -> tuple[Launch, ...]:
    """Return the launches of a program: one of all blocks on `device`, or one for each rank that has blocks.

    `on` gives the device of each rank in the second case. Raises UsageError unless it names one for every rank,
    and for one-sided programs with packets, whose scratch has no second half here.
    """
    if on is None:
        return (Launch(None, 0, len(code.place), device),)
    ranks = code.program.ranks
    if len(on) != ranks:
        raise UsageError(
            f"{code.program.name} has {ranks} ranks; --ranks-on names {len(on)} devices, and must name one for each "
            f"rank"
        )
    if code.program.one_sided and code.program.has_packets:
        raise UsageError(
            f"{code.program.name}: a rank that is a launch ahead would overwrite packets of the launch before: leave "
            f"out --ranks-on, or lower it with the Simple protocol"
        )
    if min(on) < 0:
        raise UsageError(f"--ranks-on: there is no device {min(on)}; they are numbered from 0")
    launches, first = [], 0
    for gpu in code.program.gpus:
        if gpu.blocks:
            launches.append(Launch(gpu.rank, first, len(gpu.blocks), on[gpu.rank]))
        first += len(gpu.blocks)
    return tuple(launches)


def local_dependencies(tables: flat.Tables, code: CompiledProgram, launches: Sequence[Launch]) -> np.ndarray:
    """Return the table `tables.deps` with each block numbered from 0 within its launch."""
    deps, at = tables.deps.copy(), 0  # the rows are in the order of the blocks that wait
    for launch in launches:
        count = sum(
            len(step.deps) for steps in code.steps[launch.first : launch.first + launch.count] for step in steps
        )
        deps["block"][at : at + count] -= launch.first
        at += count
    return deps


def launch_arguments(prog: np.ndarray, launch: Launch, count: int, watched: int) -> np.ndarray:
    """Return the kernel's argument (Prog) for one launch, derived from the Prog of all blocks, which share one memory.

    `count`: the number of launches. `watched`: the address of the table of all launches' beats.
    """
    result = prog.copy()
    for name, size in PER_BLOCK.items():
        result[name] += launch.first * size
    result["nblocks"], result["launches"], result["nlaunches"] = launch.count, watched, count
    return result

"""A program carried out by several launches at once, one a rank: on several GPUs, or several side by side on one.

The blocks of a rank are numbered on end, and depend on blocks of their own rank alone, so a launch is told of its
blocks as if there were no others; connections join it to the rest. Each has counters, flags and statuses of its own,
and all share one flag of giving up and look at each other's beats before they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synth.errors import UsageError
from synth.runtime.kernel import tables as flat
from synth.runtime.reference.op_tables import Compiled

# fields of the kernel's Prog that point to something of each block, and its bytes
PER_BLOCK = {"blocks": flat.BLOCK.itemsize, "done": 8, "run": 8, "beat": 8, "status": flat.STATUS.itemsize}


class Crew(NamedTuple):
    """One launch: the blocks `first` to `first + count - 1`, on `device`. `rank`: whose they are, None: everybody's."""

    rank: int | None
    first: int
    count: int
    device: int


def crews(code: Compiled, on: Sequence[int] | None, device: int = 0) -> tuple[Crew, ...]:
    """One launch of all blocks on `device`, or, where `on` gives the device of each rank, one for each rank that has
    blocks.

    Raises UsageError where `on` does not name a device for every rank.
    """
    if on is None:
        return (Crew(None, 0, len(code.place), device),)
    ranks = code.program.ranks
    if len(on) != ranks:
        raise UsageError(
            f"{code.program.name} has {ranks} ranks; --ranks-on names {len(on)} devices, and must name one for each "
            f"rank"
        )
    if min(on) < 0:
        raise UsageError(f"--ranks-on: there is no device {min(on)}; they are numbered from 0")
    found, first = [], 0
    for gpu in code.program.gpus:
        if gpu.blocks:
            found.append(Crew(gpu.rank, first, len(gpu.blocks), on[gpu.rank]))
        first += len(gpu.blocks)
    return tuple(found)


def own_deps(tables: flat.Tables, code: Compiled, made: Sequence[Crew]) -> np.ndarray:
    """The table of dependencies with blocks numbered within their launch."""
    deps, at = tables.deps.copy(), 0  # they stand in the order of the blocks that wait
    for crew in made:
        count = sum(len(step.deps) for steps in code.steps[crew.first : crew.first + crew.count] for step in steps)
        deps["block"][at : at + count] -= crew.first
        at += count
    return deps


def told(prog: np.ndarray, crew: Crew, count: int, watched: int) -> np.ndarray:
    """The kernel's Prog of one launch of `count`, made of that of all blocks, which lie in one memory. `watched`: where
    the table of all launches' beats is."""
    own = prog.copy()
    for name, size in PER_BLOCK.items():
        own[name] += crew.first * size
    own["nblocks"], own["crews"], own["ncrews"] = crew.count, watched, count
    return own

"""Dependencies between the ops of a rank: true dependencies only, without those that others imply.

An op waits for the last writer of each cell that it reads (read after write), and for the last readers and the last
writer of each cell that it writes (write after read, write after write). A dependency is dropped if the order of a
block, or another dependency, implies it. Clocks over the blocks of the rank show that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from synth.program.program import Dep, Op


class Access(NamedTuple):
    """The cells that op `index` of block `block` reads and writes; cells are any hashable names of one chunk's
    memory."""

    block: int
    index: int
    reads: Iterable[int]
    writes: Iterable[int]


def dependencies(accesses: Sequence[Access], blocks: int) -> list[tuple[Dep, ...]]:
    """Return, for every access, the ops of other blocks that it waits for.

    `accesses` come in an order that agrees with the order of every block; `blocks`: the number of blocks.
    """
    writer = {}
    readers = {}
    clocks = []  # per access: the last op of every block that has ended when it starts
    current = [[-1] * blocks for _ in range(blocks)]
    dependencies_of = []
    for n, access in enumerate(accesses):
        # The ops that this one must come after: the last writers, and the readers since then of what it writes.
        needed = set()
        for cell in access.reads:
            if cell in writer:
                needed.add(writer[cell])
            readers.setdefault(cell, []).append(n)
        for cell in access.writes:
            if cell in writer:
                needed.add(writer[cell])
            needed.update(readers.pop(cell, ()))
            writer[cell] = n
        needed.discard(n)
        # Those that no other dependency and no order of a block implies, the latest first.
        clock = current[access.block]
        waits = []
        for other in sorted(needed, reverse=True):  # a later op can imply an earlier one, never the reverse
            earlier = accesses[other]
            if earlier.block == access.block or clock[earlier.block] >= earlier.index:
                continue
            clock = list(map(max, clock, clocks[other]))
            clock[earlier.block] = earlier.index
            waits.append(Dep(earlier.block, earlier.index))
        clocks.append(clock)
        current[access.block] = clock
        dependencies_of.append(tuple(sorted(waits)))
    return dependencies_of


def flagged(blocks: Sequence[Sequence[Op]]) -> list[tuple[Op, ...]]:
    """Return the ops of a rank's blocks, with `flag` set on exactly those that others wait for."""
    targets = {(dep.block, dep.op) for ops in blocks for op in ops for dep in op.deps}
    result = []
    for b, ops in enumerate(blocks):
        row = []
        for i, op in enumerate(ops):
            flag = (b, i) in targets
            row.append(op if op.flag == flag else op._replace(flag=flag))
        result.append(tuple(row))
    return result


def single_dependencies(blocks: Sequence[Sequence[Op]]) -> list[tuple[Op, ...]]:
    """Return the same blocks with at most one dependency an op, as MSCCL-IR needs.

    An op with N dependencies gets N - 1 nops before it, which wait for the others.
    """
    new_index = []
    for ops in blocks:
        length, row = 0, []
        for op in ops:
            length += max(len(op.deps), 1)
            row.append(length - 1)
        new_index.append(row)

    result = []
    for ops in blocks:
        row = []
        for op in ops:
            deps = tuple(Dep(dep.block, new_index[dep.block][dep.op]) for dep in op.deps)
            row += [Op("nop", deps=(dep,)) for dep in deps[:-1]]
            row.append(op._replace(deps=deps[-1:]))
        result.append(tuple(row))
    return result

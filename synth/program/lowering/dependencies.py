"""Which ops of a rank must wait for which: true dependencies only, and none that others imply.

An op waits for the last writer of what it reads (read after write) and for the last readers and the last writer of
what it writes (write after read, write after write), cell by cell. A dependency goes where the order of a block, or
another dependency, implies it already: clocks over the blocks of the rank tell.
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
    """For every access, given in an order that agrees with all blocks' orders, the ops of other blocks that it waits
    for."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    clocks: list[list[int]] = []  # per access: the last op of every block that has ended when it starts
    current = [[-1] * blocks for _ in range(blocks)]
    found: list[tuple[Dep, ...]] = []
    for n, access in enumerate(accesses):
        needed: set[int] = set()
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
        clock = current[access.block]
        waits: list[Dep] = []
        for other in sorted(needed, reverse=True):  # a later op can imply an earlier one, never the reverse
            theirs = accesses[other]
            if theirs.block == access.block or clock[theirs.block] >= theirs.index:
                continue
            clock = list(map(max, clock, clocks[other]))
            clock[theirs.block] = theirs.index
            waits.append(Dep(theirs.block, theirs.index))
        clocks.append(clock)
        current[access.block] = clock
        found.append(tuple(sorted(waits)))
    return found


def flagged(blocks: Sequence[Sequence[Op]]) -> list[tuple[Op, ...]]:
    """The ops of a rank's blocks with `flag` set on exactly those that others wait for."""
    awaited = {(dep.block, dep.op) for ops in blocks for op in ops for dep in op.deps}
    return [
        tuple(op if op.flag == ((b, i) in awaited) else op._replace(flag=(b, i) in awaited) for i, op in enumerate(ops))
        for b, ops in enumerate(blocks)
    ]


def single(blocks: Sequence[Sequence[Op]]) -> list[tuple[Op, ...]]:
    """The same blocks with one dependency an op: N dependencies become N - 1 nops before it, as MSCCL-IR needs."""
    place: list[list[int]] = []
    for ops in blocks:
        at, row = 0, []
        for op in ops:
            at += max(len(op.deps), 1)
            row.append(at - 1)
        place.append(row)

    def moved(deps: Iterable[Dep]) -> tuple[Dep, ...]:
        return tuple(Dep(dep.block, place[dep.block][dep.op]) for dep in deps)

    found = []
    for ops in blocks:
        row = []
        for op in ops:
            deps = moved(op.deps)
            row += [Op("nop", deps=(dep,)) for dep in deps[:-1]]
            row.append(op._replace(deps=deps[-1:]))
        found.append(tuple(row))
    return found

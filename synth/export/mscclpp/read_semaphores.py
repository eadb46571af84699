"""Reader of the semaphores of an MSCCL++ plan as dependencies between thread blocks."""

from __future__ import annotations

from typing import NamedTuple

from synth.export.mscclpp.json_fields import Node
from synth.export.mscclpp.read_block import BlockReader
from synth.program.program import Block, Dep, Loop


class _Use(NamedTuple):
    """A release of a semaphore after op `op` of a block, or an acquisition before it."""

    block: int
    op: int
    loop: Loop | None
    node: Node

    @property
    def turns(self) -> tuple[int, int] | None:
        """The chunks and the unit of the loop, which give its number of turns; None outside loops."""
        return None if self.loop is None else (self.loop.chunks, self.loop.unit)


def with_semaphores(readers: list[BlockReader], initial: list[int]) -> list[Block]:
    """Return the blocks of a rank whose `readers` have read its semaphores, as blocks with dependencies.

    ``initial[semaphore]``: its value before any release. Acquisitions that do not wait for a certain release have no
    counterpart in a program: raises FormatError.
    """
    releases = _by_semaphore(readers, [reader.releases for reader in readers], len(initial))
    acquires = _by_semaphore(readers, [reader.acquires for reader in readers], len(initial))
    deps = [{} for _ in readers]
    flags = [set() for _ in readers]
    for number in sorted({*releases, *acquires}):
        pairs = _waits(number, releases.get(number, []), acquires.get(number, []), initial[number])
        for acquired, dep in pairs:
            deps[acquired.block].setdefault(acquired.op, []).append(dep)
            flags[dep.block].add(dep.op)
    blocks = []
    for reader, block_deps, block_flags in zip(readers, deps, flags, strict=True):
        blocks.append(reader.block_of({i: tuple(sorted(set(ds))) for i, ds in block_deps.items()}, block_flags))
    return blocks


def _waits(number: int, released: list[_Use], acquired: list[_Use], initial: int) -> list[tuple[_Use, Dep]]:
    """Return, for each acquisition of a semaphore, the releases that it surely waits for.

    One block releases and one acquires, in one loop each or outside loops: the k-th waits for the k-th, less the
    initial value.
    Otherwise all releases, or all acquisitions, stand at one place outside loops: then all wait for all.
    """
    node = (released or acquired)[0].node
    turns = {use.turns for use in (*released, *acquired)}
    several = max(_loops(released), _loops(acquired)) > 1
    if len(released) != len(acquired) or len(turns) > 1 or several:
        node.fail(
            f"semaphore {number} is released {len(released)} times and acquired {len(acquired)} times, or in other "
            f"pipelines: which release an acquisition waits for depends on the size, or on the launch"
        )
    loop = released[0].loop
    releasing = {use.block for use in released}
    acquiring = {use.block for use in acquired}
    if len(releasing) == 1 and len(acquiring) == 1:
        pairs = []
        for k, use in enumerate(acquired):
            back, place = divmod(k - initial, len(released))
            if back == 0 or loop is not None:
                pairs.append((use, Dep(released[place].block, released[place].op, -back)))
        return pairs
    certain = _one_place(released) or _one_place(acquired)
    if initial or loop is not None or not certain:
        node.fail(
            f"semaphore {number} counts releases of several blocks, or is acquired by several: nothing says which "
            f"release an acquisition waits for, no counterpart in a program"
        )
    return [(use, Dep(*release[:2])) for use in acquired for release in released]


def _loops(uses: list[_Use]) -> int:
    """Return the number of different loops of `uses`; those outside loops count as one."""
    return len({use.loop for use in uses})


def _one_place(uses: list[_Use]) -> bool:
    return len({(use.block, use.op) for use in uses}) == 1


def _by_semaphore(
    readers: list[BlockReader], uses: list[list[tuple[int, int, Node]]], count: int
) -> dict[int, list[_Use]]:
    """Return the uses of each semaphore; ``uses[block]`` has (op, semaphore, place)."""
    by_semaphore = {}
    for b, block_uses in enumerate(uses):
        for op, number, node in block_uses:
            if number >= count:
                node.fail(f"semaphore {number} does not exist; the rank has {count}")
            loop = next((loop for loop in readers[b].loops if loop.first <= op < loop.end), None)
            by_semaphore.setdefault(number, []).append(_Use(b, op, loop, node))
    return by_semaphore

"""Reader of the semaphores of an MSCCL++ plan as dependencies between thread blocks."""

from __future__ import annotations

from synth.export.mscclpp.json_fields import Node
from synth.export.mscclpp.read_block import BlockReader
from synth.program.program import Block, Dep


def with_semaphores(readers: list[BlockReader], count: int) -> list[Block]:
    """Return the blocks of a rank whose `readers` have read its `count` semaphores, as blocks with dependencies.

    The k-th acquisition of a semaphore waits for its k-th release. Raises FormatError if several blocks release or
    acquire one semaphore, or if the numbers of releases and acquisitions differ.
    """
    releases = _by_semaphore([reader.releases for reader in readers], count)
    acquires = _by_semaphore([reader.acquires for reader in readers], count)
    deps: list[dict[int, list[Dep]]] = [{} for _ in readers]
    flags: list[set[int]] = [set() for _ in readers]
    for number in sorted({*releases, *acquires}):
        released, acquired = releases.get(number, []), acquires.get(number, [])
        node = (released or acquired)[0][2]
        releasing = {b for b, _, _ in released}
        acquiring = {b for b, _, _ in acquired}
        if len(releasing) != 1 or len(acquiring) != 1 or len(released) != len(acquired):
            node.fail(
                f"semaphore {number} is not one block's releases and one other's as many acquisitions: no "
                f"counterpart in a program"
            )
        for (p, op, _), (b, waiting, _) in zip(released, acquired, strict=True):
            deps[b].setdefault(waiting, []).append(Dep(p, op))
            flags[p].add(op)
    blocks = []
    for reader, block_deps, block_flags in zip(readers, deps, flags, strict=True):
        blocks.append(reader.block_of({i: tuple(sorted(op_deps)) for i, op_deps in block_deps.items()}, block_flags))
    return blocks


def _by_semaphore(uses: list[list[tuple[int, int, Node]]], count: int) -> dict[int, list[tuple[int, int, Node]]]:
    """Return (block, op, place) of the uses of each semaphore; ``uses[block]`` has (op, semaphore, place)."""
    by_semaphore: dict[int, list[tuple[int, int, Node]]] = {}
    for b, block_uses in enumerate(uses):
        for op, number, node in block_uses:
            if number >= count:
                node.fail(f"semaphore {number} does not exist; the rank has {count}")
            by_semaphore.setdefault(number, []).append((b, op, node))
    return by_semaphore

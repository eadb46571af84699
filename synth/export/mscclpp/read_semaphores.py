"""Semaphores of an MSCCL++ plan read as dependencies between thread blocks."""

from __future__ import annotations

from synth.export.mscclpp.json_fields import Node
from synth.export.mscclpp.read_block import BlockReader
from synth.program.program import Block, Dep


def with_semaphores(readers: list[BlockReader], count: int) -> list[Block]:
    """The blocks of a rank: the k-th acquisition of a semaphore waits for its k-th release."""
    releases: dict[int, list[tuple[int, int, Node]]] = {}
    acquires: dict[int, list[tuple[int, int, Node]]] = {}
    for found, uses in ((releases, [r.releases for r in readers]), (acquires, [r.acquires for r in readers])):
        for b, every in enumerate(uses):
            for op, number, node in every:
                if number >= count:
                    node.fail(f"semaphore {number} does not exist; the rank has {count}")
                found.setdefault(number, []).append((b, op, node))
    deps: list[dict[int, list[Dep]]] = [{} for _ in readers]
    flags: list[set[int]] = [set() for _ in readers]
    for number in sorted({*releases, *acquires}):
        given, taken = releases.get(number, []), acquires.get(number, [])
        node = (given or taken)[0][2]
        if len({b for b, _, _ in given}) != 1 or len({b for b, _, _ in taken}) != 1 or len(given) != len(taken):
            node.fail(
                f"semaphore {number} is not one block's releases and one other's as many acquisitions: no "
                f"counterpart in a program"
            )
        for (p, op, _), (b, waiting, _) in zip(given, taken, strict=True):
            deps[b].setdefault(waiting, []).append(Dep(p, op))
            flags[p].add(op)
    return [
        reader.finished({i: tuple(sorted(found)) for i, found in deps[b].items()}, flags[b])
        for b, reader in enumerate(readers)
    ]

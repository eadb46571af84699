"""Packed spanning trees: the data are cut into a part for each of several trees that share the links, and pipelined."""

from __future__ import annotations

from synth.language import RankGroup, algorithm
from synth.language.library.trees import Held, add_pairs, copy_pairs, joined
from synth.language.place import error_at

PAPER = "Nash-Williams and Tutte, J. London Math. Soc. 36, 1961"
Edge = tuple[int, int]


def _trees(group: RankGroup) -> list[dict[int, list[int]]]:
    """Return the neighbours of each rank in each of the packed trees of a machine.

    Raises UsageError for a part of the ranks, and for machines whose links are not alike in both directions.
    """
    from synth.encodings.spanning_tree_packing import applies, forest

    network = group.trace.network
    if network is None or len(group.ranks) < group.trace.ranks or not applies(network):
        raise error_at(
            group.trace.place(),
            "packed trees need all ranks of a machine whose links are alike in both directions and share no limit",
        )
    found = []
    for tree in forest(network).trees:
        beside: dict[int, list[int]] = {rank: [] for rank in group.ranks}
        for rank, parent in enumerate(tree.parents):
            if rank != tree.root:
                beside[rank].append(parent)
                beside[parent].append(rank)
        found.append(beside)
    return found


def _outwards(beside: dict[int, list[int]], root: int) -> list[tuple[int, Edge]]:
    """Return the edges of a tree as (nearer, farther) with the depth of the farther rank, from the root on."""
    edges: list[tuple[int, Edge]] = []
    depth = {root: 0}
    queue = [root]
    for near in queue:
        for far in beside[near]:
            if far not in depth:
                depth[far] = depth[near] + 1
                queue.append(far)
                edges.append((depth[far], (near, far)))
    return edges


def _height(edges: list[tuple[int, Edge]]) -> int:
    return max((depth for depth, _ in edges), default=0)


def _level(edges: list[tuple[int, Edge]], level: int) -> list[Edge]:
    """Return the edges of a tree whose farther rank has this depth."""
    return [edge for depth, edge in edges if depth == level]


def _joined(group: RankGroup, parts: list[Held]) -> Held:
    held = {}
    for rank in group.ranks:
        held[rank] = joined([values[rank] for values in parts])
    return held


@algorithm("broadcast", name="packed-trees", paper=PAPER, home="torus:3x3",
           formula="M parts a tree: S = height + M - 1, R/C at most S/M over the rate of the trees")  # fmt: skip
def broadcast(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Copy each part down its tree, `pieces` parts of each tree one after another, a level a step."""
    root = next(rank for rank in group.ranks if held[rank])
    trees = [_outwards(beside, root) for beside in _trees(group)]
    now = [{root: part} for part in held[root].split(pieces * len(trees))]
    for step in range(pieces + max(map(_height, trees)) - 1):
        with group.step():
            for i, copies in enumerate(now):
                level = step - i // len(trees) + 1
                copy_pairs(copies, _level(trees[i % len(trees)], level))
    return _joined(group, now)


@algorithm("allreduce", name="packed-trees", paper=PAPER, home="torus:3x3",
           formula="M parts a tree: S = 2 height + M - 1, R/C at most S/M over the rate of the trees")  # fmt: skip
def allreduce(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Sum each part up its tree, then copy the sum down, `pieces` parts of each tree one after another.

    Parts going up use one direction of the links, parts going down the other at once.
    """
    trees = []
    for beside in _trees(group):
        trees.append(min([_outwards(beside, root) for root in group.ranks], key=_height))
    height, count = max(map(_height, trees)), pieces * len(trees)
    now: list[Held] = []
    for i in range(count):
        now.append({rank: held[rank].part(i, count) for rank in group.ranks})
    for step in range(pieces + 2 * height - 1):
        with group.step():
            for i, values in enumerate(now):
                level = step - i // len(trees)
                edges = trees[i % len(trees)]
                add_pairs(values, [(far, near) for near, far in _level(edges, height - level)])
                copy_pairs(values, _level(edges, level - height + 1))
    return _joined(group, now)

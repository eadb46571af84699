"""Double binary trees: half of the data is summed up and sent down one tree, half another one.

A rank that is inside one tree is a leaf of the other. The trees are NCCL's: the parent of a rank flips its lowest set
bit; the second tree is the first one mirrored, or shifted by one rank for an odd number.
"""

from __future__ import annotations

from synth.language import Data, RankGroup, algorithm
from synth.language.library.trees import Held, joined

PAPER = "Sanders, Speck and Traeff, Parallel Comput. 35, 2009"


def _parent(ranks: int, x: int) -> int | None:
    if x == 0:
        return None
    bit = x & -x
    parent = x ^ bit | bit << 1
    return x ^ bit if parent >= ranks else parent


@algorithm("allreduce", name="double-tree", paper=PAPER, steps="paced", home="dgx-a100",
           formula="S by the height of the trees and the pieces")  # fmt: skip
def allreduce(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Sum up each tree and send the sum down again, half of the data in each, piece after piece."""
    n = group.size
    results: dict[int, list[Data]] = {rank: [] for rank in group.ranks}
    for tree in range(2):
        place = list(group.ranks)
        if tree:
            place = place[::-1] if n % 2 == 0 else place[1:] + place[:1]
        children: list[list[int]] = [[] for _ in place]
        for x in range(n):
            parent = _parent(n, x)
            if parent is not None:
                children[parent].append(x)
        for piece in range(pieces):
            now = [held[rank].part(tree, 2).part(piece, pieces) for rank in place]
            total = _summed(now, children, 0)
            for data in _sent(total, place, children, 0):
                results[data.rank].append(data)
    return {rank: joined(parts) for rank, parts in results.items()}


def _summed(now: list[Data], children: list[list[int]], x: int) -> Data:
    total = now[x]
    for child in children[x]:
        total = total.add(_summed(now, children, child))
    return total


def _sent(data: Data, place: list[int], children: list[list[int]], x: int) -> list[Data]:
    found = [data]
    for child in children[x]:
        found += _sent(data.to(place[child]), place, children, child)
    return found

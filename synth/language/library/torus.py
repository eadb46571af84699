"""Torus: rings along one dimension after the other, each part of the data beginning in another dimension."""

from __future__ import annotations

from collections.abc import Iterator

from synth.language import RankGroup, algorithm
from synth.language.library.trees import Held, gathered, joined


@algorithm("allgather", name="torus", home="torus:4x4",
           formula="S = sum of d-1; D equal sides of at least 3: R/C = (n-1)/(2D)")  # fmt: skip
def allgather(group: RankGroup, held: Held) -> Held:
    """Pass each part round the rings of each dimension in turn, half of it in each direction."""
    dimensions = [i for i, side in enumerate(group.sides) if side > 1]
    count = len(dimensions)
    copies, moves = [], []
    for i in range(count):
        order = dimensions[i:] + dimensions[:i]
        for half, direction in ((0, 1), (1, -1)):
            pieces = {rank: {rank: held[rank].part(2 * i + half, 2 * count)} for rank in group.ranks}
            copies.append(pieces)
            moves.append(_hops(group, pieces, order, direction))
    for _ in range(sum(group.sides[i] - 1 for i in dimensions)):
        with group.step():
            for hop in moves:
                next(hop)
    whole = {}
    for owner in group.ranks:
        whole[owner] = {}
        for rank in group.ranks:
            whole[owner][rank] = joined([pieces[owner][rank] for pieces in copies])
    return gathered(group, whole)


def _hops(group: RankGroup, copies: dict[int, Held], order: list[int], direction: int) -> Iterator[None]:
    """Make one hop of all data along the rings of the dimensions at each call."""
    for dimension in order:
        rings = group.torus(dimension)
        moving = [holders[rank] for holders in copies.values() for rank in holders]
        owners = [owner for owner, holders in copies.items() for _ in holders]
        ring_of = {rank: ring for ring in rings for rank in ring.ranks}
        for _ in range(rings[0].size - 1):
            for i, owner in enumerate(owners):
                ring = ring_of[moving[i].rank]
                at = ring.position(moving[i].rank)
                moving[i] = moving[i].to(ring.ranks[(at + direction) % ring.size])
                copies[owner][moving[i].rank] = moving[i]
            yield

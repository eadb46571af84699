"""Rings: each rank passes on to the next one what it got from the one before. On a torus, along its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from synth.language import Data, RankGroup, algorithm
from synth.language.library.trees import Edges, Held, gather_along, gathered, joined_parts

PAPER = "Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009"


def _around(group: RankGroup, data: Data, direction: int, hops: int) -> Held:
    """Copy data of a rank to the next `hops` ranks of the ring in a direction; return what each has then."""
    at = group.position(data.rank)
    copies = {data.rank: data}
    for k in range(1, hops + 1):
        data = data.to(group.ranks[(at + direction * k) % group.size])
        copies[data.rank] = data
    return copies


@algorithm("allgather", name="ring-one-way", formula="S = n-1, R/C = n-1", paper=PAPER, home="ring:8")
def allgather_one_way(group: RankGroup, held: Held) -> Held:
    """Each rank's data once round the ring."""
    return gathered(group, {rank: _around(group, held[rank], 1, group.size - 1) for rank in group.ranks})


@algorithm("allgather", name="ring", formula="S = n-1, R/C = (n-1)/2", paper=PAPER, home="ring:8")
def allgather(group: RankGroup, held: Held) -> Held:
    """Half of each rank's data once round the ring, the other half the other way."""
    copies = {}
    for rank in group.ranks:
        ahead = _around(group, held[rank].part(0, 2), 1, group.size - 1)
        back = _around(group, held[rank].part(1, 2), -1, group.size - 1)
        copies[rank] = {other: ahead[other].join(back[other]) for other in group.ranks}
    return gathered(group, copies)


@algorithm("allgather", name="ring-short", formula="S = floor(n/2), R/C = (n-1)/2", paper="", home="ring:8")
def allgather_short(group: RankGroup, held: Held) -> Held:
    """Each rank's data half way round the ring in both directions; a rank opposite gets half from each side."""
    # Ranks up to half way round hear from one side; of an even number the last one from both.
    near = (group.size - 1) // 2
    copies = {}
    for at, rank in enumerate(group.ranks):
        ahead, back = _around(group, held[rank], 1, near), _around(group, held[rank], -1, near)
        copies[rank] = ahead | back
        if group.size % 2 == 0:
            opposite = group.ranks[(at + near + 1) % group.size]
            before, behind = group.ranks[(at + near) % group.size], group.ranks[(at - near) % group.size]
            first_half = ahead[before].part(0, 2).to(opposite)
            copies[rank][opposite] = first_half.join(back[behind].part(1, 2).to(opposite))
    return gathered(group, copies)


@algorithm("reduce-scatter", name="ring", formula="S = n-1, R/C = (n-1)/2", paper=PAPER, home="ring:8")
def reduce_scatter(group: RankGroup, held: Held) -> Held:
    """Each rank's part is added up once round the ring, half of it in each direction."""
    # Both halves are added up in opposite directions at once, so both directions of each link are busy.
    sums = {}
    for i, owner in enumerate(group.ranks):
        halves = []
        for half, direction in ((0, 1), (1, -1)):
            pieces = {rank: held[rank].part(i, group.size).part(half, 2) for rank in group.ranks}
            # once round the ring in this direction, up to the owner
            order = [group.ranks[(i + direction * k) % group.size] for k in range(1, group.size + 1)]
            total = pieces[order[0]]
            for rank in order[1:]:
                total = pieces[rank].add(total)
            halves.append(total)
        sums[owner] = halves[0].join(halves[1])
    return sums


@algorithm("allreduce", name="ring", formula="S = 2(n-1), R/C = (n-1)/n", paper=PAPER, home="ring:8")
def allreduce(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part round the ring, then pass the sums on, half of the data in each direction."""
    return allgather(group, reduce_scatter(group, held))


@algorithm("scan", name="chain", formula="C pieces: S = n-2+C, R/C = (n-2+C)/C", steps="paced", home="line:8")
def scan(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Each rank adds its data to the sum of the rank before and passes it on, piece after piece."""
    first, *rest = group.ranks
    sums = []
    for i in range(pieces):
        total = held[first].part(i, pieces)
        sums.append({first: total})
        for rank in rest:
            total = held[rank].part(i, pieces).add(total)
            sums[i][rank] = total
    return joined_parts(group, sums)


@algorithm("allgather", name="torus", home="torus:4x4",
           formula="S = sum of d-1; D equal sides of at least 3: R/C = (n-1)/(2D)")  # fmt: skip
def torus_allgather(group: RankGroup, held: Held) -> Held:
    """Pass each part round the rings of each dimension in turn, half of it in each direction."""
    sides = group.sides
    strides = [prod(sides[i + 1 :]) for i in range(len(sides))]
    dimensions = [i for i, side in enumerate(sides) if side > 1]
    trees = []
    for i in range(len(dimensions)):
        order = [(sides[d], strides[d]) for d in dimensions[i:] + dimensions[:i]]
        trees += [_torus_tree(order, 1), _torus_tree(order, -1)]

    def place(at: int, x: int) -> int:
        """Add two positions, coordinate by coordinate."""
        coordinates = zip(sides, strides, strict=True)
        return sum((at // stride + x // stride) % side * stride for side, stride in coordinates)

    return gather_along(group, held, trees, place)


def _torus_tree(order: Sequence[tuple[int, int]], direction: int) -> list[Edges]:
    """Return the tree along one dimension, (side, stride), after the other: all that have the data pass them on."""
    holders = [0]
    steps = []
    for side, stride in order:
        line = list(holders)
        for hop in range(1, side):
            here, there = (hop - 1) * direction % side, hop * direction % side
            steps.append([(x + here * stride, x + there * stride) for x in line])
            holders += [x + there * stride for x in line]
    return steps

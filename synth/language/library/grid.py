"""Direct phases on a grid: the ranks of a box by rows and columns, and boxes as its third dimension.

A rank meets the ranks of its row, of its column and of its rail instead of all, so that large boxes have few
connections for the same data: 15 instead of 71 on 72 ranks.
"""

from __future__ import annotations

from math import isqrt

from synth.language import RankGroup, algorithm
from synth.language.library.hierarchical import BLUECONNECT
from synth.language.library.trees import Held, gathered, parts
from synth.language.place import error_at

# The place of a rank: its row and column in the box, and its box.
Place = tuple[int, ...]


def _places(group: RankGroup) -> dict[int, Place]:
    """Return the place of each rank. Rows are neighbouring ranks, as nearly as many as there are in a column."""
    boxes = [box.ranks for box in group.boxes]
    size = len(boxes[0])
    columns = next(count for count in range(isqrt(size), 0, -1) if size % count == 0)
    if columns == 1 or any(len(box) != size for box in boxes):
        raise error_at(group.trace.place(), "grids need boxes with the same number of ranks, which is no prime number")
    places = {}
    for number, box in enumerate(boxes):
        places |= {rank: (*divmod(i, columns), number) for i, rank in enumerate(box)}
    return places


def _lines(places: dict[int, Place], dimension: int) -> list[list[int]]:
    """Return the ranks that differ in one dimension alone, for each place in the others."""
    found: dict[Place, list[int]] = {}
    for rank, place in places.items():
        found.setdefault(place[:dimension] + place[dimension + 1 :], []).append(rank)
    return list(found.values())


@algorithm("allgather", name="grid", formula="S = 2, R/C: switch of u units (n-1)/u; of boxes as hierarchical",
           paper=BLUECONNECT, home="switch:12:units=12")  # fmt: skip
def allgather(group: RankGroup, held: Held) -> Held:
    """Gather across the boxes on each rail, then along rows, then along columns."""
    places = _places(group)
    copies = {owner: {owner: held[owner]} for owner in group.ranks}
    for dimension in (2, 1, 0):
        for line in _lines(places, dimension):
            for owner in group.ranks:
                sources = [rank for rank in line if rank in copies[owner]]
                for source in sources:
                    copies[owner] |= {rank: copies[owner][source].to(rank) for rank in line}
    return gathered(group, copies)


@algorithm("reduce-scatter", name="grid", formula="S = 2, R/C: switch of u units (n-1)/u; of boxes as hierarchical",
           paper=BLUECONNECT, home="switch:12:units=12")  # fmt: skip
def reduce_scatter(group: RankGroup, held: Held) -> Held:
    """Sum along columns, then along rows, then across the boxes on each rail."""
    places = _places(group)
    pieces = parts(group, held)
    for dimension in (0, 1, 2):
        for line in _lines(places, dimension):
            for owner in group.ranks:
                values = [pieces[owner].pop(rank) for rank in line if rank in pieces[owner]]
                for rank in line:
                    if values and places[rank][dimension] == places[owner][dimension]:
                        pieces[owner][rank] = group.sum(rank, values)
    return {owner: pieces[owner][owner] for owner in group.ranks}


@algorithm("allreduce", name="grid", formula="S = 4, R/C: switch of u units 2(n-1)/(nu); of boxes as hierarchical",
           paper=BLUECONNECT, home="switch:12:units=12")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Sum every rank's part there, then gather the sums."""
    return allgather(group, reduce_scatter(group, held))

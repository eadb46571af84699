"""Algorithms for boxes that are joined by slower links: phases in boxes and across them, on rails.

In a grid a rank meets the ranks of its row and column in the box, and of its rail, instead of all: large boxes have few
connections for the same data, 15 instead of 71 on 72 ranks. An alltoall by boxes brings data for a box together, so
that fewer and longer messages leave a box.
"""

from __future__ import annotations

from math import isqrt
from types import ModuleType

from synth.language import Data, RankGroup, algorithm
from synth.language.library import direct
from synth.language.library.trees import Held, gathered, joined, parts
from synth.language.place import error_at

BLUECONNECT = "Cho et al., BlueConnect, MLSys 2019"
GRID_FORMULA = "S = 2, R/C: switch of u units (n-1)/u; of boxes as hierarchical"
# The place of a rank: its row and column in the box, and its box.
Place = tuple[int, ...]


@algorithm("allgather", name="hierarchical", formula="S = 2 with direct phases", paper=BLUECONNECT, home="dgx-a100*2")
def allgather(group: RankGroup, held: Held, across: ModuleType = direct, inside: ModuleType = direct) -> Held:
    """Gather across the boxes on each rail, then inside each box."""
    held = dict(held)
    for rail in group.rails:
        held |= across.allgather(rail, held)
    for box in group.boxes:
        held |= inside.allgather(box, held)
    return held


@algorithm("allreduce", name="hierarchical", formula="S = 4 with direct phases", paper=BLUECONNECT, home="dgx-a100*2")
def allreduce(group: RankGroup, held: Held, inside: ModuleType = direct, across: ModuleType = direct) -> Held:
    """Sum parts inside each box, sum those across the boxes on each rail, then gather inside each box."""
    held = dict(held)
    for box in group.boxes:
        held |= inside.reduce_scatter(box, held)
    for rail in group.rails:
        held |= across.allreduce(rail, held)
    for box in group.boxes:
        held |= inside.allgather(box, held)
    return held


def _boxes(group: RankGroup, algorithm: str) -> list[tuple[int, ...]]:
    boxes = [box.ranks for box in group.boxes]
    if len({len(box) for box in boxes}) > 1:
        raise error_at(group.trace.place(), f"{algorithm} needs boxes with the same number of ranks")
    return boxes


def _places(group: RankGroup) -> dict[int, Place]:
    """Return the place of each rank. Rows are neighbouring ranks, as nearly as many as there are in a column."""
    boxes = _boxes(group, "a grid")
    size = len(boxes[0])
    # The widest rectangle: as many columns as the largest divisor up to the square root.
    columns = next(count for count in range(isqrt(size), 0, -1) if size % count == 0)
    if columns == 1:
        raise error_at(group.trace.place(), f"a grid needs boxes of rows and columns, not of {size} ranks")
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


@algorithm("allgather", name="grid", formula=GRID_FORMULA, paper=BLUECONNECT, home="switch:12:units=12")
def grid_allgather(group: RankGroup, held: Held) -> Held:
    """Gather across the boxes on each rail, then along rows, then along columns."""
    places = _places(group)
    copies = {owner: {owner: held[owner]} for owner in group.ranks}
    for dimension in (2, 1, 0):
        for line in _lines(places, dimension):
            for reached in copies.values():
                for source in [rank for rank in line if rank in reached]:
                    reached |= {rank: reached[source].to(rank) for rank in line}
    return gathered(group, copies)


@algorithm("reduce-scatter", name="grid", formula=GRID_FORMULA, paper=BLUECONNECT, home="switch:12:units=12")
def grid_reduce_scatter(group: RankGroup, held: Held) -> Held:
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
def grid_allreduce(group: RankGroup, held: Held) -> Held:
    """Sum every rank's part there, then gather the sums."""
    return grid_allgather(group, grid_reduce_scatter(group, held))


def _received(group: RankGroup, arrived: dict[tuple[int, int], Data]) -> Held:
    received = {}
    for rank in group.ranks:
        received[rank] = joined([arrived[other, rank] for other in group.ranks])
    return received


@algorithm("alltoall", name="two-step", formula="S = 2", paper=direct.ALL_PAIRS, home="dgx-a100*2")
def two_step(group: RankGroup, held: Held) -> Held:
    """Bring data for each rail to the rank of the own box on it, by a shortest path, then send them across."""
    # Whoever has the receiver's place in the sender's box passes the data on.
    box_of = {rank: box for box in _boxes(group, "alltoall by boxes") for rank in box}
    arrived = {}
    for src in group.ranks:
        for i, dst in enumerate(group.ranks):
            rail = box_of[dst].index(dst)
            arrived[src, dst] = held[src].part(i, group.size).to(box_of[src][rail], dst, via="shortest")
    return _received(group, arrived)


@algorithm("alltoall", name="three-step", formula="S = 3", paper=direct.ALL_PAIRS, home="dgx-a100*3")
def three_step(group: RankGroup, held: Held) -> Held:
    """Bring data for another box to one rank of the own box, send them across at once, and hand them out there."""
    boxes = _boxes(group, "alltoall by boxes")
    number = {rank: i for i, box in enumerate(boxes) for rank in box}
    arrived = {}
    for src in group.ranks:
        for i, dst in enumerate(group.ranks):
            data, here, there = held[src].part(i, group.size), number[src], number[dst]
            if here != there:
                rail = ((there - here) % len(boxes) - 1) % len(boxes[0])
                data = data.to(boxes[here][rail], boxes[there][rail])
            arrived[src, dst] = data.to(dst)
    return _received(group, arrived)

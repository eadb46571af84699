"""Algorithms for boxes that are joined by slower links: phases in boxes and across them, on rails."""

from __future__ import annotations

from types import ModuleType

from synth.algorithms import direct, ring, two_shot
from synth.algorithms.trees import Held, joined
from synth.language import Data, RankGroup, algorithm
from synth.language.place import error_at

BLUECONNECT = "Cho et al., BlueConnect, MLSys 2019"


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
def allreduce(group: RankGroup, held: Held, inside: ModuleType = direct, across: ModuleType = two_shot) -> Held:
    """Sum parts inside each box, sum those across the boxes on each rail, then gather inside each box."""
    held = dict(held)
    for box in group.boxes:
        held |= inside.reduce_scatter(box, held)
    for rail in group.rails:
        held |= across.allreduce(rail, held)
    for box in group.boxes:
        held |= inside.allgather(box, held)
    return held


@algorithm("allreduce", name="rail-rings", formula="S = 2(n-1)", home="dgx-a100*2")
def rail_rings(group: RankGroup, held: Held) -> Held:
    """Do a ring allreduce for each rail: its ring passes from box to box on this rail and a neighbouring one."""
    boxes = [box.ranks for box in group.boxes]
    size = len(boxes[0])
    if len(boxes) < 2 or any(len(box) != size for box in boxes):
        raise error_at(group.trace.place(), "rings on rails need several boxes with the same number of ranks")
    sums: dict[int, list[Data]] = {rank: [] for rank in group.ranks}
    for rail in range(size):
        order = []
        # forwards and backwards in turn: the next box begins on the rail of the last
        for number, box in enumerate(boxes):
            turned = [box[(rail + k) % size] for k in range(size)]
            order += turned if number % 2 == 0 else turned[::-1]
        cycle = group.group(order)
        now = {rank: held[rank].part(rail, size) for rank in order}
        totals = {}
        for i, owner in enumerate(order):
            pieces = {rank: now[rank].part(i, len(order)) for rank in order}
            totals[owner] = ring.sum_around(cycle, pieces, owner, 1)
        for rank, data in ring.allgather_one_way(cycle, totals).items():
            sums[rank].append(data)
    return {rank: joined(parts) for rank, parts in sums.items()}

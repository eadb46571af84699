"""Algorithms for boxes that are joined by slower links: phases in boxes and across them, on rails."""

from __future__ import annotations

from types import ModuleType

from synth.language import RankGroup, algorithm
from synth.language.library import direct, two_shot
from synth.language.library.trees import Held

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

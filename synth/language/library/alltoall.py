"""Alltoall for boxes: data for a box are brought together, so that fewer and longer messages leave a box."""

from __future__ import annotations

from synth.language import Data, RankGroup, algorithm
from synth.language.library.trees import Held, joined
from synth.language.place import error_at

PAPER = "Cowan et al., MSCCLang, ASPLOS 2023"


def _boxes(group: RankGroup) -> list[tuple[int, ...]]:
    boxes = [box.ranks for box in group.boxes]
    if len({len(box) for box in boxes}) > 1:
        raise error_at(group.trace.place(), "alltoall by boxes needs boxes with the same number of ranks")
    return boxes


def _received(group: RankGroup, arrived: dict[tuple[int, int], Data]) -> Held:
    received = {}
    for rank in group.ranks:
        received[rank] = joined([arrived[other, rank] for other in group.ranks])
    return received


@algorithm("alltoall", name="two-step", formula="S = 2", paper=PAPER, home="dgx-a100*2")
def two_step(group: RankGroup, held: Held) -> Held:
    """Bring data for each rail to the rank of the own box on it, by a shortest path, then send them across."""
    boxes = _boxes(group)
    box_of = {rank: box for box in boxes for rank in box}
    arrived = {}
    for src in group.ranks:
        for i, dst in enumerate(group.ranks):
            rail = box_of[dst].index(dst)
            arrived[src, dst] = held[src].part(i, group.size).to(box_of[src][rail], dst, via="shortest")
    return _received(group, arrived)


@algorithm("alltoall", name="three-step", formula="S = 3", paper=PAPER, home="dgx-a100*3")
def three_step(group: RankGroup, held: Held) -> Held:
    """Bring data for another box to one rank of the own box, send them across at once, and hand them out there."""
    boxes = _boxes(group)
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

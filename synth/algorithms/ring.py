"""Rings: each rank passes on to the next one what it got from the one before (Patarasuk and Yuan, 2009)."""

from __future__ import annotations

from synth.language import Data, RankGroup, algorithm

PAPER = "Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009"

Held = dict[int, Data]


def _pass_on(group: RankGroup, data: Data, direction: int, hops: int) -> Held:
    """Copy data of a rank to the next `hops` ranks of the ring in a direction; return what each has then."""
    at = group.position(data.rank)
    copies = {data.rank: data}
    for k in range(1, hops + 1):
        data = data.to(group.ranks[(at + direction * k) % group.size])
        copies[data.rank] = data
    return copies


def gathered(group: RankGroup, copies: dict[int, Held]) -> Held:
    """Return for each rank the join of what it has of every rank's data: `copies[owner][rank]`."""
    held = {}
    for rank in group.ranks:
        first, *rest = [copies[owner][rank] for owner in group.ranks if rank in copies[owner]]
        held[rank] = first.join(*rest)
    return held


@algorithm("allgather", name="ring-one-way", formula="S = n-1, R/C = n-1", paper=PAPER, home="ring:8")
def allgather_one_way(group: RankGroup, held: Held) -> Held:
    """Each rank's data once round the ring."""
    return gathered(group, {rank: _pass_on(group, held[rank], 1, group.size - 1) for rank in group.ranks})


@algorithm("allgather", name="ring", formula="S = n-1, R/C = (n-1)/2", paper=PAPER, home="ring:8")
def allgather(group: RankGroup, held: Held) -> Held:
    """Each half of a rank's data once round the ring, in opposite directions."""
    copies = {}
    for rank in group.ranks:
        ahead = _pass_on(group, held[rank].part(0, 2), 1, group.size - 1)
        back = _pass_on(group, held[rank].part(1, 2), -1, group.size - 1)
        copies[rank] = {other: ahead[other].join(back[other]) for other in group.ranks}
    return gathered(group, copies)

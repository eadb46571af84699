"""Direct algorithms: every rank sends to every other one, in one step."""

from __future__ import annotations

from synth.language import RankGroup, algorithm
from synth.language.library.trees import Held, gathered, joined, parts

FORMULA = "S = 1, R/C = 1; switch of u units: (n-1)/u"


@algorithm("allgather", name="direct", formula=FORMULA, home="fully-connected:8")
def allgather(group: RankGroup, held: Held) -> Held:
    """Every rank sends its data to all others."""
    copies = {}
    for rank in group.ranks:
        copies[rank] = {other: held[rank].to(other) for other in group.ranks}
    return gathered(group, copies)


@algorithm("reduce-scatter", name="direct", formula=FORMULA, home="fully-connected:8")
def reduce_scatter(group: RankGroup, held: Held) -> Held:
    """Every rank sends the part of each other one, which adds them up."""
    pieces = parts(group, held)
    return {owner: group.sum(owner, pieces[owner].values()) for owner in group.ranks}


@algorithm("alltoall", name="direct", formula=FORMULA, home="fully-connected:8")
def alltoall(group: RankGroup, held: Held) -> Held:
    """Every rank sends to each other one its part, along a shortest path where there is no link."""
    pieces = parts(group, held)
    received = {}
    for rank in group.ranks:
        received[rank] = joined([pieces[rank][other].to(rank, via="shortest") for other in group.ranks])
    return received

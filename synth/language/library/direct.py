"""Direct algorithms (all pairs): every rank sends to every other one, in one step or two."""

from __future__ import annotations

from synth.language import RankGroup, algorithm
from synth.language.library.trees import Held, gathered, joined, parts

FORMULA = "S = 1, R/C = 1; switch of u units: (n-1)/u"
ALL_PAIRS = "Cowan et al., MSCCLang, ASPLOS 2023"


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


@algorithm("allreduce", name="one-shot", formula=FORMULA, home="fully-connected:8")
def one_shot(group: RankGroup, held: Held) -> Held:
    """Every rank gets the data of all others and adds them up."""
    everything = [held[rank] for rank in group.ranks]
    return {rank: group.sum(rank, everything) for rank in group.ranks}


@algorithm("allreduce", name="two-shot", formula="S = 2, R/C = 2/n; switch of u units: 2(n-1)/(nu)", paper=ALL_PAIRS,
           home="dgx-a100")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Sum the i-th part of the data on the i-th rank in the first step, and gather the sums in the second."""
    return allgather(group, reduce_scatter(group, held))

"""One-shot allreduce: every rank gets the data of all others and adds them up."""

from __future__ import annotations

from synth.language import RankGroup, algorithm
from synth.language.library.trees import Held


@algorithm("allreduce", name="one-shot", formula="S = 1, R/C = 1; switch of u units: (n-1)/u", home="fully-connected:8")
def allreduce(group: RankGroup, held: Held) -> Held:
    """Every rank adds up the data of all."""
    everything = [held[rank] for rank in group.ranks]
    return {rank: group.sum(rank, everything) for rank in group.ranks}

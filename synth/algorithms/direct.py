"""Direct algorithms: every rank sends to every other one, in one step."""

from __future__ import annotations

from synth.algorithms.ring import gathered
from synth.language import Data, RankGroup, algorithm

Held = dict[int, Data]


@algorithm("allgather", name="direct", formula="S = 1, R/C = 1; switch of u units: (n-1)/u", home="fully-connected:8")
def allgather(group: RankGroup, held: Held) -> Held:
    """Every rank sends its data to all others."""
    copies = {}
    for rank in group.ranks:
        copies[rank] = {rank: held[rank]}
        for other in group.others(rank):
            copies[rank][other] = held[rank].to(other)
    return gathered(group, copies)

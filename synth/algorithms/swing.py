"""Swing: partners at distance 1, 1, 3, 5, 11, ... round a ring, even ranks one way and odd ranks the other.

The paper's networks forward messages to a distant partner; here the ranks on the way relay them, a step each.
"""

from __future__ import annotations

from synth.algorithms.trees import Held, dimensions, gathered
from synth.language import RankGroup, algorithm

PAPER = "De Sensi et al., NSDI 2024"


@algorithm("allgather", name="swing", formula="S = 1 + 1 + 3 + 5 + 11 + ...: 5, 10, 21 for n = 8, 16, 32", paper=PAPER,
           home="ring:8")  # fmt: skip
def allgather(group: RankGroup, held: Held) -> Held:
    """Exchange all that both have with the partner of each turn."""
    copies = {rank: {rank: held[rank]} for rank in group.ranks}
    for turn in reversed(range(dimensions(group, "swing"))):
        distance = (1 - (-2) ** (turn + 1)) // 3
        for holders in copies.values():
            for rank in tuple(holders):
                at = group.position(rank)
                step = distance if at % 2 == 0 else -distance
                sign = 1 if step > 0 else -1
                path = [group.ranks[(at + sign * k) % group.size] for k in range(1, abs(step) + 1)]
                arrived = holders[rank].to(*path)
                holders[arrived.rank] = arrived
    return gathered(group, copies)

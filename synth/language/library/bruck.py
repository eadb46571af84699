"""Bruck's algorithms and parallel aggregated trees: any number of ranks in ceil(log2 n) steps.

Each rank's data go down a binomial tree. Counted from the owner, position x gets them from x without its highest bit
(Bruck: near ones first) or without its lowest bit (PAT: far ones first, so that few data go far).
"""

from __future__ import annotations

from synth.language import Data, RankGroup, algorithm
from synth.language.library.trees import Held, add_pairs, copy_pairs, gathered, joined, parts

FORMULA = "S = ceil(log n), R/C: switch of u units (n-1)/u"
BRUCK = "Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8, 1997"
PAT = "Jeaugey, arXiv 2506.20252, 2025"


def _stages(group: RankGroup, *, far_first: bool) -> list[list[tuple[int, int]]]:
    """Return the tree edges (from, to) of each step, as positions counted from the owner."""
    bits = [1 << k for k in range((group.size - 1).bit_length())]
    stages = []
    for bit in reversed(bits) if far_first else bits:
        holders = range(0, group.size, 2 * bit) if far_first else range(bit)
        stages.append([(x, x + bit) for x in holders if x + bit < group.size])
    return stages


def _ranks(group: RankGroup, owner: int, edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    at = group.position(owner)
    return [(group.ranks[(at + x) % group.size], group.ranks[(at + y) % group.size]) for x, y in edges]


def _allgather(group: RankGroup, held: Held, *, far_first: bool) -> Held:
    copies = {rank: {rank: held[rank]} for rank in group.ranks}
    for edges in _stages(group, far_first=far_first):
        with group.step():
            for owner, holders in copies.items():
                copy_pairs(holders, _ranks(group, owner, edges))
    return gathered(group, copies)


@algorithm("allgather", name="bruck", formula=FORMULA, paper=BRUCK, home="switch:6:units=12")
def allgather(group: RankGroup, held: Held) -> Held:
    """Gather from near ranks first."""
    return _allgather(group, held, far_first=False)


@algorithm("allgather", name="pat", formula=FORMULA, paper=PAT, home="switch:6:units=12")
def allgather_far_first(group: RankGroup, held: Held) -> Held:
    """Gather from far ranks first."""
    return _allgather(group, held, far_first=True)


@algorithm("reduce-scatter", name="pat", formula=FORMULA, paper=PAT, home="switch:6:units=12")
def reduce_scatter(group: RankGroup, held: Held) -> Held:
    """The allgather from far ranks first, reversed in time: sums go up the trees."""
    values = parts(group, held)
    for edges in reversed(_stages(group, far_first=True)):
        with group.step():
            for owner, holders in values.items():
                add_pairs(holders, [(dst, src) for src, dst in _ranks(group, owner, edges)])
    return {owner: holders[owner] for owner, holders in values.items()}


@algorithm("allreduce", name="pat", formula="S = 2 ceil(log n), R/C: switch of u units 2(n-1)/(nu)", paper=PAT,
           home="switch:6:units=12")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part up the trees, then gather the sums down them."""
    return allgather_far_first(group, reduce_scatter(group, held))


@algorithm("alltoall", name="bruck", formula="S = ceil(log n), R/C: switch of u units, n = 2^k: nk/(2u)", paper=BRUCK,
           home="switch:8:units=12")  # fmt: skip
def alltoall(group: RankGroup, held: Held) -> Held:
    """Send what goes a distance d the powers of two in d, one in each step."""
    moving: dict[tuple[int, int], Data] = {}
    for at, rank in enumerate(group.ranks):
        for distance in range(group.size):
            moving[at, distance] = held[rank].part((at + distance) % group.size, group.size)
    for k in range((group.size - 1).bit_length()):
        with group.step():
            for (at, distance), data in moving.items():
                if distance >> k & 1:
                    travelled = distance & (2 << k) - 1
                    moving[at, distance] = data.to(group.ranks[(at + travelled) % group.size])
    received = {}
    for at, rank in enumerate(group.ranks):
        received[rank] = joined([moving[src, (at - src) % group.size] for src in range(group.size)])
    return received

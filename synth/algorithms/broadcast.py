"""Broadcasts: a binomial tree, a chain in pieces, and scatter with allgather."""

from __future__ import annotations

from synth.algorithms import direct
from synth.algorithms.trees import Held
from synth.language import RankGroup, algorithm

PAPER = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005"


def _from_root(group: RankGroup, held: Held) -> tuple[int, ...]:
    """Return the ranks in the order of the group, beginning with the one that has data."""
    root = next(rank for rank in group.ranks if held[rank])
    return (root, *group.others(root))


@algorithm("broadcast", name="binomial", paper=PAPER, home="dgx-a100",
           formula="S = ceil(log n), R/C = S; switch of u units, n = 2^k: S/u")  # fmt: skip
def binomial(group: RankGroup, held: Held) -> Held:
    """All that have the data send them at once, to partners at distance 1, 2, 4, ..."""
    order = _from_root(group, held)
    root, power = group.position(order[0]), not group.size & (group.size - 1)
    if power:  # differences as bits, so that a cube has the links
        order = tuple(group.ranks[root ^ x] for x in range(group.size))
    now = {order[0]: held[order[0]]}
    while len(now) < group.size:
        with group.step():
            count = len(now)
            for x in range(min(count, group.size - count)):
                now[order[count + x]] = now[order[x]].to(order[count + x])
    return now


@algorithm("broadcast", name="chain", formula="C pieces: S = n-2+C, R/C = (n-2+C)/C", paper=PAPER, steps="paced",
           home="line:8")  # fmt: skip
def chain(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Pass piece after piece down the chain of all ranks."""
    root, *rest = _from_root(group, held)
    copies = {rank: [] for rank in group.ranks}
    for piece in held[root].split(pieces):
        copies[root].append(piece)
        for rank in rest:
            piece = piece.to(rank)
            copies[rank].append(piece)
    return {rank: parts[0].join(*parts[1:]) for rank, parts in copies.items()}


@algorithm("broadcast", name="scatter-allgather", paper=PAPER, home="dgx-a100",
           formula="S = 2, R/C: switch of u units 2(n-1)/(nu)")  # fmt: skip
def scatter_allgather(group: RankGroup, held: Held) -> Held:
    """Send each rank its part, then gather the parts."""
    order = _from_root(group, held)
    with group.step():
        pieces = {rank: held[order[0]].part(i, group.size).to(rank) for i, rank in enumerate(group.ranks)}
    with group.step():
        return direct.allgather(group, pieces)

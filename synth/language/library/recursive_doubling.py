"""Recursive doubling: ranks exchange what they have with partners at distance 1, 2, 4, ... in rank numbers.

On a cube of k dimensions the rotated forms cut the data in k parts and begin each in another dimension, so that all
links are busy.
"""

from __future__ import annotations

from synth.language import Data, RankGroup, algorithm
from synth.language.library.trees import Held, add_pairs, copy_pairs, dimensions, gathered, joined, parts

PAPER = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005"
CUBE_PAPER = "Johnsson and Ho, IEEE Trans. Comput. 38, 1989"
SCAN_PAPER = "Kogge and Stone, IEEE Trans. Comput. C-22, 1973"


def spread(group: RankGroup, held: Held, turns: int, *, far_first: bool = False) -> Held:
    """Gather by recursive doubling in `turns` parts: part i is exchanged along dimensions i, i + 1, ... in turn.

    `far_first`: along these in the opposite order, so that most data go to near partners.
    """
    k = dimensions(group, "recursive doubling")
    copies = {(rank, i): {rank: held[rank].part(i, turns)} for rank in group.ranks for i in range(turns)}
    for t in reversed(range(k)) if far_first else range(k):
        with group.step():
            for (_, i), holders in copies.items():
                bit = 1 << (i + t) % k
                copy_pairs(holders, [(rank, _partner(group, rank, bit)) for rank in tuple(holders)])
    whole = {}
    for owner in group.ranks:
        whole[owner] = {rank: _joined(copies, owner, rank, turns) for rank in group.ranks}
    return gathered(group, whole)


def collect(group: RankGroup, held: Held, turns: int, *, near_first: bool = False) -> Held:
    """Sum each rank's part there by halving, in the order of `spread` reversed; `near_first`: of `far_first`."""
    k = dimensions(group, "recursive halving")
    values = {}
    for owner, pieces in parts(group, held).items():
        for i in range(turns):
            values[owner, i] = {rank: data.part(i, turns) for rank, data in pieces.items()}
    for t in range(k) if near_first else reversed(range(k)):
        with group.step():
            for (owner, i), holders in values.items():
                bit = 1 << (i + t) % k
                near = [rank for rank in holders if not _position(group, rank, owner) & bit]
                add_pairs(holders, [(_partner(group, rank, bit), rank) for rank in near])
                for rank in near:
                    del holders[_partner(group, rank, bit)]
    return {owner: _joined(values, owner, owner, turns) for owner in group.ranks}


def _partner(group: RankGroup, rank: int, bit: int) -> int:
    return group.ranks[group.position(rank) ^ bit]


def _position(group: RankGroup, rank: int, owner: int) -> int:
    return group.position(rank) ^ group.position(owner)


def _joined(values: dict[tuple[int, int], Held], owner: int, rank: int, turns: int) -> Data:
    return joined([values[owner, i][rank] for i in range(turns)])


@algorithm("allgather", name="recursive-doubling", paper=PAPER, home="dgx-a100",
           formula="S = log n, R/C: switch of u units (n-1)/u, cube n-1 (--steps asap: n/2)")  # fmt: skip
def allgather(group: RankGroup, held: Held) -> Held:
    """Exchange all that both have, with a partner in each dimension."""
    return spread(group, held, 1)


@algorithm("allgather", name="recursive-doubling-rotated", formula="S = log n, R/C = (n-1)/log n", paper=CUBE_PAPER,
           home="hypercube:8")  # fmt: skip
def allgather_rotated(group: RankGroup, held: Held) -> Held:
    """Recursive doubling that begins in another dimension for each part."""
    return spread(group, held, dimensions(group, "recursive doubling"))


@algorithm("reduce-scatter", name="recursive-halving", paper=PAPER, home="dgx-a100",
           formula="S = log n, R/C: switch of u units (n-1)/u, cube n-1")  # fmt: skip
def reduce_scatter(group: RankGroup, held: Held) -> Held:
    """Exchange half of the sums with a partner in each dimension."""
    return collect(group, held, 1)


@algorithm("allreduce", name="recursive-doubling", paper=PAPER, home="dgx-a100",
           formula="S = log n, R/C: switch of u units log n/u, cube log n")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Exchange and add whole sums, with a partner in each dimension."""
    return _exchange(group, held, 1)


@algorithm("allreduce", name="recursive-doubling-rotated", formula="S = log n, R/C = 1", paper=CUBE_PAPER,
           home="hypercube:8")  # fmt: skip
def allreduce_rotated(group: RankGroup, held: Held) -> Held:
    """Exchange and add whole sums, each part in another order of the dimensions."""
    return _exchange(group, held, dimensions(group, "recursive doubling"))


def _exchange(group: RankGroup, held: Held, turns: int) -> Held:
    k = dimensions(group, "recursive doubling")
    parts_of = {rank: held[rank].split(turns) for rank in group.ranks}
    for t in range(k):
        with group.step():
            before = {rank: tuple(row) for rank, row in parts_of.items()}
            for rank, row in before.items():
                for i, data in enumerate(row):
                    partner = _partner(group, rank, 1 << (i + t) % k)
                    parts_of[rank][i] = data.add(before[partner][i])
    return {rank: joined(row) for rank, row in parts_of.items()}


@algorithm("scan", name="recursive-doubling", paper=SCAN_PAPER, home="dgx-a100",
           formula="S = log n rounded up, R/C: switch of u units S/u")  # fmt: skip
def scan(group: RankGroup, held: Held) -> Held:
    """Add the sum of the rank 1, 2, 4, ... places before, which ends where one's own sum begins."""
    ranks, sums, distance = group.ranks, dict(held), 1
    while distance < len(ranks):
        with group.step():
            before = dict(sums)
            for rank, earlier in zip(ranks[distance:], ranks, strict=False):
                sums[rank] = before[rank].add(before[earlier])
        distance *= 2
    return sums

"""Recursive doubling: in each step all that have data send them on, so that log n steps reach n ranks.

On a cube partners differ in a bit of their numbers: recursive doubling and halving, with the nearest partner first, or
with the most data between near partners (halving-doubling). The rotated forms cut the data in a part for each dimension
and begin each in another one, so that all links are busy. Bruck's algorithms and parallel aggregated trees (PAT) do the
same round a cycle, of any number of ranks: near ones first, or far ones first, so that few data go far.
"""

from __future__ import annotations

from operator import xor

from synth.language import Data, RankGroup, algorithm
from synth.language.library.trees import (
    Edges,
    Held,
    add_pairs,
    around,
    copy_pairs,
    gather_along,
    growing_tree,
    joined,
    powers,
    sum_along,
)
from synth.language.place import error_at

THAKUR = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005"
CUBE = "Johnsson and Ho, IEEE Trans. Comput. 38, 1989"
RABENSEIFNER = "Rabenseifner, ICCS 2004"
BRUCK = "Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8, 1997"
PAT = "Jeaugey, arXiv 2506.20252, 2025"
CYCLE_FORMULA = "S = ceil(log n), R/C: switch of u units (n-1)/u"


def _dimensions(group: RankGroup) -> list[int]:
    """Return 1, 2, 4, ...: a bit for each dimension of a cube. Raises UsageError for a number that is no power of 2."""
    if group.size & (group.size - 1):
        raise error_at(group.trace.place(), f"recursive doubling needs a power of two of ranks, not {group.size}")
    return powers(group.size)


def _cube(group: RankGroup, *, far_first: bool = False) -> list[list[Edges]]:
    """Return the tree of partners by a bit in each step, the lowest or the highest one first."""
    bits = _dimensions(group)
    return [growing_tree(group.size, bits[::-1] if far_first else bits)]


def _rotated_cubes(group: RankGroup) -> list[list[Edges]]:
    """Return a tree for each dimension, which begins there."""
    bits = _dimensions(group)
    return [growing_tree(group.size, bits[i:] + bits[:i]) for i in range(len(bits))]


def _cycle(group: RankGroup, *, far_first: bool) -> list[list[Edges]]:
    strides = powers(group.size)
    return [growing_tree(group.size, strides[::-1] if far_first else strides)]


@algorithm("allgather", name="recursive-doubling", paper=THAKUR, home="dgx-a100",
           formula="S = log n, R/C: switch of u units (n-1)/u, cube n-1 (--steps asap: n/2)")  # fmt: skip
def allgather(group: RankGroup, held: Held) -> Held:
    """Exchange all that both have, with a partner in each dimension."""
    return gather_along(group, held, _cube(group), xor)


@algorithm("allgather", name="recursive-doubling-rotated", formula="S = log n, R/C = (n-1)/log n", paper=CUBE,
           home="hypercube:8")  # fmt: skip
def allgather_rotated(group: RankGroup, held: Held) -> Held:
    """Recursive doubling that begins in another dimension for each part."""
    return gather_along(group, held, _rotated_cubes(group), xor)


@algorithm("reduce-scatter", name="recursive-halving", paper=THAKUR, home="dgx-a100",
           formula="S = log n, R/C: switch of u units (n-1)/u, cube n-1")  # fmt: skip
def reduce_scatter(group: RankGroup, held: Held) -> Held:
    """Exchange half of the sums with a partner in each dimension."""
    return sum_along(group, held, _cube(group), xor)


@algorithm("allreduce", name="recursive-doubling", paper=THAKUR, home="dgx-a100",
           formula="S = log n, R/C: switch of u units log n/u, cube log n")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Exchange and add whole sums, with a partner in each dimension."""
    return _exchange(group, held, 1)


@algorithm("allreduce", name="recursive-doubling-rotated", formula="S = log n, R/C = 1", paper=CUBE,
           home="hypercube:8")  # fmt: skip
def allreduce_rotated(group: RankGroup, held: Held) -> Held:
    """Exchange and add whole sums, each part in another order of the dimensions."""
    return _exchange(group, held, len(_dimensions(group)))


def _exchange(group: RankGroup, held: Held, turns: int) -> Held:
    """Add the partner's sum in each dimension; part i of `turns` begins in dimension i."""
    bits = _dimensions(group)
    sums = {rank: held[rank].split(turns) for rank in group.ranks}
    for step in range(len(bits)):
        with group.step():
            before = {rank: tuple(row) for rank, row in sums.items()}
            for at, rank in enumerate(group.ranks):
                for i, data in enumerate(before[rank]):
                    partner = group.ranks[at ^ bits[(i + step) % len(bits)]]
                    sums[rank][i] = data.add(before[partner][i])
    return {rank: joined(row) for rank, row in sums.items()}


@algorithm("scan", name="recursive-doubling", paper="Kogge and Stone, IEEE Trans. Comput. C-22, 1973", home="dgx-a100",
           formula="S = log n rounded up, R/C: switch of u units S/u")  # fmt: skip
def scan(group: RankGroup, held: Held) -> Held:
    """Add the sum of the rank 1, 2, 4, ... places before, which ends where one's own sum begins."""
    ranks, sums = group.ranks, dict(held)
    for distance in powers(group.size):
        with group.step():
            before = dict(sums)
            for rank, earlier in zip(ranks[distance:], ranks, strict=False):
                sums[rank] = before[rank].add(before[earlier])
    return sums


@algorithm("allgather", name="halving-doubling", paper=RABENSEIFNER, home="dgx-a100*2",
           formula="S = log n, R/C: switch of u units (n-1)/u")  # fmt: skip
def allgather_far_first(group: RankGroup, held: Held) -> Held:
    """Gather by doubling, far partners first, so that near partners exchange the most data."""
    return gather_along(group, held, _cube(group, far_first=True), xor)


@algorithm("reduce-scatter", name="halving-doubling", paper=RABENSEIFNER, home="dgx-a100*2",
           formula="S = log n, R/C: switch of u units (n-1)/u")  # fmt: skip
def reduce_scatter_near_first(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part by halving, near partners first."""
    return sum_along(group, held, _cube(group, far_first=True), xor)


@algorithm("allreduce", name="halving-doubling", paper=RABENSEIFNER, home="dgx-a100",
           formula="S = 2 log n, R/C: switch of u units 2(n-1)/(nu); n no power of two: 2 steps more")  # fmt: skip
def halving_doubling(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part by halving, near partners first, then gather the sums by doubling.

    Of a number of ranks that is no power of two, those beyond the power first give their data to a partner and take the
    result from it in the end.
    """
    beyond = group.size - (1 << group.size.bit_length() - 1)
    evens, odds = group.ranks[: 2 * beyond : 2], group.ranks[1 : 2 * beyond : 2]
    now = dict(held)
    if beyond:
        with group.step():
            add_pairs(now, zip(evens, odds, strict=True))

    # In the order of reversed bits near partners are far in positions, and what they exchange are neighbouring parts.
    members = evens + group.ranks[2 * beyond :]
    order = [0]
    while len(order) < len(members):
        doubled = [2 * place for place in order]
        order = doubled + [place + 1 for place in doubled]
    core = group.group(members[place] for place in order)
    now |= allgather(core, reduce_scatter(core, now))
    if beyond:
        with group.step():
            copy_pairs(now, zip(evens, odds, strict=True))
    return now


@algorithm("allreduce", name="halving-doubling-rotated", paper=CUBE, home="hypercube:8",
           formula="S = 2 log n, R/C = 2(n-1)/(n log n)")  # fmt: skip
def halving_doubling_rotated(group: RankGroup, held: Held) -> Held:
    """Halving and doubling that begin in another dimension for each part."""
    return allgather_rotated(group, sum_along(group, held, _rotated_cubes(group), xor))


@algorithm("allgather", name="bruck", formula=CYCLE_FORMULA, paper=BRUCK, home="switch:6:units=12")
def bruck_allgather(group: RankGroup, held: Held) -> Held:
    """Gather from near ranks first."""
    return gather_along(group, held, _cycle(group, far_first=False), around(group))


@algorithm("alltoall", name="bruck", formula="S = ceil(log n), R/C: switch of u units, n = 2^k: nk/(2u)", paper=BRUCK,
           home="switch:8:units=12")  # fmt: skip
def bruck_alltoall(group: RankGroup, held: Held) -> Held:
    """Send what goes a distance d the powers of two in d, one in each step."""
    # What is at a rank by the distance that it has to go in all, counted from its source.
    moving: dict[tuple[int, int], Data] = {}
    for at, rank in enumerate(group.ranks):
        for distance in range(group.size):
            moving[at, distance] = held[rank].part((at + distance) % group.size, group.size)
    for stride in powers(group.size):
        with group.step():
            for (at, distance), data in moving.items():
                if distance & stride:
                    travelled = distance % (2 * stride)
                    moving[at, distance] = data.to(group.ranks[(at + travelled) % group.size])
    # All has travelled its distance; sort it by source.
    received = {}
    for at, rank in enumerate(group.ranks):
        received[rank] = joined([moving[src, (at - src) % group.size] for src in range(group.size)])
    return received


@algorithm("allgather", name="pat", formula=CYCLE_FORMULA, paper=PAT, home="switch:6:units=12")
def pat_allgather(group: RankGroup, held: Held) -> Held:
    """Gather from far ranks first."""
    return gather_along(group, held, _cycle(group, far_first=True), around(group))


@algorithm("reduce-scatter", name="pat", formula=CYCLE_FORMULA, paper=PAT, home="switch:6:units=12")
def pat_reduce_scatter(group: RankGroup, held: Held) -> Held:
    """The allgather from far ranks first, reversed in time: sums go up the trees."""
    return sum_along(group, held, _cycle(group, far_first=True), around(group))


@algorithm("allreduce", name="pat", formula="S = 2 ceil(log n), R/C: switch of u units 2(n-1)/(nu)", paper=PAT,
           home="switch:6:units=12")  # fmt: skip
def pat_allreduce(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part up the trees, then gather the sums down them."""
    return pat_allgather(group, pat_reduce_scatter(group, held))

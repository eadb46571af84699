"""Halving and doubling: a reduce-scatter by recursive halving, then an allgather by recursive doubling.

Near partners exchange the most data: halves with those at distance 1, quarters at distance 2, and so on.
"""

from __future__ import annotations

from synth.language import RankGroup, algorithm
from synth.language.library.recursive_doubling import CUBE_PAPER, collect, spread
from synth.language.library.trees import Held, add_pairs, copy_pairs, dimensions

PAPER = "Rabenseifner, ICCS 2004"


@algorithm("allgather", name="halving-doubling", paper=PAPER, home="dgx-a100*2",
           formula="S = log n, R/C: switch of u units (n-1)/u")  # fmt: skip
def allgather(group: RankGroup, held: Held) -> Held:
    """Gather by doubling, far partners first."""
    return spread(group, held, 1, far_first=True)


@algorithm("reduce-scatter", name="halving-doubling", paper=PAPER, home="dgx-a100*2",
           formula="S = log n, R/C: switch of u units (n-1)/u")  # fmt: skip
def reduce_scatter(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part by halving, near partners first."""
    return collect(group, held, 1, near_first=True)


@algorithm("allreduce", name="halving-doubling", paper=PAPER, home="dgx-a100",
           formula="S = 2 log n, R/C: switch of u units 2(n-1)/(nu); n no power of two: 2 steps more")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part by halving, then gather the sums by doubling.

    Of a number of ranks that is no power of two, those beyond the power first give their data to a partner and take the
    result from it in the end.
    """
    beyond = group.size - (1 << group.size.bit_length() - 1)
    evens, odds = group.ranks[: 2 * beyond : 2], group.ranks[1 : 2 * beyond : 2]
    now = dict(held)
    if beyond:
        with group.step():
            add_pairs(now, zip(odds, evens, strict=True))
    # in the order of reversed bits near partners are far in positions, and what they exchange are neighbouring parts
    members = evens + group.ranks[2 * beyond :]
    core = group.group(members[place] for place in _reversed_bits(len(members)))
    now |= spread(core, collect(core, now, 1), 1)
    if beyond:
        with group.step():
            copy_pairs(now, zip(evens, odds, strict=True))
    return now


def _reversed_bits(count: int) -> list[int]:
    """Return the numbers below a power of two by their bits in reverse order."""
    order = [0]
    while len(order) < count:
        doubled = [2 * place for place in order]
        order = doubled + [place + 1 for place in doubled]
    return order


@algorithm("allreduce", name="halving-doubling-rotated", paper=CUBE_PAPER, home="hypercube:8",
           formula="S = 2 log n, R/C = 2(n-1)/(n log n)")  # fmt: skip
def allreduce_rotated(group: RankGroup, held: Held) -> Held:
    """Halving and doubling that begin in another dimension for each part."""
    turns = dimensions(group, "halving and doubling")
    return spread(group, collect(group, held, turns), turns)

"""Halving and doubling: a reduce-scatter by recursive halving, then an allgather by recursive doubling."""

from __future__ import annotations

from synth.algorithms.recursive_doubling import CUBE_PAPER, collect, spread
from synth.algorithms.trees import Held, dimensions
from synth.language import RankGroup, algorithm


@algorithm("allreduce", name="halving-doubling", paper="Rabenseifner, ICCS 2004", home="dgx-a100",
           formula="S = 2 log n, R/C: switch of u units 2(n-1)/(nu)")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Sum each rank's part by halving, then gather the sums by doubling."""
    return spread(group, collect(group, held, 1), 1)


@algorithm("allreduce", name="halving-doubling-rotated", paper=CUBE_PAPER, home="hypercube:8",
           formula="S = 2 log n, R/C = 2(n-1)/(n log n)")  # fmt: skip
def allreduce_rotated(group: RankGroup, held: Held) -> Held:
    """Halving and doubling that begin in another dimension for each part."""
    turns = dimensions(group, "halving and doubling")
    return spread(group, collect(group, held, turns), turns)

"""The chunk language: an algorithm is a Python function that says which data goes where.

    @algorithm("allreduce")
    def two_shot(a):
        for owner in a.ranks:
            total = a.sum(owner, [a.input(rank).part(owner, a.size) for rank in a.ranks])
            for rank in a.others(owner):
                total.to(rank)

Data are immutable values: a copy or a sum is a new one, and names no buffer. A trace of the function records them; the
compiler projects them on a `Schedule`, whose lowering chooses places, thread blocks and channels.

    ChunkAlgorithm  a function with its collective: `.compile(...)`, `.schedule(topology)`
    RankGroup       the function's handle `a`, or ranks in an order: input, held, sum, step, boxes, rails, cube, torus
    Data            pieces of units on a rank: to, add, part, split, unit, join
"""

from __future__ import annotations

from synth.language.algorithm import ChunkAlgorithm, CompileOptions, algorithm
from synth.language.data import Data
from synth.language.groups import RankGroup

__all__ = ["ChunkAlgorithm", "CompileOptions", "Data", "RankGroup", "algorithm"]

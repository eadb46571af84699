"""Forests are checked as schedules: pipelined, replayed by the checker, and as fast as they say in the long run."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from synth.checker.schedule import compressed_replay
from synth.model.scale_collectives import ROOTED
from synth.scale.forests.pipelining import Pipeline
from synth.scale.forests.spanning_forest import SpanningForest


class Verified(NamedTuple):
    """Figures of a forest: seconds per GB of a shard, GB/s of algorithmic bandwidth, depth of the trees."""

    time: Fraction
    bandwidth: Fraction
    depth: int


def verify(forest: SpanningForest) -> Verified:
    """Raises VerificationError unless the forest does its collective; its time is that of the fullest resource."""
    line = Pipeline(forest)
    found = compressed_replay.replay(line.schedule(1))
    assert (found.steps, found.rounds_per_chunk) == line.rate(1)
    loads = zip(line.cumulative_load[-1].tolist(), line.capacity.tolist(), strict=True)
    rounds = max(Fraction(load, capacity) for load, capacity in loads) / forest.weight
    # Rounds are rounded up in each level: in pieces of so many chunks that little is lost, they come near this time.
    depth = 1 << 12
    assert rounds <= line.rate(depth)[1] <= rounds * Fraction(depth + 2 * line.height, depth) + Fraction(1, 100)
    time = rounds / forest.topology.unit_bandwidth()
    shards = 1 if forest.collective in ROOTED else forest.topology.ranks
    return Verified(time, shards / time, line.height)

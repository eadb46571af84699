"""Symmetric forests meet the bound."""

import pytest
from spanning_forest_check import verify

from synth.model.topology import Topology
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import fabric
from synth.scale.forests.partial_trees import to_forest
from synth.scale.forests.spanning_forest import SpanningForest
from synth.scale.forests.symmetric_trees import grow
from synth.topologies import topology

# Trees no deeper than: the diameter on Cayley graphs, two hops behind switches.
DEEPEST = {
    "ring:5": 2, "ring:8": 4, "torus:4x4": 4, "torus:3x5x2": 4, "hypercube:16": 4,
    "circulant:30:offsets=1+7": 5, "fully-connected:5": 1, "dgx-a100": 1, "dgx-a100*2": 2,
    "dgx-a100*2:net=odd-even": 2, "dgx-a100*4:net=odd-even": 2, "rail:2x8": 2, "rail:4x4": 2,
    "dgx-h100*4:net=rail": 2, "dgx2*4": 2, "mi100": 2, "fat-tree:16": 1, "torus:16x16": 16, "torus:5x7": 5,
    "torus:3x3x2": 3, "circulant:9:offsets=1+3": 2,
}  # fmt: skip
# Groups that leave several kinds of ranks: optimal, of any depth.
MIXED = ["dgx1", "dgx1*4", "mi250*8", "dgx1*2:cross=0+2", "dragonfly:9x4"]


def made(name: str | Topology, collective: str = "allgather") -> SpanningForest:
    machine = topology(name) if isinstance(name, str) else name
    whole = fabric(machine)
    moves = symmetries(whole)
    bound = throughput(whole, collective, generators=moves)
    group = free_group(moves, machine.ranks)
    grown = grow(bound.fabric, group, bound.time)
    assert grown is not None
    return to_forest(bound.fabric, bound, grown, group, "symmetric")


@pytest.mark.parametrize("name", [*DEEPEST, *MIXED])
def test_optimal_and_shallow(name: str) -> None:
    for collective in ("allgather", "reduce-scatter"):
        forest = made(name, collective)
        found = verify(forest)
        assert found.time == throughput(fabric(forest.topology), collective).time / fabric(forest.topology).unit
        assert found.depth <= DEEPEST.get(name, forest.topology.ranks)

"""Symmetric forests on machines of links alone: what `spanning_forest_check` says of them."""

import numpy as np
import pytest
from spanning_forest_check import verify

from synth.scale.fabric.fabric import fabric
from synth.scale.forests.build import build
from synth.topologies import topology


@pytest.mark.parametrize("collective", ["allgather", "reduce-scatter"])
@pytest.mark.parametrize(
    ("name", "depth"),
    [("torus:5x7", 5), ("hypercube:16", 4), ("torus:3x3x2", 3), ("ring:7", 3), ("circulant:9:offsets=1+3", 2)],
)
def test_forests_are_optimal_and_as_shallow_as_the_machine(name, depth, collective):
    built = build(fabric(topology(name)), collective, methods=("symmetric",))
    checked = verify(built.forest)
    assert built.gap == 0 and checked.bandwidth == built.bound.bandwidth
    assert checked.depth == depth


@pytest.mark.parametrize("name", ["dgx-a100*3", "mi250*2", "dgx-h100*2:net=rail", "fat-tree:8", "torus:3x4"])
def test_ways_looked_up_together_are_those_looked_up_one_by_one(name):
    made = fabric(topology(name))
    for graph in (made, made.reversed()):
        out = [np.flatnonzero(graph.src == n).tolist() for n in range(graph.nodes)]
        ways, queue = [], [(r, ()) for r in range(graph.ranks)]
        for node, way in queue:
            for e in out[node]:
                end = int(graph.dst[e])
                if end < graph.ranks:
                    ways.append((*way, e))
                elif len(way) < 3:
                    queue.append((end, (*way, e)))
        assert len(ways) > 20
        assert graph.links_of_all(ways) == [graph.links_of(way) for way in ways]

"""Symmetric forests in arrays on machines of links alone: what `forestcheck` says of them, and where they give way."""

from fractions import Fraction

import numpy as np
import pytest
from spanning_forest_check import verify

from synth.scale.fabric.fabric import fabric
from synth.scale.forests import symmetric_trees, symmetric_trees_direct
from synth.scale.forests.build import build
from synth.scale.forests.partial_trees import ArrayForest
from synth.topologies import topology


@pytest.mark.parametrize("collective", ["allgather", "reduce-scatter"])
@pytest.mark.parametrize(
    ("name", "depth"),
    [("torus:5x7", 5), ("hypercube:16", 4), ("torus:3x3x2", 3), ("ring:7", 3), ("circulant:9:offsets=1+3", 2)],
)
def test_forests_in_arrays_are_optimal_and_as_shallow_as_the_machine(name, depth, collective, monkeypatch):
    made, grow = [], symmetric_trees_direct.grow
    monkeypatch.setattr(
        symmetric_trees.symmetric_trees_direct, "grow", lambda *args: made.append(grow(*args)) or made[-1]
    )
    built = build(fabric(topology(name)), collective, methods=("symmetric",))
    assert isinstance(made[-1], ArrayForest)
    checked = verify(built.forest)
    assert built.gap == 0 and checked.bandwidth == built.bound.bandwidth
    assert checked.depth == depth


def test_both_ways_of_making_them_reach_the_same_rate(monkeypatch):
    machine = topology("torus:4x6")
    one = verify(build(fabric(machine), methods=("symmetric",)).forest)
    monkeypatch.setattr(symmetric_trees.symmetric_trees_direct, "grow", lambda *_: None)
    other = verify(build(fabric(machine), methods=("symmetric",)).forest)
    assert (one.bandwidth, one.depth) == (other.bandwidth, other.depth)


def test_too_little_time_makes_no_forest():
    made = fabric(topology("torus:4x4"))
    from synth.scale.fabric.automorphisms import edge_images, orbits, symmetries

    moves = [edge_images(made, pi) for pi in symmetries(made)[:2]]
    orbit = orbits(len(made.src), [m for m in moves if m is not None])
    share = {int(o): Fraction(1, 100) for o in set(orbit.tolist())}
    assert symmetric_trees_direct.grow(made, orbit, [0], share, 4096) is None


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


@pytest.mark.parametrize("name", ["dgx-a100*2", "mi250*2"])
def test_the_table_of_gadget_links_accepts_the_permutations_that_sorting_accepts(name, monkeypatch):
    from synth.scale.fabric import automorphisms

    made = fabric(topology(name))
    random = np.random.default_rng(0)
    candidates = [*made.topology.generators, *automorphisms._guesses(made)]
    candidates += [random.permutation(made.ranks) for _ in range(20)]
    exchange = np.arange(made.ranks)
    exchange[[0, 1]] = 1, 0
    candidates.append(exchange)
    by_table = automorphisms.symmetries(made, candidates)
    monkeypatch.setattr(automorphisms, "MOST_PAIRS_PER_LINK", 0)
    by_sorting = automorphisms.symmetries(made, candidates)
    assert 0 < len(by_table) < len(candidates)
    assert [list(pi) for pi in by_table] == [list(pi) for pi in by_sorting]

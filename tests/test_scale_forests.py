"""Symmetric forests meet the bound, and the checker of forests counts for itself."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
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
    "ring:5": 2,
    "ring:8": 4,
    "torus:4x4": 4,
    "torus:3x5x2": 4,
    "hypercube:16": 4,
    "circulant:30:offsets=1+7": 5,
    "fully-connected:5": 1,
    "dgx-a100": 1,
    "dgx-a100*2": 2,
    "dgx-a100*2:net=odd-even": 2,
    "dgx-a100*4:net=odd-even": 2,
    "rail:2x8": 2,
    "rail:4x4": 2,
    "dgx-h100*4:net=rail": 2,
    "dgx2*4": 2,
    "mi100": 2,
    "fat-tree:16": 1,
    "torus:16x16": 16,
    "torus:5x7": 5,
    "torus:3x3x2": 3,
    "circulant:9:offsets=1+3": 2,
}
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


def changed(forest: SpanningForest, **arrays: tuple[tuple[int, ...], int]) -> SpanningForest:
    fresh = {}
    for name, (place, value) in arrays.items():
        fresh[name] = getattr(forest, name).copy()
        fresh[name][place] = value
    return replace(forest, **fresh)


def test_the_checker_refuses() -> None:
    good = made("torus:3x4")
    r = int(np.flatnonzero(good.parents[0] >= 0)[0])
    swap = np.array([1, 0, *range(2, 12)])
    wrong = [
        (changed(good, parents=((0, r), -1)), "has no parent"),
        (changed(good, parents=((0, r), r)), "does not lead"),
        (changed(good, via=((0, r), int(good.via[0, (r + 5) % 12]))), "does not lead"),
        (changed(good, weights=((0,), int(good.weights[0]) + 1)), "do not carry"),
        (replace(good, time=good.time - Fraction(1, 1000)), "more than"),
        (replace(good, generators=()), "do not carry"),
        (replace(good, generators=(swap,)), "does not keep links"),
        (replace(good, collective="alltoall"), "not moved by forests"),
        (replace(good, collective="broadcast"), "root"),
        (replace(good, collective="reduce-scatter"), "does not lead"),
    ]
    for forest, message in wrong:
        with pytest.raises(AssertionError, match=message):
            verify(forest)


def test_a_cycle_is_no_tree() -> None:
    good = made("ring:8")
    parents, via = good.parents.copy(), good.via.copy()
    links = {(k.src, k.dst): i for i, k in enumerate(good.topology.links)}
    paths = (*good.paths, (links[3, 4],), (links[4, 3],))
    parents[0, 4], parents[0, 3] = 3, 4
    via[0, 4], via[0, 3] = len(paths) - 2, len(paths) - 1
    with pytest.raises(AssertionError, match="does not hang on its root"):
        verify(replace(good, parents=parents, via=via, paths=paths))


def test_generators_must_keep_limits() -> None:
    """Turning the ranks of a box by one keeps the links of `dgx2*4`, not the NICs that two of them share."""
    forest = made("dgx2*4")
    turn = np.array([r - r % 16 + (r % 16 + 1) % 16 for r in range(64)])
    with pytest.raises(AssertionError, match="does not keep limits"):
        verify(replace(forest, generators=(turn,)))

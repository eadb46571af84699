"""Symmetric forests meet the bound, and the checker of forests counts for itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from spanning_forest_check import verify

from synth.errors import VerificationError
from synth.model.spanning_forest import SpanningForest
from synth.model.topology import Topology
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import fabric
from synth.scale.forests.partial_trees import to_forest
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
    "fat-tree:16:levels=3": 1,
    "torus:16x16": 16,
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
        assert found.depth == forest.depth <= DEEPEST.get(name, forest.topology.ranks)
        assert found.trees == len(list(forest.trees()))


def test_four_thousand_ranks() -> None:
    found = verify(made("torus:64x64"))
    assert (found.depth, found.bandwidth) == (64, Fraction(4096 * 4, 4095))


def expanded(forest: SpanningForest) -> tuple[Counter[int], Counter[int]]:
    """Loads of links and shards of roots, from every tree written out; for topologies without parallel links."""
    links = forest.topology.links
    index = {(k.src, k.dst): i for i, k in enumerate(links)}
    load: Counter[int] = Counter()
    shards: Counter[int] = Counter()
    for root, weight, parents, k, element in forest.trees():
        shards[root] += weight
        for r, parent in enumerate(forest.parents[k].tolist()):
            assert parents[element[r]] == (-1 if parent < 0 else element[parent])
            if parent >= 0:
                for i in forest.paths[forest.via[k, r]]:
                    load[index[int(element[links[i].src]), int(element[links[i].dst])]] += weight
    return load, shards


@pytest.mark.parametrize("name", ["ring:5", "torus:3x4", "dgx1", "dgx-a100*2", "rail:2x4", "fat-tree:8", "dgx2*4"])
def test_orbit_counts_equal_the_trees_written_out(name: str) -> None:
    forest = made(name)
    load, shards = expanded(forest)
    assert shards == dict.fromkeys(range(forest.topology.ranks), forest.weight)
    slowest = max(Fraction(n, forest.weight) / forest.topology.links[i].bandwidth for i, n in load.items())
    for limit in forest.topology.limits:
        slowest = max(slowest, Fraction(sum(load[i] for i in limit.links), forest.weight) / limit.bandwidth)
    found = verify(forest)
    assert found.time == slowest and found.busy == len(load)


def changed(forest: SpanningForest, **arrays: tuple[tuple[int, ...], int]) -> SpanningForest:
    fresh = {}
    for name, (place, value) in arrays.items():
        fresh[name] = getattr(forest, name).copy()
        fresh[name][place] = value
    return replace(forest, **fresh)


def test_the_checker_refuses() -> None:
    good = made("torus:3x4")
    k, r = 0, int(np.flatnonzero(good.parents[0] >= 0)[0])
    child = int(np.flatnonzero(good.parents[0] == r)[0]) if (good.parents[0] == r).any() else r
    swap = np.array([1, 0, *range(2, 12)])
    shift = good.generators[0]
    wrong = [
        (changed(good, parents=((k, r), -1)), "has no parent"),
        (changed(good, parents=((k, r), r)), "its own parent"),
        (changed(good, parents=((k, int(good.roots[0])), 1)), "root has a parent"),
        (changed(good, via=((k, r), len(good.paths))), "is no path"),
        (changed(good, via=((k, r), int(good.via[0, (r + 5) % 12]))), "does not lead"),
        (changed(good, weights=((0,), int(good.weights[0]) + 1)), "units"),
        (replace(good, weights=good.weights * 2), "units"),
        (replace(good, weight=good.weight + 1), "units"),
        (replace(good, time=good.time - Fraction(1, 1000)), "more than"),
        (replace(good, generators=()), "units"),
        (replace(good, generators=(swap,)), "does not keep links"),
        (replace(good, generators=(shift[:5],)), "no permutation"),
        (replace(good, generators=(*good.generators, _mirror())), "do not commute|unequal"),
        (replace(good, collective="alltoall"), "not moved by forests"),
        (replace(good, collective="broadcast"), "root"),
        (replace(good, collective="reduce-scatter"), "does not lead"),
        (replace(good, paths=(*good.paths[:-1], ())), "empty"),
        (replace(good, paths=(*good.paths[:-1], (good.paths[-1] * 2))), "through switches"),
        (replace(good, roots=good.roots[:0], weights=good.weights[:0]), "one tree"),
        (replace(good, roots=good.roots + 12), "no rank"),
    ]
    assert child >= 0
    for forest, message in wrong:
        with pytest.raises(VerificationError, match=message):
            verify(forest)


def _mirror() -> np.ndarray:
    return np.array([r // 4 * 4 + -r % 4 for r in range(12)])


def test_a_cycle_is_no_tree() -> None:
    good = made("ring:8")
    parents, via = good.parents.copy(), good.via.copy()
    links = {(k.src, k.dst): i for i, k in enumerate(good.topology.links)}
    paths = (*good.paths, (links[3, 4],), (links[4, 3],))
    parents[0, 4], parents[0, 3] = 3, 4
    via[0, 4], via[0, 3] = len(paths) - 2, len(paths) - 1
    with pytest.raises(VerificationError, match="does not hang on root"):
        verify(replace(good, parents=parents, via=via, paths=paths))


def test_generators_must_keep_limits() -> None:
    """Turning the ranks of a box by one keeps the links of `dgx2*4`, not the NICs that two of them share."""
    forest = made("dgx2*4")
    turn = np.array([r - r % 16 + (r % 16 + 1) % 16 for r in range(64)])
    with pytest.raises(VerificationError, match="does not keep limits"):
        verify(replace(forest, generators=(turn,)))

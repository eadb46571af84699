"""Broadcast and reduce on large symmetric machines with switches: the allgather's trees, hung up by the root."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import spanning_forest_check as spanning_forest

from synth import topologies
from synth.checker.certificates import throughput_cuts
from synth.checker.documents import scale_frontier
from synth.errors import UndecidedError
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import fabric
from synth.scale.forests import build, rerooting
from synth.scale.forests.partial_trees import to_forest
from synth.scale.forests.symmetric_trees import grow
from synth.scale.search import frontier


def hung(name, collective, root):
    """The forest and bound, built without the general method."""
    graph = fabric(topologies.topology(name))
    moves = symmetries(graph)
    group = free_group(moves, graph.ranks)
    bound = throughput(graph, collective, root, moves)
    every = throughput(graph, "reduce-scatter" if bound.fabric.flipped else "allgather", 0, moves)
    grown = grow(bound.fabric, group, every.time)
    trees, time = rerooting.reroot(bound.fabric, grown, group, root, bound.time)
    return to_forest(bound.fabric, replace(bound, time=time), trees, (), "re-rooted"), bound


@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("dgx-a100*2", 0),
        ("dgx-a100*4", 0),
        ("dgx-h100*4:net=rail", 0),
        ("ndv2*4", 0),
        ("dgx-a100*3:nics=2", None),
        ("torus:4x4", None),
    ],
)
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("root", [0, 5])
def test_trees_are_right_and_meet_the_bound_where_boxes_are_switched(name, gap, collective, root):
    forest, bound = hung(name, collective, root)
    found = spanning_forest.verify(forest)
    assert set(forest.roots.tolist()) == {root} and forest.collective == collective and forest.root == root
    reached = found.time * bound.fabric.unit / bound.time - 1
    assert reached >= 0 if gap is None else reached == gap
    assert int(forest.weights.sum()) == forest.weight


def test_large_machines_take_them_and_small_ones_are_packed():
    graph = fabric(topologies.topology("dgx-a100*8"))
    built = build.build(graph, "broadcast", 9)
    assert built.forest.method == "re-rooted" and not built.gap and spanning_forest.verify(built.forest).depth <= 4
    assert build.build(fabric(topologies.topology("dgx-a100*2")), "broadcast").forest.method == "packing"
    assert build.build(graph, "broadcast", methods=("packing",)).forest.method == "packing"


def test_the_best_of_both_where_one_misses_the_bound(monkeypatch):
    monkeypatch.setattr(build, "REROOTED_FROM", 16)
    graph = fabric(topologies.topology("dgx-a100*2"))
    kept = rerooting.reroot

    def worse(*given):
        trees, time = kept(*given)
        return trees, time * Fraction(3, 2)

    monkeypatch.setattr(rerooting, "reroot", worse)
    first = []
    built = build.build(graph, "broadcast", on_forest=first.append)
    assert built.forest.method == "packing" and not built.gap  # packing meets the bound
    assert [(found.forest.method, found.gap) for found in first] == [("re-rooted", Fraction(1, 2))]
    points = frontier(graph.topology, "broadcast").points  # its trees are shallower
    assert any(point.construction.startswith("re-rooted") for point in points)
    monkeypatch.setattr(build, "MOST_SWITCHED_WORK", 0)
    built = build.build(graph, "broadcast")
    assert built.forest.method == "re-rooted" and built.gap == Fraction(1, 2)
    monkeypatch.setattr(rerooting, "reroot", lambda *given: None)
    with pytest.raises(UndecidedError, match="no forest found for broadcast"):
        build.build(graph, "broadcast")


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_a_frontier_of_them_is_verified_send_by_send(collective):
    machine = topologies.topology("dgx-a100*8")
    found = frontier(machine, collective, 3)
    assert throughput_cuts.check(found.certificate, machine) * fabric(machine).unit == found.bound
    points = [p for p in found.points if p.construction.startswith("re-rooted")]
    assert len(points) > 3 and points[-1].rounds_per_chunk < found.bound * Fraction(11, 10)
    for point in points[:2]:
        assert "every rank ends with what it must" in scale_frontier.schedule(point.schedule)


def test_too_many_hops_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(rerooting, "MOST_HOPS", 100)
    graph = fabric(topologies.topology("dgx-a100*8"))
    assert build.build(graph, "broadcast").forest.method == "packing"

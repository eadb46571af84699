"""Symmetric forests meet the bound."""

from fractions import Fraction

import pytest
import spanning_forest_check as spanning_forest
from spanning_forest_check import verify

from synth import topologies
from synth.checker.schedule import compressed_replay, replay
from synth.errors import InfeasibleError, UndecidedError, UsageError
from synth.model.topology import Topology
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import fabric
from synth.scale.forests import build, pipelining, rerooting
from synth.scale.forests.bfs_broadcast import BreadthFirstBroadcast
from synth.scale.forests.partial_trees import to_forest
from synth.scale.forests.spanning_forest import SpanningForest
from synth.scale.forests.symmetric_trees import grow
from synth.scale.search import frontier
from synth.topologies import modify, topology

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


# ---------------------------------------------------------------- re-rooted trees


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("root", [0, 5])
@pytest.mark.parametrize(("name", "most"), [
    ("dgx-a100*2", 0), ("dgx-a100*8", 0), ("dgx-h100*4:net=rail", 0), ("ndv2*4", 0), ("dgx-a100*3:nics=2", 0),
    ("mi300x*2", Fraction(1, 32)),
])  # fmt: skip
def test_trees_are_right_and_meet_the_bound_where_boxes_are_switched(name, most, collective, root):
    built = build.build(fabric(topologies.topology(name)), collective, root, methods=("symmetric",))
    forest = built.forest
    assert (forest.method, forest.collective, set(forest.roots.tolist())) == ("re-rooted", collective, {root})
    assert spanning_forest.verify(forest).time == forest.time and 0 <= built.gap <= most
    assert int(forest.weights.sum()) == forest.weight


def test_the_better_of_both_is_kept_and_both_are_rows(monkeypatch):
    graph = fabric(topologies.topology("dgx-a100*2"))
    first = []
    assert build.build(graph, "broadcast", on_forest=first.append).forest.method == "packing"  # it is as fast
    assert [forest.method for forest in first] == ["re-rooted"]
    engines = {point.construction.partition(" x ")[0] for point in frontier(graph.topology, "broadcast").points}
    assert "re-rooted forest" in engines

    # where a packing takes too long the re-rooted trees are the answer, and where they are too many there is none
    monkeypatch.setattr(build, "MOST_SWITCHED_WORK", 0)
    built = build.build(graph, "broadcast")
    assert built.forest.method == "re-rooted" and not built.gap
    monkeypatch.setattr(rerooting, "MOST_LOADS", 100)
    with pytest.raises(UndecidedError, match="no forest found for broadcast"):
        build.build(graph, "broadcast")


# ---------------------------------------------------------------- breadth-first broadcast


@pytest.mark.parametrize(
    "name",
    ["ring:7", "torus:4x4", "torus:8x8", "hypercube:16", "mesh:4x4", "torus:3x5", "torus:32x32", "hypercube:256"],
)
def test_breadth_first_is_optimal_at_the_diameter_on_tori_meshes_and_hypercubes(name):
    graph = fabric(topology(name))
    found = BreadthFirstBroadcast(graph)
    assert found.rounds_per_chunk == throughput(graph).time
    made = found.schedule()
    assert made.rounds_per_chunk == found.rounds_per_chunk
    assert compressed_replay.replay(made).busiest == 1


@pytest.mark.parametrize("name", ["dgx1", "random-regular:12:degree=3", "mesh:3x4", "torus:3x4", "star:5", "line:4"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_it_verifies_written_out(name, chunks):
    machine = topology(name)
    graph = fabric(machine)
    diameter = max(d for row in machine.network().distances for d in row)
    made = BreadthFirstBroadcast(graph).schedule(chunks)
    compressed_replay.replay(made)
    whole = made.written_out()
    replay.schedule(whole)
    assert whole.rounds_per_chunk == made.rounds_per_chunk >= throughput(graph).time
    assert made.step_count == diameter


def test_breadth_first_on_a_dgx1_is_the_proved_optimum_in_two_steps():
    assert BreadthFirstBroadcast(fabric(topology("dgx1"))).rounds_per_chunk == Fraction(3, 2)


def test_what_it_does_not_apply_to_is_said():
    with pytest.raises(UsageError):
        BreadthFirstBroadcast(fabric(topology("dgx2")))
    with pytest.raises(UsageError):
        BreadthFirstBroadcast(fabric(topology("ring:4"))).schedule(0)
    apart = fabric(modify.apply(topology("line:4"), without=("1-2",)))
    with pytest.raises(InfeasibleError):
        BreadthFirstBroadcast(apart)


@pytest.mark.parametrize("name", ["torus:3x4", "dgx1", "ring:5"])
def test_on_the_reversed_fabric_it_is_a_reduce_scatter(name):
    graph = fabric(topology(name))
    gather = BreadthFirstBroadcast(graph).schedule(2)
    scatter = BreadthFirstBroadcast(graph.reversed()).schedule(2)
    assert (scatter.collective, scatter.step_count) == ("reduce-scatter", gather.step_count)
    compressed_replay.replay(scatter)
    replay.schedule(scatter.written_out())
    compressed_replay.replay(pipelining.scatter_then_gather(scatter, gather))

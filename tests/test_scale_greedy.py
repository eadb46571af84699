"""The latency end at scale: breadth-first broadcast."""

from fractions import Fraction

import pytest

from synth.checker.schedule import compressed_replay, replay
from synth.errors import InfeasibleError, UsageError
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.fabric import fabric
from synth.scale.forests import pipelining
from synth.scale.forests.bfs_broadcast import BreadthFirstBroadcast
from synth.topologies import modify, topology


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

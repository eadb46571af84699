"""Machines in boxes with one-way links: templates over boxes ended in RecursionError, KeyError or ValueError."""

import pytest

import synth
from synth.checker.schedule.compressed_replay import replay
from synth.scale.composition.compose import composed_points


def machine(name, nodes, rows, limits=(), switches=()):
    links = [synth.Link(src, dst, bandwidth) for src, dst, bandwidth in rows]
    return synth.Topology(name, len(nodes), links, limits, switches, nodes)


# No link from the first rank of one box to that of another; distances of boxes that differ by direction.
TRIANGLE = machine("triangle", (0, 1, 1), [(0, 1, 1), (1, 2, 1), (2, 0, 1), (1, 0, 1)])
LIMITED = machine(
    "limited", (0, 1, 1), [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 0, 2)], [synth.Limit("in", [1, 3], 2)]
)  # fmt: skip
PAIRS = machine(
    "pairs", (1, 1, 0, 0),
    [(2, 0, 1), (3, 2, 1), (2, 3, 1), (1, 0, 1), (0, 3, 1), (1, 2, 1), (0, 2, 1), (3, 0, 1), (3, 1, 1)],
    [synth.Limit("a", [4, 6], 2), synth.Limit("b", [2, 3], 2), synth.Limit("c", [3, 5], 1)],
)  # fmt: skip
SWITCHED = machine(
    "switched", (0, 0, 1, 1, 2),
    [(1, 5, 1), (5, 4, 2), (1, 0, 1), (4, 0, 2), (2, 0, 2), (3, 5, 2), (3, 0, 1), (0, 1, 1), (0, 4, 2), (4, 5, 1),
     (5, 1, 1), (0, 2, 2), (0, 3, 2), (5, 3, 1)],
    [synth.Limit("out", [7, 8, 11, 12], 3)], ("s",),
)  # fmt: skip
COLLECTIVES = ("allgather", "reduce-scatter", "allreduce", "broadcast", "reduce", "alltoall")


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", [TRIANGLE, LIMITED, PAIRS, SWITCHED], ids=lambda value: value.name)
def test_phases_over_boxes_take_one_way_links(topology, collective):
    """Of the triangle's allgather one rank's unit had no template, and the schedule left it out."""
    found = composed_points(topology, collective, same_bits=False, most_sends=100, step_counts=(2, 3))
    for candidate in found:
        assert replay(candidate.make()).rounds_per_chunk == candidate.rounds_per_chunk


@pytest.mark.parametrize("collective", ["allgather", "reduce-scatter", "alltoall"])
def test_frontiers_at_scale_of_them_hold(collective):
    for topology in (TRIANGLE, LIMITED, PAIRS):
        found = synth.frontier(topology, collective, engine="flow")
        assert found.points and not found.notes
        synth.verify(found)

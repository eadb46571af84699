"""Composed schedules of machines that lost a NIC, a GPU or a link; of templates alone, which the first rows are."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import pytest

from synth.scale import search
from synth.scale.composition.compose import composed_points
from synth.topologies import topology
from synth.topologies.modify import broken, with_ranks
from tests.test_composition import replayed


def points(machine, collective, most):
    found = composed_points(machine, collective, same_bits=False, most_sends=6_000, priced=False)
    return list(islice(found, most))


def without_nic(name, rank):
    machine = topology(name)
    for other in range(machine.ranks):
        if machine.nodes[other] != machine.nodes[rank]:
            machine = broken(machine, rank, other)
    return machine


@pytest.mark.parametrize(
    ("name", "collective", "most"),
    [
        ("fully-connected:6*3:units=6", "allgather", "1.25"),  # blocks of many ranks move together
        ("fully-connected:3*2:units=4", "reduce-scatter", "1.15"),
        ("fully-connected:3*2:units=4", "allreduce", "1.35"),
    ],
)
def test_blocks_of_a_rank_without_nic_go_over_those_of_all_others(name, collective, most):
    """Over the next rank alone a box would lose the bandwidth of another NIC."""
    machine = without_nic(name, 1)
    bound = search.bound(machine, collective).bound
    found = points(machine, collective, 4)
    assert found[-1].steps <= 8 and found[-1].rounds_per_chunk <= bound * Fraction(most)
    replayed(found[0])


@pytest.mark.parametrize("collective", ["allgather", "broadcast", "alltoall"])
def test_boxes_without_a_gpu_and_a_link_have_composed_schedules(collective):
    machine = broken(with_ranks(topology("fully-connected:4*2:units=4"), [0, 1, 2, 4, 5, 6, 7]), 0, 1)
    bound = search.bound(machine, collective).bound
    for point in points(machine, collective, 2):
        assert replayed(point).rounds_per_chunk >= bound

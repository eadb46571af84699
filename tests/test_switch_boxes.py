"""Allreduces on boxes that have a switch each which multicasts: bounds and composed schedules."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.certificates.cuts import check
from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings.bounds.multicast import multicast_bound, parts_bound
from synth.encodings.engine import FrontierProblem, Options
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.frontier import Frontier
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import Link, Multicast, Topology
from synth.pareto.synthesize import through_switches
from synth.scale.composition.switch_boxes import SwitchBoxes, boxes_of_switches
from synth.topologies import topology


def boxes(sizes: tuple[int, ...], units: int = 4, nic: int = 1, own: str = "through") -> Topology:
    """Boxes of these sizes: `units` between each two ranks of a box, `nic` between each two ranks of two boxes."""
    home = [box for box, size in enumerate(sizes) for _ in range(size)]
    links = []
    for a in range(len(home)):
        for b in range(len(home)):
            if a != b:
                links.append(Link(a, b, Fraction(units if home[a] == home[b] else nic), Fraction(1)))
    switches = []
    for box, size in enumerate(sizes):
        if size > 1:
            members = tuple(rank for rank, b in enumerate(home) if b == box)
            switches.append(Multicast(f"sw{box}", members, own))
    return Topology("boxes", len(home), tuple(links), nodes=tuple(home), multicast=tuple(switches))


def schedules(machine: Topology, max_chunks: int | None = None, alike: bool = False) -> SwitchBoxes:
    network = machine.multicast_network()
    return SwitchBoxes(machine, network, collective("allreduce", machine.ranks), max_chunks, alike)


def test_boxes_are_the_ranks_of_switches_then_nodes() -> None:
    machine = boxes((3, 2, 1))
    assert boxes_of_switches(machine.multicast_network(), machine.nodes) == {(0, 1, 2): "sw0", (3, 4): "sw1", (5,): ""}
    one = replace(machine, multicast=machine.multicast[1:])
    assert boxes_of_switches(one.multicast_network(), one.nodes) == {(3, 4): "sw1", (0, 1, 2): "", (5,): ""}


@settings(max_examples=15, deadline=None)
@given(
    own=st.sampled_from(["through", "local"]),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=3).filter(lambda sizes: max(sizes) > 1),
    units=st.integers(1, 5),
    nic=st.integers(1, 3),
    steps=st.integers(3, 6),
    alike=st.booleans(),
)
def test_composed_schedules_replay_and_keep_their_bounds(
    own: str, sizes: list[int], units: int, nic: int, steps: int, alike: bool
) -> None:
    machine = boxes(tuple(sizes), units, nic, own)
    composition = schedules(machine, 60, alike)
    found = composition.at_steps(steps)
    if found is None:  # of so few steps only with fewer boxes
        assert steps < 5
        return
    schedule = composition.schedule(found)
    assert schedule.step_count == steps and schedule.chunks == found.chunks <= 60
    rate = replay.schedule(schedule).rounds_per_chunk
    assert rate == found.rounds_per_chunk
    assert rate >= multicast_bound(schedule.network, schedule.collective).value
    assert same_bits(schedule) or not alike


@pytest.mark.parametrize(("name", "bound"), [("dgx-h100*2", Fraction(1, 8)), ("dgx-h100*4", Fraction(3, 16))])
def test_clusters_are_bounded_by_what_boxes_exchange(name: str, bound: Fraction) -> None:
    machine = topology(name)
    network, task = machine.multicast_network(), collective("allreduce", machine.ranks)
    assert multicast_bound(network, task).value == bound
    parts = parts_bound(network, task)
    assert parts is not None and parts.value == bound


def test_a_partition_that_divides_a_switch_proves_nothing() -> None:
    network = boxes((2, 2)).multicast_network()
    task = collective("allreduce", 4)
    bound = parts_bound(network, task)
    assert bound is not None
    false = bound.certificate | {"parts": [[0], [1, 2, 3]]}
    with pytest.raises(VerificationError, match="divide the ranks of a switch that multicasts"):
        check(false, network.document, task.document)


def test_two_boxes_come_within_five_per_cent_of_the_bound() -> None:
    composition = schedules(topology("dgx-h100*2"))
    found = composition.at_steps(48)
    assert found is not None
    assert found.template.name == "fetch inside, exchange over rails, multicast inside"
    assert replay.schedule(composition.schedule(found)).rounds_per_chunk * Fraction(95, 100) <= Fraction(1, 8)


def test_clusters_have_points_through_switches() -> None:
    machine = boxes((3, 3))
    none = Frontier(machine.network(), collective("allreduce", 6), ())
    frontier = through_switches(none, FrontierProblem(machine, none.collective, Options(max_steps=8, multicast=True)))
    assert len(frontier.points) > 3 and all(point.schedule.uses_multicast for point in frontier.points)
    api.verify(frontier.to_json())

"""Machines whose parts have a switch each that multicasts: bounds, composed schedules, and the second frontier."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from synth import api
from synth.bounds.multicast import multicast_bound, parts_bound
from synth.checker.certificates.cuts import check
from synth.checker.schedule import replay
from synth.cli import root
from synth.errors import VerificationError
from synth.frontiers import multicast
from synth.frontiers.multicast import MulticastSettings, multicast_frontier
from synth.model.collective import collective
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule, Step, SwitchSend
from synth.model.topology import Link, Multicast, Topology
from synth.pareto.events import Options
from synth.scale.composition.pipelining_lp import PipeliningProgram
from synth.scale.composition.switch_pipelining import NetworkLoads, SwitchPipelining
from synth.scale.composition.switch_templates import switch_parts, switch_templates
from synth.solvers.processes.deadline import Deadline, time_limited
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
    return Topology("boxes", len(home), tuple(links), nodes=tuple(home), unit=Fraction(1), multicast=tuple(switches))


def second(machine: Topology, name: str, **limits) -> Frontier | None:
    """The frontier with switch sends, without points of the one beside it."""
    network = machine.network()
    task = collective(name, network.ranks)
    return multicast_frontier(machine, task, Frontier(network, task, ()), Options(**limits))


def test_parts_are_the_ranks_of_switches_then_boxes() -> None:
    machine = boxes((3, 2, 1))
    assert switch_parts(machine.multicast_network(), machine.nodes) == {(0, 1, 2): "sw0", (3, 4): "sw1", (5,): ""}
    one = replace(machine, multicast=machine.multicast[1:])
    assert switch_parts(one.multicast_network(), one.nodes) == {(3, 4): "sw1", (0, 1, 2): "", (5,): ""}


@settings(max_examples=25)
@given(
    name=st.sampled_from(["allreduce", "broadcast", "reduce"]),
    own=st.sampled_from(["through", "local"]),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=3).filter(lambda sizes: max(sizes) > 1),
    units=st.integers(1, 5),
    nic=st.integers(1, 3),
    steps=st.integers(3, 6),
)
def test_composed_schedules_replay_and_keep_their_bounds(
    name: str, own: str, sizes: list[int], units: int, nic: int, steps: int
) -> None:
    machine = boxes(tuple(sizes), units, nic, own)
    network, task = machine.multicast_network(), collective(name, sum(sizes))
    templates = switch_templates(machine, switch_parts(network, machine.nodes), name)
    composition = SwitchPipelining(network, task, templates, 30)
    found = composition.at_steps(steps)
    if found is None:  # of so few steps only with fewer boxes
        assert steps < 5
        return
    schedule = composition.schedule(found)
    assert schedule.step_count == steps and schedule.chunks <= 30
    assert replay.schedule(schedule).rounds_per_chunk >= multicast_bound(network, task).value


def test_loads_are_those_that_the_checker_counts() -> None:
    machine = topology("dgx-h100*2")
    network = machine.multicast_network()
    loads = NetworkLoads(network)
    group = tuple(range(8))
    for kind in ("multicast", "fetch-reduce"):
        switch = network.multicast[0]
        counted = switch.caps(3, group, fetches=kind == "fetch-reduce")
        assert len(counted) == 9 and counted.count(switch.ports[3].up[0]) == 1
    template = switch_templates(machine, switch_parts(network, machine.nodes), "allreduce")[0]
    row = loads.loads(template.phases).sum(axis=0)
    first = len(network.routes)
    # 16 chunks: each rank's port sends all of them up, and multicasts those of 2 of 16 owners
    assert row[first + network.multicast[0].ports[0].up[0]] == 16 + 2


@pytest.mark.parametrize(("name", "bound"), [("dgx-h100*2", Fraction(1, 16)), ("dgx-h100*4", Fraction(3, 32))])
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
    machine = topology("dgx-h100*2")
    network = machine.multicast_network()
    task = collective("allreduce", 16)
    composition = SwitchPipelining(
        network, task, switch_templates(machine, switch_parts(network, machine.nodes), "allreduce")
    )
    found = composition.at_steps(48)
    assert found is not None
    schedule = composition.schedule(found)
    assert composition.construction(found) == "boxes: fetch inside, exchange over rails, multicast inside"
    assert replay.schedule(schedule).rounds_per_chunk * Fraction(95, 100) <= Fraction(1, 16)


def test_the_second_frontier_of_boxes_is_verified() -> None:
    frontier = second(boxes((3, 2)), "allreduce", max_steps=8, max_chunks=40)
    assert frontier is not None and frontier.points and not frontier.open
    assert all(point.steps <= 8 and point.chunks <= 40 for point in frontier.points)
    assert any(point.schedule.uses_multicast for point in frontier.points)
    assert frontier.points[-1].construction.startswith("boxes: ")
    api.verify(frontier.to_json())
    assert second(boxes((8, 8)), "allgather") is None


def test_a_deadline_leaves_the_rest_open() -> None:
    with time_limited(Deadline.after(0)):
        frontier = second(boxes((2, 2)), "allreduce")
    assert frontier is not None and not frontier.points
    assert [(interval.steps, interval.upper, interval.reason) for interval in frontier.open] == [(3, None, "time")]
    api.verify(frontier.to_json())


def test_after_the_deadline_the_shortest_and_the_best_point_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(multicast, "SETTINGS", MulticastSettings(least_seconds=0))
    machine = topology("switch:4:multicast=through")
    network, task = machine.network(), collective("allreduce", 4)
    frontier = multicast_frontier(machine, task, Frontier(network, task, ()), Options(time_limit=0))
    assert frontier is not None and [point.steps for point in frontier.points] == [1, 48]
    left = (2, 3, 4, 6, 8, 12, 16, 24, 32)
    assert [(interval.steps, interval.reason) for interval in frontier.open] == [(count, "time") for count in left]
    api.verify(frontier.to_json())


def test_after_the_deadline_points_without_multicast_are_kept(monkeypatch) -> None:
    """They were replayed a second time, and left out where no time was left: the two tables contradicted each other."""
    monkeypatch.setattr(multicast, "SETTINGS", MulticastSettings(least_seconds=0))
    monkeypatch.setattr(multicast, "_of_one_switch", lambda *_: [])
    machine = topology("switch:4:multicast=through")
    plain = api.frontier("switch:4", "allreduce", max_steps=3)
    assert isinstance(plain, Frontier) and len(plain.points) > 1
    frontier = multicast_frontier(machine, collective("allreduce", 4), plain, Options(time_limit=0))
    assert frontier is not None and [interval.steps for interval in frontier.open] == [1]  # mixtures are not searched
    assert [(p.steps, p.rounds_per_chunk) for p in frontier.points] == [
        (p.steps, p.rounds_per_chunk) for p in plain.points
    ]
    api.verify(frontier.to_json())


def test_few_ranks_try_as_few_numbers_of_chunks_as_many(monkeypatch) -> None:
    machine = boxes((1, 2))
    network = machine.multicast_network()
    composition = SwitchPipelining(
        network,
        collective("broadcast", 3),
        switch_templates(machine, switch_parts(network, machine.nodes), "broadcast"),
    )
    tried = []
    whole = PipeliningProgram.whole
    monkeypatch.setattr(PipeliningProgram, "whole", lambda program, *args: tried.append(args) or whole(program, *args))
    assert composition.at_steps(4) is not None
    assert 0 < len(tried) < 400


def test_latency_counts_switch_sends() -> None:
    network = boxes((2, 2)).multicast_network()
    sends = tuple(SwitchSend(0, rank, (rank, rank + 1), "fetch-reduce", f"sw{rank // 2}") for rank in (0, 2))
    schedule = Schedule(network, collective("allreduce", 4), 1, (Step(1, (), sends),))
    assert schedule.latency == 1


@pytest.mark.slow
def test_clusters_have_both_tables_and_schedules(tmp_path) -> None:
    words = ["pareto", "--topo", "dgx-h100*3", "--coll", "allreduce", "--max-steps", "6", "--time-limit", "8s"]
    result = CliRunner().invoke(root, [*words, "--schedules", str(tmp_path)])
    assert "switches multicast and reduce\n" in result.output and "boxes: " in result.output
    document = json.loads((tmp_path / "frontier.json").read_text())
    assert document["multicast"]["points"]
    api.verify(tmp_path / "frontier.json")
    for path in tmp_path.glob("*-multicast.json"):
        api.verify(path)

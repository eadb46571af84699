"""Collectives of several roots: the schedules of single roots at the same time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synth.bounds.single_cut import single_cut_bound
from synth.checker.schedule import replay
from synth.frontiers import superposed_roots
from synth.frontiers.direct_sends import direct_schedule
from synth.frontiers.superposed_roots import superposed_schedules
from synth.model.collective import collective
from synth.topologies import topology


@pytest.mark.parametrize("name", ["multi-broadcast", "multi-reduce"])
@pytest.mark.parametrize(("machine", "roots"), [("rail:5x4", (0, 9)), ("torus:5x4", (0, 7))])
def test_they_come_within_twice_the_bound(machine, roots, name, monkeypatch):
    monkeypatch.setattr(superposed_roots, "SETTINGS", replace(superposed_roots.SETTINGS, most_sends=6_000))
    machine = topology(machine)
    network = machine.network()
    task = collective(name, network.ranks, roots)
    bound, direct = single_cut_bound(network, task).value, direct_schedule(network, task)
    found = [schedule for _, schedule in superposed_schedules(machine, network, task)]
    assert min(schedule.rounds_per_chunk for schedule in found) <= 2 * bound < direct.rounds_per_chunk
    for schedule in found:
        assert schedule.collective == task
        assert replay.schedule(schedule).rounds_per_chunk == schedule.rounds_per_chunk


def test_roots_whose_points_differ_in_chunks_share_a_schedule(monkeypatch):
    monkeypatch.setattr(superposed_roots, "SETTINGS", replace(superposed_roots.SETTINGS, most_sends=4_000))
    machine = topology("line:17")
    network = machine.network()
    task = collective("multi-broadcast", 17, (0, 8))
    found = list(superposed_schedules(machine, network, task))
    assert found and all(replay.schedule(schedule).steps == len(schedule.steps) for _, schedule in found)


def test_nothing_is_found_for_other_collectives():
    machine = topology("torus:3x3")
    for name in ("scatter", "broadcast", "multi-scatter"):
        assert not list(superposed_schedules(machine, machine.network(), collective(name, 9)))

"""Collectives of several roots: the schedules of single roots at the same time."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from synth.bounds.single_cut import single_cut_bound
from synth.checker.schedule import replay
from synth.frontiers import superposed_roots
from synth.frontiers.direct_sends import direct_schedule
from synth.frontiers.superposed_roots import superposed_schedules
from synth.model.collective import collective
from synth.scale import search
from synth.solvers.processes.deadline import TimeUp
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


@pytest.mark.parametrize("name", ["multi-broadcast", "multi-reduce"])
def test_few_sends_come_within_twice_the_bound_on_links_of_many_units(name):
    """The links have 8, 25, 50 and 100 units."""
    machine = topology("mi250*4")
    network = machine.network()
    task = collective(name, network.ranks)
    bound = single_cut_bound(network, task).value
    for method, schedule in superposed_schedules(machine, network, task):
        assert schedule.sends <= 40_000 and "packing" in method
        if schedule.rounds_per_chunk <= 2 * bound:
            break
    else:
        pytest.fail("none is within twice the bound")
    assert schedule.collective == task and any(step.rounds < 1 for step in schedule.steps)
    assert replay.schedule(schedule).rounds_per_chunk == schedule.rounds_per_chunk >= bound


def test_the_other_methods_follow_where_packed_trees_take_too_long(monkeypatch):
    def late(*given):
        raise TimeUp("ended by the time limit")

    monkeypatch.setattr(search, "packed_points", late)
    machine = topology("mi250*4")
    network = machine.network()
    method, schedule = next(superposed_schedules(machine, network, collective("multi-broadcast", network.ranks)))
    assert "breadth-first" in method and replay.schedule(schedule).steps == len(schedule.steps)


def test_rounds_are_whole_where_units_are_few(monkeypatch):
    monkeypatch.setattr("synth.scale.search.packed_points", None)
    machine = topology("rail:3x3")
    network = machine.network()
    task = collective("multi-broadcast", 9, (0, 4))
    found = [schedule for _, schedule in islice(superposed_schedules(machine, network, task), 3)]
    assert found and all(step.rounds == int(step.rounds) for schedule in found for step in schedule.steps)


def test_nothing_is_found_for_other_collectives():
    machine = topology("torus:3x3")
    for name in ("scatter", "broadcast", "multi-scatter"):
        assert not list(superposed_schedules(machine, machine.network(), collective(name, 9)))

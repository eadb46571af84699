"""Bounds of combining collectives under a time limit: one that takes long rests, what is known serves, and nothing open
is left early."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from dozing import doze, doze_until

from synth import api, bounds
from synth.algorithms import recursive_doubling, ring
from synth.bounds.single_cut import single_cut_bound
from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Unknown
from synth.model.schedule import Schedule, Step
from synth.pareto import prefetched_bounds
from synth.pareto.combining import bounds_over_steps, combining_frontier, combining_sweep
from synth.pareto.combining.bounds_over_steps import StepBounds
from synth.pareto.events import Options
from synth.pareto.log import Log
from synth.pareto.sweep import Sweep
from synth.solvers.processes import pool
from synth.solvers.processes.deadline import Budget, Deadline
from synth.solvers.processes.resumable_jobs import ResumableJobs
from synth.topologies import topology

NINE, ALL = topology("torus:3x3").network(), collective("allreduce", 9)
LATE = 1000  # seconds to wait for what comes


@pytest.fixture(autouse=True)
def ended():
    yield
    pool.stop()


@pytest.fixture
def made():
    """A maker of bounds with so many seconds for all of them."""
    everything = []

    def make(seconds: float | None, network=NINE, task=ALL) -> StepBounds:
        everything.append(StepBounds(network, task, Budget(Deadline.after(seconds))))
        return everything[-1]

    yield make
    for one in everything:
        one.close()


def never(*_):
    raise UsageError("was asked")


def test_a_question_that_rests_goes_on_and_is_answered(tmp_path):
    asked = ResumableJobs(None, prefetched_bounds.TREE_MEMBER.imports)
    gate = tmp_path / "gate"
    asked.begin("late", doze_until, gate)
    asked.wait(["late"], Deadline.after(0))
    asked.suspend("late")
    assert "late" in asked.jobs and not asked.results
    asked.begin("late", never)
    gate.touch()
    asked.wait(["late"], Deadline.after(LATE))
    assert asked.results == {"late": None} and not asked.jobs
    asked.begin("late", never)  # which has an answer
    asked.close()


def test_a_question_that_fails_says_so_and_one_that_dies_is_not_asked_again():
    asked = ResumableJobs(None, prefetched_bounds.TREE_MEMBER.imports)
    asked.begin("wrong", time.sleep, "long")
    with pytest.raises(TypeError):
        asked.wait(["wrong"], Deadline.after(LATE))
    asked.begin("dies", _dies)
    asked.wait(["dies"], Deadline.after(LATE))
    assert asked.results["dies"] == Unknown("crash", f"ended with wait status {3 << 8}")


def _dies(*_):
    import os

    os._exit(3)


@pytest.mark.parametrize("seconds", [None, 100.0])
@pytest.mark.parametrize("name", ["allreduce", "scan"])
def test_with_time_enough_they_are_the_bounds(made, seconds, name):
    task = collective(name, 9)
    some = made(seconds, task=task)
    assert some.first().value == bounds.combining(NINE, task, None).value
    assert some.at(2, some.deadline).value == bounds.combining(NINE, task, 2).value
    assert not some.may_rise(2) and not some.notes


def test_where_one_half_died_the_other_is_waited_for(made, monkeypatch):
    monkeypatch.setattr(bounds_over_steps, "PARTS", {"flow": _dies, "completing": bounds.completion_bound})
    some = made(100.0)
    assert some.first() == bounds.completion_bound(NINE, ALL)
    assert not some.may_rise(2) and "its search ended early" in some.notes[0]


def test_where_both_halves_are_late_a_cut_serves(made, monkeypatch):
    monkeypatch.setattr(bounds_over_steps, "PARTS", {"flow": bounds.flow, "completing": doze})
    monkeypatch.setattr(bounds_over_steps, "SETTINGS", replace(bounds_over_steps.SETTINGS, floor_share=0.0))
    some = made(100.0)
    assert some.first() == single_cut_bound(NINE, ALL)
    assert some.may_rise(2) and "the time limit ended its search" in some.notes[0]


def test_where_the_bound_at_some_steps_is_late_the_one_for_any_serves_and_then_it_comes(made):
    some = made(100.0)
    floor = some.first()
    assert some.at(2, Deadline.after(0)) == floor
    assert some.may_rise(2) and not some.notes
    assert some.with_more_time(2, Deadline.after(50.0)).value == bounds.flow(NINE, ALL, 2).value > floor.value
    assert not some.may_rise(2)


def test_a_cut_serves_where_every_part_is_late(monkeypatch):
    monkeypatch.setattr(bounds_over_steps, "PARTS", {"flow": doze, "completing": doze})
    items = list(combining_frontier.points(NINE, ALL, budget=Budget(Deadline.after(0.1))))
    assert items[0] == (None, single_cut_bound(NINE, ALL))
    assert [item.reason for item in items if isinstance(item, Open)]


def no_share(self, same_bound):
    return Deadline.after(0), float("inf")


@pytest.mark.parametrize(("name", "coll"), [("ring:4", "allreduce"), ("line:3", "scan")])
def test_a_frontier_with_time_left_returns_to_what_is_open(monkeypatch, name, coll):
    """As if the share of every S had been nothing."""
    network = topology(name).network()
    task = collective(coll, network.ranks)
    whole = [
        (p.steps, p.rounds_per_chunk)
        for p in combining_frontier.points(network, task, budget=Budget(), max_steps=4)
        if isinstance(p, Point)
    ]
    monkeypatch.setattr(combining_frontier.StepSearches, "_limits", no_share)
    found = Sweep(network, task, Options(time_limit=60.0, max_steps=4), Log(None, "")).run()
    assert [(p.steps, p.rounds_per_chunk) for p in found.points] == whole
    assert found.complete and not found.open
    said = [steps for steps, _ in found.bounds]
    assert len(said) == len(set(said))
    api.verify(found)


def test_a_bound_that_comes_late_closes_an_interval(monkeypatch):
    """The schedule found meets the bound at its S, whose search was suspended."""
    task = collective("allreduce", 9)
    monkeypatch.setattr(bounds_over_steps, "SETTINGS", replace(bounds_over_steps.SETTINGS, steps_share=0.0))
    monkeypatch.setattr(combining_frontier.StepSearches, "_limits", no_share)
    found = list(combining_frontier.points(NINE, task, budget=Budget(Deadline.after(60.0)), max_steps=2))
    points = [p for p in found if isinstance(p, Point)]
    assert points[-1].status == "optimal" and points[-1].rounds_per_chunk == bounds.combining(NINE, task, 2).value
    opened = [place for place, item in enumerate(found) if isinstance(item, Open) and item.steps == 2]
    assert opened and opened[-1] < found.index(points[-1])


def test_an_interval_ends_where_a_point_of_fewer_steps_meets_its_bound():
    nothing: object = None
    searches = combining_frontier.StepSearches(nothing, nothing)  # type: ignore[arg-type]
    searches._reached = {2: Fraction(1), 4: Fraction(1, 2)}
    assert [searches._upper(s) for s in (1, 2, 3, 5)] == [None, 1, 1, Fraction(1, 2)]
    assert list(searches._items(3, LowerBound(Fraction(1), {}), None)) == [(3, LowerBound(Fraction(1), {}))]
    assert list(searches._items(3, LowerBound(Fraction(1, 2), {}), None)) == []


def test_known_schedules_that_others_dominate_take_no_time_of_the_search():
    """They were replayed at the end, for which half of the time limit was kept."""
    network = topology("fully-connected:9").network()
    found = [recursive_doubling.scan.schedule(network), *(ring.scan.schedule(network, pieces=p) for p in (2, 1, 4))]
    longer = Schedule(network, found[0].collective, found[0].chunks, (*found[0].steps, Step(1, ())))
    seeds = [("longer", longer), *(("library", schedule) for schedule in found)]
    state = SimpleNamespace(seeds=seeds, allowed=lambda schedule: True, resumed=list)
    known = combining_sweep._known(state)
    doubling, two, _, four = found
    kept = [doubling, *(one for one in (two, four) if one.rounds_per_chunk < doubling.rounds_per_chunk)]
    assert len(kept) < len(found) and [point.schedule for point in known.values()] == kept

"""Points of the flow methods beside those of exact synthesis: only where they improve, labelled, and verified like the
others."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from synth.commands import api
from synth.encodings import bounds
from synth.model.bitwise_equality import same_bits
from synth.model.collective import collective
from synth.model.frontier import Frontier, Open, Point
from synth.pareto import engine_choice, incumbents, merge_scale_points, notes, written_points
from synth.pareto.events import Options
from synth.scale import search
from synth.scale.search import ScaleSearch
from synth.solvers.deadline import NEVER, Deadline
from synth.topologies import topology
from synth.view import frontier_text


def limit_sends(monkeypatch, most):
    """Let no schedule of more than `most` sends be written out."""
    settings = replace(merge_scale_points.SETTINGS, max_written_sends=most)
    for module in (merge_scale_points, incumbents):
        monkeypatch.setattr(module, "SETTINGS", settings)


def left_open(name, coll, *points):
    """Return the frontier of exact synthesis that found `points` (steps, schedule) and then had no time left."""
    machine = topology(name)
    network = machine.network()
    task = collective(coll, network.ranks, (2,) if coll in ("broadcast", "reduce") else ())
    least = bounds.steps(network, task)
    floor = bounds.flow(network, task, None)
    made = tuple(
        Point.of(s, floor, "optimal" if s.rounds_per_chunk == floor.value else "best-known", "exact", same_bits(s))
        for s in points
    )
    steps = int(least.value)
    best = min((p.rounds_per_chunk for p in made if p.steps <= steps), default=None)
    gap = Open(steps, floor.value, best, "time", floor.certificate)
    return machine, Frontier(network, task, made, (gap,), bounds=((0, least), (None, floor)))


@pytest.mark.parametrize(
    ("name", "coll"),
    [
        ("fully-connected:2*2", "allgather"),
        ("fully-connected:2*2", "reduce"),
        ("dgx1", "allreduce"),
        ("dgx1", "broadcast"),
        ("torus:3x3", "reduce-scatter"),
        ("torus:3x3", "alltoall"),
    ],
)
def test_points_are_labelled_and_verified(name, coll, monkeypatch):
    limit_sends(monkeypatch, 2000)
    machine, found = left_open(name, coll)
    root = 2 if coll in ("broadcast", "reduce") else 0
    made = merge_scale_points.merge_scale_points(found, ScaleSearch(machine, coll, root))
    assert made.points and all(p.construction.startswith("flow: ") for p in made.points)
    said = api.verify(json.loads(json.dumps(made.to_json())))
    assert len([line for line in said if "sends replayed" in line]) == len(made.points)
    assert "stand beside those of exact synthesis" in made.notes[-1]
    if coll != "allreduce":  # which says its construction in any case
        table = frontier_text.report(made)
        construction = [name for name, _ in table.columns].index("construction")
        assert all(row[construction].startswith("flow: ") for row in table.rows)


def test_points_of_more_steps_than_the_sweep_visited_raise_its_maximum():
    machine, found = left_open("torus:3x3", "allgather")
    made = merge_scale_points.merge_scale_points(replace(found, max_steps=1), ScaleSearch(machine, "allgather"))
    assert made.max_steps == made.points[-1].steps > 1
    api.verify(made.to_json())


def test_an_interval_that_a_flow_point_closes_is_closed():
    machine, found = left_open("torus:3x3", "allgather")
    made = merge_scale_points.merge_scale_points(found, ScaleSearch(machine, "allgather"))
    assert not made.open and made.points[-1].status == "optimal"
    assert any(steps == made.points[-1].steps for steps, _ in made.bounds)
    api.verify(made.to_json())


def test_only_what_improves_is_added(monkeypatch):
    limit_sends(monkeypatch, 13_000)
    machine, found = left_open("dgx-a100*2", "allgather")
    every = merge_scale_points.merge_scale_points(found, ScaleSearch(machine, "allgather", most_sends=13_000)).points
    _, some = left_open("dgx-a100*2", "allgather", *(replace(p, construction="exact").schedule for p in every[:2]))
    again = merge_scale_points.merge_scale_points(some, ScaleSearch(machine, "allgather", most_sends=13_000))
    assert [p.construction == "exact" for p in again.points] == [True, True] + [False] * (len(every) - 2)
    table = frontier_text.report(again)
    constructions = [row[[name for name, _ in table.columns].index("construction")] for row in table.rows]
    assert constructions[:2] == ["exact", "exact"] and constructions[2].startswith("flow: ")
    assert all(
        a.steps < b.steps and a.rounds_per_chunk > b.rounds_per_chunk
        for a, b in zip(again.points, again.points[1:], strict=False)
    )
    _, whole = left_open("dgx-a100*2", "allgather", *(p.schedule for p in every))
    assert (
        merge_scale_points.merge_scale_points(whole, ScaleSearch(machine, "allgather", most_sends=13_000)).points
        is whole.points
    )
    few = merge_scale_points.merge_scale_points(
        found, ScaleSearch(machine, "allgather", most_sends=13_000), options=Options(max_steps=2)
    )
    assert few.points and max(p.steps for p in few.points) <= 2


def test_long_schedules_are_left_out(monkeypatch):
    machine, found = left_open("dgx-a100*2", "allgather")
    limit_sends(monkeypatch, 300)
    made = merge_scale_points.merge_scale_points(found, ScaleSearch(machine, "allgather"))
    assert made.points and all(sum(len(step.sends) for step in p.schedule.steps) <= 300 for p in made.points)
    limit_sends(monkeypatch, 0)
    assert merge_scale_points.merge_scale_points(found, ScaleSearch(machine, "allgather")).points is found.points


def test_complete_frontiers_and_other_engines_are_left_alone(monkeypatch):
    machine, found = left_open("torus:3x3", "allgather")
    whole = replace(found, open=())
    assert merge_scale_points.merge_scale_points(whole, ScaleSearch(machine, "allgather")) is whole
    monkeypatch.setattr(engine_choice, "synthesize_exact", lambda *_: found)
    for engine, task in (("exact", found.collective), ("auto", collective("scan", 9))):
        assert engine_choice.synthesize(engine_choice.Query(machine, task, Options(), engine)) is found
    assert engine_choice.synthesize(engine_choice.Query(machine, found.collective, Options())).points
    uneven = collective("allgatherv", 9, sizes=[1] * 8 + [2])
    assert incumbents.scale_search(machine, uneven) is None


def test_the_call_takes_both(monkeypatch):
    limit_sends(monkeypatch, 13_000)
    monkeypatch.setattr(engine_choice, "deadline_after_sweep", lambda *_: NEVER)  # all the time that it takes
    found = api.frontier("dgx-a100*2", "allgather", time_limit=0.001, fresh=True, jobs=1)
    assert any(p.construction.startswith("flow: ") for p in found.points) and found.open
    assert found.points[-1].rounds_per_chunk < 2
    api.verify(found)


def test_when_the_time_is_over_one_point_is_written_out(monkeypatch):
    machine, found = left_open("ring:6", "broadcast")
    search = ScaleSearch(machine, "broadcast", 2)
    assert len(merge_scale_points.merge_scale_points(found, search).points) > 1
    made = merge_scale_points.merge_scale_points(found, search, deadline=Deadline.after(0.0))
    assert len(made.points) == 1 and any("written out" in note for note in made.notes)
    api.verify(made.to_json())


@pytest.mark.parametrize("coll", ["allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall"])
def test_schedules_have_no_fewer_sends_than_are_reckoned_with(coll):
    machine, found = left_open("torus:3x3", coll)
    large_points = search.frontier(machine, coll, 2 if coll in ("broadcast", "reduce") else 0).points
    for point in large_points[:2]:
        made = point.schedule.written_out()
        assert 0 < written_points.least_sends(point, found.collective) <= sum(len(step.sends) for step in made.steps)


def test_what_is_too_long_is_not_made(monkeypatch):
    machine, found = left_open("torus:3x3", "allreduce")
    limit_sends(monkeypatch, 15)
    monkeypatch.setattr(merge_scale_points, "bounded_point", lambda *_: pytest.fail("was made"))
    assert merge_scale_points.merge_scale_points(found, ScaleSearch(machine, "allreduce")).points == ()


def test_what_is_too_long_to_be_written_out_is_reported(monkeypatch):
    """More time, which brings exact synthesis in, must not hide where flows alone get: there is a note with the best of
    it."""
    limit_sends(monkeypatch, 2_000)
    machine, found = left_open("torus:4x3", "allreduce")
    made = merge_scale_points.merge_scale_points(found, ScaleSearch(machine, "allreduce"))
    every = search.frontier(machine, "allreduce").points
    least = min(every, key=lambda p: p.rounds_per_chunk)
    assert min(p.rounds_per_chunk for p in made.points) > least.rounds_per_chunk
    note = next(text for text in made.notes if text.startswith("flow methods have "))
    assert f"{least.rounds_per_chunk} rounds per chunk in {least.steps} steps" in note and "--engine flow" in note
    assert "stand beside" in made.notes[-1]


def test_what_the_time_does_not_allow_to_be_written_out_is_reported(monkeypatch):
    """A point that would take longer than is left is not begun."""
    monkeypatch.setattr(written_points, "SETTINGS", replace(written_points.SETTINGS, seconds_per_send=1e3))
    machine, found = left_open("torus:4x3", "allreduce")
    search = ScaleSearch(machine, "allreduce")
    made = merge_scale_points.merge_scale_points(found, search, deadline=Deadline.after(1000))
    assert len(made.points) == 1
    assert any("the time limit came before they were written out" in text for text in made.notes)


def test_no_higher_bound_is_spoken_of_where_one_is_attained():
    """A bound that a schedule attains is the highest; elsewhere the note stays."""
    machine, found = left_open("torus:3x3", "allgather")
    doubt = notes.unproven_bound("the time limit ended its search")
    made = merge_scale_points.merge_scale_points(
        replace(found, notes=(doubt, "other")), ScaleSearch(machine, "allgather")
    )
    assert made.points[-1].status == "optimal" and doubt not in made.notes and "other" in made.notes
    assert notes.drop_unproven_bound((doubt,), Fraction(2), Fraction(1)) == (doubt,)
    assert notes.drop_unproven_bound((doubt,), None, Fraction(1)) == (doubt,)

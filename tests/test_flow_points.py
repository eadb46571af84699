"""Points of the flow methods beside those of exact synthesis: only where they improve, labelled, verified like the
others; which are written out first, which not at all, and which not before a deadline."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from sweeps import begun, first_rows

from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings import bounds
from synth.encodings.engine import FrontierProblem, Options
from synth.model.collective import collective
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.pareto import flow, synthesize, written_points
from synth.pareto.events import SweepInterrupted
from synth.pareto.flow import AllFlow, QuickFlow, RestOfFlow
from synth.pareto.found import UNPROVEN_BOUND, Found
from synth.pareto.log import Log
from synth.pareto.sweep import Sweep
from synth.pareto.written_points import PointWriter
from synth.scale import search
from synth.solvers.deadline import NEVER, Deadline
from synth.topologies import topology
from synth.view import frontier_text


def limit_sends(monkeypatch, most):
    """Let no schedule of more than `most` sends be written out."""
    monkeypatch.setattr(flow, "MOST_SENDS", most)
    monkeypatch.setattr(flow, "FEW_SENDS", most)


def left_open(name, coll, *schedules, **changed):
    """Return the frontier of exact synthesis that found `schedules` and then had no time left."""
    machine = topology(name)
    network = machine.network()
    task = collective(coll, network.ranks, (2,) if coll in ("broadcast", "reduce") else ())
    least = bounds.steps(network, task)
    floor = bounds.flow(network, task, None)
    made = tuple(Point.of(s, floor, "exact") for s in schedules)
    steps = int(least.value)
    best = min((p.rounds_per_chunk for p in made if p.steps <= steps), default=None)
    gap = Open(steps, floor.value, best, "time", floor.certificate)
    found = Frontier(network, task, made, (gap,), bounds=((0, least), (None, floor)))
    return machine, replace(found, **changed)


def completed(machine, frontier, deadline=NEVER, listen=None, **options):
    """Return `frontier` with the points that flow methods add."""
    found = Found.of(frontier, Options(**options), frontier.points)
    found.listen = listen or found.listen
    for item in RestOfFlow().improve(FrontierProblem(machine, frontier.collective, found.options), found, deadline):
        found.take(item)
    found.update_open()
    return found.frontier()


@pytest.mark.parametrize(("name", "coll"), [
    ("fully-connected:2*2", "allgather"), ("fully-connected:2*2", "reduce"), ("dgx1", "allreduce"),
    ("dgx1", "broadcast"), ("torus:3x3", "reduce-scatter"), ("torus:3x3", "alltoall"),
])  # fmt: skip
def test_points_are_labelled_and_verified(name, coll, monkeypatch):
    limit_sends(monkeypatch, 2000)
    made = completed(*left_open(name, coll))
    assert made.points and all(p.construction.startswith("flow: ") for p in made.points)
    said = api.verify(json.loads(json.dumps(made.to_json())))
    assert len([line for line in said if "sends replayed" in line]) == len(made.points)
    assert "stand beside those of exact synthesis" in made.notes[-1]
    if coll != "allreduce":  # which says its construction in any case
        table = frontier_text.report(made)
        construction = [name for name, _ in table.columns].index("construction")
        assert all(row[construction].startswith("flow: ") for row in table.rows)


def test_points_of_more_steps_than_the_sweep_visited_raise_its_maximum():
    made = completed(*left_open("torus:3x3", "allgather", max_steps=1))
    assert made.max_steps == made.points[-1].steps > 1
    api.verify(made.to_json())


def test_an_interval_that_a_flow_point_closes_is_closed():
    """A bound that a schedule attains is the highest: no doubt is left; elsewhere the note stays."""
    doubt = UNPROVEN_BOUND + "the time limit ended its search"
    made = completed(*left_open("torus:3x3", "allgather", notes=(doubt, "other")))
    assert not made.open and made.points[-1].status == "optimal"
    assert any(steps == made.points[-1].steps for steps, _ in made.bounds)
    assert doubt not in made.notes and "other" in made.notes
    _, empty = left_open("torus:3x3", "allgather", notes=(doubt,))
    assert doubt in Found.of(empty, Options()).frontier().notes
    api.verify(made.to_json())


def test_only_what_improves_is_added(monkeypatch):
    limit_sends(monkeypatch, 13_000)
    machine, found = left_open("dgx-a100*2", "allgather")
    every = completed(machine, found).points
    again = completed(*left_open("dgx-a100*2", "allgather", *(p.schedule for p in every[:2])))
    assert [p.construction == "exact" for p in again.points] == [True, True] + [False] * (len(every) - 2)
    for a, b in pairwise(again.points):
        assert a.steps < b.steps and a.rounds_per_chunk > b.rounds_per_chunk
    whole = completed(*left_open("dgx-a100*2", "allgather", *(p.schedule for p in every)))
    assert {p.construction for p in whole.points} == {"exact"}
    few = completed(machine, found, max_steps=2)
    assert few.points and max(p.steps for p in few.points) <= 2


def test_long_schedules_are_left_out_and_reported(monkeypatch):
    """More time, which brings exact synthesis in, must not hide where flows alone get: a note has the best of it."""
    limit_sends(monkeypatch, 2_000)
    machine, found = left_open("torus:4x3", "allreduce")
    made = completed(machine, found)
    least = min(search.frontier(machine, "allreduce").points, key=lambda p: p.rounds_per_chunk)
    assert made.points and all(p.schedule.sends <= 2_000 for p in made.points)
    assert min(p.rounds_per_chunk for p in made.points) > least.rounds_per_chunk
    note = next(text for text in made.notes if text.startswith("flow methods have "))
    assert f"{least.rounds_per_chunk} rounds per chunk in {least.steps} steps" in note and "--engine flow" in note
    assert "stand beside" in made.notes[-1]
    limit_sends(monkeypatch, 0)
    monkeypatch.setattr(written_points, "written_out", lambda *_: pytest.fail("was made"))
    assert completed(machine, found).points == ()


def test_where_nothing_is_open_or_another_engine_is_asked_for_there_are_none(monkeypatch):
    machine, found = left_open("torus:3x3", "allgather")
    assert not completed(machine, replace(found, open=())).points
    task = found.collective
    assert RestOfFlow().applies(FrontierProblem(machine, task))
    uneven = collective("allgatherv", 9, sizes=[1] * 8 + [2])
    others = [
        FrontierProblem(machine, task, engine="exact"),
        *(FrontierProblem(machine, t) for t in (collective("scan", 9), uneven)),
    ]
    assert not any(RestOfFlow().applies(problem) for problem in others)


def test_the_call_takes_both(monkeypatch):
    limit_sends(monkeypatch, 13_000)
    monkeypatch.setattr(synthesize, "LAST_SECONDS", 1e6)  # all the time that it takes
    found = api.frontier("dgx-a100*2", "allgather", time_limit=0.001, fresh=True, jobs=1)
    assert any(p.construction.startswith("flow: ") for p in found.points) and found.open
    assert found.points[-1].rounds_per_chunk < 2
    api.verify(found)


def test_when_the_time_is_over_one_point_is_written_out(monkeypatch):
    machine, found = left_open("ring:6", "broadcast")
    assert len(completed(machine, found).points) > 1
    monkeypatch.setattr(written_points, "SECONDS_PER_SEND", 1e3)
    made = completed(machine, found, Deadline.after(1000))
    assert len(made.points) == 1 and any("the time limit came before they were written out" in n for n in made.notes)
    api.verify(made.to_json())


def test_ctrl_c_while_points_are_written_out_keeps_those_before_it(monkeypatch):
    written = []

    def tell(event):
        written.extend([event.text] if event.text.startswith("writing out") else [])
        if len(written) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Sweep, "run", lambda sweep: left(sweep))

    def left(sweep):
        sweep.found.add_open(Open(3, sweep.found.floor.value, None, "time", sweep.found.floor.certificate))
        sweep.found.points, sweep.found.rows, sweep.found.sweeping = [], [], False
        yield from ()

    for early in (QuickFlow, AllFlow):
        monkeypatch.setattr(early, "applies", lambda *_: False)
    monkeypatch.setattr(RestOfFlow, "applies", lambda *_: True)
    with pytest.raises(SweepInterrupted) as kept:
        synthesize.synthesize(FrontierProblem(topology("dgx-a100*2"), collective("allgather", 16)), tell)
    assert len(kept.value.frontier.points) == 1 and kept.value.frontier.points[0].construction.startswith("flow: ")


def test_engines_hand_on_what_they_have(monkeypatch):
    """Flow methods run once, before the sweep, and their cut and schedules serve where its bounds are late."""
    calls, machine, task = [], topology("random-regular:20"), collective("allgather", 20)

    def counted(module, name):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, **named: calls.append(name) or original(*given, **named))

    counted(search, "throughput")
    counted(search, "build")
    found = first_rows(machine, task)
    assert calls == ["throughput", "build"] and found.points and found.floor.certificate["kind"] == "static-cuts"
    found.open.append(Open(9, Fraction(1), None, "time"))
    list(RestOfFlow().improve(FrontierProblem(machine, task), found, NEVER))
    assert calls == ["throughput", "build"]


# ------------------------------------------------------------ the order in which points are written out

MACHINE = topology("torus:4x3")
NETWORK, TASK = MACHINE.network(), collective("allgather", 12)
POINTS = search.frontier(MACHINE, "allgather").points


def written(deadline=NEVER, known=(), points=POINTS, network=NETWORK, task=TASK, **how):
    writer, found = PointWriter(network, task, deadline, **how), begun(network, task)
    found.points = [Point(s, rate.numerator, rate.denominator, LowerBound(rate, {}), "", None) for s, rate in known]
    made = []
    for point, schedule in writer.improvements(points, found):
        assert replay.schedule(schedule).rounds_per_chunk == point.rounds_per_chunk
        assert 0 < written_points.least_sends(point, task) <= schedule.sends
        found.points.append(point)
        made.append(point)
    return made, writer


def test_all_improvements_are_written_out_the_greatest_fall_for_each_send_first():
    points, writer = written()
    assert sorted(p.steps for p in points) == [p.steps for p in POINTS] and not writer.too_late + writer.too_long
    points, _ = written(known=[(POINTS[0].steps, POINTS[0].rounds_per_chunk)])
    sends = [written_points.least_sends(point, TASK) for point in points]
    assert len(points) == len(POINTS) - 1 and sends == sorted(sends)


def test_few_steps_of_more_rounds_than_known_come_last():
    machine = topology("line:6")
    points = search.frontier(machine, "broadcast").points
    known = [(99, points[-1].rounds_per_chunk)]
    order, _ = written(NEVER, known, points, machine.network(), collective("broadcast", 6))
    assert len(order) > 2 and order[-1] == points[0]


def test_small_falls_are_left_out():
    best = POINTS[-1].rounds_per_chunk
    points, writer = written(known=[(1, best * Fraction(101, 100))], worth=Fraction(1, 20))
    assert not points and not writer.too_long


def test_what_is_too_long_or_too_late_is_kept_apart():
    points, writer = written(most_sends=0)
    assert not points and len(writer.too_long) == len(POINTS)
    points, writer = written(Deadline.after(0))
    assert not points and len(writer.too_late) == len(POINTS)
    points, writer = written(Deadline.after(0), one_at_least=True)
    assert len(points) == 1 and len(writer.too_late) == len(POINTS) - 1
    points, _ = written(Deadline.after(0), known=[(1, Fraction(1000))], one_at_least=True)
    assert len(points) == 1


def test_rows_are_not_logged(tmp_path):
    """A record of many sends takes as long as a replay, and the next run has the same rows without a search."""
    from sweeps import swept

    rows = first_rows(topology("torus:3x3"), collective("allgather", 9)).points
    with Log(tmp_path / "log", "key") as log:
        found = swept(topology("torus:3x3").network(), collective("allgather", 9), rows, log, 2.0, time_limit=1.0)
    assert found.points and not Log(tmp_path / "log", "key").records

"""A schedule of an own search that replay refuses costs its row and gives a note; all other rows stand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from sweeps import begun

import synth
from synth.checker.schedule import replay
from synth.errors import VerificationError
from synth.model.frontier import LowerBound, Point
from synth.model.outcome import Cost, Sat
from synth.model.schedule import Step
from synth.pareto import close_step_count
from synth.pareto.combining.close_combining import CombiningSearch
from synth.pareto.flow_frontier import ScaleRows
from synth.pareto.written_points import PointWriter
from synth.scale.candidate import Candidate
from synth.scale.search_state import SearchState

LEFT_OUT = "is left out, since its replay fails"


def links(*rows):
    return [synth.Link(src, dst, bandwidth) for src, dst, bandwidth in rows]


def without_last_send(schedule):
    """Return the schedule without one of its sends, so that a rank lacks what it must have."""
    *steps, last = schedule.steps
    return replace(schedule, steps=(*steps, Step(last.rounds, last.sends[:-1])))


def test_a_dive_takes_no_more_trees_than_a_unit_needs():
    """The linear program gave rank 2 one and a half times its chunks; the last third took the numbers of rank 3's."""
    rows = links((2, 1, 2), (0, 1, 1), (0, 2, "1/3"), (3, 0, 5), (1, 2, 1), (2, 0, 1))
    found = synth.frontier(synth.Topology("four", 4, rows), "gather", roots=1, max_steps=3)
    assert {p.steps: p.rounds_per_chunk for p in found.points} == {2: Fraction(7, 12), 3: Fraction(55, 108)}
    assert not any(LEFT_OUT in note for note in found.notes)


def test_the_sweep_goes_on_after_a_wrong_schedule(tmp_path, monkeypatch):
    """All rows were lost, with exit code 5."""
    found = synth.frontier("dgx1", "allgather", max_steps=3, log=tmp_path / "a")
    right = {point.steps: point for point in found.points}

    def wrong(state, steps, bound, work_limit):
        schedule = right[steps].schedule
        if steps == 2:
            schedule = without_last_send(schedule)
        return Sat(schedule, Cost("made up", 0.0, 0.0)), ""

    monkeypatch.setattr(close_step_count, "meet_bound", wrong)
    for name in ("near", "search"):
        monkeypatch.setattr(close_step_count, name, lambda *_: iter(()))
    found = synth.frontier("dgx1", "allgather", max_steps=3, log=tmp_path / "b", encoding="step", engine="exact")
    assert [point.steps for point in found.points] == [3]
    (note,) = [note for note in found.notes if LEFT_OUT in note]
    assert note.startswith("a schedule by 'made up'")
    (interval,) = found.open
    assert (interval.steps, interval.upper, interval.lower) == (2, None, right[2].bound.value)


def test_a_sweep_of_sums_goes_on_after_a_wrong_schedule(tmp_path, monkeypatch):
    found = synth.frontier("ring:4", "allreduce", log=tmp_path / "a")
    first, *others = found.points

    def improvements(self, search):
        if search.steps == first.steps:
            yield without_last_send(first.schedule), "made up"
        else:
            yield next(point for point in others if point.steps == search.steps).schedule, "right"

    monkeypatch.setattr(CombiningSearch, "_improvements", improvements)
    again = synth.frontier("ring:4", "allreduce", log=tmp_path / "b", multicast=False)
    assert [point.steps for point in again.points] == [point.steps for point in others]
    assert [interval.steps for interval in again.open] == [first.steps] and not again.complete
    assert any(LEFT_OUT in note and "'made up'" in note for note in again.notes)


def test_a_wrong_row_at_scale_is_left_out(monkeypatch):
    machine = synth.topology("ring:4")
    (point,) = synth.frontier(machine, "allgather", engine="flow", max_steps=2).points
    right = point.schedule
    wrong = replace(right, chunk=0 * right.chunk)
    rows = ScaleRows(machine, "allgather", lambda event: None)
    state = SearchState(lambda text: None, on_candidate=rows.announce)
    state.bound = point.bound.value, point.bound.certificate
    sizes = right.step_count, right.rounds_per_chunk, right.chunks
    state.add_points([Candidate(*sizes, "made up", lambda: wrong), Candidate(*sizes, "as found", lambda: right)])
    assert [point.construction for point in state.points()] == ["as found"]
    (note,) = state.notes
    assert LEFT_OUT in note and "'made up'" in note
    unseen = SearchState(lambda text: None)
    unseen.bound = state.bound
    unseen.add_points([Candidate(*sizes, "made up", lambda: wrong), Candidate(*sizes, "as found", lambda: right)])
    unseen.leave_out(rows.refusal)
    assert [point.construction for point in unseen.points()] == ["as found"] and unseen.notes == [note]


def test_a_wrong_point_that_is_written_out_is_left_out():
    machine = synth.topology("torus:3x3")
    (right,) = synth.frontier(machine, "allgather", engine="flow").points
    wrong = replace(right, source=replace(right.schedule, path=0 * right.schedule.path), construction="made up")
    task = synth.collective("allgather", 9)
    writer, found = PointWriter(machine.network(), task), begun(machine.network(), task)
    for point, schedule in writer.improvements([wrong, right], found):
        found.take(Point.of(schedule, found.floor, point.construction))
    assert [point.construction for point in found.points] == [right.construction]
    (note,) = found.notes
    assert LEFT_OUT in note and "'made up'" in note and not writer.too_long


def test_a_wrong_schedule_through_switches_is_left_out(monkeypatch):
    refusals, right = [], replay.schedule

    def refuse_first(schedule):
        if schedule.uses_multicast and not refusals:
            refusals.append(schedule)
            raise VerificationError("made up")
        return right(schedule)

    monkeypatch.setattr(replay, "schedule", refuse_first)
    found = synth.frontier("switch:4:multicast=through", "broadcast", max_steps=3)
    assert refusals and found.points
    (note,) = [note for note in found.notes if LEFT_OUT in note]
    assert note.endswith("its replay fails: made up; please report this")


def test_a_bound_that_is_not_proved_ends_the_search():
    """Nothing stands on a false bound, so it is no row that could be left out."""
    machine = synth.topology("ring:4")
    (point,) = synth.frontier(machine, "allgather", engine="flow", max_steps=2).points
    rows = ScaleRows(machine, "allgather", lambda event: None)
    false = LowerBound(point.bound.value, point.bound.certificate | {"topology": "0"})
    sizes = point.steps, point.rounds_per_chunk, point.chunks
    candidate = Candidate(*sizes, "as found", lambda: point.schedule)
    with pytest.raises(VerificationError):
        rows.announce(false, candidate)

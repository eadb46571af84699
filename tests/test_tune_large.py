"""Points of flow methods in a plan: too large to be written out, or no time left. Clocks are
injected."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

from synth import api
from synth.api import synthesis, tuning_inputs
from synth.api.inputs import named_topology
from synth.api.tuning_inputs import SearchOptions
from synth.catalog.tuner.candidates import NamedSchedule, candidates
from synth.catalog.tuner.predicted_times import PredictedTimes
from synth.model import compressed_schedule
from synth.model.frontier import LowerBound, Point
from synth.model.scale_frontier import ScaleFrontier, scale_point
from synth.scale.search import frontier
from synth.view import plans

MACHINE = named_topology("dgx1")


@cache
def large() -> ScaleFrontier:
    found = frontier(MACHINE, "allgather")
    return replace(found, points=found.points[:3])


def test_a_point_too_large_to_write_out_is_left_out_with_a_note(monkeypatch):
    """It was an error that lost the whole plan."""
    found = large()
    sends = [len(point.schedule.expanded().step) for point in found.points]
    assert min(sends) < max(sends)
    monkeypatch.setattr(compressed_schedule, "MAXIMUM_SENDS", max(sends) - 1)
    made, notes = tuning_inputs._written_out(found, SearchOptions())
    assert len(made.points) == sum(n < max(sends) for n in sends)
    steps = found.points[sends.index(max(sends))].steps
    assert notes[0] == f"the point of {steps} steps is too large to write out ({max(sends)} sends): not a candidate"


def test_a_plan_has_every_size_where_all_points_are_too_large(monkeypatch):
    found = large()
    monkeypatch.setattr(compressed_schedule, "MAXIMUM_SENDS", 1)
    monkeypatch.setattr(synthesis, "known_frontier", lambda *_: None)
    monkeypatch.setattr(synthesis, "frontier", lambda *given, **more: found)
    plan = api.tune(MACHINE, "allgather", [1 << 10, 1 << 30])
    assert len(plan.tables[0].seconds) == 2 and all(plan.tables[0].seconds)
    assert sum("too large to write out" in note for note in plan.notes) == len(found.points)
    assert (
        "schedules that divide every size are not looked for: the machine is too large for exact synthesis"
        in plan.notes
    )
    assert all(not a.label.startswith("S") for a in plan.algorithms)


def test_points_are_written_out_while_there_is_time_and_the_first_come_first():
    """Each takes a second a chunk: of 1, 2, 4 and 8 chunks two are made in 16 seconds, and what is left is for
    predicting them."""
    now, one = [100.0], large().points[0]

    def point(steps: int, chunks: int) -> Point:
        def make():
            now[0] += chunks
            return one.schedule

        return scale_point(steps, chunks, chunks, "by hand", make, LowerBound(Fraction(1), {}))

    found = ScaleFrontier(MACHINE, "allgather", None, Fraction(1), {}, 1, tuple(point(k, 1 << k) for k in range(4)))
    made, notes = tuning_inputs._written_out(found, SearchOptions(end=116.0, clock=lambda: now[0]))
    assert len(made.points) == 2 and now[0] == 103.0
    assert notes == ("the time limit left no time to write out the points of 2, 3 steps: not candidates",)


def test_when_the_time_is_over_the_baselines_are_candidates_alone():
    ring, direct = (api.baseline(name, "full:4", "allgather") for name in ("ring", "direct"))
    network = direct.network
    late = PredictedTimes(network, late=lambda: True)
    over = candidates([NamedSchedule("S1", direct), NamedSchedule("ring", ring, True)], [], times=late)
    assert {c.algorithm.schedule for c in over.candidates} == {ring}
    assert over.notes[0] == "the time limit left no time to predict the times of S1: not candidates"
    over = candidates([NamedSchedule("S1", direct)], [], times=PredictedTimes(network))
    assert {c.algorithm.schedule for c in over.candidates} == {direct}


def test_tables_say_in_plain_words_what_columns_are_and_nothing_of_no_loss():
    plan = api.tune("full:4", "allgather", [1 << 10, 1 << 20], dividing=False)
    ranges, sizes = plans.reports(plan)
    assert [name for name, _ in ranges.columns][-2:] == ["no padding at multiples of", "alternatives, in order"]
    assert {"best schedule µs", "best of library µs"} <= {name for name, _ in sizes.columns}
    assert plan.tables[0].losses == (0.0, 0.0) and not any("at most" in line for line in sizes.sentences)

"""Predicted times of the tuner: runs of the reference executor, and what a cost per message changes."""

import json
from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth import api
from synth.api import tuning
from synth.catalog.tuner import candidates, predicted_times
from synth.catalog.tuner.candidates import NamedSchedule
from synth.catalog.tuner.cost_terms import shape
from synth.catalog.tuner.least_time import LeastTime
from synth.catalog.tuner.predicted_times import PredictedTimes, PredictedTimeSettings, Variant
from synth.cli import root
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.tuning_plan import Plan
from synth.program.checked_lowering import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import NCCL
from synth.program.runtimes import RUNTIMES
from synth.runtime.reference.executor import Reference
from synth.scale.time_bound import time_bound
from synth.view import algorithm_times
from synth.view import plans as view

KB = 1 << 10


def of_direct(topology, collective):
    """Return a frontier whose only point is the direct schedule."""
    found = api.baseline("direct", topology, collective)
    point = Point.of(found, LowerBound(Fraction(1), {"kind": "none"}), "best-known", "by hand")
    return Frontier(found.network, found.collective, (point,))


def chosen(topology, collective, size, cost=NO_COST):
    plan = api.tune(topology, collective, [size], frontiers=[of_direct(topology, collective)], per_send=cost,
                    protocols=["LL"], dividing=False)  # fmt: skip
    (table,) = plan.tables
    return {a.label for a in plan.algorithms if a == plan.choose(collective, size)}.pop(), table.seconds[0] or 0


@pytest.mark.parametrize(
    ("topology", "collective", "size", "few"),
    [
        ("full:8", "alltoall", 8 * 16, "bruck-LL"),
        ("full:8", "broadcast", 64, "binomial-LL"),
        pytest.param("full:8", "allreduce", 64, "recursive-doubling-LL", marks=pytest.mark.slow),
    ],
)
def test_algorithms_of_few_messages_win_at_small_sizes_where_messages_cost(topology, collective, size, few):
    free, least = chosen(topology, collective, size)
    paid, more = chosen(topology, collective, size, MessageCost.parse("2us"))
    assert free != few and paid == few
    assert more > least
    assert chosen(topology, collective, size << 20, MessageCost.parse("2us"))[0] != few


def test_a_prediction_is_a_run_of_the_program_with_the_protocols_overhead():
    schedule = api.baseline("ring", "dgx1", "allgather")
    times = PredictedTimes(schedule.network)
    simple, ll = (times.add(Variant(schedule, shape(schedule), protocol)) for protocol in ("Simple", "LL"))
    run = Reference(network=schedule.network).time(lower(schedule), 1).picoseconds or 0
    size = 4 * lower(schedule).loop_chunks
    hops, cost = len(schedule.steps), NCCL.of("Simple")
    assert simple(size) == pytest.approx(run * 1e-12 + float(cost.launch + hops * cost.hop) * 1e-6, rel=1e-3)
    assert (ll(size) or 0) < (simple(size) or 0)
    assert (ll(1 << 30) or 0) > (simple(1 << 30) or 0)


def test_times_are_also_asked_for_before_and_after_a_chunk_needs_one_more_slice():
    schedule = api.baseline("halving-doubling", "full:8", "reduce-scatter")
    found = PredictedTimes(schedule.network).add(Variant(schedule, shape(schedule), "LL"))
    program = lower(schedule, LoweringOptions(protocol="LL"))
    whole = RUNTIMES["synth"].operation_bytes("LL", "reduce-scatter") * program.loop_chunks  # one slice of each chunk
    assert found.jumps(whole - 1, 3 * whole) == [whole, whole + 1, 2 * whole, 2 * whole + 1, 3 * whole]
    assert found.jumps(whole, whole) == []


def test_programs_that_are_far_behind_or_too_long_are_not_run():
    ring, direct = (api.baseline(name, "full:8", "allgather") for name in ("ring", "direct"))
    late = PredictedTimes(ring.network, late=lambda: True, judged=[64])
    kept = late.add(Variant(direct, shape(direct), "LL"))
    none = late.add(Variant(direct, shape(direct), "LL", 2))
    far = late.add(Variant(ring, shape(ring), "Simple"))
    assert kept(64) == late.model.seconds(shape(direct), "LL", 1, 64)
    assert far(64) == late.model.seconds(shape(ring), "Simple", 1, 64)
    assert none(64) is None
    asked = [kept.variant, none.variant, far.variant]
    assert [late.not_run(one) for one in asked] == [True, True, False]


def test_what_others_are_compared_with_is_run_at_judged_sizes_however_slow_it_is():
    """On two boxes a ring passes its slow links in few steps at a time, so it takes a third of its nominal time."""
    ring, direct = (api.baseline(name, "dgx-a100*2", "allgather") for name in ("ring", "direct"))
    ran = []
    for compared in (False, True):
        times = PredictedTimes(ring.network, judged=[1024])
        times.add(Variant(direct, shape(direct), "LL"))
        predict = times.add(Variant(ring, shape(ring), "LL"), compared=compared)
        ran.append([predict(1024), predict(2048)])
    nominal, synchronous = ran[0]
    done = api.run(api.lower(ring, protocol="LL"), topology="dgx-a100*2", size=1024, data=False).execution
    alone = float(done.picoseconds or 0) * 1e-12
    assert ran[1] == [pytest.approx(alone), synchronous]
    assert alone < nominal / 2


def test_a_point_with_the_sends_of_a_baseline_stays_a_candidate_when_the_time_is_over():
    direct = api.baseline("direct", "full:4", "alltoall")
    times = PredictedTimes(direct.network, late=lambda: True)
    found = candidates.candidates([NamedSchedule("S1-R1-C1", direct), NamedSchedule("direct", direct, True)], (),
                                  None, "", None, times)  # fmt: skip
    assert {one.algorithm.label for one in found.candidates} >= {"S1-R1-C1"}


def test_notes_name_what_was_not_run_and_say_what_its_times_are(monkeypatch):
    monkeypatch.setattr(predicted_times, "SETTINGS", PredictedTimeSettings(maximum_sends=4))
    plan = api.tune("full:4", "allgather", [4096], frontiers=[of_direct("full:4", "allgather")], dividing=False)
    (least,) = [note for note in plan.notes if note.startswith(tuning.LEAST)]
    (synchronous,) = [note for note in plan.notes if note.startswith(tuning.SYNCHRONOUS)]
    chosen = {one.label for one in plan.algorithms if one == plan.choose("allgather", 4096)}
    for note, labels in (
        (least, ["nccl-ring", "nccl-ring-LL", "ring", "ring-LL"]),
        (synchronous, ["S1-R1-C1", "S1-R1-C1-LL", "bruck-LL", "halving-doubling-LL"]),
    ):
        named = note.partition("(too long to run): ")[2].removesuffix(" more").split(", ")
        assert sorted(label.removesuffix(" (chosen)") for label in named) == labels
        marked = [f"{label} (chosen)" for label in labels if label in chosen]
        assert named[: len(marked)] == marked == [label for label in named if label.endswith(" (chosen)")]
    assert "ring" not in synchronous
    assert plan.tables[0].losses == (None,) and Plan.from_json(plan.to_json()).tables == plan.tables
    _, sizes = view.reports(plan)
    assert "not known" in sizes.rows[0]
    assert sum(line.startswith("~: an estimate, for this program was not run") for line in sizes.sentences) == 1
    assert not any(line.startswith("loss: ") for line in sizes.sentences)
    monkeypatch.undo()
    plan = api.tune("full:4", "allgather", [4096], frontiers=[of_direct("full:4", "allgather")], dividing=False)
    assert plan.tables[0].losses == (0.0,) and not plan.tables[0].estimated


def test_notes_tell_too_long_from_too_late(monkeypatch):
    monkeypatch.setattr(predicted_times, "SETTINGS", PredictedTimeSettings(maximum_sends=12))
    ring, direct = (api.baseline(name, "full:4", "allgather") for name in ("ring", "direct"))
    times = PredictedTimes(ring.network, late=lambda: True, judged=[64])
    for schedule, instances, reason in (
        (direct, 1, "the time limit left no time for a run"),
        (direct, 2, "too long to run"),
    ):
        variant = Variant(schedule, shape(schedule), "LL", instances)
        times.add(variant)(64)
        assert times.reason_not_run(variant) == reason


def test_what_others_are_compared_with_has_its_least_time_where_it_is_too_long_to_run(monkeypatch):
    """Synchronous steps would take a ring of two boxes for three times as slow, and all else for as much faster."""
    ring = api.baseline("ring", "dgx-a100*2", "allgather")
    found = []
    for maximum in (PredictedTimeSettings.maximum_sends, 4):
        monkeypatch.setattr(predicted_times, "SETTINGS", PredictedTimeSettings(maximum_sends=maximum))
        times = PredictedTimes(ring.network, judged=[1024])
        variant = Variant(ring, shape(ring), "LL")
        own, theirs = times.add(variant), times.add(variant, compared=True)
        found.append((own(1024), theirs(1024), theirs(2048), times.model.seconds(shape(ring), "LL", 1, 1024)))
    (run, same, _, nominal), (own_least, least, between, _) = found
    assert run == same and 0.95 * run <= least <= run
    assert own_least == least < between < nominal / 2


@pytest.mark.parametrize("protocol", ["LL", "Simple"])
@pytest.mark.parametrize(
    ("name", "machine", "collective"),
    [
        ("ring", "dgx1", "allgather"), ("ring", "dgx-a100*2", "allreduce"), ("ring", "mi300x", "reduce-scatter"),
        ("ring", "dgx-h100", "broadcast"), ("tree", "dgx-a100*2", "allreduce"), ("direct", "fat-tree:8", "alltoall"),
        ("two-step", "mi250*2", "alltoall"), ("binomial", "full:6", "reduce"),
    ],
)  # fmt: skip
def test_no_run_is_faster_than_the_least_time(name, machine, collective, protocol):
    schedule = api.baseline(name, machine, collective)
    network, program = NCCL.links(schedule.network, protocol), lower(schedule, LoweringOptions(protocol=protocol))
    least, slices = LeastTime(schedule, network), RUNTIMES["synth"].operation_bytes(protocol, collective)
    for elements in (1, 1000, 30_000):
        run = float(Reference(network=network).time(program, elements).picoseconds or 0) * 1e-6
        assert 0.3 * run < least.microseconds(4 * elements, slices) <= run * (1 + 1e-9)


def test_times_between_judged_sizes_stay_rough_when_the_time_is_over():
    """Run algorithms answer at other sizes, too; no other one is run to see how near it is."""
    over = False
    ring, direct = (api.baseline(name, "full:4", "allgather") for name in ("ring", "direct"))
    times = PredictedTimes(ring.network, late=lambda: over, judged=[1 << 20])
    ran, other = Variant(ring, shape(ring), "LL"), Variant(direct, shape(direct), "LL")
    predict, _ = times.add(ran), times.add(other)
    assert predict(1 << 20)
    over = True
    assert predict(1 << 21)
    assert not times.not_run(ran) and not times.not_run(other)


def test_no_run_begins_when_the_time_is_over():
    """A time that some runs are known for is nominal where it needs another one, and is said to be so."""
    over = False
    direct = api.baseline("direct", "full:4", "allgather")
    times = PredictedTimes(direct.network, late=lambda: over, judged=[1 << 10, 1 << 26])
    variant = Variant(direct, shape(direct), "LL")
    predict = times.add(variant)
    run = predict(1 << 10)
    over = True
    assert predict(1 << 10) == run and times.ran(variant, 1 << 10)
    assert predict(1 << 26) == times.model.seconds(shape(direct), "LL", 1, 1 << 26) and not times.ran(variant, 1 << 26)
    assert times.reason_not_run(variant) == "the time limit left no time for a run"


def test_what_may_be_the_fastest_runs_first():
    size, over = 1 << 20, False
    names = ("direct", "hierarchical", "bruck", "halving-doubling", "ring")
    schedules = [api.baseline(name, "dgx-a100*2", "allgather") for name in names]
    times = PredictedTimes(schedules[0].network, late=lambda: over, judged=[size])
    found = [times.add(Variant(s, shape(s), protocol)) for s in schedules for protocol in ("Simple", "LL")]
    times.run_fastest([(one, size) for one in found])
    over = True
    best = min(found, key=lambda one: one(size) or 0)
    assert times.ran(best.variant, size)
    assert not all(times.ran(one.variant, size) for one in found)


def test_a_least_time_is_no_less_than_the_certified_bound(monkeypatch):
    """The bound counts the way to the busiest link, too."""
    monkeypatch.setattr(predicted_times, "SETTINGS", PredictedTimeSettings(maximum_sends=4))
    ring = api.baseline("ring", "dgx-a100*2", "broadcast")
    size = 1 << 26
    times = PredictedTimes(ring.network, judged=[size])
    least = times.add(Variant(ring, shape(ring), "Simple"), compared=True)(size)
    (row,) = time_bound(ring.network, ring.collective, [size], overheads=NCCL).rows
    assert least is not None and least >= float(row.microseconds) * 1e-6


def test_messages_have_their_cost_in_the_nominal_model_too():
    """One at either end, and six more that a rank sends: what was not run must not look faster than what was."""
    schedule = api.baseline("direct", "full:8", "allgather")
    free, paid = PredictedTimes(schedule.network), PredictedTimes(schedule.network, MessageCost.parse("LL=1us"))
    found = shape(schedule)
    more = (free.model.seconds(found, "LL", 1, 64) or 0) + (2 + 6) * 1e-6
    assert paid.model.seconds(found, "LL", 1, 64) == pytest.approx(more)
    assert paid.model.seconds(found, "Simple", 1, 64) == free.model.seconds(found, "Simple", 1, 64)
    assert "a message costs LL 1 µs at either end" in paid.model.says


def invoke(words, code=0):
    done = CliRunner().invoke(root, words.split())
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


def test_pareto_at_a_size_prints_runs_of_points_and_baselines_beside_synchronous_steps():
    words = "pareto --topo ring:4 --coll allgather --size 1KB --max-steps 3"
    done = invoke(words)
    assert "`best for`: predicted, synchronous steps" in done.stdout
    assert "predicted, event-driven, LL, launch 3.6 µs included" in done.stdout
    free = json.loads(invoke(f"{words} --format json").stdout)
    paid = json.loads(invoke(f"{words} --per-send LL=5us --format json").stdout)
    times = [{row["label"]: row["seconds"] for row in doc["candidates"] if row["protocol"] == "LL"}
             for doc in (free, paid)]  # fmt: skip
    assert {"ring", "direct"} & times[0].keys()
    assert all(times[1][label] >= times[0][label] + 10e-6 for label in times[0].keys() & times[1].keys())
    assert [row["seconds"] for row in free["candidates"]] == sorted(row["seconds"] for row in free["candidates"])


def test_the_times_of_what_was_too_late_to_run_are_said_to_be_of_synchronous_steps():
    frontier = of_direct("full:4", "allgather")
    words = "far behind, or too long or too late to run; predicted by synchronous steps"
    for seconds, late in ((600.0, False), (0.0, True)):
        rows = tuning.times_at(frontier, 1024, seconds=seconds)
        assert rows[0].late == late and all(row.late == ("synchronous steps" in row.model) for row in rows)
        sentences = " ".join(algorithm_times.report(rows, 1024).sentences)
        assert f"{rows[0].label}: {words}" in sentences or f"{rows[0].label}, " in sentences or not late


def test_only_programs_far_behind_are_not_run_while_there_is_time():
    rows = tuning.times_at(of_direct("full:4", "allgather"), 1024, seconds=600.0)
    late = {(row.label, row.protocol): row.late for row in rows}
    assert {late[name, "LL"] for name in ("S1-R1-C1", "ring", "halving-doubling")} == {False}
    assert late["halving-doubling", "Simple"] and not late["S1-R1-C1", "Simple"]


def test_a_cost_per_message_without_a_size_is_refused():
    done = invoke("pareto --topo ring:4 --coll allgather --per-send 1us", 2)
    assert "add --size" in done.stderr


def test_a_step_costs_the_latency_of_its_own_links():
    """Two steps of `hierarchical` on two boxes: one between them, one inside."""
    schedule = api.baseline("hierarchical", "dgx-a100*2", "allgather")
    latencies = {route.latency for route in schedule.network.routes}
    assert schedule.latency == sum(latencies) < len(schedule.steps) * schedule.network.latency

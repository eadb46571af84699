"""Predicted times of the tuner: runs of the reference executor, bounds below them, and what a time limit leaves."""

import json
from fractions import Fraction

import pytest

from synth.catalog.tuner import clock
from synth.catalog.tuner.clock import Clock, Variant
from synth.commands import api
from synth.commands.tuning import point_times, tune
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.tuning_plan import Plan
from synth.program.checked_lowering import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import NCCL
from synth.runtime.reference.executor import Reference
from synth.scale.time_bound import time_bound
from synth.solvers.deadline import Deadline, time_limited
from synth.view import plans as view
from tests.command_line import synth

KB = 1 << 10
OVER = Deadline(-1.0)


def of_direct(topology, collective):
    """Return a frontier whose only point is the direct schedule."""
    found = api.baseline("direct", topology, collective)
    point = Point.of(found, LowerBound(Fraction(1), {"kind": "none"}), "by hand")
    return Frontier(found.network, found.collective, (point,))


def chosen(topology, collective, size, cost=NO_COST):
    plan = api.tune(topology, collective, [size], frontiers=[of_direct(topology, collective)], per_send=cost,
                    protocols=["LL"])  # fmt: skip
    return plan.choose(collective, size).label, plan.tables[0].seconds[0]


@pytest.mark.parametrize(
    ("topology", "collective", "size", "few"),
    [("full:8", "alltoall", 8 * 16, "bruck-LL"), ("full:8", "broadcast", 64, "binomial-LL")],
)
def test_algorithms_of_few_messages_win_at_small_sizes_where_messages_cost(topology, collective, size, few):
    free, least = chosen(topology, collective, size)
    paid, more = chosen(topology, collective, size, MessageCost.parse("2us"))
    assert free != few and paid == few and more > least
    assert chosen(topology, collective, size << 20, MessageCost.parse("2us"))[0] != few


@pytest.mark.parametrize("protocol", ["LL", "Simple"])
@pytest.mark.parametrize(
    ("name", "machine", "collective"),
    [
        ("ring", "dgx1", "allgather"), ("ring", "rail:2x2", "allreduce"), ("tree", "full:6", "allreduce"),
        ("direct", "fat-tree:4", "alltoall"), ("two-step", "rail:2x3", "alltoall"), ("binomial", "full:6", "reduce"),
    ],
)  # fmt: skip
def test_times_are_runs_and_no_run_is_faster_than_the_least_time(name, machine, collective, protocol):
    schedule = api.baseline(name, machine, collective)
    network, program = NCCL.links(schedule.network, protocol), lower(schedule, LoweringOptions(protocol=protocol))
    for elements in (1, 1000, 30_000):
        size = 4 * elements * program.loop_chunks
        times = Clock(schedule.network, sizes=[size])
        run = Reference(network=network).time(program, elements).picoseconds * 1e-12
        found = times.time(Variant(schedule, protocol), size)
        assert not found.estimated
        assert found.seconds == pytest.approx(run + float(NCCL.of(protocol).launch) * 1e-6, rel=1e-9)
        launch = NCCL.launch(protocol) * 1e-12
        assert 0.3 * run < times.least(Variant(schedule, protocol), size) - launch <= run * (1 + 1e-9)
        assert times.least(Variant(schedule, protocol, 2), size) <= found.seconds * (1 + 1e-9)


def test_a_least_time_is_no_less_than_the_certified_bound():
    ring, size = api.baseline("ring", "dgx-a100*2", "broadcast"), 1 << 26
    (row,) = time_bound(ring.network, ring.collective, [size], overheads=NCCL).rows
    assert Clock(ring.network).least(Variant(ring, "Simple"), size) >= 0.99 * float(row.microseconds) * 1e-6


def test_no_run_begins_when_the_time_is_over_and_estimates_are_marked():
    """A program that has run keeps its excess over its least time; a library's has that least time, others none."""
    ring, direct = (api.baseline(name, "full:4", "allgather") for name in ("ring", "direct"))
    times = Clock(ring.network, sizes=[1 << 10, 1 << 26])
    ran, library = Variant(direct, "LL"), Variant(ring, "LL", library=True)
    first = times.time(ran, 1 << 10)
    with time_limited(OVER):
        assert times.time(ran, 1 << 10) == first
        estimate = times.time(ran, 1 << 26)
        excess = first.seconds / times.least(ran, 1 << 10)
        assert estimate.estimated and estimate.seconds == pytest.approx(excess * times.least(ran, 1 << 26))
        assert times.time(library, 1 << 26) == (times.least(library, 1 << 26), True)
        assert times.time(Variant(ring, "Simple"), 1 << 26) is None
    assert times.not_run(ran) == times.not_run(library) == clock.LATE
    assert not times.time(library, 1 << 26).estimated and not times.not_run(library)  # with more time


def test_notes_name_what_was_not_run_and_say_what_its_times_are(monkeypatch):
    frontier = of_direct("full:4", "allgather")
    plan = api.tune("full:4", "allgather", [4096], frontiers=[frontier])
    assert plan.tables[0].losses == (0.0,) and not plan.tables[0].estimated
    monkeypatch.setattr(clock, "MAXIMUM_SENDS", 4)
    plan = api.tune("full:4", "allgather", [4096], frontiers=[frontier])
    (least,) = [note for note in plan.notes if note.startswith(tune.LEAST)]
    assert least.endswith("(too long to run): nccl-ring, nccl-ring-LL") or "nccl-ring-LL" in least
    assert plan.choose("allgather", 4096).backend == "nccl"  # nothing else has a time
    assert plan.tables[0].losses == (None,) and Plan.from_json(plan.to_json()).tables == plan.tables
    _, sizes = view.reports(plan)
    assert "not known" in sizes.rows[0]
    assert sum(line.startswith("~: an estimate, for this program was not run") for line in sizes.sentences) == 1


def test_only_what_may_be_the_fastest_is_run():
    plan_times = []
    original = clock.ProgramTimes

    class Counted(original):
        def __init__(self, *given):
            plan_times.append(given[0].name)
            super().__init__(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "ProgramTimes", Counted)
        api.tune("full:8", "allgather", [1 << 10], frontiers=[of_direct("full:8", "allgather")], protocols=["LL"])
    assert 2 <= len(plan_times) <= 8  # of a dozen algorithms


def test_pareto_at_a_size_prints_runs_of_points_and_baselines_beside_synchronous_steps():
    words = "pareto --topo ring:4 --coll allgather --size 1KB --max-steps 3"
    done = synth(words)
    assert "`best for`: predicted, synchronous steps" in done.stdout
    assert "that of 2 steps is the fastest at 1 KB" in done.stdout
    assert "predicted, event-driven, LL, launch 3.6 µs included" in done.stdout
    free = json.loads(synth(f"{words} --format json").stdout)
    assert [row["seconds"] for row in free["candidates"]] == sorted(row["seconds"] for row in free["candidates"])


def test_programs_far_behind_are_left_out_and_none_is_run_without_time():
    frontier = of_direct("full:4", "allgather")
    rows = point_times.times_at(frontier, 1 << 24, seconds=600.0, library=True)
    assert {"S1-R1-C1"} <= {row.label for row in rows} and rows[-1].seconds < 20 * rows[0].seconds
    assert point_times.times_at(frontier, 1024, seconds=0.0) == []


def test_a_step_costs_the_latency_of_its_own_links():
    """Two steps of `hierarchical` on two boxes: one between them, one inside."""
    schedule = api.baseline("hierarchical", "dgx-a100*2", "allgather")
    latencies = {route.latency for route in schedule.network.routes}
    assert schedule.latency == sum(latencies) < len(schedule.steps) * schedule.network.latency

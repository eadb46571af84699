"""List scheduling in time: schedules for sizes at which latencies count, whose time the executor confirms."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.schedule import replay
from synth.commands import api
from synth.errors import UsageError, VerificationError
from synth.model.collective import collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.schedule import Schedule
from synth.model.topology import Link, Topology
from synth.program.checked_lowering import lower
from synth.program.lowering_options import LoweringOptions
from synth.runtime.reference.program_times import ProgramTimes
from synth.scale.greedy.list_scheduling import design_sizes, list_schedule, schedule_for_size

KB = 1000
TECCL = Path(__file__).parent.parent / "examples" / "teccl"
COPIES = ("allgather", "broadcast")


def executed(schedule, size, protocol="LL"):
    """Return the µs that the reference executor takes for the schedule's program."""
    return ProgramTimes(lower(schedule, LoweringOptions(protocol=protocol)), schedule.network).seconds(size) * 1e6


@st.composite
def machines(draw):
    """Rings of 2 to 6 ranks with more links, of several bandwidths and latencies; some have a switch."""
    ranks = draw(st.integers(2, 6))
    pairs = {(r, (r + 1) % ranks) for r in range(ranks)}
    pairs |= draw(st.sets(st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)), max_size=6))
    links = []
    for a, b in sorted(pairs):
        if a != b:
            width, latency = draw(st.sampled_from((1, 2, 5))), draw(st.sampled_from((1, 3, 10)))
            links.append(Link(a, b, Fraction(width), Fraction(latency, 4)))
    switches = ("switch",) if draw(st.booleans()) else ()
    for rank in range(ranks) if switches else ():
        links += [Link(rank, ranks, Fraction(4), Fraction(1, 2)), Link(ranks, rank, Fraction(4), Fraction(1, 2))]
    return Topology("random", ranks, tuple(links), switches=switches).network()


@settings(max_examples=40)
@given(
    machines(),
    st.sampled_from(COPIES),
    st.integers(1, 3),
    st.sampled_from((64, 4096, 1 << 18)),
    st.sampled_from((2, 8)),
)
def test_every_schedule_is_right_and_no_faster_than_the_bound(network, name, chunks, size, depth):
    task = collective(name, network.ranks, (0,) if name == "broadcast" else ())
    made = list_schedule(network, task, chunks, float(size * task.unit_share), depth)
    replay.schedule(made.schedule)
    whole = size - size % (4 * chunks * task.buffer_units)
    if whole:
        bound = api.time_bound(network.as_topology(), name, [whole]).rows[0].microseconds
        assert executed(made.schedule, whole) >= float(bound) * (1 - 1e-9)


@settings(max_examples=25)
@given(machines(), st.integers(1, 3), st.sampled_from((64, 4096, 1 << 18)))
def test_the_planned_time_of_an_allgather_is_what_the_executor_takes(network, chunks, size):
    task = collective("allgather", network.ranks)
    whole = -(-size // (4 * chunks * network.ranks)) * 4 * chunks * network.ranks
    made = list_schedule(network, task, chunks, float(whole * task.unit_share), 8)
    assert executed(made.schedule, whole) <= made.microseconds * 1.05


@pytest.mark.parametrize(
    ("machine", "name", "chunks", "size", "teccl"),
    [
        ("ndv2-x2", "allgather", 1, KB, 4.135),
        ("ndv2-x2", "allgather", 1, 64 * KB, 6.08),
        ("ndv2-x4", "allgather", 1, KB, 5.4495),
        ("ndv2-x4", "allgather", 1, 64 * KB, 8.32),
        ("dgx2-x2", "allgather", 4, KB, 4.006),
    ],
)
def test_schedules_of_small_sizes_are_faster_than_te_ccls(machine, name, chunks, size, teccl):
    network = api.topology(TECCL / f"{machine}.yaml").network()
    made = list_schedule(network, collective(name, network.ranks), chunks, size / network.ranks, 8).schedule
    replay.schedule(made)
    assert executed(made, size) <= teccl


@pytest.mark.parametrize("name", ["reduce-scatter", "reduce", "allreduce"])
def test_sums_are_reversals_of_copies(name):
    network = api.topology("dgx1").network()
    made = schedule_for_size(network, collective(name, 8, (3,) if name == "reduce" else ()), 64 * KB, 8)
    replay.schedule(made)
    assert made.timed
    copies = schedule_for_size(network, collective("allgather", 8), 64 * KB, 8)
    if name == "allreduce":
        assert executed(made, 64 * KB) == pytest.approx(2 * executed(copies, 64 * KB), rel=0.01)
    assert executed(made, 64 * KB) < executed(
        api.baseline("direct", network, name, roots=made.collective.roots), 64 * KB
    )


def test_a_timed_schedule_has_one_connection_a_link_and_no_forwarding_receives():
    network = api.topology("ring:4").network()
    ring = api.baseline("ring", network, "allgather")
    codes = []
    for schedule in (ring, replace(ring, timed=True)):
        program = lower(schedule)
        codes.append({op.code for gpu in program.gpus for block in gpu.blocks for op in block.ops})
    assert codes[0] - codes[1] == {"rcs"}
    wide = api.baseline("direct", "dgx1", "alltoall")
    channels = []
    for schedule in (wide, replace(wide, timed=True)):
        channels.append({block.channel for gpu in lower(schedule).gpus for block in gpu.blocks})
    assert channels == [{0, 1}, {0}]


def test_timed_is_kept_in_the_document_and_checked():
    network = api.topology("ring:4").network()
    made = list_schedule(network, collective("allgather", 4), 1, 4096.0, 8).schedule
    document = json.loads(json.dumps(made.to_json()))
    assert document["timed"] is True
    assert Schedule.from_json(document).timed and made.reversed().timed
    assert "timed" not in replace(made, timed=False).to_json()
    with pytest.raises(VerificationError, match="timed is 1, expected true or false"):
        replay.schedule(document | {"timed": 1})


def test_what_it_does_not_do_is_one_line():
    network = api.topology("ring:4").network()
    for name in ("allreduce", "alltoall"):
        with pytest.raises(UsageError, match=f"all data to all ranks; {name}"):
            list_schedule(network, collective(name, 4), 1, 4096.0, 8)
    with pytest.raises(UsageError, match="too many"):
        list_schedule(network, collective("allgather", 4), 1 << 20, 4096.0, 8)
    apart = Topology("apart", 3, (Link(0, 1, Fraction(1), Fraction(1)), Link(1, 0, Fraction(1), Fraction(1)))).network()
    with pytest.raises(UsageError, match="cannot reach"):
        list_schedule(apart, collective("allgather", 3), 1, 64.0, 8)


def test_sizes_count_where_latency_and_bandwidth_do():
    network, task = api.topology("dgx1").network(), collective("allgather", 8)
    sizes = [1 << k for k in range(10, 31, 2)]
    near = design_sizes(network, task, sizes)
    # a shard of 17.5 KB takes 0.7 µs at 25 GB/s
    assert near == [1 << 10, 1 << 16, 1 << 18, 1 << 30]
    assert design_sizes(network, task, [1 << 24]) == [1 << 24]
    without = Topology("no latencies", 2, (Link(0, 1, Fraction(1)), Link(1, 0, Fraction(1)))).network()
    assert design_sizes(without, collective("allgather", 2), sizes) == []


def test_the_tuner_chooses_among_them_at_their_sizes():
    direct = api.baseline("direct", "dgx1", "allgather")
    point = Point.of(direct, LowerBound(Fraction(1), {"kind": "none"}), "by hand")
    frontier = Frontier(direct.network, direct.collective, (point,))
    plan = api.tune("dgx1", "allgather", [1 << 16, 1 << 28], frontiers=[frontier], protocols=["LL"])
    chosen = plan.choose("allgather", 1 << 16)
    assert chosen.label.startswith("list-") and chosen.schedule.timed
    assert Schedule.from_json(chosen.schedule.to_json()).to_json() == chosen.schedule.to_json()
    assert not plan.choose("allgather", 1 << 28).label.startswith("list-")
    assert plan.tables[0].seconds[0] < 3.6e-6 + 2.6e-6  # a launch in LL comes first

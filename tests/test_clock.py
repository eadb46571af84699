"""One clock: pareto, tune, run and bench print the same time for the same program, size and protocol; its timelines."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from synth.commands import api, pareto
from synth.commands.tuning.point_times import times_at
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import SynthError, UsageError
from synth.export.chrome_trace import PICOSECONDS, Trace, chrome
from synth.export.request import Target
from synth.model.collective import collective
from synth.program.events import OpEvent
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import NCCL, NO_OVERHEADS, describe, label
from synth.program.program import PROTOCOLS
from synth.runtime.reference import event_loop
from synth.runtime.reference.program_times import ProgramTimes
from synth.scale.time_bound import time_bound
from synth.solvers.deadline import Deadline, TimeUp, time_limited
from synth.view import frontier_text
from tests.command_line import synth
from tests.programs import put_allgather, ring_allgather


def documents(*commands):
    found = []
    for words in commands:
        found.append(json.loads(synth(words, "--format json").stdout))
    return found


@pytest.mark.parametrize(
    ("machine", "size", "protocol"),
    [
        ("ring:4", 1008, "LL"),
        pytest.param("ring:4", 1 << 20, "Simple", marks=pytest.mark.slow),
        pytest.param("dgx1", 1 << 20, "LL128", marks=pytest.mark.slow),  # 6 chunks do not divide the size
    ],
)
def test_all_commands_print_the_same_time(tmp_path, monkeypatch, machine, size, protocol):
    monkeypatch.chdir(tmp_path)
    on = f"--topo {machine} --coll allgather"
    synth(f"pareto {on} -o f.json")
    how = f"--sizes {size} --protocol {protocol}"
    (pareto,) = documents(f"pareto {on} --size {size}")
    last = len(pareto["points"])
    run, bench, plan = documents(
        f"run f.json --point {last} --size {size} --protocol {protocol}",
        f"bench f.json --point {last} {how}",
        f"tune --from f.json {how}",
    )
    time, point = run["picoseconds"], pareto["points"][-1]
    name = f"S{point['steps']}-R{point['rounds']}-C{point['chunks']}"
    (candidate,) = (r for r in pareto["candidates"] if (r["label"], r["protocol"]) == (name, protocol))
    assert candidate["seconds"] == pytest.approx(time * 1e-12, rel=1e-12)
    assert candidate["model"] == run["model"] == label(NCCL, protocol)
    if bench["rows"][0]["size"] == size:  # it rounds down to whole elements of each chunk
        assert bench["rows"][0]["seconds"] == pytest.approx(time * 1e-12, rel=1e-12)
    table = plan["tables"][0]
    chosen = plan["algorithms"][table["chosen"][0]]
    (tmp_path / "s.json").write_text(json.dumps(chosen["schedule"]))
    (again,) = documents(f"run s.json --size {size} --protocol {chosen['protocol']}")
    assert table["seconds"][0] == pytest.approx(again["picoseconds"] * 1e-12, rel=1e-12)


def test_all_commands_time_a_plan_through_switches_on_the_ports_of_the_machine(tmp_path, monkeypatch):
    """`bench` and the timeline took it for messages between ranks: 2229 µs where `run` printed 1700."""
    monkeypatch.chdir(tmp_path)
    machine, task = api.topology("dgx-h100"), api.collective("allreduce", 8)
    schedule = MulticastPipelining(machine.multicast_network(), task).plain((1 << 20,), 16)
    api.export_program(schedule, "mscclpp").write("plan.json")
    on = "--topo dgx-h100 --coll allreduce"
    run, bench = documents(f"run plan.json {on} --size 1MB --no-data", f"bench plan.json {on} --sizes 1MB")
    messages = api.run("plan.json", size=1 << 20, topology=machine.network().as_topology(), collective=task, data=False)
    assert run["picoseconds"] < messages.execution.picoseconds
    assert bench["rows"][0]["seconds"] == pytest.approx(run["picoseconds"] * 1e-12, rel=1e-12)
    synth(f"export plan.json --to trace {on} --size 1MB -o t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    ends = [event["ts"] + event.get("dur", 0) for event in events if "ts" in event]
    assert max(ends) == pytest.approx(run["picoseconds"] * 1e-6, rel=1e-6)


def test_a_launch_and_the_costs_of_protocols_are_counted_once():
    schedule = api.baseline("ring", "dgx1", "allgather")
    for protocol in PROTOCOLS:
        cost = NCCL.of(protocol)
        bare, full = (
            api.run(schedule, size=8 << 2, data=False, protocol=protocol, overheads=included)
            for included in (False, True)
        )
        added = full.execution.picoseconds - bare.execution.picoseconds
        assert added == pytest.approx(float(cost.launch + 7 * cost.hop) * 1e6, rel=1e-3)
        assert full.execution.launch == NCCL.launch(protocol)
        assert bare.execution.launch == 0
        assert full.ratio >= 1
        assert bare.ratio >= 1


def test_the_bound_of_the_clock_is_the_least_of_all_protocols():
    schedule = api.baseline("direct", "full:4", "allgather")
    for size in (1 << 10, 1 << 20, 1 << 26):
        (row,) = time_bound(schedule.network, schedule.collective, [size], overheads=NCCL).rows
        runs = []
        for protocol in PROTOCOLS:
            runs.append(api.run(schedule, size=size, data=False, protocol=protocol))
        assert all(row.microseconds * 10**6 <= done.bound <= done.execution.picoseconds for done in runs)
        assert row.microseconds * 10**6 == min(done.bound for done in runs)
        assert row.launch == NCCL.of(row.protocol).launch
    (bare,) = time_bound(schedule.network, schedule.collective, [1 << 20], overheads=NO_OVERHEADS).rows
    assert bare.microseconds == api.time_bound("full:4", "allgather", 1 << 20).rows[0].microseconds
    assert bare.launch == 0


def test_the_bound_of_a_protocol_counts_its_launch():
    words = "bound --topo ring:4 --coll allgather --sizes 4KB"
    assert "8.4 µs launch included" in synth(words, "--protocol simple").stdout
    assert "on bare links" in synth(words).stdout
    synth(words.partition(" --sizes")[0], "--protocol LL", code=2)


def test_overheads_in_words_and_on_links():
    network = api.topology("ring:4").network()
    assert NO_OVERHEADS.links(network, "LL") is network
    slower = NCCL.links(network, "LL")
    assert slower.unit == network.unit / 3
    assert slower.latency == network.latency
    assert NCCL.links(network, "Simple").latency == network.latency + Fraction("2.9")
    assert "without a launch" in describe(NO_OVERHEADS)
    with pytest.raises(UsageError, match="unknown protocol 'TCP'"):
        api.run(api.lower(api.baseline("ring", "ring:4", "allgather")), topology="ring:4", size=64, protocol="TCP")
    assert "a launch (Simple 8.4, LL 3.6, LL128 10 µs)" in describe(NCCL)
    assert label(NCCL, "Simple", event_driven=False) == "predicted, synchronous steps, Simple, launch 8.4 µs included"


def test_the_cost_of_a_message_is_said_beside_every_time_that_has_it():
    cost = MessageCost.parse("0.25us")
    assert label(NO_OVERHEADS, "LL", per_send=cost).endswith("without a launch, a message costs 0.25 µs at either end")
    assert label(NCCL, "Simple", per_send=NO_COST) == label(NCCL, "Simple")
    command = "run --baseline ring --topo ring:4 --coll allgather --size 64KB --no-data"
    shown = [synth(command, more).stdout for more in ("", "--per-send 0.3us")]
    assert ["a message costs 0.3 µs at either end" in text for text in shown] == [False, True]


def test_points_that_were_not_run_have_no_time():
    machine = api.topology("dgx1")
    frontier = pareto.known_frontier(machine, collective("allgather", 8))
    said = []
    for points in (frontier.points, frontier.points[:1]):
        times = times_at(replace(frontier, points=points), 4096, machine=machine)
        report = frontier_text.choice(frontier, 4096, None, times)
        assert [name for name, _ in report.columns][2:4] == ["µs at 4 KB", "protocol"]
        said.append(sum("far behind by a lower bound, or were not run" in line for line in report.sentences))
    assert said == [0, 1]
    assert "synchronous µs" in [name for name, _ in frontier_text.choice(frontier, 4096).columns]


@pytest.mark.parametrize("machine", ["dgx1 --ranks 0-3", "tests/fixtures/nvidia-smi-nvswitch.txt"])
def test_pareto_knows_the_kinds_of_links_of_the_machine_as_tune_does(tmp_path, machine):
    on, file = f"--topo {machine} --coll allgather", tmp_path / "f.json"
    synth(f"pareto {on} --max-steps 1 -o {file}")
    (pareto,) = documents(f"pareto {on} --max-steps 1 --size 4MB")
    of_points = [one for one in pareto["candidates"] if one["label"].startswith("S1-")]
    assert {one["protocol"] for one in of_points} == {"Simple", "LL", "LL128"}


def test_after_the_deadline_no_program_is_run(monkeypatch):
    monkeypatch.setattr(event_loop, "CHECKED", 1)  # a short run looks at the deadline, too
    frontier = api.frontier("ring:4", "allgather", max_steps=3)
    with time_limited(Deadline(-1.0)):
        with pytest.raises(TimeUp):
            ProgramTimes(api.lower(frontier.points[0].schedule), frontier.network).computed(1 << 22)
        assert times_at(frontier, 1 << 20) == []
    assert times_at(frontier, 1 << 20)


# ---------------------------------------------------------------- timelines, in the form that Perfetto reads


def test_work_waits_and_links():
    program = ring_allgather(2)
    link = (0, 1, ())
    first = OpEvent(0, 0, 0, 0, 0, "s", 0, 0, 2_000_000, link, 500_000, 2_500_000, 64)
    events = [first, OpEvent(1, 0, 2, 0, 0, "r", 1_000_000, 2_500_000, 3_000_000)]
    text = chrome(program, events)
    found = json.loads(text)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {
        (0, 0): "block 0: to 1, from 1, channel 0",
        (1, 0): "block 0: to 0, from 0, channel 0",
        (2, 0): "0 to 1",
    }
    drawn = [(e["pid"], e["name"], e["ts"], e["dur"]) for e in found if e["ph"] == "X"]
    assert drawn == [(0, "s", 0, 2), (2, "s", 0.5, 2), (1, "waits", 1, 1.5), (1, "r", 2.5, 0.5)]
    assert found[-1]["args"]["text"] == "r -> o[0]"
    assert chrome(program, events) == text


def test_an_op_of_several_transfers_is_drawn_once():
    program = put_allgather(3)
    put = OpEvent(0, 0, 0, 0, 0, "put", 0, 0, 10, (0, 1, ()), 0, 8, 4)
    found = json.loads(chrome(program, [put, put._replace(link=(0, 2, ()))]))["traceEvents"]
    assert [e["cat"] for e in found if e["ph"] == "X"] == ["op", "link", "link"]


def test_a_timeline_of_a_schedule_covers_its_makespan():
    schedule = api.solve("ring:4", "allgather", 1, 3, 3, jobs=1).schedule
    ((_, text),) = api.export_program(schedule, "trace", size=1 << 20).files
    ran = api.run(api.lower(schedule), topology="ring:4", size=1 << 20, data=False)
    slices = [e for e in json.loads(text)["traceEvents"] if e["ph"] == "X"]
    assert max(round((e["ts"] + e["dur"]) * PICOSECONDS) for e in slices) == ran.execution.picoseconds
    assert {e["cat"] for e in slices} >= {"op", "link"}


def test_times_must_be_known():
    for target in (Target(), Target(timeline=lambda program, network, size: ())):
        with pytest.raises(SynthError, match="--topo"):
            Trace().emit(ring_allgather(2), target)

"""`synth run` and api.run from outside: files, tables, JSON, exit codes; the certified bound on time."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner
from programs import (
    all_send_first,
    direct_allgather,
    put_allgather,
    racing_broadcast,
    recursive_doubling_allreduce,
    ring_allgather,
    ring_allreduce,
)

from synth.commands import api, root
from synth.errors import SynthError, UsageError, VerificationError
from synth.model.collective import collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.schedule import Schedule, Send, Step
from synth.program import text
from synth.program.overheads import NCCL
from synth.program.program import Op, Program, Span
from tests.command_line import synth


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ring_schedule(n, steps=None):
    """Each rank's part round a ring one way, on the network of ring:n."""
    network = api.topology(f"ring:{n}").network()
    made = tuple(Step(1, tuple(Send((r - t) % n, r, (r + 1) % n) for r in range(n))) for t in range(steps or n - 1))
    return Schedule(network, collective("allgather", n), 1, made)


def save(tmp_path, name, content):
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))


def test_programs_schedules_and_frontiers_in_files(tmp_path):
    schedule = ring_schedule(4)
    point = Point.of(schedule, LowerBound(Fraction(3, 2), {"kind": "none"}), "by hand")
    save(tmp_path, "p.txt", text.dump(ring_allreduce(4)))
    save(tmp_path, "p.json", ring_allreduce(4).to_json())
    save(tmp_path, "s.json", schedule.to_json())
    save(tmp_path, "f.json", Frontier(schedule.network, schedule.collective, (point,)).to_json())
    for file in ("p.txt", "p.json"):
        out = synth("run", file, "--topo ring:4 --size 64KB --dtype bf16 --op avg --in-place").stdout
        assert "right: 131,072 elements compared" in out
        assert "in place" in out
    one = synth("run s.json --size 64KB").stdout
    two = synth("run f.json --size 64KB").stdout
    three = synth("run f.json --size 64KB --point 1 --protocol LL --instances 2").stdout
    assert "right: 65,536 elements compared, all exactly" in one
    assert one == two
    assert "right: 65,536 elements" in three
    assert "times as long" in one
    assert "point 2: the frontier has points 1 to 1" in synth("run f.json --point 2", code=2).stderr
    assert "no times" in synth("run p.txt").stdout


@pytest.mark.parametrize("runtime", ["msccl", "msccl-executor", "rccl"])
def test_exported_files_are_right_as_they_are_read_back(tmp_path, runtime):
    for name, content in api.export_program(ring_schedule(4), runtime=runtime).files:
        file = f"a{name}.xml"
        save(tmp_path, file, content)
        where = ["--in-place"] if 'inplace="1"' in content else []
        out = synth("run", file, "--topo ring:4 --size 256KB", "--runtime", runtime, *where).stdout
        assert "right: 262,144 elements compared, all exactly" in out
        assert "times as long" in out
    for _, content in api.export_program(ring_schedule(4), "mscclpp").files:
        save(tmp_path, "plan.json", content)
        assert "right: 262,144 elements" in synth("run plan.json --topo ring:4 --size 256KB").stdout


def test_the_file_of_a_choice_by_size_is_its_chosen_schedule(tmp_path):
    """It was refused with the list of schemas that are read."""
    synth("pareto --topo ring:4 --coll allgather --size 64KB -o choice.json")
    chosen = Schedule.from_json(json.loads((tmp_path / "choice.json").read_text())["schedule"])
    assert f"S{len(chosen.steps)}" in synth("run choice.json --size 64KB").stdout
    assert "safe at any size" in synth("lint choice.json").stdout
    assert synth("export --to msccl choice.json -o -").stdout.startswith("<algo")
    said = synth("verify choice.json", code=1).stderr
    assert "a choice by size has no certificates; `synth pareto -o FILE` without --size writes them" in said
    save(tmp_path, "none.json", {"schema": "synth.choice/1", "schedule": None})
    assert "none.json: holds no schedule, as its frontier has no point" in synth("run none.json", code=1).stderr


def test_the_file_of_a_choice_by_size_runs_and_is_exported_as_it_was_chosen(tmp_path):
    synth("pareto --topo ring:3 --coll allgather --size 1KB -o choice.json")  # 1 KB is no whole number of elements each
    for more, size, says in (
        ("", "1020 B", "as in the file: 1020 B in LL; --size and --protocol choose"),
        ("--protocol Simple", "1020 B", "as in the file: 1020 B; --size"),
        ("--size 768KB", "768 KB", "as in the file: LL; --size"),
        ("--size 768KB --protocol LL128", "768 KB", ""),
    ):
        ran = synth("run choice.json", more)
        protocol = more.partition("--protocol ")[2] or "LL"
        assert size in ran.stdout and f"event-driven, {protocol}," in ran.stdout
        assert says in ran.stderr and bool(ran.stderr) == bool(says)
    assert api.run("choice.json").program.protocol == "LL"
    assert 'proto="LL"' in synth("export choice.json -o -").stdout
    assert 'proto="Simple"' in synth("export choice.json --protocol Simple -o -").stdout
    for words, says in (
        ("-o x.xml", "the schedule chosen at 1020 B in LL, as msccl-xml for msccl-executor"),
        ("--protocol Simple -o x.xml", "chosen at 1020 B in LL, written in Simple, as msccl-xml"),
        ("--to mscclpp -o x.json", "chosen at 1020 B in LL, as mscclpp"),
        ("--to trace -o t.json", "chosen at 1020 B in LL, as trace for synth"),
    ):
        assert says in synth("export choice.json", words).stderr
    chosen = json.loads((tmp_path / "choice.json").read_text())
    for point in chosen["points"]:
        point["protocol"] = "LL128"
    save(tmp_path, "ll128.json", chosen)
    assert "in LL128, written in Simple" in synth("export ll128.json --to mscclpp").stderr
    chosen["size"] = "1KB"
    save(tmp_path, "bad.json", chosen)
    assert "bad.json: malformed synth.choice/1: size '1KB'" in synth("run bad.json", code=1).stderr


def test_what_a_foreign_file_computes_can_be_said(tmp_path):
    _, content = api.export_program(ring_schedule(4), runtime="msccl").files[0]
    save(tmp_path, "c.xml", content.replace('coll="allgather"', 'coll="custom"'))
    where = ["--in-place"] if 'inplace="1"' in content else []
    assert "right" in synth("run c.xml --coll allgather --size 16KB", *where).stdout
    synth("run c.xml --coll alltoall --size 16KB", *where, code=5 if not where else 2)


def test_json_says_what_the_table_says(tmp_path):
    save(tmp_path, "p.txt", text.dump(ring_allgather(8)))
    doc = json.loads(synth("run p.txt --topo ring:8 --size 8000 --dtype int8 --format json").stdout)
    network, launch = NCCL.links(api.topology("ring:8").network(), "Simple"), NCCL.launch("Simple")
    step = 1000 * 1000 // (network.unit * network.routes[0].units) + network.routes[0].latency * 10**6
    time = launch + 7 * step
    assert doc["schema"] == "synth.run/1"
    assert (doc["picoseconds"], doc["launch_picoseconds"]) == (time, launch)
    assert doc["model"] == "predicted, event-driven, Simple, launch 8.4 µs included"
    assert (doc["right"], doc["elements"], doc["exact"]) == (True, 64000, 64000)
    assert doc["gbps"] == pytest.approx(8000 * 1000 / time)
    assert doc["bus_gbps"] == pytest.approx(doc["gbps"] * 7 / 8)
    least = api.time_bound(network.as_topology(), "allgather", 8000).rows[0].microseconds
    assert Fraction(doc["bound_picoseconds"]) == launch + least * 10**6
    assert doc["ratio"] == pytest.approx(float(time / Fraction(doc["bound_picoseconds"])))
    assert len(doc["links"]) == 8
    assert all(used["bytes"] == 7000 for used in doc["links"])
    words = "run p.txt --topo ring:8 --size 8000 --dtype int8 --no-data --no-bound --format json"
    timed = json.loads(synth(words).stdout)
    assert (timed["picoseconds"], timed["right"], timed["ratio"]) == (doc["picoseconds"], None, None)
    assert "not compared" in synth("run p.txt --topo ring:8 --no-data").stdout
    assert "right" in synth("run p.txt --topo ring:8 --check").stdout


def test_wrong_is_5_and_deadlock_is_1_with_its_cycle(tmp_path):
    good = recursive_doubling_allreduce(4)
    block = good.gpus[2].blocks[1]
    block = block._replace(ops=(block.ops[0], Op("r", (), (Span("o", 0),))))
    gpu = good.gpus[2]._replace(blocks=(good.gpus[2].blocks[0], block))
    save(tmp_path, "wrong.txt", text.dump(Program("wrong", good.collective, 1, (*good.gpus[:2], gpu, good.gpus[3]))))
    save(tmp_path, "stuck.txt", text.dump(all_send_first(2, 3)))
    assert "rank 2 output chunk 0 element 0: found" in synth("run wrong.txt", code=5).stderr
    message = synth("run stuck.txt", code=1).stderr
    assert message.count("\n") == 1
    said = "deadlock: rank 0 block 0 op 2 (s i[2]) waits for room to rank 1 on channel 0 (2 of 2 in flight); rank 1"
    assert f"{said} block 0 op 2" in message
    assert "right" in synth("run stuck.txt --depth 3").stdout
    assert "right" in synth("run stuck.txt --protocol LL").stdout
    save(tmp_path, "racy.txt", text.dump(racing_broadcast()))
    codes = {CliRunner().invoke(root, ["run", "racy.txt", "--delays", str(seed)]).exit_code for seed in range(12)}
    assert codes == {0, 5}


def test_a_size_that_no_call_has_runs_the_nearest_below_and_says_so(tmp_path):
    save(tmp_path, "p.txt", text.dump(ring_allreduce(8)))
    outcome = synth("run p.txt --size 1003 --format json")
    assert json.loads(outcome.stdout)["size"] == 1000
    assert "1003 to 1000 bytes" in outcome.stderr
    assert "3 to 4 bytes" in synth("run p.txt --size 3").stderr


def test_the_timeline_of_a_run(tmp_path):
    save(tmp_path, "p.txt", text.dump(ring_allgather(4)))
    assert "wrote t.json" in synth("run p.txt --topo ring:4 --size 16KB --trace t.json").stderr
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    network = NCCL.links(api.topology("ring:4").network(), "Simple")
    last = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    first = min(event["ts"] for event in events if event["ph"] == "X")
    assert first == 8.4  # µs of the launch
    assert last == pytest.approx(8.4 + 3 * float(network.latency + Fraction(4096, 1000) / network.unit))
    assert "name the machine" in synth("run p.txt --trace t.json", code=2).stderr
    with pytest.raises(UsageError, match="kept no events"):
        api.trace(api.run(ring_allgather(2)))


def test_arrays_of_ones_own():
    given = [np.arange(6, dtype=np.int32) + 10 * r for r in range(3)]
    assert api.run(ring_allreduce(3), given, op="max", in_place=True).outputs[0].tolist() == given[2].tolist()
    *two, last = given
    for wrong in (two, [*two, last[:5]], [*two, last.astype(np.int64)], [g.astype(complex) for g in given]):
        with pytest.raises(UsageError):
            api.run(ring_allreduce(3), wrong)
    with pytest.raises(UsageError, match="moved no data"):
        _ = api.run(ring_allreduce(3), data=False).outputs
    with pytest.raises(UsageError, match="no such option"):
        api.run(ring_allreduce(3), colour="red")


def test_in_place_only_where_the_program_allows_it():
    out = Program("p", ring_allgather(2).collective, 1, ring_allgather(2).gpus, in_place="out")
    only = Program("p", ring_allgather(2).collective, 1, ring_allgather(2).gpus, in_place="in")
    with pytest.raises(UsageError, match="out of place only"):
        api.run(out, in_place=True)
    with pytest.raises(UsageError, match="in place only"):
        api.run(only)


def test_a_program_that_does_not_say_what_it_computes():
    nameless = Program("p", None, 4, ring_allreduce(4).gpus, in_place="both")
    with pytest.raises(UsageError, match="does not say which collective"):
        api.run(nameless)
    assert api.run(nameless, collective="allreduce").checked.elements > 0
    with pytest.raises(SynthError):
        api.run(nameless, collective="allgather")


# ---------------------------------------------------------------- the bound


def test_direct_and_put_meet_the_bound_exactly():
    done = api.run(put_allgather(4), topology="fully-connected:4", size=4 << 12)
    assert done.ratio == 1.0
    assert done.execution.picoseconds == done.bound


def test_lowered_schedules_are_right_and_never_faster_than_the_bound():
    schedule = ring_schedule(5)
    for instances, protocol, in_place, size in product((1, 3), ("Simple", "LL"), (False, True), (300, 3_000_000)):
        options = {"instances": instances, "protocol": protocol, "in_place": in_place, "dtype": "i8", "op": "max"}
        assert api.run(schedule, size=size, **options).ratio >= 1
    with pytest.raises(VerificationError):
        api.run(ring_schedule(5, steps=3))


@pytest.mark.parametrize("topology", ["switch:4", "fat-tree:4", "fully-connected:4"])
def test_shared_limits_and_switches_hold_the_bound_too(topology):
    programs = direct_allgather(4), ring_allgather(4), ring_allreduce(4), put_allgather(4)
    for made, part, delays in product(programs, (1, None), (None, 1)):
        assert api.run(made, topology=topology, data=False, part=part, delays=delays, size=4 << 12).ratio >= 1
    # everyone sends to everyone through a port of its own speed: exactly the bound
    assert api.run(direct_allgather(4), topology="switch:4", data=False, size=4 << 12).ratio == 1.0

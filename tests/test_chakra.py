"""Chakra traces: what is written is read again by an independent reader, and takes the time that the schedule says."""

import json
from pathlib import Path

import chakra_replay
import pytest
import yaml
from click.testing import CliRunner

import synth
from synth import api
from synth.algorithms import LIBRARY, one_shot, recursive_doubling, ring, two_shot
from synth.cli import root
from synth.cli.lists import listed
from synth.errors import UsageError
from synth.export.chakra.astra_sim import shape_of

SHAPES = ("ring:4", "ring:7", "switch:4", "switch:8", "fully-connected:4", "fully-connected:8", "switch:6:units=25")
OTHERS = ("dgx1", "line:5", "torus:2x4", "hypercube:8", "star:5", "mi300x", "dgx-a100", "dgx-h100*2", "pcie-2x4")


def schedules(names):
    """Yield a schedule and its machine for each algorithm of the library that runs on one of the machines."""
    for name in names:
        machine = synth.topology(name)
        for one in LIBRARY:
            try:
                yield one.schedule(machine)
            except UsageError:
                continue


def traces(folder):
    """Return the nodes of each rank of a folder's traces."""
    files = dict(folder.files)
    count = sum(name.startswith("collective.") for name in files)
    return [chakra_replay.read(files[f"collective.{rank}.et"]) for rank in range(count)]


def check(schedule, size):
    """Assert that traces have every byte and dependency, and replay in the time of the schedule; return both times."""
    folder = api.astra_sim(schedule, "traces", size=size)
    jobs = chakra_replay.jobs_of(traces(folder))
    wanted = chakra_replay.jobs_of_schedule(schedule, size)
    messages = sorted(job.message for job in jobs.values() if job.message)
    assert messages == sorted(job.message for job in wanted.values() if job.message)
    files = dict(folder.files)
    network = chakra_replay.LinkNetwork(schedule.network)
    unit = 1000
    if "network.yml" in files:
        text = files["network.yml"].decode()
        exact, unit = chakra_replay.AstraNetwork(text, whole=False), 1
        network = chakra_replay.AstraNetwork(text)
        time, exact_hops = chakra_replay.run(wanted, exact, unit)
    else:
        time, _ = chakra_replay.run(wanted, network, unit)
        network = chakra_replay.LinkNetwork(schedule.network)
    replayed, hops = chakra_replay.run(jobs, network, unit)
    if "network.yml" in files:
        hops = max(hops, exact_hops)  # messages of less than 1 ns wait for each other in exact times alone
        assert abs(replayed - time) <= hops, (schedule, float(time), replayed, hops)
    elif not schedule.network.caps:
        assert replayed == time, (schedule, time, replayed)
    else:
        assert abs(replayed - time) <= time / 50, (schedule, time, replayed)
    return folder


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("ring:4", ring.allreduce),
        ("ring:5", ring.allgather),
        ("switch:4", two_shot.allreduce),
        ("fully-connected:4", two_shot.allreduce),
        ("hypercube:4", recursive_doubling.allgather),
        ("hypercube:4", recursive_doubling.allreduce),
    ],
)
def test_traces_take_the_time_of_the_schedule(name, one):
    folder = check(one.schedule(name), 100_000)
    described = name != "hypercube:4"
    assert ("network.yml" in dict(folder.files)) == described
    assert any("no network file" in line for line in folder.remarks) != described


@pytest.mark.slow
def test_traces_of_two_hundred_schedules_take_their_time():
    count = 0
    for schedule in schedules(SHAPES + OTHERS):
        check(schedule, (1, 1_000_003)[count % 2])
        count += 1
    assert count >= 200


def test_a_dropped_dependency_or_message_is_seen():
    schedule = ring.allreduce.schedule("ring:4")
    found = traces(api.astra_sim(schedule, "traces"))
    with_all = chakra_replay.jobs_of(found)
    network = api.astra_sim(schedule, "traces").files[-1][1].decode()
    time, _ = chakra_replay.run(with_all, chakra_replay.AstraNetwork(network), 1)
    for node in found[0]:
        node.deps.clear()
    less, _ = chakra_replay.run(chakra_replay.jobs_of(found), chakra_replay.AstraNetwork(network), 1)
    assert less < time
    found[0].pop()
    found[1] = [node for node in found[1] if node.kind != chakra_replay.RECEIVE]
    with pytest.raises(AssertionError):
        chakra_replay.jobs_of(found)


def test_sums_wait_for_the_sends_that_read_what_they_replace():
    schedule = one_shot.allreduce.schedule("fully-connected:3")
    for rank, trace in enumerate(traces(api.astra_sim(schedule, "traces"))):
        names = {node.number: node for node in trace}
        for node in trace:
            if node.kind != chakra_replay.SUM:
                continue
            chunk = node.name.split()[2]
            sends = {n for n, other in names.items() if other.kind == 5 and f"chunk {chunk} " in other.name}
            earlier = {n for n in sends if n < node.number}
            reached, stack = set(), [node.number]
            while stack:
                for dep in names[stack.pop()].deps - reached:
                    reached.add(dep)
                    stack.append(dep)
            assert earlier <= reached, (rank, node)


def test_the_files_of_astra_sim():
    assert shape_of(synth.topology("ring:5").network()) == "Ring"
    assert shape_of(synth.topology("switch:5").network()) == "Switch"
    assert shape_of(synth.topology("dgx-a100").network()) == "Switch"
    assert shape_of(synth.topology("fully-connected:5").network()) == "FullyConnected"
    assert shape_of(synth.topology("line:5").network()) == ""
    assert shape_of(synth.topology("dgx1").network()) == ""
    files = dict(api.astra_sim(ring.allgather.schedule("switch:4"), "a/b/").files)
    assert json.loads(files["system.json"])["all-gather-implementation-custom"] == ["a/b/collective"]
    network = yaml.safe_load(files["network.yml"])
    assert (network["topology"], network["npus_count"], network["latency"]) == (["Switch"], [4], [500.0])
    (call,) = chakra_replay.read(files["workload.2.et"])
    assert (call.kind, call.attributes) == (7, {"comm_type": 2, "comm_size": 1 << 20, "is_cpu_op": 0})


def test_the_command_writes_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ring.allgather.schedule("ring:4").save(Path("s.json"))
    outcome = CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "--size", "64KB", "-o", "traces"])
    assert outcome.exit_code == 0, outcome.stderr
    names = {path.name for path in Path("traces").iterdir()}
    assert names == {f"{kind}.{r}.et" for kind in ("collective", "workload") for r in range(4)} | {
        "system.json",
        "network.yml",
    }
    again = CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "traces"])
    assert again.exit_code == 0
    Path("traces/mine.txt").write_text("")
    assert CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "traces"]).exit_code == 1
    assert CliRunner().invoke(root, ["export", "s.json", "--to", "chakra"]).exit_code == 2
    assert (
        CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "t", "--protocol", "LL"]).exit_code == 2
    )


@pytest.mark.parametrize("option", [["--all"], ["--coll", "allgather"], ["--assume-root", "0"]])
def test_options_that_traces_ignore_are_refused_by_their_names(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    ring.allgather.schedule("ring:4").save(Path("s.json"))
    outcome = CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "traces", *option])
    assert outcome.exit_code == 2
    assert f"{option[0]} means nothing for traces" in outcome.stderr


def test_traces_are_the_same_bytes():
    folder = api.astra_sim(ring.allreduce.schedule("ring:4"), "traces", size=4096)
    golden = Path(__file__).parent / "golden" / "chakra-ring4-allreduce.et"
    assert dict(folder.files)["collective.0.et"] == golden.read_bytes()


def test_the_list_of_exporters_has_chakra():
    assert "chakra" in [row[0] for row in listed("exporters")]

"""Chakra traces: what is written is read again by an independent reader, and takes the time that the schedule says."""

from pathlib import Path

import chakra_replay
import pytest
from click.testing import CliRunner

import synth
from synth.commands import api, root
from synth.errors import UsageError
from synth.language.library import LIBRARY, direct, recursive_doubling, ring

MACHINES = (
    "ring:7", "switch:8", "fully-connected:8", "dgx1", "line:5", "torus:2x4", "hypercube:8", "star:5", "mi300x",
    "dgx-a100", "dgx-h100*2", "pcie-2x4",
)  # fmt: skip


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
    """Assert that traces run to the right end in any order."""
    found = traces(api.chakra(schedule, size=size))
    messages = [node for trace in found for node in trace if node.kind == chakra_replay.SEND]
    assert len(messages) == sum(not send.local for step in schedule.steps for send in step.sends)
    assert all(chakra_replay.run(found, schedule, size, seed) for seed in range(3)), schedule


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("ring:4", ring.allreduce),
        ("ring:5", ring.allgather),
        ("switch:4", direct.allreduce),
        ("fully-connected:4", direct.allreduce),
        ("hypercube:4", recursive_doubling.allgather),
        ("hypercube:4", recursive_doubling.allreduce),
    ],
)
def test_traces_end_with_what_the_collective_wants(name, one):
    check(one.schedule(name), 100_000)


@pytest.mark.slow
def test_traces_of_many_schedules_end_right():
    count = 0
    for schedule in schedules(MACHINES):
        check(schedule, (1, 1_000_003)[count % 2])
        count += 1
    assert count >= 100


@pytest.mark.parametrize("kind", [chakra_replay.SUM, chakra_replay.SEND])
def test_a_dropped_dependency_or_message_is_seen(kind):
    """Sends wait for what they send, and sums for the sends that read what they replace."""
    schedule = direct.one_shot.schedule("fully-connected:3")
    if kind == chakra_replay.SEND:
        schedule = ring.allreduce.schedule("ring:4")
    found = traces(api.chakra(schedule))
    for trace in found:
        sends = {node.number for node in trace if node.kind == chakra_replay.SEND}
        for node in trace:
            if node.kind == kind:
                node.deps -= sends if kind == chakra_replay.SUM else set(node.deps)
    sizes = {node.attributes["comm_size"] for node in found[0] if node.kind == chakra_replay.RECEIVE}
    size = sizes.pop() * schedule.chunks / schedule.collective.unit_share
    assert not all(chakra_replay.run(found, schedule, size, seed) for seed in range(20))
    found[1] = [node for node in found[1] if node.kind != chakra_replay.SEND]
    with pytest.raises(AssertionError):
        chakra_replay.run(found, schedule, size, 0)


def test_the_command_writes_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ring.allgather.schedule("ring:4").save(Path("s.json"))
    outcome = CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "--size", "64KB", "-o", "traces"])
    assert outcome.exit_code == 0, outcome.stderr
    names = {path.name for path in Path("traces").iterdir()}
    assert names == {f"collective.{r}.et" for r in range(4)}
    again = CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "traces"])
    assert again.exit_code == 0
    Path("traces/mine.txt").write_text("")
    assert CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "traces"]).exit_code == 1
    assert CliRunner().invoke(root, ["export", "s.json", "--to", "chakra"]).exit_code == 2
    assert (
        CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "t", "--protocol", "LL"]).exit_code == 2
    )


@pytest.mark.parametrize("option", [["--coll", "allgather"], ["--assume-root", "0"]])
def test_options_that_traces_ignore_are_refused_by_their_names(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    ring.allgather.schedule("ring:4").save(Path("s.json"))
    outcome = CliRunner().invoke(root, ["export", "s.json", "--to", "chakra", "-o", "traces", *option])
    assert outcome.exit_code == 2
    assert f"{option[0]} means nothing for traces" in outcome.stderr


def test_traces_are_the_same_bytes():
    folder = api.chakra(ring.allreduce.schedule("ring:4"), size=4096)
    golden = Path(__file__).parent / "golden" / "chakra-ring4-allreduce.et"
    assert dict(folder.files)["collective.0.et"] == golden.read_bytes()

"""Points of the frontier with multicast, chosen by --multicast; a frontier that a command searches for itself."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from programs import ring_allgather

from synth import api
from synth.api import export_program
from synth.api.point_times import times_at
from synth.cli import root
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import UsageError
from synth.model.collective import collective
from synth.runtime.host.executor import Host
from synth.runtime.reference.op_tables import CompiledProgram
from synth.topologies import topology

MACHINE = "--topo switch:3:multicast=through --coll broadcast"


def said(words: str):
    return CliRunner().invoke(root, words.split())


@pytest.fixture(scope="module")
def frontier(tmp_path_factory) -> str:
    """A file with a frontier, and one with multicast beside it."""
    file = tmp_path_factory.mktemp("multicast") / "f.json"
    assert said(f"pareto {MACHINE} --max-steps 2 -o {file}").exit_code in (0, 4)
    doc = json.loads(file.read_text())
    best = [min(point["bandwidth"] for point in found["points"]) for found in (doc, doc["multicast"])]
    assert best[0] != best[1]
    return str(file)


@pytest.mark.parametrize("command", ["run --size 96KB", "bench --sizes 96KB"])
def test_commands_that_run_take_points_with_multicast(frontier: str, command: str) -> None:
    plain, multicast = (said(f"{command} {frontier} {word}") for word in ("--no-multicast", "--multicast"))
    assert plain.exit_code == multicast.exit_code == 0, multicast.stderr
    assert plain.stdout != multicast.stdout
    assert said(f"{command} {frontier}").stdout == plain.stdout
    says = "times do not show their gain"
    assert says in multicast.stderr and says not in plain.stderr


def test_a_plan_of_a_point_with_multicast_has_switch_channels(frontier: str, tmp_path) -> None:
    plan = tmp_path / "plan.json"
    words = f"export {frontier} --point 1 --to mscclpp --in-place in --assume-root 0 -o {plan}"
    for multicast in (False, True):
        found = said(words + " --multicast" * multicast)
        assert found.exit_code == 0, found.stderr
        assert ("switch_channel" in plan.read_text()) is multicast
    ran = said(f"run {plan} --in-place --size 96KB")
    assert ran.exit_code == 0
    assert "messages between ranks" not in ran.stdout  # without a machine no time is printed


def test_a_point_with_multicast_is_timed_as_its_plan_runs(frontier: str, tmp_path) -> None:
    plan = tmp_path / "plan.json"
    assert said(f"export {frontier} --multicast --point 1 --to mscclpp --assume-root 0 -o {plan}").exit_code == 0
    for more, launch in (("", "launch 8.4 µs included"), (" --no-overheads", "bare links without a launch")):
        ran = json.loads(said(f"run {plan} {MACHINE} --size 96KB --format json{more}").stdout)
        words = f"pareto {MACHINE} --max-steps 2 --size 96KB{more}"
        (point,) = json.loads(said(f"{words} --format json").stdout)["multicast"]["points"]
        assert point["program_seconds"] == pytest.approx(ran["picoseconds"] * 1e-12, rel=1e-12)
        assert ran["model"].startswith(point["model"])
        table = said(words).stdout.partition("switches multicast and reduce")[2]
        assert f"predicted, event-driven, Simple{',' if launch[0] == 'l' else ' on'} {launch}" in table


def test_a_point_without_a_plan_has_no_time() -> None:
    found = api.frontier("switch:3:multicast=through", "reduce", max_steps=1).multicast
    assert times_at(found, 96 << 10) == []  # the other ranks have no output to which a fetched sum could go


def test_without_a_file_the_frontier_is_searched_for() -> None:
    found = said(f"run {MACHINE} --multicast --size 96KB --step 1")
    assert found.exit_code == 0, found.stderr
    assert "broadcast-switch" in found.stdout and "right: " in found.stdout
    assert "no time of the switches" in found.stdout
    assert "no time of the switches" not in said(f"run {MACHINE} --size 96KB --step 1").stdout
    found = said("bench --topo ring:3 --coll allgather --sizes 96KB --time-limit 600s")
    assert found.exit_code == 0 and "point 1" in found.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run", "name a FILE, or a machine and a collective: --topo NAME --coll NAME"),
        ("run --topo ring:3", "no collective given"),
        ("run --topo ring:3 --coll allgather --multicast", "allgather on ring:3 has no part with multicast"),
    ],
)
def test_a_source_that_is_missing_is_named(words: str, message: str) -> None:
    found = said(words)
    assert found.exit_code == 2 and message in found.stderr


def test_a_file_that_is_no_frontier_has_no_part_with_multicast(tmp_path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(ring_allgather(3).to_json()))
    found = said(f"run {file} --multicast")
    assert found.exit_code == 2 and "--multicast chooses points of a frontier" in found.stderr


def test_many_blocks_have_fewer_threads_by_default() -> None:
    def threads(host: Host, blocks: int) -> int:
        return host.block_threads(CompiledProgram(ring_allgather(2), ((0, 0),) * blocks, (), (), (), ()))

    assert [threads(Host(), blocks) for blocks in (1, 1024, 2016, 4096)] == [4, 4, 2, 1]
    for host, blocks in ((Host(), 4097), (Host(threads=4), 2016), (Host(threads=0), 1)):
        with pytest.raises(UsageError, match="at most 4096 together"):
            threads(host, blocks)


def test_the_plain_schedule_serves_sizes_that_no_point_divides(tmp_path) -> None:
    network = topology("switch:3:multicast=through").multicast_network()
    family = MulticastPipelining(network, collective("allreduce", 3))
    made = export_program(family.plain((1 << 10, 1 << 20), 16), "mscclpp")
    (plan,) = made.write(tmp_path / "plan.json")
    assert "switch_channel" in plan.read_text()
    machine = "--topo switch:3:multicast=through --coll allreduce"
    ran = said(f"run {plan} {machine} --size 1KB --executor host")
    assert ran.exit_code == 0 and "right: " in ran.stdout, ran.stderr
    assert said(f"lint {plan} --coll allreduce").exit_code == 0

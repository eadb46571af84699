"""`synth plans`: MSCCL++ plans for a machine in several sizes, their index and their registration."""

from __future__ import annotations

import json
import shutil
import time
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import synth
from synth.api import tuning
from synth.api.inputs import named_topology
from synth.api.plan_sets import _cluster_name, _equal_boxes
from synth.api.running import baseline
from synth.api.tuning_inputs import CollectiveInputs, SearchOptions
from synth.catalog.tuner.candidates import NamedSchedule
from synth.catalog.tuner.request import TuningRequest
from synth.cli.root import root
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import SynthError, UsageError
from synth.export.exported_files import ExportResult
from synth.export.plans import registration_code
from synth.export.request import Machine
from synth.model.build_result import BuildResult
from synth.model.collective import collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.plan_registration import PlanRegistration
from synth.model.plan_set import PlanSet
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.program import plan_limits
from synth.program.checked_lowering import onesided, reason_against_plan, too_many_ranks_for_plan
from synth.program.lowering_options import LoweringOptions
from synth.view import plan_set as view

ENOUGH = 600.0  # seconds: more than any search here takes
WANTED = {"collective": "allgather", "sizes": (1 << 10, 1 << 16), "time_limit": ENOUGH}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PlanSet:
    """Return the plans of one and of two switches of 3 ranks, and of 4 ranks on two of them."""
    return synth.plans("switch:3", [1, 2], output=tmp_path_factory.mktemp("set") / "plans", gpus=[4], **WANTED)


def test_each_number_of_ranks_has_plans_for_calls_in_place_and_for_others(made):
    assert [(part.name, part.ranks) for part in made.parts] == [
        ("switch-3", 3), ("switch-3-4gpus", 4), ("switch-3x2", 6),
    ]  # fmt: skip
    for part in made.parts:
        assert {plan.in_place for plan in part.plans} == {False, True}
        for plan in part.plans:
            document = json.loads((Path(made.folder) / f"{plan.name}.json").read_text())
            assert len(document["gpus"]) == plan.ranks == part.ranks
            assert document["inplace"] == plan.in_place
            assert document["max_message_size"] == plan.high
            assert plan.ranks_per_node == {3: 3, 4: 2, 6: 3}[part.ranks]


def test_times_are_those_of_runs_of_the_plans(made):
    """The program of a plan takes longer than the two-sided one of the same schedule: it waits for signals."""
    machines = {"switch-3": "switch:3", "switch-3x2": "switch:3*2"}
    timed = 0
    for part in made.parts:
        for table in part.tables if part.name in machines else ():
            for row in table.rows:
                for file in row.files[:1]:
                    path = Path(made.folder, part.name, table.collective, file)
                    done = synth.run(path, topology=machines[part.name], size=row.size, runtime="mscclpp", data=False)
                    assert float(done.execution.picoseconds) * 1e-12 == pytest.approx(row.seconds), path
                    timed += 1
    assert timed


def test_sizes_are_parts_of_whole_16_bytes(made):
    """On 3 and 6 ranks no plan was offered: a 3rd of 1024 bytes in whole elements is no multiple of 16."""
    for part in made.parts:
        (table,) = part.tables
        assert all(row.size % (16 * part.ranks) == 0 for row in table.rows)
        assert any(row.files for row in table.rows)


def test_a_job_gets_the_plans_for_its_ranks_and_boxes(made, monkeypatch):
    scope: dict = {"__file__": f"{made.folder}/register.py"}
    exec((Path(made.folder) / "register.py").read_text(), scope)
    added: list[SimpleNamespace] = []
    builder = SimpleNamespace(add_algorithm_builder=added.append, set_algorithm_selector=lambda select: None)

    class FakeAlgorithm(SimpleNamespace):
        Constraint = staticmethod(lambda ranks, per_node: (ranks, per_node))

    fake = SimpleNamespace(
        AlgorithmCollectionBuilder=lambda: builder, ExecutionPlan=lambda path, rank: path, Algorithm=FakeAlgorithm
    )
    monkeypatch.setitem(__import__("sys").modules, "mscclpp", fake)
    monkeypatch.setitem(__import__("sys").modules, "mscclpp.ext", SimpleNamespace())
    for part in made.parts:
        added.clear()
        scope["register"](0, part.ranks, part.plans[0].ranks_per_node)
        assert [one.id for one in added] == [plan.name for plan in part.plans]
        assert all(Path(one.execution_plan).is_file() for one in added)
        per_node = part.plans[0].ranks_per_node
        known = f"there are plans for .*{part.ranks} ranks, {per_node} of a node"
        with pytest.warns(UserWarning, match=f"no plan is loaded for {part.ranks} ranks, 1 of a node; {known}"):
            scope["register"](0, part.ranks, 1)
        assert len(added) == len(part.plans)  # another shape of job: nothing more
    plan = next(plan for plan in made.parts[-1].plans if not plan.in_place)
    request = SimpleNamespace(
        collective="allgather", world_size=6, rank=1, message_size=plan.low // 6 or 16, input_buffer=0,
        output_buffer=1 << 40, dtype="any",
    )  # fmt: skip
    assert scope["select"]({"allgather": {plan.name: "this"}}, request) == "this"


def test_the_commands_of_the_page_start_as_many_ranks_a_host_as_the_plans_are_for(made):
    """For two boxes of 3 they started 6 ranks in one, for which no plan was loaded."""
    for part, torchrun, mpirun in (
        ("switch-3", "torchrun --nproc-per-node 3 train.py", "mpirun -np 3 ./run.sh"),
        ("switch-3x2", "torchrun --nnodes 2 --nproc-per-node 3 ", "mpirun -np 6 --map-by ppr:3:node ./run.sh"),
    ):
        folder = Path(made.folder) / part / "allgather"
        page = (folder / "README.txt").read_text()
        ranks = {found.name: found.ranks for found in made.parts}[part]
        assert torchrun in page and torchrun in (folder / "run.sh").read_text()
        assert mpirun.removesuffix(" ./run.sh") in page
        assert f"register.register(rank, {ranks}, 3)" in page


def test_the_page_says_that_nccl_tests_runs_no_plan(made):
    """The command was said to compare the plans with the library, and it registers none."""
    folder = Path(made.folder) / "switch-3" / "allgather"
    page = (folder / "README.txt").read_text()
    assert "nccl-tests does not call it, so it runs none of these plans" in page and "to compare" not in page
    script = (folder / "run.sh").read_text()
    assert 'export MSCCLPP_NCCL_LIB_PATH="${MSCCLPP_NCCL_LIB_PATH:-libnccl.so.2}"' in script


def test_calls_that_would_get_wrong_data_are_said_wherever_the_plans_are(tmp_path):
    """They were said in the page beside the inner folder alone, and the root 0 was assumed without a word."""
    assumed = "broadcast: root 0 is assumed, since no --root was given"
    root = "these files also serve a broadcast with a root other than {}, with wrong data"
    sums = "MSCCL++'s executor sums whatever the operator"
    for number, names in ((None, ("broadcast", "allreduce")), (1, ("broadcast",))):
        folder = tmp_path / str(number)
        found = synth.plans("switch:3", output=folder, root=number, **(WANTED | {"collective": names}))
        texts = view.report(found).sentences
        summed = "allreduce" in names
        assert sum(assumed in text for text in texts) == (number is None)
        warning = root.format(number or 0)
        assert sum(warning in text for text in texts) == 1
        assert sum(sums in text for text in texts) == summed
        for name in ("register.py", "register.hpp"):
            code = (folder / name).read_text()
            assert code.count(warning) == 1 and code.count(sums) == summed
        page = (folder / "switch-3" / "broadcast" / "README.txt").read_text()
        assert warning in page and (assumed in page) == (number is None) and sums not in page
        if summed:
            assert sums in (folder / "switch-3" / "allreduce" / "README.txt").read_text()


def test_notes_of_every_size_are_said_once(made):
    said = [text for text in view.report(made).sentences if "the plans have the format" in text]
    assert said == ["the plans have the format of MSCCL++ 0.10"]


def test_switch_channels_are_not_taken_for_types_of_8_bits(monkeypatch):
    entries = [PlanRegistration("allreduce", 8, 8, 0, 1 << 20, 16, False, True, "nvls")]
    scope: dict = {"__file__": "register.py"}
    exec(registration_code.python(entries, "0.10"), scope)
    types = SimpleNamespace(float32="float32", uint8="uint8")
    monkeypatch.setitem(__import__("sys").modules, "mscclpp", SimpleNamespace(DataType=types))
    request = SimpleNamespace(
        collective="allreduce", world_size=8, rank=0, message_size=1024, input_buffer=0, output_buffer=1 << 40
    )
    found = {dtype: _selected(scope, request, dtype) for dtype in ("float32", "uint8")}
    assert found == {"float32": "nvls", "uint8": None}
    assert "if (plan.switches && narrow(request.dtype)) continue;" in registration_code.cpp(entries, "0.10")


def _selected(scope: dict, request: SimpleNamespace, dtype: str) -> object:
    request.dtype = dtype
    return scope["select"]({"allreduce": {"nvls": "nvls"}}, request)


def test_the_index_says_it_all_and_the_same_call_continues(made, monkeypatch):
    index = json.loads((Path(made.folder) / "index.json").read_text())
    assert index["schema"] == "synth.plans/1" and index["mscclpp"] == "0.10"
    assert PlanSet.from_json(index, made.folder) == made
    monkeypatch.setattr("synth.api.plan_sets.build", None)  # nothing is built again
    assert synth.plans("switch:3", [1, 2], output=made.folder, gpus=[4], **WANTED) == made
    (Path(made.folder) / f"{made.plans[0].name}.json").rename(Path(made.folder) / "gone")
    with pytest.raises(TypeError):
        synth.plans("switch:3", [1, 2], output=made.folder, gpus=[4], **WANTED)
    (Path(made.folder) / "gone").rename(Path(made.folder) / f"{made.plans[0].name}.json")


def test_an_interrupted_call_leaves_the_collectives_that_are_done(tmp_path, monkeypatch):
    asked: list[str] = []

    def build(topology: Topology, name: str, output: Path, **options: Any) -> BuildResult:
        asked.append(name)
        if name == "alltoall" and len(asked) == 2:
            raise KeyboardInterrupt
        if name == "allreduce":
            raise SynthError("no schedule")
        return synth.build(topology, name, output, **options)

    monkeypatch.setattr("synth.api.plan_sets.build", build)
    wanted = WANTED | {"collective": ["allgather", "alltoall", "allreduce"], "output": tmp_path / "set"}
    with pytest.raises(KeyboardInterrupt):
        synth.plans("switch:3", **wanted)
    (part,) = json.loads((tmp_path / "set" / "index.json").read_text())["parts"]
    assert [table["collective"] for table in part["tables"]] == ["allgather"]
    names = [plan["name"] for plan in part["plans"]]
    assert names and all((tmp_path / "set" / f"{name}.json").is_file() for name in names)
    assert names[0] in (tmp_path / "set" / "register.py").read_text()
    found = synth.plans("switch:3", **wanted)
    assert asked == ["allgather", "alltoall", "alltoall", "allreduce"]
    assert {plan.collective for plan in found.plans} == {"allgather", "alltoall"}
    assert found.parts[0].refused == (("allreduce", "no schedule"),)
    assert "switch-3: allreduce: no plans: no schedule" in view.report(found).sentences
    assert synth.plans("switch:3", **wanted) == found and len(asked) == 4
    with pytest.raises(SynthError, match="no plan is written: switch-3: no schedule"):
        synth.plans("switch:3", **(wanted | {"collective": "allreduce", "time_limit": ENOUGH / 3}))


def test_a_further_call_adds_to_the_folder_and_searches_nothing_again(tmp_path, monkeypatch):
    """The second call dropped the first one's collective, and another time limit for each searched it again."""
    asked: list[tuple[str, float, bool]] = []

    def build(topology: Topology, name: str, output: Path, **options: Any) -> BuildResult:
        asked.append((f"{topology.ranks} ranks: {name}", options["time_limit"], options["fresh"]))
        return synth.build(topology, name, output, **options)

    monkeypatch.setattr("synth.api.plan_sets.build", build)
    folder = tmp_path / "set"
    wanted = {"output": folder, "sizes": ["1KB"], "time_limit": ENOUGH}
    first = synth.plans("switch:3", collective="allreduce", **wanted)
    file = folder / f"{first.plans[0].name}.json"
    before = file.stat().st_mtime_ns
    both = synth.plans("switch:3", collective="allgather", **wanted)
    assert [name for name, *_ in asked] == ["3 ranks: allreduce", "3 ranks: allgather"]
    assert file.stat().st_mtime_ns == before and both.kept == ("switch-3/allreduce",)
    code = (folder / "register.py").read_text()
    assert {plan.collective for plan in both.plans} == {"allreduce", "allgather"}
    assert all(plan.name in code for plan in both.plans) and set(first.plans) < set(both.plans)
    assert PlanSet.from_json(json.loads((folder / "index.json").read_text()), str(folder)) == both
    asked.clear()
    # The share of each is less than it had, or no time is given.
    for more in ({}, {"time_limit": None}):
        again = synth.plans("switch:3", collective=["allgather", "allreduce"], **(wanted | more))
        assert again == both and again.kept == ("switch-3/allreduce", "switch-3/allgather")
    assert asked == []
    two = synth.plans("switch:3", [2], collective="allgather", **wanted)
    assert two.builds == ("switch-3/allreduce", "switch-3/allgather", "switch-3x2/allgather")
    asked.clear()
    synth.plans("switch:3", collective="allgather", **(wanted | {"time_limit": 2 * ENOUGH}))
    synth.plans("switch:3", collective="allgather", fresh=True, **wanted)
    assert asked == [("3 ranks: allgather", 2 * ENOUGH, False), ("3 ranks: allgather", ENOUGH, True)]


def test_plans_of_other_options_are_replaced_and_the_rest_stays(tmp_path):
    folder = tmp_path / "set"
    wanted = {"output": folder, "sizes": ["1KB"], "time_limit": ENOUGH}
    first = synth.plans("switch:3", collective=["allreduce", "allgather"], **wanted)
    found = synth.plans("switch:3", collective="allgather", **(wanted | {"sizes": ["2KB"]}))
    reached = {plan.collective: plan.high for plan in found.plans}
    assert reached == {"allreduce": 1008, "allgather": 2016} and len(found.plans) == len(first.plans)
    assert found.builds == ("switch-3/allreduce", "switch-3/allgather") and found.kept == ("switch-3/allreduce",)
    assert not any("1024" in note for part in found.parts for note in part.notes if note.startswith("allgather"))
    with pytest.raises(SynthError, match=r"holds plans of MSCCL\+\+ 0.10, not of 0.9; give a new folder"):
        synth.plans("switch:3", collective="allgather", plan_version="0.9", **wanted)


def test_a_dump_whose_links_have_changed_is_searched_anew(tmp_path, monkeypatch):
    """Plans were recognised by the name of the file alone."""
    asked: list[int] = []

    def build(topology: Topology, name: str, output: Path, **options: Any) -> BuildResult:
        asked.append(len(topology.links))
        return synth.build(topology, name, output, **options)

    monkeypatch.setattr("synth.api.plan_sets.build", build)
    monkeypatch.chdir(tmp_path)
    for units in (1, 1, 2):
        machine = {"ranks": 2, "links": [{"src": 0, "dst": 1, "bandwidth": 25 * units, "both": True}]}
        Path("machine.json").write_text(json.dumps(machine))
        synth.plans("machine.json", output="set", **(WANTED | {"sizes": ["64KB"]}))
    assert len(asked) == 2


def test_two_calls_at_the_same_time_add_to_one_folder(tmp_path, monkeypatch):
    wanted = WANTED | {"output": tmp_path / "set", "sizes": ["64KB"]}

    def build(topology: Topology, name: str, output: Path, **options: Any) -> BuildResult:
        if name == "allgather":
            synth.plans("switch:3", **(wanted | {"collective": "allreduce"}))
        return synth.build(topology, name, output, **options)

    monkeypatch.setattr("synth.api.plan_sets.build", build)
    assert synth.plans("switch:3", **wanted).builds == ("switch-3/allreduce", "switch-3/allgather")


def test_plans_serve_until_the_search_in_their_place_has_ended(made, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(made.folder, tmp_path / "set"))

    def build(topology: Topology, name: str, output: Path, **options: Any) -> BuildResult:
        synth.build(topology, name, output, **options)
        raise KeyboardInterrupt

    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr("synth.api.plan_sets.build", build)
    with pytest.raises(KeyboardInterrupt):
        synth.plans("switch:3", output=folder, fresh=True, **WANTED)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_index_without_the_seconds_of_searches_is_read(made):
    index = json.loads((Path(made.folder) / "index.json").read_text())
    for part in index["parts"]:
        assert part.pop("seconds") == {"allgather": ENOUGH / 3}
    assert PlanSet.from_json(index, made.folder).plans == made.plans


def test_notes_name_the_version(made):
    assert all("the plans have the format of MSCCL++ 0.10" in part.notes for part in made.parts)
    for name in ("register.py", "register.hpp", "switch-3/allgather/mscclpp.md"):
        assert "MSCCL++ 0.10" in (Path(made.folder) / name).read_text()
    table = view.report(made)
    assert table.title == "MSCCL++ 0.10 plans for switch:3"
    assert [int(row[3]) for row in table.rows] == [len(part.plans) for part in made.parts]


def test_a_box_of_several_hosts_has_files_for_any_number_of_ranks_of_a_host(tmp_path, monkeypatch):
    """12 GPUs of an NVL72 were started as one host by the commands of the page, and its registration was for that."""
    monkeypatch.setattr("synth.api.plan_sets.HOST_RANKS", 2)
    wanted = WANTED | {"sizes": ["1KB"], "output": tmp_path}
    found = synth.plans("switch:4", (), gpus=[3], **wanted)
    assert found.plans and {plan.ranks_per_node for plan in found.plans} == {0}
    folder = tmp_path / "switch-4-3gpus" / "allgather"
    page = (folder / "README.txt").read_text()
    assert "--nproc-per-node RANKS_PER_HOST" in page and "register.register(rank, 3, RANKS_PER_HOST)" in page
    assert "('allgather', 3, 0, " in (folder / "mscclpp" / "register.py").read_text()


def test_sizes_that_are_left_to_the_library_are_said_with_both_times(tmp_path):
    found = synth.plans("ring:2", output=tmp_path / "set", collective="allgather", sizes=["64KB"], time_limit=ENOUGH)
    assert found.plans == ()
    said = view.report(found).sentences[0]
    assert said.startswith("ring-2: allgather: left to the library: 64 KB (") and "by a schedule" in said


def test_the_machine_is_shared_evenly():
    assert [_equal_boxes(gpus, 8) for gpus in (2, 6, 8, 9, 12, 16, 20)] == [1, 1, 1, 3, 2, 2, 4]
    assert _cluster_name("dgx-a100:net=rail", 2) == "dgx-a100*2:net=rail"
    assert _cluster_name("ring:4", 2) == "ring:4*2"


def test_gpus_that_do_not_fill_their_boxes_are_said_before_and_after(tmp_path):
    """99 of boxes of 8 are 3 of each of 33, which nothing had said."""
    said: list[str] = []
    for gpus, text in (
        (2, "the first 2 GPUs of 1 box"),
        (4, "the first 2 GPUs of each of 2 boxes, the fewest that 4 GPUs share evenly"),
        (5, "the first GPU of each of 5 boxes, the fewest that 5 GPUs share evenly"),
    ):
        folder, events = tmp_path / str(gpus), []
        found = synth.plans(
            "switch:3", (), "allgather", folder, gpus=[gpus], sizes=["64KB"], time_limit=ENOUGH, on_event=events.append
        )
        name = f"switch-3-{gpus}gpus"
        assert events[0].text == f"{name}: {text}"
        for file in Path(folder, name).rglob("0*.json"):
            assert f"{name} (1 of 1): {file.name}: linted and run" in [event.text for event in events]
        assert text in found.parts[0].notes
        assert f"{name}: {text}" in view.report(found).sentences
        said += [note for note in json.loads((folder / "index.json").read_text())["parts"][0]["notes"] if note == text]
    assert len(said) == 3


def test_wrong_input_is_one_line(made, tmp_path):
    for call, error, said in (
        (lambda: synth.plans("ring:3*2", output=tmp_path / "a"), UsageError, "ring:3*2 is a cluster"),
        (lambda: synth.plans("ring:3", [], output=tmp_path / "a"), UsageError, "no number of boxes or GPUs"),
        (lambda: synth.plans("ring:3", gpus=[1], output=tmp_path / "a"), UsageError, "1 GPUs have nothing"),
        (lambda: synth.plans("ring:3", output=made.folder), SynthError, "holds plans of switch:3, not of ring:3"),
        (lambda: synth.plans("ring:3", output=tmp_path / "a", plan_version="0.8"), UsageError, "version '0.8'"),
    ):
        with pytest.raises(error, match=said.replace("*", r"\*")):
            call()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    with pytest.raises(SynthError, match="holds other files"):
        synth.plans("ring:3", output=tmp_path / "other")


def test_the_command(tmp_path, capsys):
    line = ["plans", "--machine", "switch:3", "--coll", "allgather", "--sizes", "1KB,2KB", "-o", str(tmp_path / "set")]
    with pytest.raises(SystemExit) as end:
        root.main([*line, "--time-limit", f"{ENOUGH}s"])
    printed = capsys.readouterr()
    assert end.value.code == 0
    assert "MSCCL++ 0.10 plans for switch:3" in printed.out
    assert f"plans of the format of MSCCL++ 0.10, all linted and run, to {tmp_path / 'set'}" in printed.err
    with pytest.raises(SystemExit) as end:
        root.main(line)
    said = capsys.readouterr().err
    kept = "kept switch-3/allgather of earlier commands; --fresh searches anew what this one names"
    assert end.value.code == 0 and said.splitlines()[-1] == f"synth: {kept}"
    with pytest.raises(SystemExit) as end:
        root.main(["plans"])
    assert end.value.code == 2 and "--machine" in capsys.readouterr().err


def test_version_0_9_has_no_gstore():
    network = synth.topology("switch:3:multicast=local").multicast_network()
    schedule = MulticastPipelining(network, synth.collective("broadcast", 3)).schedule(1)
    assert schedule is not None

    def export(source: Schedule, version: str) -> ExportResult:
        return synth.export_program(source, "mscclpp", assume_root=0, plan_version=version)

    made = export(schedule, "0.10")
    assert '"gstore"' in made.text and "the plan has the format of MSCCL++ 0.10" in made.remarks
    with pytest.raises(SynthError, match=r"gstore is an operation of MSCCL\+\+ 0.10, not of 0.9"):
        export(schedule, "0.9")
    plain = synth.frontier("ring:3", "broadcast").points[0].schedule
    assert isinstance(plain, Schedule)
    assert "the plan has the format of MSCCL++ 0.9" in export(plain, "0.9").remarks


def test_schedules_that_no_plan_can_hold_are_no_candidates():
    """On 4 boxes of 8 direct sends of an allgather need 24 port channels for a chunk: such a plan was chosen, then
    refused, and the sizes were left to the library."""
    machine = named_topology("dgx-a100*4")
    named = []
    for name in ("direct", "hierarchical"):
        named.append(NamedSchedule(name, baseline(name, machine.network(), collective("allgather", machine.ranks))))
    held, notes = tuning._held_by_plans(named, Machine.of(machine))
    assert [one.name for one in held] == ["hierarchical"]
    assert notes == [
        "no MSCCL++ plan can hold direct (rank 0 uses 24 port channels for chunk 0 alone, a thread block of MSCCL++ "
        "has 16)"
    ]
    refusals = 0
    for one in named:
        try:
            onesided(one.schedule, LoweringOptions("mscclpp", nodes=machine.nodes))
        except SynthError as error:
            refusals += "24 port channels" in str(error)
    assert refusals == 1


def test_no_more_sends_than_a_plan_is_written_of_in_bounded_time(monkeypatch):
    schedule = baseline("direct", named_topology("switch:4").network(), collective("alltoall", 4))
    assert reason_against_plan(schedule, (0,) * 4) is None
    monkeypatch.setattr(plan_limits, "PLAN_SENDS", 11)
    assert reason_against_plan(schedule, (0,) * 4) == "it has 12 sends, plans are made of at most 11"


def test_of_more_ranks_than_a_block_has_channels_rows_and_columns_are_candidates():
    """Direct sends of 18 ranks meet 17 others in a chunk, a thread block of MSCCL++ has 16 channels."""
    over = SearchOptions(time.monotonic(), 1, None, 1.0)
    for name, grid in (("switch:16", False), ("switch:18", True), ("switch:9*2", True)):
        machine = named_topology(name)
        task = collective("allgather", machine.ranks)
        direct = baseline("direct", machine.network(), task)
        point = Point.of(direct, LowerBound(Fraction(1), {"kind": "none"}), "best-known", "by hand")
        found = Frontier(machine.network(), task, (point,))
        inputs = CollectiveInputs("allgather", machine.ranks, None, machine.network(), (found,), ())
        known = tuning._schedules(inputs, TuningRequest(machine, "allgather", plans=True), over)
        schedules = {one.name: one.schedule for one in known}
        assert ("grid" in schedules) == grid
        if grid:
            assert reason_against_plan(schedules["grid"], machine.nodes) is None
            assert len(schedules["grid"].steps) == 2 + (name == "switch:9*2")


def test_baselines_know_the_boxes_of_the_machine():
    """All links of `rail:2x4` have one latency, so the links alone do not tell the boxes."""
    machine = named_topology("rail:2x4")
    found = synth.frontier(machine, "allgather", time_limit=1)
    assert isinstance(found, Frontier)
    inputs = CollectiveInputs("allgather", 8, None, machine.network(), (found,), ())
    search = SearchOptions()
    for topology, known in ((machine, True), (None, False)):
        schedules = tuning._schedules(inputs, TuningRequest(topology, "allgather"), search)
        assert ("hierarchical" in [one.name for one in schedules]) == known


def test_collectives_of_more_sends_than_plans_have_are_refused_before_a_search(tmp_path, monkeypatch):
    """Every schedule of an allgather, a reduce-scatter or an alltoall on n ranks has n(n-1) sends."""
    monkeypatch.setattr(plan_limits, "PLAN_SENDS", 11)
    monkeypatch.setattr("synth.api.builds._planned", lambda *_: pytest.fail("searched"))
    for name in ("allgather", "reduce-scatter", "alltoall"):
        assert too_many_ranks_for_plan(collective(name, 3)) is None
        reason = f"no MSCCL++ plan can hold {name} on 4 ranks: it has at least 12 sends, plans are made of at most 11"
        with pytest.raises(SynthError, match=reason.replace("+", r"\+")):
            synth.plans("ring:4", collective=name, output=tmp_path / name)
    with pytest.raises(SynthError, match="allreduce on 4 ranks is left to the library: NCCL's ring has at least 24"):
        synth.plans("ring:4", collective="allreduce", output=tmp_path / "allreduce")
    assert too_many_ranks_for_plan(collective("allreduce", 100)) is None
    assert too_many_ranks_for_plan(collective("broadcast", 12)) is None


def test_a_new_search_that_finds_nothing_leaves_the_earlier_plans(tmp_path, monkeypatch):
    wanted = WANTED | {"collective": ["allgather", "allreduce"], "output": tmp_path / "set"}
    first = synth.plans("switch:3", **wanted)

    def build(*_: object, **__: object) -> BuildResult:
        raise SynthError("no schedule")

    monkeypatch.setattr("synth.api.plan_sets.build", build)
    for _ in range(2):
        again = synth.plans("switch:3", fresh=True, **(wanted | {"collective": "allgather"}))
        assert again.plans and sorted(again.plans) == sorted(first.plans)
        assert again.parts[0].tables and not again.parts[0].refused and again.kept == again.builds
        said = "switch-3: allgather: the last search anew found nothing (no schedule); the earlier plans are kept"
        assert view.report(again).sentences.count(said) == 1
    index = PlanSet.from_json(json.loads((tmp_path / "set" / "index.json").read_text()), str(tmp_path / "set"))
    assert sorted(index.plans) == sorted(first.plans)
    assert all((tmp_path / "set" / f"{plan.name}.json").is_file() for plan in first.plans)
    gone = next(plan for plan in first.plans if "/allreduce/" in plan.name)
    (tmp_path / "set" / f"{gone.name}.json").unlink()
    with pytest.raises(SynthError, match="no plan is written: switch-3: no schedule"):  # a file of its plans is gone
        synth.plans("switch:3", fresh=True, **(wanted | {"collective": "allreduce"}))
    with pytest.raises(SynthError, match="no plan is written: switch-3: no schedule"):  # its plans are for other sizes
        synth.plans("switch:3", **(wanted | {"collective": "allgather", "sizes": ["2KB"]}))


@pytest.mark.parametrize("name", ["scan", "multi-broadcast", "sendrecv"])
def test_collectives_that_no_library_has_a_call_for_are_refused(tmp_path, name):
    with pytest.raises(
        UsageError, match=f"NCCL and RCCL have no single call for {name}, so none would ask for its plans"
    ):
        synth.plans("ring:4", collective=["allgather", name], output=tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_without_time_alltoall_has_direct_sends_among_its_candidates():
    """It ended with "nothing says how long alltoall on 8 ranks takes"."""
    machine = named_topology("dgx-a100")
    task = collective("alltoall", machine.ranks)
    found = synth.frontier(machine, task, time_limit=9)
    assert isinstance(found, Frontier)
    inputs = CollectiveInputs("alltoall", 8, None, machine.network(), (found,), ())
    over = SearchOptions(time.monotonic(), 1, None, 1.0)
    for plans in (False, True):
        request = TuningRequest(machine, "alltoall", plans=plans)
        names = [one.name for one in tuning._schedules(inputs, request, over)]
        assert "direct" in names

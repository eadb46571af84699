"""`synth build`: from a machine to a folder of checked algorithms."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import synth
from synth.commands import pareto
from synth.commands.tuning import kept_searches, tune
from synth.commands.tuning.kept_searches import machine_digest
from synth.errors import SynthError, UsageError
from synth.export.job_files import JobShape, readme, run_script
from synth.export.plans import lane
from synth.export.request import Machine
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Multicast, Topology
from synth.model.tuning_plan import Algorithm, Plan, Range, Table
from synth.topologies.importers import this_machine
from synth.topologies.topology_files import dump as document
from tests.command_line import synth as command

# Seconds: more than any build here takes on a busy machine. Each ends by itself, with all that its effort can find.
ENOUGH = 600.0
SMALL: dict[str, Any] = {"collective": "allgather", "sizes": (1024, 1 << 20), "time_limit": ENOUGH}


def names(folder: Path) -> list[str]:
    """Return the paths of the files of a build."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a build by their paths."""
    return {name: (folder / name).read_bytes() for name in names(folder)}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[synth.build, Path, str]:
    """Return a build of a ring of 3 ranks, its folder, and the cache directory that it left."""
    folder = tmp_path_factory.mktemp("build") / "algorithms"
    return synth.build("ring:3", output=folder, **SMALL), folder, os.environ["SYNTH_CACHE"]


@pytest.fixture
def built(first, monkeypatch):
    """Return the build of `first` and its folder, with its cache directory."""
    result, folder, cache = first
    monkeypatch.setenv("SYNTH_CACHE", cache)
    return result, folder


@pytest.fixture
def kept_plan(built, tmp_path, monkeypatch):
    """The file of the plan that `first` left, in a cache directory of its own."""
    shutil.copytree(os.environ["SYNTH_CACHE"], tmp_path / "cache", symlinks=True)
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    (plan,) = (tmp_path / "cache" / "builds").glob("*/plan.json")
    return plan


@pytest.fixture
def searches(monkeypatch):
    """The arguments of each search of the test, which stops as Ctrl-C stops it."""
    begun = []

    def stop(*arguments: object, **options: object) -> None:
        begun.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(pareto, "frontier", stop)
    return begun


def test_each_size_has_a_file_or_is_left_to_the_library(built):
    result, folder = built
    (table,) = result.tables
    assert [row.size for row in table.rows] == [1020, (1 << 20) - 4]
    for row in table.rows:
        assert row.algorithm or row.library is not None
        assert bool(row.algorithm) == bool(row.files)
        assert all((folder / name).is_file() for name in row.files)
        # Nothing that runs is predicted slower than the library, and no time is below the certified bound.
        assert row.library is not None
        assert 0 < row.bound <= row.seconds <= row.library.seconds


def test_sizes_are_those_of_calls_with_whole_elements(tmp_path):
    """1001 bytes on 3 ranks were left to the library, as if a call could have them."""
    result = synth.build("ring:3", "allgather", tmp_path / "a", sizes=(1001, 1 << 10), time_limit=ENOUGH)
    (table,) = result.tables
    assert [(row.size, bool(row.files)) for row in table.rows] == [(996, True), (1020, True)]
    (said,) = [note for note in result.notes if "rounded" in note]
    assert said.startswith("allgather: sizes are rounded to whole float32 elements for each of 3 parts of the data")
    assert "1001 to 996, 1024 to 1020 bytes" in said


def test_the_folder_has_what_a_job_needs(built):
    assert {"README.txt", "build.json", "plan.json", "report.html", "run.sh"} <= set(names(built[1]))
    script = (built[1] / "run.sh").read_text()
    assert "MSCCL_ALGO_DIR=" in script and f"--nproc-per-node {built[0].tables[0].ranks} " in script
    page = (built[1] / "README.txt").read_text()
    assert "torchrun" in page and "all_gather_perf" in page
    assert json.loads((built[1] / "build.json").read_text())["schema"] == "synth.build/1"


def test_several_boxes_are_started_box_by_box():
    """A box above 16 GPUs is several hosts, and how many is not known; neither is it where boxes differ."""
    several = "--nnodes 2 --nproc-per-node 3 --rdzv-backend c10d --rdzv-endpoint HOST:29400 train.py"
    unknown = "--nnodes HOSTS --nproc-per-node RANKS_PER_HOST --rdzv-backend c10d --rdzv-endpoint HOST:29400 train.py"
    for nodes, torchrun, mpirun in (
        ((0,) * 3, "--nproc-per-node 3 train.py", "mpirun -np 3"),
        ((0,) * 3 + (1,) * 3, several, "mpirun -np 6 --map-by ppr:3:node"),
        ((0,) * 18, unknown, "mpirun -np 18"),
        ((0, 0, 1), unknown, "mpirun -np 3"),
    ):
        job = JobShape.of(Machine(nodes=nodes))
        assert (job.torchrun, job.mpirun) == (f"torchrun {torchrun}", mpirun)
    boxes = JobShape.of(Machine.of(synth.topology("mi250*2")))
    assert boxes == JobShape(32, 16, amd=True)
    script = run_script("mscclpp", ["01.json"], boxes)
    assert "--nnodes 2 --nproc-per-node 16 " in script and ":-librccl.so.1}" in script
    assert "--nnodes 2 --nproc-per-node 16 " in readme("title", "msccl-executor", boxes, ["allreduce"], "", (1, 2))


def test_a_page_without_files_names_no_command_that_would_run_them():
    page = readme("title", "mscclpp", None, ["allreduce"], "1 GB left to the library", (1, 2))
    assert "No size has a file for mscclpp: run the library as it is." in page
    assert "run.sh" not in page and "register" not in page and "frontiers/" in page


def test_a_tuner_gets_a_file_of_rules_and_its_variable(built, tmp_path):
    """The search is that of `built`, from the cache."""
    result = synth.build("ring:3", output=tmp_path / "a", runtime="nccl-tuner", **SMALL)
    assert result.files == ("nccl-tuner/tuner.csv",)
    assert 'export NCCL_TUNER_CONFIG_FILE="$here/nccl-tuner/tuner.csv"' in (tmp_path / "a" / "run.sh").read_text()


def test_a_pytorch_job_takes_the_plan_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    result = synth.build("ring:3", output=tmp_path / "a", runtime="torch", **SMALL)
    assert result.files == ("plan.json",)
    assert all(row.algorithm and row.files == ("plan.json",) for row in result.tables[0].rows)
    assert 'export SYNTH_PLAN="$here"' in (tmp_path / "a" / "run.sh").read_text()
    page = (tmp_path / "a" / "README.txt").read_text()
    assert "./run.sh torchrun --nproc-per-node 3 train.py" in page and "synth torch log log" in page
    assert "build/all_gather_perf" not in page
    with pytest.raises(SynthError, match="run on one host, and dgx1-v100\\*2 has 2 boxes"):
        synth.build("dgx1*2", output=tmp_path / "b", runtime="torch", **SMALL)


def test_a_schedule_after_a_librarys_row_is_compared_in_a_job_where_the_times_are_a_models():
    algorithms = (Algorithm("NCCL", "nccl"), Algorithm("ours"), Algorithm("Gloo", "gloo"))
    row = Range(1, None, (1, 0, 1, 2, 1))
    for source, found in (("model", [1, 1, 1]), ("measured", [1]), ("imported", [1])):
        assert lane.candidates(Plan(algorithms, (), source, ""), row) == found


def test_a_schedule_that_could_leave_ranks_with_different_bits_is_in_no_job():
    task = synth.collective("allreduce", 3)
    sends = tuple(Send(0, src, dst, "reduce") for src in range(3) for dst in range(3) if src != dst)
    everywhere = Schedule(synth.topology("full:3").network(), task, 1, (Step(1, sends),))
    algorithms = (Algorithm("all at once", schedule=everywhere), Algorithm("by name"))
    plan = Plan(algorithms, (Table("allreduce", 3, (Range(1, None, (0, 1)),), (1024,)),), "model", "")
    sizes, programs = lane.table(plan, plan.tables[0])
    assert not programs and sizes.refused == {0: "its ranks may end with different bits"}


def test_programs_of_large_messages_are_run_with_few_bytes(tmp_path):
    """Buffers of 1 GiB on each rank were refused."""
    result = synth.build("full:4", output=tmp_path / "a", collective="allgather", sizes=[1 << 30], time_limit=ENOUGH)
    assert result.tables[0].rows[0].files
    assert "-b 1073741824 -e 1073741824" in (tmp_path / "a" / "README.txt").read_text()


def test_a_second_build_in_the_same_folder_searches_nothing(built, searches):
    result, folder = built
    before = contents(folder)
    again = synth.build("ring:3", output=folder, **SMALL)
    assert again.to_json() == result.to_json()
    assert contents(folder) == before


def test_the_same_dump_under_another_name_gives_the_same_files(tmp_path, monkeypatch):
    """A search that its time limit ended found other schedules, and so other files, each time (8 GPUs on PCIe)."""
    search, made = pareto.frontier, []

    def once(*arguments: object, **options: object) -> object:
        assert not made, "a finished search is repeated"
        return search(*arguments, **options)

    monkeypatch.setattr(pareto, "frontier", once)
    for name in ("one", "two"):
        dump = tmp_path / f"{name}.json"
        dump.write_text(json.dumps(document(synth.topology("ring:3")) | {"name": name}))
        synth.build(dump, output=tmp_path / name, **SMALL)
        files = contents(tmp_path / name)
        made.append({path: files[path] for path in files if not path.endswith(".env")})  # these hold the folder's path
    assert made[0] == made[1]
    assert any("executor/" in name for name in made[0])


def test_fresh_other_options_and_another_version_search_again(built, searches, tmp_path, monkeypatch):
    changes: list[dict[str, Any]] = [
        {"fresh": True}, {"time_limit": ENOUGH / 2}, {"sizes": (2048,)}, {"runtime": "mscclpp"},
    ]  # fmt: skip
    for options in changes:
        with pytest.raises(KeyboardInterrupt):
            synth.build("ring:3", output=tmp_path / "a", **(SMALL | options))
    monkeypatch.setattr(kept_searches, "program_digest", lambda: "another")
    with pytest.raises(KeyboardInterrupt):
        synth.build("ring:3", output=tmp_path / "a", **SMALL)
    assert [options["fresh"] for options in searches] == [True, False, False, False, False]


def test_the_key_of_an_answer_holds_each_fact_of_the_machine():
    """A fact that the key left out, as boxes once, would be that of another machine in a kept answer."""
    link, limit = synth.Link(0, 1, 2), synth.Limit("port", [0], 2)
    machine = Topology("two", 2, [link, synth.Link(1, 0, 2)], [limit], ["s"], (0, 0), 1, (), (0, 1))
    other: dict[str, Any] = {
        "name": "deux", "ranks": 3, "switches": ("t",), "nodes": (0, 1), "connection": Fraction(1, 2),
        "generators": ((1, 0),), "labels": (1, 0), "notes": ("assumed",), "multicast": (Multicast("s"),),
    }  # fmt: skip
    link_changes = {"src": 2, "dst": 2, "bandwidth": Fraction(3), "latency": Fraction(1), "kind": "pcie"}
    limit_changes = {"name": "NIC", "links": (1,), "bandwidth": Fraction(1)}
    assert link_changes.keys() == {each.name for each in fields(link)}
    assert limit_changes.keys() == {each.name for each in fields(limit)}
    assert other.keys() | {"links", "limits"} == {each.name for each in fields(machine)}
    changed = [replace(machine, **{key: value}) for key, value in other.items()]
    for key, value in link_changes.items():
        changed.append(replace(machine, links=(replace(link, **{key: value}), machine.links[1])))
    for key, value in limit_changes.items():
        changed.append(replace(machine, limits=(replace(limit, **{key: value}),)))
    digests = [machine_digest(each) for each in (machine, *changed)]
    assert len(set(digests)) == len(digests)
    assert machine_digest(replace(machine)) == digests[0]


def test_a_damaged_answer_is_searched_anew(kept_plan, searches, tmp_path):
    kept_plan.write_text(kept_plan.read_text()[:-20])
    with pytest.raises(KeyboardInterrupt):
        synth.build("ring:3", output=tmp_path / "a", **SMALL)
    assert len(searches) == 1


def test_searches_that_the_time_limit_ended_are_named(built, kept_plan, tmp_path):
    """A build whose search was cut short printed its table as if nothing else could be found."""
    plan = json.loads(kept_plan.read_text())
    assert not any("--time-limit" in note for note in built[0].notes)
    plan["notes"].append("the time limit ended the search for schedules that divide every size, at 2 steps")
    kept_plan.write_text(json.dumps(plan))
    folder = tmp_path / "a"
    (said,) = [note for note in synth.build("ring:3", output=folder, **SMALL).notes if "--time-limit" in note]
    assert said.startswith("allgather: not searched to the end; the same command with a longer --time-limit")
    assert said in (folder / "README.txt").read_text()


def test_a_search_that_found_nothing_in_time_says_so(tmp_path, monkeypatch):
    """As where a time limit ends all searches: neither a frontier nor the tuner has anything to choose from."""

    def nothing_to_choose(*_):
        raise SynthError("nothing says how long alltoall takes")

    found = replace(synth.frontier("ring:3", "alltoall", jobs=1), points=())
    monkeypatch.setattr(pareto, "frontier", lambda *_, **__: found)
    monkeypatch.setattr(tune, "tune_request", nothing_to_choose)
    said = "no schedule of alltoall was found within the time limit of 1 s.*--time-limit"
    with pytest.raises(SynthError, match=said):
        synth.build("ring:3", "alltoall", tmp_path / "a", sizes=(1 << 10,), time_limit=1)


def test_the_frontier_in_the_folder_is_that_of_the_last_root(tmp_path):
    """A plan of an earlier build was reused beside the frontier of another root."""
    for wanted in (0, 1, 0):
        result = synth.build("line:2", "broadcast", tmp_path / "a", sizes=(1024,), root=wanted, time_limit=ENOUGH)
        frontier = json.loads((tmp_path / "a" / "frontiers" / "broadcast.json").read_text())
        assert frontier["collective"]["root"] == wanted == result.plan.tables[0].root


def test_frontiers_of_an_earlier_build_are_said(tmp_path):
    """They stayed in the folder without a word, as if they belonged to its files."""
    for name, said in (("broadcast", []), ("allgather", ["broadcast.json"])):
        result = synth.build("line:2", name, tmp_path, sizes=(1024,), runtime="nccl-tuner", time_limit=ENOUGH)
        assert [note.split()[-3] for note in result.notes if "of an earlier build" in note] == said


def test_a_busy_machine_costs_no_build(tmp_path, monkeypatch):
    """No program ran before the time was over, and the build ended: "nothing says how long allgather takes"."""
    tune_request, limits = tune.tune_request, []

    def late(request, listener):
        limits.append(request.time_limit)
        if len(limits) == 1:
            raise SynthError("nothing says how long allgather takes")
        return tune_request(request, listener)

    monkeypatch.setattr(tune, "tune_request", late)
    assert synth.build("line:2", output=tmp_path, **SMALL).tables[0].rows[0].seconds
    assert limits[0] is not None and limits[1:] == [None]


def test_what_is_assumed_of_the_machine_is_said(tmp_path):
    dump = tmp_path / "topo.txt"
    dump.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n")
    lines = []
    result = synth.build(dump, output=tmp_path / "a", on_event=lambda event: lines.append(event.text), **SMALL)
    assert lines[-1] == "files of the runtime: lowered and proved"
    assumed = synth.topology(dump).notes
    assert assumed and set(assumed) <= set(result.notes)
    page = " ".join((tmp_path / "a" / "README.txt").read_text().split())
    assert all(f"note: {note}" in page for note in assumed)


@pytest.mark.parametrize(
    ("arguments", "folder", "words"),
    [
        (("ring:3", "allgahter"), "new", "did you mean allgather"),
        (("rnig:3", "allgather"), "new", "rnig"),
        (("ring:3", "allgather"), ".", "holds other files"),
        (("ring:3", "allgather"), "file", "cannot write"),
    ],
)
def test_what_cannot_be_built_is_refused_before_any_work(tmp_path, searches, arguments, folder, words):
    (tmp_path / "file").write_text("")
    with pytest.raises(SynthError, match=words):
        synth.build(*arguments, tmp_path / folder)
    with pytest.raises(UsageError, match="executor, msccl"):
        synth.build("ring:3", "allgather", tmp_path / "new", runtime="mpi")
    assert not searches and not (tmp_path / "new").exists()


def test_a_collective_that_no_runtime_takes_is_left_to_the_library_with_the_reason(tmp_path):
    result = synth.build("ring:3", "gather", tmp_path / "new", sizes=(1024, 1 << 20), time_limit=ENOUGH)
    assert not result.files and any("no file is written" in note for note in result.notes)


def test_this_machine_is_read_from_its_tools(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV2\\nGPU1\\tNV2\\t X \\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert this_machine().ranks == 2


def test_commands_without_files_do_not_say_that_they_were_run(tmp_path):
    """They said "wrote 0 files of msccl-executor, all linted and run"."""
    said = command(f"build ring:2 --coll allgather --sizes 64KB --time-limit 600s -o {tmp_path}/a").stderr
    last = f"synth: wrote {tmp_path}/a/README.txt: no file for msccl-executor, all sizes are left to the library"
    assert said.splitlines()[-1] == last


def test_the_command_prints_one_table_and_continues_after_ctrl_c(tmp_path, monkeypatch):
    words = f"build ring:3 --coll allgather --sizes 1KB,1MB --time-limit {ENOUGH}s -o {tmp_path}/a"

    def stop(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pareto, "frontier", stop)
        assert "the same command continues" in command(words, code=130).stderr
    shown = command(words).stdout
    assert "ring µs" in shown and "x bound" in shown

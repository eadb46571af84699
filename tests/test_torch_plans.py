"""Plans and logs of PyTorch jobs: what `synth build --for torch` writes, MCR-DL's tables, plans of other roots and
ranks; who came last; the step of a log and of torch's flight recorder."""

import json

import pytest

import synth
from tests.command_line import synth as command
from tests.test_torch import job

pytestmark = pytest.mark.slow


def logged(folder, ranks, **environment):
    """Run a job; return the rows of its log."""
    printed, codes = job(ranks, file="torch_calls.py", SYNTH_LOG=str(folder), **environment)
    assert codes == [0] * ranks, printed
    return json.loads(command("torch", "log", folder, "--format", "json").stdout)


def test_a_job_runs_a_built_plan_for_its_number_of_ranks_and_programs_of_the_library_for_others(tmp_path):
    synth.build("ring:3", "allreduce", tmp_path / "a", runtime="torch", sizes=(64, 16384), time_limit=60)
    plan = synth.api.load_plan(tmp_path / "a" / "plan.json")
    rows = logged(tmp_path / "log", 3, SYNTH_PLAN=str(tmp_path / "a"))
    labels = {algorithm.label for algorithm in plan.algorithms}
    for row in rows:
        if row["collective"] == "allreduce" and row["ranks"] == 3:
            assert row["ran"] in labels or "gloo" in row["ran"]
            assert any(label in row["why"] for label in labels), row
        if row["collective"] == "allreduce" and row["ranks"] == 2:
            assert "the plan has no allreduce on 2 ranks" in row["why"]


def test_the_root_of_a_plan_may_be_another_than_the_calls(tmp_path):
    """Programs of a root other than 0 took their data from the wrong rank."""
    synth.build("ring:3", "broadcast", tmp_path / "a", runtime="torch", sizes=(256,), root=1, time_limit=60)
    logged(tmp_path / "log", 3, SYNTH_PLAN=str(tmp_path / "a"))


def test_tables_in_mcrdls_form_say_where_the_library_runs(tmp_path):
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "mcrdl_allreduce_2gpu.csv").write_text("bytes,backend\n32,NCCL\n1024,synth\n")
    (tables / "mcrdl_broadcast_2gpu.csv").write_text("bytes,backend\n64,MVAPICH2-GDR\n")
    rows = logged(tmp_path / "log", 2, SYNTH_PLAN=str(tables))
    found = {(row["collective"], row["bytes"]): row for row in rows}
    for small in (found["allreduce", 64], found["broadcast", 256]):
        assert small["ran"] == "gloo" and small["why"].startswith("the plan names ")
    why = found["allreduce", 16384]["why"]
    assert "of the library's time" in why or "faster than" in why


def test_a_log_says_who_came_last_and_what_a_step_is(tmp_path):
    """Rank 1 sleeps for 20 ms before each of 6 steps; rank 2 is in the last group, too."""
    folder = tmp_path / "log"
    rows = logged(folder, 3, TORCH_FR_BUFFER_SIZE="500")
    assert len({row["job"] for row in rows}) == 1 and len({row["group"] for row in rows}) == 2
    first = next(row for row in rows if (row["ranks"], row["collective"], row["bytes"]) == (3, "allreduce", 64))
    assert first["latest"] == 1 and first["late"] > 0.5 and first["behind"] > 5e-3
    assert first["waiting"] > first["transfer"] / 100 and set(first["times"]) > {"library"}
    assert ("barrier", "shared memory") in [(row["collective"], row["ran"]) for row in rows]
    step = json.loads(command("torch", "profile", folder, "--format", "json").stdout)
    assert step["period"] == 4 and step["seconds"] > 15e-3
    assert all(row["library"] and row["plan"] for row in step["rows"])
    for dump in (f"{folder}.dump", f"{folder}.dump.json"):
        found = json.loads(command("torch", "profile", dump, "--format", "json").stdout)["rows"]
        assert ("allreduce", "gloo") in [(row["kind"]["collective"], row["ran"]) for row in found]

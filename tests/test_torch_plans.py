"""Plans in PyTorch jobs: what `synth build --for torch` writes, MCR-DL's tables, plans of other roots and ranks."""

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

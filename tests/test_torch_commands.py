"""`synth torch`: the log of a job as a table; what is missing where there is no torch."""

import importlib.util
import json

import pytest
from click.testing import CliRunner

from synth.commands import root

ROW = {
    "collective": "allreduce", "bytes": 4096, "type": "float32", "ran": "ring", "why": "kept", "calls": 3,
    "total": 12288, "ranks": 2,
}  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(root, ["torch", *map(str, arguments)])


def write(folder, rank, *rows):
    (folder / f"rank-{rank}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_log_says_what_ran_and_how_long_it_took_on_the_slowest_and_the_fastest_rank(tmp_path):
    gloo = ROW | {"ran": "gloo", "why": "type", "bytes": 64, "total": 64, "calls": 1, "seconds": []}
    write(tmp_path, 0, ROW | {"seconds": [2e-6, 4e-6, 9e-6]}, gloo)
    write(tmp_path, 1, ROW | {"seconds": [1e-6, 2e-6, 2e-6]}, gloo)
    lines = [line.split() for line in run("log", tmp_path).stdout.splitlines()]
    assert ["allreduce", "4096", "float32", "3", "4", "1.02", "1.02", "2", "ring", "kept"] in lines
    assert ["allreduce", "64", "float32", "1", "gloo", "type"] in lines
    first = json.loads(run("log", tmp_path, "--format", "json").stdout)[0]
    assert (first["median"], first["fastest"], first["total"]) == (4e-6, 2e-6, 12288)


@pytest.mark.parametrize(
    "line", ["{", "[]", json.dumps(ROW), json.dumps(ROW | {"seconds": [1], "calls": "3"})], ids=str
)
def test_what_is_no_log_is_refused_with_its_line(tmp_path, line):
    (tmp_path / "rank-0.jsonl").write_text(json.dumps(ROW | {"seconds": [1]}) + "\n" + line + "\n")
    result = run("log", tmp_path)
    assert result.exit_code != 0 and "rank-0.jsonl:2: is no row of a log" in result.output


def test_a_folder_without_a_log(tmp_path):
    assert "a job writes one with SYNTH_LOG" in run("log", tmp_path).output


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is here")
def test_the_doctor_says_what_is_missing():
    assert "no program runs in a PyTorch job here: torch not installed; pip install" in run("bench").output
    result = run("doctor")
    assert "pip install 'ccl-synth[torch]'" in result.stdout
    assert "no program runs in a PyTorch job here, for torch" in result.output

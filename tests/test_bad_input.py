"""Odd values of options, and files of strangers, end at once in one line with its exit code: never an internal error or
a hang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import synth
from synth import api
from synth.catalog.tuner import measurements
from synth.cli import root
from synth.errors import FormatError, SynthError, UsageError
from synth.model.collective_files import load
from synth.model.schedule import Schedule
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.onesided.lower import onesided
from synth.program.text import parse
from synth.topologies import importers

HUGE = "999999999999999999999"
PARETO = ["pareto", "--topo", "ring:3", "--coll", "allgather", "--jobs", "1"]
SOLVE = ["solve", "--topo", "ring:4", "--coll", "allgather"]
TUNE = ["tune", "--topo", "ring:4", "--sizes", "1KB:4KB"]


@pytest.fixture(scope="module")
def schedule(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "s.json"
    path.write_text(json.dumps(synth.solve("ring:3", "allgather", 1, 1, 1, jobs=1).schedule.to_json()))
    return path


def refused(code: int, *words: object) -> str:
    """Return the one line that a command prints before it ends with this exit code."""
    result = CliRunner().invoke(root, [str(word) for word in words])
    assert result.exit_code == code, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("synth: error: ") and "internal" not in line
    return line


@pytest.mark.parametrize("command", ["show", "run", "export", "bench"])
def test_more_copies_than_any_runtime_has_channels_are_refused(command, schedule):
    assert "instances are at most 256" in refused(2, command, schedule, "--instances", HUGE)


def test_copies_are_counted_however_a_schedule_is_lowered(schedule):
    made = Schedule.from_json(json.loads(schedule.read_text()))
    for lowering in (lower, onesided):
        assert lowering(made, LoweringOptions(instances=2))
        with pytest.raises(UsageError, match="at most 256"):
            lowering(made, LoweringOptions(instances=257))


def test_a_seed_of_random_data_is_not_negative(schedule):
    assert "--seed" in refused(2, "run", schedule, "--seed", -1)


def test_the_units_of_an_alltoall_are_counted_before_they_are_made():
    with pytest.raises(UsageError, match="parts are supported"):
        synth.collective("alltoall", 100_000)


@pytest.mark.parametrize("asked", [("2", "2", HUGE), (HUGE, "2", HUGE), ("2", HUGE, HUGE)])
def test_a_question_that_no_engine_can_hold(asked):
    chunks, steps, rounds = asked
    assert "can be asked for" in refused(2, *SOLVE, "--chunks", chunks, "--steps", steps, "--rounds", rounds)


@pytest.mark.parametrize(
    "words", [("--without", "0-1"), ("--degrade", "0-1:1/2"), ("--ranks", "0-1"), ("--links", "none.csv")]
)
@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_change_of_no_machine_is_not_passed_over(command, words, schedule):
    assert f"{words[0]} changes a machine, and none is named" in refused(2, command, schedule, *words)


def test_a_change_in_the_environment_waits_for_a_machine(schedule, monkeypatch):
    monkeypatch.setenv("SYNTH_WITHOUT", "0-1")
    assert CliRunner().invoke(root, ["run", str(schedule), "--size", "1KB"]).exit_code == 0


def test_an_empty_name_is_no_machine():
    assert "no topology given" in refused(2, "bound", "--topo", "", "--coll", "allgather")


@pytest.mark.parametrize("text", ["my notes\n", '{"schema": "synth.frontier/1"}', "\0\0\0"])
def test_a_file_that_is_no_log_is_not_overwritten(text, tmp_path):
    path = tmp_path / "mine"
    path.write_text(text)
    assert "is no log of a sweep" in refused(1, *PARETO, "--log", path, "--fresh")
    assert path.read_text() == text


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_log_is_a_file(device):
    assert "is not a file" in refused(1, *PARETO, "--log", device)


@pytest.mark.parametrize("torn", ["", '{"kind":"he', '{"kind":"head","version":1,"key":"another"}\n{"kind":"po'])
def test_a_log_of_another_question_or_a_torn_one_is_begun_anew(torn, tmp_path):
    path = tmp_path / "log"
    path.write_text(torn)
    assert CliRunner().invoke(root, [*PARETO, "--log", str(path)]).exit_code == 0
    assert not path.exists()  # a finished sweep needs it no more


@pytest.mark.parametrize(
    ("closed", "words", "code"), [(">&-", "list topologies", 0), (">&-", "-h", 0), ("2>&-", "list topologees", 2)]
)
def test_a_stream_that_is_closed_is_done_without(closed, words, code):
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "synth", *words.split()]
    result = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (code, "", "")


DEEP = "[" * 5000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DEEP, "is nested too deeply"),
        ("1: 2\nfoo: 3\npre: [[0, 0]]\npost: [[0, 1]]\n", "unknown key '1'"),
        (json.dumps({"pre": [["a" * 3000, 0]], "post": [[0, 1]]}), "expected a whole number"),
        (json.dumps({"pre": [[0, "b" * 3000]], "post": [[0, 1]]}), "from 0 to 2"),
        (json.dumps({"pre": [[0, 0]], "post": [[0, 1]], "ranks": "x" * 3000}), "ranks: expected a whole number"),
    ],
)
def test_a_hostile_collective_is_refused_in_a_short_line(text, said, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=said) as error:
        load(path, 3)
    assert len(str(error.value)) < len(str(path)) + 200


@pytest.mark.parametrize(("text", "said"), [(DEEP, "is nested too deeply"), ("9" * 5000, "is not JSON: ")])
def test_measurements_that_json_cannot_read(text, said, tmp_path):
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=said):
        measurements.load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": ' * 100_000, "bad.json: is nested too deeply"),
        ('{"a": 1,\n "b"', "bad.json:2:5: is not JSON: Expecting ':' delimiter"),
        ('{"a": 1, "a": 2}', "bad.json: is not JSON: the field 'a' is given twice"),
        ("", "bad.json: is empty"),
    ],
)
def test_a_bad_document_is_refused_alike_by_all_commands(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text(text)
    for command in ("lint", "run", "verify", "import", "export", "explain"):
        assert said in refused(1, command, "bad.json"), command
    outcome = CliRunner().invoke(root, ["audit", "bad.json", "--format", "json"])
    assert json.loads(outcome.stdout)["files"][0]["reason"].startswith(said.removeprefix("bad.json:").lstrip())


def test_a_document_of_others_that_is_too_large_is_refused_alike_by_all_commands(tmp_path, monkeypatch):
    monkeypatch.setattr("synth.export.program_reader.MAX_TEXT", 100)
    monkeypatch.setattr("synth.interchange.read.MAX_BYTES", 100)
    path = tmp_path / "large.json"
    path.write_text(json.dumps({"theirs": "x" * 100}))
    for command in ("lint", "run", "import"):
        assert "large.json: has 114 bytes; at most 100 are read" in refused(1, command, path), command


def test_a_folder_is_no_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ".: is a folder; name a file in it" in refused(1, "bound", "--topo", ".", "--coll", "allgather")
    (tmp_path / "dgx1").mkdir()
    assert api.topology("dgx1").ranks == 8


def test_a_wrong_name_of_a_format_comes_before_the_choice_of_a_point(tmp_path):
    path = tmp_path / "f.json"
    path.write_text(json.dumps(api.frontier("ring:4", "allreduce").to_json()))
    assert "unknown exporter 'chakkra'; did you mean chakra" in refused(2, "export", path, "--to", "chakkra")


def test_lines_of_the_library_are_not_named():
    """Where a library's algorithm does not fit the machine, there is no line for the user to change."""
    words = ["run", "--topo", "ring:6", "--coll", "allreduce", "--baseline", "halving-doubling"]
    assert refused(2, *words).endswith("error: halving-doubling: ring:6 has no link 2 -> 0")
    listed = CliRunner().invoke(root, ["algorithms", "--topo", "ring:6", "--coll", "allreduce", "--no-bounds"])
    assert "one-shot: ring:6 has no link 2 -> 0\n" in listed.output
    assert ".py:" not in listed.output


def test_a_program_whose_collective_is_nested_too_deeply():
    with pytest.raises(SynthError, match="recursion"):
        parse('program p\ncollective {"a": ' + DEEP + "\nchunks 1 protocol Simple in-place both bytes 0..\n", "p.txt")


def test_a_long_cell_of_a_table_is_not_repeated_whole(tmp_path):
    heads = ("Weight", "Hops", "Link Type")
    cells = {"Weight": "15", "Hops": "1", "Link Type": "XGMI"}
    tables = [
        f"{'=' * 20} {head} between two GPUs {'=' * 20}\n   GPU0 GPU1\nGPU0 0 {cells[head]}\nGPU1 {cells[head]} 0\n"
        for head in heads
    ]
    path = tmp_path / "rocm.txt"
    path.write_text("".join(tables))
    assert importers.load(path).ranks == 2
    path.write_text("".join(tables).replace("GPU1 XGMI", f"GPU1 {'a' * 5000}"))
    with pytest.raises(FormatError, match=r"'a{20}' is not one of") as error:
        importers.load(path)
    assert len(str(error.value)) < len(str(path)) + 200

"""`synth catalog build` and `table` as a user runs them: what they print, exit codes, Ctrl-C, and kills that lose
nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from synth.cli.root import root

FLEET = "topologies: ['ring:4']\ncollectives: [allgather, {name: broadcast, roots: all}]\noptions: {max-steps: 2}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return tmp_path


def synth(*arguments):
    done = CliRunner().invoke(root, arguments, prog_name="synth")
    return done.exit_code, done.stdout, done.stderr


def test_a_job_from_plan_to_page(folder):
    code, message, _ = synth("catalog", "build", "fleet.yaml", "--dry-run")
    assert code == 0
    assert message.startswith("5 tasks, 5 to do, about")
    assert not (folder / "catalog.db").exists()
    code, message, _ = synth("catalog", "build", "fleet.yaml", "--jobs", "1", "--format", "json")
    done = json.loads(message)
    assert code == 0
    assert done["counts"]["done"] == {"solved": 2, "known": 0, "alike": 3}
    assert {row["fate"] for row in done["tasks"]} == {"todo", "alike"}
    code, message, _ = synth("catalog", "build", "fleet.yaml")
    assert code == 0
    assert [line.split()[:4] for line in message.splitlines() if line.startswith("done")] == [["done", "2", "3", "5"]]
    code, message, _ = synth("catalog", "build", "fleet.yaml", "--dry-run")
    assert message.startswith("5 tasks, 0 to do")
    assert "broadcast from 3 on ring:4" in message
    code, _, message = synth("catalog", "table", "fleet.yaml", "--title", "Rings", "-o", "rings.md")
    assert (code, message) == (0, "synth: wrote rings.md\n")
    page = (folder / "rings.md").read_text()
    assert page.startswith("# Rings\n\n5 problems (5 done), answered by 2 entries")
    assert "| broadcast from 3 | 2: 1 | complete to 2 steps |" in page


def test_a_page_counts_what_is_named_twice_once(folder):
    (folder / "fleet.yaml").write_text(
        "topologies: ['ring:3', {name: 'ring:3', degraded: [0-1]}]\ncollectives: [allgather]\n"
    )
    assert synth("catalog", "build", "fleet.yaml", "--inline")[0] == 0
    assert synth("catalog", "build", "fleet.yaml", "--dry-run")[1].startswith("2 tasks, 0 to do")
    assert "\n2 problems (2 done), answered by 2 entries" in synth("catalog", "table", "fleet.yaml", "-o", "-")[1]


def test_open_intervals_end_with_four_and_stand_in_the_page(folder):
    (folder / "fleet.yaml").write_text("topologies: [dgx1]\ncollectives: [broadcast]\noptions: {max-steps: 6}\n")
    code, message, _ = synth("catalog", "build", "fleet.yaml", "--inline", "--time-limit", "0.001")
    assert code == 4
    assert [line.split()[0] for line in message.splitlines() if "an interval is left" in line] == ["open"]
    _, page, _ = synth("catalog", "table", "fleet.yaml")
    assert "1 open" in page
    assert any(mark in page for mark in (" to ", "≥"))
    assert "| open: time |" in page


BAD = {
    "a job that is not there": (["none.yaml"], 1, "none.yaml: does not exist"),
    "a wrong key": (["bad.yaml"], 1, "bad.yaml:2: colls: unknown key 'colls'"),
    "two runners": (["fleet.yaml", "--inline", "--slurm"], 2, "--inline, --dask and --slurm exclude each other"),
    "no address": (["fleet.yaml", "--dask", "nowhere"], 2, "--dask nowhere: expected local"),
    "no cluster": (["fleet.yaml", "--slurm"], 1, "--slurm needs cores and memory"),
    "no such folder": (
        ["fleet.yaml", "--db", "none/catalog.db"],
        1,
        "cannot write none/catalog.db: its folder does not exist",
    ),
    "no catalog": (["fleet.yaml", "--db", "fleet.yaml"], 1, "fleet.yaml: is no catalog"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_one_line(folder, case):
    (folder / "bad.yaml").write_text("topologies: [dgx1]\ncolls: [allgather]\n")
    arguments, code, message = BAD[case]
    found = synth("catalog", "build", *arguments)
    assert found[0] == code
    assert message in found[2]
    assert len(found[2].splitlines()) == 1


# The command, interrupted as soon as the second task has begun.
INTERRUPTED = """
import os, signal
from synth.catalog.jobs.runners.processes import Processes
from synth.cli import main

start, calls = Processes.start, []

def stop(self, call):
    start(self, call)
    calls.append(call)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGINT)

Processes.start = stop
main()
"""


def test_ctrl_c_keeps_what_has_ended(folder):
    (folder / "fleet.yaml").write_text("topologies: [dgx1]\ncollectives: [allgather, multi-broadcast]\n")
    words = ["catalog", "build", "fleet.yaml", "--jobs", "1"]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *words], capture_output=True, check=False)
    assert done.returncode == 130
    assert b"left" in done.stdout
    assert done.stderr.endswith(b"interrupted; the same command continues\n")
    assert [row["collective"] for row in json.loads(synth("catalog", "ls", "--format", "json")[1])] == ["allgather"]

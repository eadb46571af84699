"""`synth catalog` as a user runs it: what it prints, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import lzma
import sqlite3
import subprocess
import sys

import pytest
from click.testing import CliRunner

from synth.catalog.jobs import runners
from synth.commands import api
from synth.commands.root import root

FLEET = "topologies: ['ring:4']\ncollectives: [allgather, {name: broadcast, roots: all}]\noptions: {max-steps: 2}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SYNTH_CATALOG", raising=False)
    monkeypatch.setattr(runners, "in_child", lambda task: task.answer())
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return tmp_path


def synth(*words):
    done = CliRunner().invoke(root, ["catalog", *words], prog_name="synth")
    return done.exit_code, done.stdout, done.stderr


def test_a_job_from_plan_to_export(folder, monkeypatch):
    code, said, _ = synth("build", "fleet.yaml", "--dry-run")
    assert code == 0 and said.startswith("5 tasks, 5 to do") and not (folder / "catalog.db").exists()
    code, said, _ = synth("build", "fleet.yaml", "--jobs", "1", "--format", "json")
    assert code == 0
    assert sorted(row["source"] for row in json.loads(said)) == ["alike"] * 3 + ["solved"] * 2
    code, said, _ = synth("build", "fleet.yaml")
    assert [line.split()[:4] for line in said.splitlines() if line.startswith("done")] == [["done", "2", "3", "5"]]
    code, said, _ = synth("build", "fleet.yaml", "--dry-run")
    assert said.startswith("5 tasks, 0 to do") and "broadcast from 3 on ring:4" in said

    # listed, shown, verified and exported
    code, said, _ = synth("ls")
    assert code == 0 and "2 entries" in said and "broadcast from 0" in said
    rows = json.loads(synth("ls", "--coll", "all_gather", "--topo", "Ring:4", "--format", "json")[1])
    assert [(row["collective"], row["state"], row["points"]) for row in rows] == [("allgather", "done", [[2, "3/2"]])]
    name = rows[0]["id"]
    code, said, _ = synth("show", name)
    assert code == 0 and "allgather on ring:4" in said and f"entry {name}: done" in said and "ccl-synth" in said
    assert json.loads(synth("show", name, "--format", "json")[1])["frontier"]["schema"] == "synth.frontier/1"
    assert synth("verify") == (0, "catalog.db: 2 entries checked, all verified\n", "")
    assert "24 sends replayed" in synth("verify", "-v")[1]
    assert synth("export", name, "--to", "frontier", "-o", "f.json")[0] == 0
    assert api.verify("f.json")
    assert synth("export", name, "--to", "msccl-xml", "-o", "a.xml")[0] == 0
    assert (folder / "a.xml").read_text().startswith("<algo")

    # another name of the catalog
    (folder / "catalog.db").rename("other.db")
    monkeypatch.setenv("SYNTH_CATALOG", "other.db")
    assert "2 entries" in synth("ls")[1]


def test_an_infeasible_task_and_an_open_one_are_said(folder):
    (folder / "fleet.yaml").write_text("topologies: ['ring:4']\ncollectives: [allgather]\noptions: {max-steps: 1}\n")
    code, said, note = synth("build", "fleet.yaml")
    assert code == 0 and "proved to have no schedule" in said
    assert "infeasible: allgather on ring:4: allgather on ring:4 needs at least 2 steps" in note
    (folder / "fleet.yaml").write_text("topologies: [dgx1]\ncollectives: [broadcast]\noptions: {max-steps: 6}\n")
    code, said, _ = synth("build", "fleet.yaml", "--time-limit", "0.001")
    assert code == 4 and "an interval is left" in said


def test_a_forged_entry_is_named(folder):
    synth("build", "fleet.yaml")
    with sqlite3.connect("catalog.db") as base:
        key, body = base.execute("SELECT fingerprint, frontier FROM entries LIMIT 1").fetchone()
        document = json.loads(lzma.decompress(body))
        document["points"][0]["schedule"]["steps"][0]["sends"].pop()
        body = lzma.compress(json.dumps(document).encode())
        base.execute("UPDATE entries SET frontier = ? WHERE fingerprint = ?", (body, key))
    code, said, _ = synth("verify")
    assert code == 5 and said.startswith(f"{key[:12]}: ") and said.endswith("2 entries checked, 1 bad\n")


# The command, interrupted as soon as the second task has begun.
INTERRUPTED = """
import os, signal
from synth.catalog.jobs.runners import Processes
from synth.commands import main

submit, calls = Processes.submit, []

def stop(self, task):
    calls.append(task)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return submit(self, task)

Processes.submit = stop
main()
"""


def test_ctrl_c_keeps_what_has_ended(folder):
    (folder / "fleet.yaml").write_text("topologies: ['ring:4']\ncollectives: [allgather, multi-broadcast]\n")
    words = ["catalog", "build", "fleet.yaml", "--jobs", "1"]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *words], capture_output=True, check=False)
    assert done.returncode == 130
    assert b"left" in done.stdout and done.stderr.endswith(b"interrupted; the same command continues\n")
    assert [row["collective"] for row in json.loads(synth("ls", "--format", "json")[1])] == ["allgather"]

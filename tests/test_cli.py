"""The command line from outside: output, exit codes, error lines. Real engines, small problems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from synth.commands import api, bound, pareto, root, solve
from synth.errors import VerificationError
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.outcome import Unknown
from synth.model.schedule import Schedule, Send, Step
from tests.command_line import synth

COMMANDS = ["pareto", "solve", "bound", "verify", "export", "run", "list"]
COMMANDS += [f"topo {name}" for name in ("list", "show", "import", "match", "draw")]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No cache, configuration or environment but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("SYNTH_") and name != "SYNTH_CACHE"]:
        monkeypatch.delenv(name)


def refused(*words: str, code: int) -> str:
    """The one line on stderr with which a command line is refused."""
    outcome = synth(*words, code=code)
    assert outcome.stdout == ""
    lines = outcome.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("synth: infeasible: " if code == 3 else "synth: error: ")
    return lines[0]


def line(ranks: int = 3) -> Frontier:
    """A small frontier made by hand: rank 0 of a line to the others, one chunk, one point, two more steps open."""
    network = api.topology(f"line:{ranks}").network()
    steps = tuple(Step(1, (Send(0, i, i + 1),)) for i in range(ranks - 1))
    schedule = Schedule(network, api.collective("broadcast", ranks), 1, steps)
    point = Point.of(schedule, LowerBound(Fraction(1), {"kind": "none"}), "by hand")
    open_ = (Open(ranks, Fraction(1), Fraction(ranks - 1), "time"),)
    return Frontier(network, schedule.collective, (point,), open_, notes=("a note",))


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_that_parse(command):
    text = synth(command, "-h").stdout
    assert text == synth(command, "--help").stdout and "Example" in text and f"synth {command.split()[0]}" in text
    for row in text.splitlines():
        words = row.split("#")[0].split("&&")[0].split("|")[-1].split()
        if words[:1] != ["synth"] or not row.startswith("    synth"):
            continue
        found, args = root, words[1:]
        context = root.make_context("synth", args)
        while hasattr(found, "get_command"):
            _, found, args = found.resolve_command(context, args)
        found.make_context("example", list(args), resilient_parsing=False)


# ---------------------------------------------------------------- pareto


def test_pareto_prints_the_known_frontier_and_that_it_is_complete():
    text = synth("pareto --topo dgx1 --coll allgather").stdout
    rows = [row.split() for row in text.splitlines()]
    assert ["2", "3", "2", "3/2", "optimal"] in [row[:5] for row in rows]
    assert next(row for row in rows if row[:1] == ["3"])[3:5] == ["7/6", "optimal"]
    assert "complete: no schedule in this model, with any number of chunks, is better" in text
    assert "at 128 MB take the 3-step point" in text
    assert "1 unit = 25 GB/s" in text


def test_pareto_json_to_a_file_and_the_table_to_stdout(tmp_path):
    text = synth("pareto --topo ring:4 --coll allgather -o f.json").stdout
    assert "rounds/chunk" in text
    doc = json.loads((tmp_path / "f.json").read_text())
    assert doc["schema"] == "synth.frontier/1"
    assert [(p["steps"], p["bandwidth"]) for p in doc["points"]] == [(2, "3/2")]
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == ["f.json"]  # no temporary file is left
    table = synth("pareto --topo ring:4 --coll allgather -o t.txt --format table").stdout
    assert (tmp_path / "t.txt").read_text() == table
    assert synth("verify f.json").stdout.splitlines()[-1] == "f.json: verified: allgather on ring:4, 4 ranks"


def test_verify_takes_a_folder_and_prints_a_line_for_each_document(tmp_path):
    assert synth("verify .", code=2).stderr.count("has no .json and no .npz file") == 1
    synth("pareto --topo ring:4 --coll allgather -o f.json")
    synth("bound --topo ring:3 --coll allreduce -o b.json")
    right = ["b.json: verified: allreduce on ring:3, 3 ranks", "f.json: verified: allgather on ring:4, 4 ranks"]
    assert synth("verify .").stdout.splitlines() == right
    (tmp_path / "other.json").write_text("{}")
    assert synth("verify .", code=1).stdout.splitlines()[:2] == right
    (tmp_path / "a.json").write_text(
        (tmp_path / "f.json").read_text().replace('"bandwidth": "3/2"', '"bandwidth": "1"')
    )
    wrong, *others, none = synth("verify .", code=5).stdout.splitlines()
    assert wrong.startswith("not verified: a.json: $.points[0]") and others == right
    assert none.startswith("not verified: other.json: has no schema; synth verifies")


@pytest.mark.parametrize("words", [["-o", "-"], ["--format", "json"], ["-o", "-", "--format", "json"]])
def test_json_on_stdout_is_nothing_but_json(words):
    outcome = synth("pareto --topo ring:4 --coll allgather", *words)
    assert json.loads(outcome.stdout)["complete"] is True
    assert outcome.stderr == ""


@pytest.mark.parametrize("command", ["pareto", "bound", "pareto --size 1MB"])
def test_a_folder_without_permission_to_write_is_named_before_the_search(tmp_path, monkeypatch, command):
    """The search ended before its result could not be written."""
    (tmp_path / "locked").mkdir()
    access = os.access

    def refused(path: Path, mode: int) -> bool:
        return Path(path).name != "locked" and access(path, mode)

    monkeypatch.setattr("synth.commands.framework.output.os.access", refused)
    monkeypatch.setattr(pareto.frontier, "of", lambda _: pytest.fail("searched"))
    monkeypatch.setattr(bound.bound, "of", lambda _: pytest.fail("searched"))
    said = synth(f"{command} --topo ring:4 --coll allgather -o locked/f.json", code=1).stderr
    assert said == "synth: error: cannot write locked/f.json: no permission to write into the folder locked\n"


def test_size_gives_the_one_point_and_the_crossover():
    # (3 - 2) * 0.7 us = (3/2 - 7/6) * size / 8 / 25 GB/s  =>  size = 420,000 bytes
    doc = json.loads(synth("pareto --topo dgx1 --coll allgather --size 1MB --format json").stdout)
    assert doc["size"] == 1 << 20
    assert doc["steps"] == 3
    assert doc["points"][0]["best_to"] == doc["points"][1]["best_from"] == 420_000.0
    assert doc["points"][0]["seconds"] == pytest.approx(2 * 0.7e-6 + 1.5 * (1 << 20) / 8 / 25e9)
    assert doc["schedule"]["schema"] == "synth.schedule/1"


def test_an_exhausted_budget_prints_what_was_found_and_exits_4(monkeypatch):
    monkeypatch.setattr(pareto.frontier, "of", lambda _: line())
    outcome = synth("pareto --topo line:3 --coll broadcast", code=4)
    assert "best known (bound 1)" in outcome.stdout
    assert "open: with 3 steps the least rounds/chunk is at least 1, at most 2 (the time ran out)" in outcome.stdout
    assert "note: a note" in outcome.stdout
    assert "complete" not in outcome.stdout


@pytest.mark.parametrize(
    ("reason", "code", "message"),
    [
        ("gave-up", 0, "the search ended"),
        ("effort", 0, "the default effort is spent, --time-limit allows more"),
        *((reason, 4, "open: with 3 steps") for reason in ("time", "memory", "crash", "interrupted")),
    ],
)
def test_what_a_budget_left_open_exits_4_and_what_stays_open_without_one_is_no_failure(
    reason, code, message, monkeypatch
):
    """Documented in docs/cli.md, "Exit codes": scripts ask `complete` and `open` of the JSON."""
    left = replace(line(), open=(Open(3, Fraction(1), None, reason),), notes=())
    monkeypatch.setattr(pareto.frontier, "of", lambda _: left)
    shown = synth("pareto --topo line:3 --coll broadcast", code=code).stdout
    assert "nothing was found" in shown and message in shown
    doc = json.loads(synth("pareto --topo line:3 --coll broadcast --format json", code=code).stdout)
    assert doc["complete"] is False and [row["reason"] for row in doc["open"]] == [reason]


# The command, interrupted as a terminal does it, the whole group, as soon as a point is in the log.
INTERRUPTED = """
import os, signal
from synth.commands import main
from synth.pareto.log import Log

append = Log.append

def stop(self, record):
    append(self, record)
    if record["kind"] == "point":
        os.killpg(0, signal.SIGINT)

Log.append = stop
main()
"""


def test_a_real_ctrl_c_keeps_the_points_found(tmp_path):
    words = "pareto --topo dgx1 --coll broadcast --max-steps 8"
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words.split()], capture_output=True, text=True, start_new_session=True
    )
    assert done.returncode == 130, done.stderr
    assert "the same command continues" in done.stderr
    assert "Traceback" not in done.stderr
    assert "(interrupted)" in done.stdout
    (log,) = (tmp_path / "cache").glob("*.jsonl")
    assert f"kept in {log}" in done.stderr and '"point"' in log.read_text()


# ---------------------------------------------------------------- solve, bound


def test_solve_writes_a_schedule_that_verifies():
    text = synth("solve", "--topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json").stdout
    assert "C=6, S=3, R=7: 7/6 rounds per chunk" in text
    assert "C=6 S=3 R=7" in synth("verify s.json").stdout


def test_solve_exits_3_when_proved_infeasible():
    assert "synth: infeasible: allgather on ring:8 with C=1, S=2, R=2: at least 4 steps are needed" in refused(
        "solve", "--topo ring:8 --coll allgather --chunks 1 --steps 2 --rounds 2", code=3
    )


def test_solve_exits_4_when_undecided(monkeypatch):
    monkeypatch.setattr(solve.solve, "of", lambda _: Unknown("time"))
    says = refused("solve", "--topo ring:4 --coll allgather --chunks 1 --steps 2 --rounds 2", code=4)
    assert "undecided, the time ran out" in says


def test_bound_prints_every_bound_and_json_its_certificate():
    words = ["bound", "--topo", "dgx1", "--coll", "alltoall"]
    text = synth(*words).stdout
    assert "distance" in text
    assert "deadline-cuts" in text
    doc = json.loads(synth(*words, "--format", "json").stdout)
    assert {b["value"] for b in doc["bounds"] if b["certificate"]["kind"] != "distance"} == {"8/3"}


# ---------------------------------------------------------------- verify: exit 5, and files that are none: exit 1


def test_verification_errors_exit_5(monkeypatch):
    def fail(*args):
        raise VerificationError("the sum is 7, not 8", "points[0].bound")

    monkeypatch.setattr("synth.checker.documents.dispatch.check_document", fail)
    assert refused("verify f.json", code=5) == "synth: error: f.json: points[0].bound: the sum is 7, not 8"


# ---------------------------------------------------------------- topo, list


def test_topo_show_prints_matrix_distances_and_symmetries():
    text = synth("topo show dgx1").stdout
    assert ["0", ".", "50", "25", "25", "50", ".", ".", "."] in [row.split() for row in text.splitlines()]
    assert "diameter 2" in text
    assert "symmetries: 4, from" in text


def test_topo_show_json_reads_back_as_the_same_topology():
    Path("t.json").write_text(synth("topo show dgx1*2:cross=0+2+5+7 --format json").stdout)
    assert api.topology("t.json").network() == api.topology("dgx1*2:cross=0+2+5+7").network()


def test_topo_changes_apply():
    assert "5 ranks" in synth("topo show dgx1 --ranks 0,1,2,5,7").stdout
    assert "25/2" in synth("topo show dgx1 --degrade 0-3:1/2").stdout


def test_topo_match_prints_the_rank_map_or_says_that_there_is_none():
    doc = json.loads(synth("topo match dgx1 --ranks 7,6,5,4,3,2,1,0 --format json").stdout)
    assert doc["machine"] == "dgx1-v100"
    own, known = api.topology("dgx1").network(), api.topology("dgx1", ranks="7,6,5,4,3,2,1,0").network()
    links = {(r.src, r.dst, r.units) for r in known.routes}
    assert {(doc["ranks"][r.src], doc["ranks"][r.dst], r.units) for r in own.routes} == links
    assert "rank of dgx1-v100" in synth("topo match dgx1").stdout
    assert "none of the known machines" in refused("topo match random-regular:12", code=1)


def test_topo_import_prints_and_writes_a_topology_file():
    rows = ["     GPU0 GPU1 CPU", "GPU0  X   NV2  0-9", "GPU1 NV2   X   0-9", "", "Legend:", "  X = Self"]
    Path("topo.txt").write_text("\n".join(rows).replace("  ", "\t") + "\n")
    assert "2 ranks" in synth("topo import topo.txt -o machine.json").stdout
    assert "50" in synth("topo show machine.json").stdout
    assert "40" in synth("topo import topo.txt --gbps-per-link 20").stdout
    assert "topo.txt" in refused("topo import topo.txt --gbps-per-link x", code=2)


@pytest.mark.parametrize(
    ("kind", "has"),
    [("topologies", "dgx1-v100"), ("collectives", "alltonext"), ("encodings", "quotient"), ("solvers", "z3")],
)
def test_list_shows_what_there_is(kind, has):
    assert any(row.split()[:1] == [has] for row in synth("list", kind).stdout.splitlines())
    assert has in [row["name"] for row in json.loads(synth("list", kind.upper(), "--format", "json").stdout)]


def test_list_says_what_is_missing_and_how_to_install_it(monkeypatch):
    import synth.commands.lists as lists

    monkeypatch.setattr(lists, "installed", lambda module: not module.startswith("pysat"))
    row = next(row for row in json.loads(synth("list solvers --format json").stdout) if row["name"] == "cadical")
    assert row["missing"] == "pip install 'python-sat==1.9.dev17'"


# ---------------------------------------------------------------- never a traceback


def test_a_bug_is_one_line_that_says_how_to_report_it(monkeypatch):
    def bug(_):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(bound.bound, "of", bug)
    says = refused("bound --topo line:3 --coll broadcast", code=1)
    assert "ZeroDivisionError: oops" in says
    assert "SYNTH_DEBUG=1" in says


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("SYNTH_DEBUG", "1")
    outcome = CliRunner().invoke(root, ["pareto", "--topo", "dgx11", "--coll", "allgather"])
    assert outcome.exit_code == 2 and "Traceback" in outcome.stderr
    assert "UsageError" in outcome.stderr

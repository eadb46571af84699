"""`synth lint` from outside: files of every kind, exit codes, text and JSON."""

import json
import re
from pathlib import Path

import pytest

from synth.commands import api
from synth.program import analysis, text
from tests import programs
from tests.command_line import synth
from tests.programs import edit


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def saved(path, program):
    path.write_text(text.dump(program))
    return str(path)


def test_a_good_program(tmp_path):
    file = saved(tmp_path / "good.txt", programs.ring_allgather(4))
    out = synth("lint", file).stdout.splitlines()
    assert out[0].startswith("safe at any size")
    assert out[1].startswith("proved out of place and in place")
    assert synth("lint", file, "--in-place", "in").stdout.splitlines()[1].startswith("proved in place, ")
    report = api.lint(file)
    assert report.ok


def test_plans_of_mscclpp_are_judged_by_its_rules():
    api.export_program(api.baseline("direct", "fully-connected:3", "allgather"), "mscclpp").write("plan.json")
    assert json.loads(synth("lint", "plan.json", "--format", "json").stdout)["runtime"] == "mscclpp"
    assert api.lint("plan.json", runtime="synth").runtime == "synth"


def test_without_a_runtime_the_limits_of_no_loader_are_checked_and_that_is_said():
    api.export_program(api.baseline("ring", "ring:3", "allgather"), "msccl-xml").write("a.xml")
    assert "the limits of no loader were checked; --runtime msccl-executor" in synth("lint a.xml").stderr
    assert synth("lint a.xml --runtime msccl-executor").stderr == ""


def test_a_bad_program_exits_with_5(tmp_path):
    bad = edit(programs.recursive_doubling_allreduce(4), 2, 1, 0, deps=())
    file = saved(tmp_path / "bad.txt", bad)
    out = synth("lint", file, code=5).stdout
    assert "gpu 2 block 0 step 1" in out
    assert "proved" not in out
    doc = json.loads(synth("lint", file, "--format", "json", code=5).stdout)
    assert doc["schema"] == "synth.lint/1"
    assert {finding["rule"] for finding in doc["findings"] if finding["severity"] == "error"} == {"race"}
    synth("lint", file, "-o", "report.json", code=5)
    assert json.loads((tmp_path / "report.json").read_text()) == doc


def test_several_files_and_folders(tmp_path):
    """Each finding is named with its file, what cannot be read ends nothing, and the worst exit code counts."""
    (tmp_path / "made").mkdir()
    good = programs.ring_allgather(4)
    (tmp_path / "made" / "good.json").write_text(json.dumps(good.to_json()))
    assert "good.json: proved" in synth("lint", "made").stdout
    bad = saved(tmp_path / "bad.txt", edit(programs.recursive_doubling_allreduce(4), 2, 1, 0, deps=()))
    out = synth("lint", "made", "none.json", bad, code=5).stdout
    assert "good.json: proved" in out and "none.json: not checked: " in out and "bad.txt: error" in out
    (tmp_path / "empty").mkdir()
    assert "no .json and no .xml" in synth("lint", "empty", code=2).stderr
    assert "for one file" in synth("lint", "made", "--format", "json", code=2).stderr


def test_other_runtimes_and_other_questions(tmp_path):
    file = saved(tmp_path / "p.txt", programs.ring_allgather(4))
    assert "rccl does not run rcs" in synth("lint", file, "--runtime", "rccl", code=5).stdout
    assert "did you mean" in synth("lint", file, "--coll", "allgathr", code=2).stderr
    assert "msccl-executor, rccl, mscclpp, synth exist" in synth("lint", file, "--runtime", "nccl", code=2).stderr
    assert (
        "gpu 2 block 0 step 1" in synth("lint", file, "--coll", "broadcast", "--root", "1", code=5).stdout
    )  # its buffers are smaller


def test_msccl_ir_of_anyones(tmp_path):
    api.export_program(programs.ring_allgather(2), in_place="out").write("a.xml")
    text = Path("a.xml").read_text()
    (copy,) = [line for line in text.split('<gpu id="1"')[1].splitlines() if 'type="cpy"' in line]
    Path("a.xml").write_text(text.replace(copy, copy.replace('dstoff="1"', 'dstoff="0"')))
    out = synth("lint", "a.xml", "--runtime", "msccl-executor", code=5).stdout.splitlines()
    assert "error: gpu 1: output 1 of rank 1 is never written; it must end with chunk 1 [wrong-output]" in out


def test_what_cannot_be_read_is_no_finding(tmp_path):
    (tmp_path / "n.txt").write_text("nothing\n")
    assert "n.txt" in synth("lint", "n.txt", code=1).stderr
    assert "missing.txt" in synth("lint", "missing.txt", code=1).stderr


def test_a_file_without_permission_to_read_it_ends_as_a_missing_one(monkeypatch):
    """The command line's own check of permissions ended with 2, that of a wrong command."""
    Path("secret.txt").write_text("program p\n")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.access", lambda *_, **__: False)
    monkeypatch.setattr(Path, "open", refused)
    assert "secret.txt: cannot be read: Permission denied" in synth("lint", "secret.txt", code=1).stderr


def test_the_documentation_lists_the_rules():
    folder = Path(analysis.__file__).parent
    used = {
        rule
        for file in folder.glob("*.py")
        for rule in re.findall(r'\b(?:error|not_analysed|Finding|add_finding)\(\s*"([a-z0-9-]+)"', file.read_text())
    }
    page = (folder.parent.parent.parent / "docs" / "lint.md").read_text().split("## Rules")[1].split("\n## ")[0]
    listed = {
        rule
        for line in page.splitlines()
        if line.startswith("| `")
        for rule in re.findall(r"`([a-z0-9-]+)`", line.split("|")[1])
    }
    assert used - {"error"} == listed


@pytest.mark.parametrize(
    ("task", "options"), [("scan", "--coll scan"), ("multi-broadcast --root 0,2", "--coll multi-broadcast --root 0,2")]
)
def test_an_export_says_which_options_a_file_needs_that_names_no_collective(task, options):
    """`synth lint` and `synth run` of the file failed, and nothing had said why."""
    synth("pareto", "--topo", "ring:4", "--coll", *task.split(), "--max-steps", "2", "-o", "f.json")
    said = synth("export", "f.json", "--runtime", "msccl", "--point", "1", "-o", "f.xml").stderr
    assert f"so the file has none: `synth lint` and `synth run` need {options}\n" in said
    synth("run", "f.xml", code=2)
    synth("run", "f.xml", *options.split())
    assert "output chunks right" in synth("lint", "f.xml", *options.split()).stdout
    synth("pareto", "--topo", "ring:4", "--coll", "allgather", "-o", "named.json")
    assert "--coll" not in synth("export", "named.json", "--point", "1", "--runtime", "msccl", "-o", "n.xml").stderr

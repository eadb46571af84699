"""A frontier at scale goes wherever an exact one goes: run, timed, exported, shown, linted and tuned; what is
too large says so, and which point is not."""

import json

import pytest
from click.testing import CliRunner

import synth
from synth.checker.documents import schedule_archive
from synth.commands import api
from synth.commands.programs import sources as programs
from synth.commands.root import root
from synth.errors import FormatError, VerificationError
from synth.program import checked_lowering

SMALL = 2000  # sends: the limit of a program in these tests, which the first point keeps


def cli(*arguments):
    done = CliRunner().invoke(root, [str(a) for a in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A frontier of 12 points on 16 ranks; the third has 1.5 million sends."""
    path = tmp_path_factory.mktemp("big") / "big.json"
    done = cli("pareto", "--topo", "dgx-a100*2", "--coll", "allgather", "--engine", "flow", "-o", path)
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """A frontier of one point, on 4 ranks."""
    path = tmp_path_factory.mktemp("ring") / "ring.json"
    assert cli("pareto", "--topo", "ring:4", "--coll", "allgather", "--engine", "flow", "-o", path).exit_code == 0
    return path


@pytest.fixture
def low_limit(monkeypatch):
    """Programs of at most `SMALL` sends, so that no test lowers more."""
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", SMALL)


def sends(path, k):
    return schedule_archive.load(path.parent / json.loads(path.read_text())["points"][k - 1]["file"]).sends


COMMANDS = {
    "run": (), "show": (), "lint": (), "export": ("--to", "msccl-xml"), "bench": ("--sizes", "1KB"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_take_a_document_of_one_point(ring, command):
    done = cli(command, ring, *COMMANDS[command])
    assert done.exit_code == 0, done.output
    if command == "export":
        assert "<algo" in done.stdout


def test_a_run_of_a_document_is_that_of_its_archive(ring):
    archive = ring.parent / json.loads(ring.read_text())["points"][0]["file"]
    ran, alone = synth.run(ring, size=1 << 10, protocol="Simple"), synth.run(archive, size=1 << 10)
    assert ran.program == alone.program and ran.network == alone.network
    assert synth.load_program(ring) == synth.load_program(archive)


@pytest.mark.parametrize("command", ["run", "run --point 3", "export --point 3", "bench --point 3", "show --point 3"])
def test_a_point_too_large_is_refused_before_it_is_written_out(big, command, low_limit, monkeypatch):
    name, *rest = command.split()
    if rest:  # without --point, `run` writes out the points that fit, for their times
        monkeypatch.setattr(schedule_archive.CompressedSchedule, "written_out", None)
    done = cli(name, big, *rest)
    found = programs.read(big)
    number = rest[1] if rest else str(1 + found.points.index(found.best(1 << 20)))
    fit = f"point 1 fits, of {sends(big, 1)} sends"
    assert done.exit_code == 2
    assert done.stderr.startswith(f"synth: error: point {number} has {sends(big, int(number))} sends; at most {SMALL}")
    assert fit in done.stderr and done.stderr.count("\n") == 1


def test_one_that_no_point_is_small_enough_for(big, monkeypatch):
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", 10)
    done = cli("run", big, "--point", "1")
    assert done.exit_code == 2 and "no point of this frontier has so few" in done.stderr


def test_of_all_points_those_that_fit_are_taken(big, low_limit, tmp_path):
    left_out = f"left out, of more than {SMALL} sends each: point 2, point 3"
    done = cli("bench", big, "--sizes", "1MB", "--baseline", "ring", "-o", tmp_path / "out.json")
    assert done.exit_code == 0 and left_out in done.stderr, done.output


@pytest.mark.parametrize("more", [(), ("--topo", "ring:4")])
def test_a_plan_has_points_of_a_document(ring, more, tmp_path, monkeypatch):
    done = cli("tune", "--from", ring, *more, "--sizes", "1KiB:1MiB", "-o", tmp_path / "plan.json")
    assert done.exit_code == 0, done.output
    labels = [a["label"] for a in json.loads((tmp_path / "plan.json").read_text())["algorithms"]]
    assert any(label.startswith("S2-R") for label in labels)


def test_a_plan_from_measurements_of_a_document(ring, tmp_path):
    assert cli("bench", ring, "--sizes", "1KiB:64KiB:x4", "-o", tmp_path / "measured.json").exit_code == 0
    done = cli(
        "tune", "--from", ring, "--measured", tmp_path / "measured.json", "--sizes", "1KiB:64KiB:x4", "-o",
        tmp_path / "plan.json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    labels = {a["label"] for a in json.loads((tmp_path / "plan.json").read_text())["algorithms"]}
    assert "S2-R3-C2" in labels


def test_values_go_where_documents_go(ring, monkeypatch):
    found = api.frontier("ring:4", "allgather", engine="flow")
    assert synth.run(found, size=1 << 10).program == synth.run(ring, size=1 << 10).program
    assert synth.export_program(found).files == synth.export_program(ring).files
    plan = api.tune("ring:4", "allgather", [1 << 10, 1 << 20], frontiers=[found])
    assert any(a.label.startswith("S2-R") for a in plan.algorithms)


def test_an_archive_that_is_not_there_or_another_is_named(ring, big, tmp_path):
    doc = json.loads(ring.read_text())
    doc["points"][0]["file"] = "gone.npz"
    (tmp_path / "gone.json").write_text(json.dumps(doc))
    done = cli("run", tmp_path / "gone.json")
    assert done.exit_code == 1 and "its file gone.npz is not there" in done.stderr
    other = json.loads(big.read_text())["points"][0]["file"]
    (tmp_path / "gone.npz").write_bytes((big.parent / other).read_bytes())
    with pytest.raises(VerificationError, match="its file holds another schedule"):
        synth.run(tmp_path / "gone.json")


def test_a_malformed_document_is_refused_with_its_name(ring, tmp_path):
    doc = json.loads(ring.read_text())
    del doc["root"]
    (tmp_path / "bad.json").write_text(json.dumps(doc))
    with pytest.raises(FormatError, match=r"bad\.json"):
        programs.read(tmp_path / "bad.json")

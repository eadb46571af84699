"""A frontier at scale goes wherever an exact one goes: run, timed, exported, shown, linted and tuned; what is
too large says so, and which point is not."""

import json
from dataclasses import replace

import pytest

import synth
from synth.checker.documents import schedule_archive
from synth.commands import api
from synth.commands.programs import sources as programs
from synth.errors import FormatError, UsageError, VerificationError
from synth.model.compressed_schedule import CompressedSchedule
from synth.program import checked_lowering
from synth.scale.search import frontier
from synth.topologies import topology
from tests.command_line import synth as cli

SMALL = 2000  # sends: the limit of a program in these tests, which the first point keeps


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A frontier of 12 points on 16 ranks; the third has 1.5 million sends."""
    path = tmp_path_factory.mktemp("big") / "big.json"
    cli("pareto --topo dgx-a100*2 --coll allgather --engine flow -o", path)
    return path


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """A frontier of one point, on 4 ranks."""
    path = tmp_path_factory.mktemp("ring") / "ring.json"
    cli("pareto --topo ring:4 --coll allgather --engine flow -o", path)
    return path


@pytest.fixture
def low_limit(monkeypatch):
    """Programs of at most `SMALL` sends, so that no test lowers more."""
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", SMALL)


def sends(path, k):
    return schedule_archive.load(path.parent / json.loads(path.read_text())["points"][k - 1]["file"]).sends


@pytest.mark.parametrize(
    "command", ["run {}", "show {}", "lint {}", "export {} --to msccl-xml", "bench {} --sizes 1KB"]
)
def test_the_commands_take_a_document_of_one_point(ring, command):
    stdout = cli(command.format(ring)).stdout
    assert "<algo" in stdout or "export" not in command


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
    stderr = cli(name, big, *rest, code=2).stderr
    found = programs.read(big)
    number = rest[1] if rest else str(1 + found.points.index(found.best(1 << 20)))
    assert stderr.startswith(f"synth: error: point {number} has {sends(big, int(number))} sends; at most {SMALL}")
    assert f"point 1 fits, of {sends(big, 1)} sends" in stderr and stderr.count("\n") == 1


def test_one_that_no_point_is_small_enough_for(big, monkeypatch):
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", 10)
    assert "no point of this frontier has so few" in cli("run", big, "--point 1", code=2).stderr


def test_of_all_points_those_that_fit_are_taken(big, low_limit, tmp_path):
    stderr = cli("bench", big, "--sizes 1MB --baseline ring -o", tmp_path / "out.json").stderr
    assert f"left out, of more than {SMALL} sends each: point 2, point 3" in stderr


def labels(plan):
    return {algorithm["label"] for algorithm in json.loads(plan.read_text())["algorithms"]}


@pytest.mark.parametrize("more", ["", "--topo ring:4"])
def test_a_plan_has_points_of_a_document(ring, more, tmp_path):
    cli("tune --from", ring, more, "--sizes 1KiB:1MiB -o", tmp_path / "plan.json")
    assert any(label.startswith("S2-R") for label in labels(tmp_path / "plan.json"))


def test_a_plan_from_measurements_of_a_document(ring, tmp_path):
    measured, sizes, plan = tmp_path / "measured.json", "--sizes 1KiB:64KiB:x4", tmp_path / "plan.json"
    cli("bench", ring, sizes, "-o", measured)
    cli("tune --from", ring, "--measured", measured, sizes, "-o", plan)
    assert "S2-R3-C2" in labels(plan)


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
    assert "its file gone.npz is not there" in cli("run", tmp_path / "gone.json", code=1).stderr
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


# ---------------------------------------------------------------- files of schedules, and what Ctrl-C leaves of them


def test_ctrl_c_while_schedules_are_written_keeps_those_that_are(tmp_path, monkeypatch):
    file, folder, whole = tmp_path / "s.json", tmp_path / "s.schedules", CompressedSchedule.save

    def save(self, path):
        if list(folder.glob("*.npz")):
            raise KeyboardInterrupt
        whole(self, path)

    monkeypatch.setattr(CompressedSchedule, "save", save)
    cli("pareto --topo ring:6 --coll broadcast --engine flow -o", file, code=130)
    rows = json.loads(file.read_text())["points"]
    assert [("file" in row) for row in rows] == [True, *[False] * (len(rows) - 1)]
    assert cli("verify", file, code=4).stdout.count("not checked: the point of ") == len(rows) - 1


def test_values_at_scale_are_verified_with_their_schedules():
    found = api.frontier("ring:6", "allgather", engine="flow")
    replayed = [line for line in api.verify(found) if "every rank ends with what it must" in line]
    assert len(replayed) == len(found.points)
    assert api.verify(found.points[0].schedule)
    with pytest.raises(VerificationError):
        api.verify(replace(found, bounds=((None, replace(found.floor, value=2 * found.bound)),)))
    other = api.frontier("ring:6", "alltoall", engine="flow").points[0].schedule
    with pytest.raises(VerificationError):
        api.verify(replace(found, points=(replace(found.points[0], source=lambda: other), *found.points[1:])))


# ---------------------------------------------------------------- compact schedule files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("bulk")
    frontier(topology("torus:3x3"), "allgather").points[0].schedule.save(made / "torus.npz")
    frontier(topology("dgx1"), "allreduce").points[0].schedule.save(made / "dgx1.npz")
    (made / "wrong.npz").write_bytes(b"PK no archive")
    return made


@pytest.mark.parametrize("name", ["torus.npz", "dgx1.npz"])
def test_a_compact_schedule_lowers_and_runs(folder, name):
    program = synth.load_program(folder / name)
    assert program.collective.name == {"torus.npz": "allgather", "dgx1.npz": "allreduce"}[name]
    ran = synth.run(folder / name, size=36 << 9)
    assert ran.network is not None and ran.network.name == {"torus.npz": "torus:3x3", "dgx1.npz": "dgx1-v100"}[name]


def test_what_is_no_schedule_is_said_in_one_line(folder):
    with pytest.raises(FormatError, match=r"wrong\.npz"):
        synth.load_program(folder / "wrong.npz")
    with pytest.raises(FormatError, match=r"none\.npz"):
        synth.load_program(folder / "none.npz")


def test_a_large_one_says_so(folder, monkeypatch):
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", 10)
    with pytest.raises(UsageError, match="at most 10"):
        synth.load_program(folder / "torus.npz")

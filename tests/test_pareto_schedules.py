"""`synth pareto --schedules`: a file for each point, whichever engine found it, and what Ctrl-C leaves of them."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from synth.commands import api
from synth.commands.root import root
from synth.errors import VerificationError
from synth.model.compressed_schedule import CompressedSchedule
from synth.model.scale_frontier import ScaleFrontier


def test_exact_synthesis_writes_each_schedule_and_the_frontier(tmp_path):
    folder = tmp_path / "s"
    done = CliRunner().invoke(
        root, ["pareto", "--topo", "ring:5", "--coll", "broadcast", "--schedules", str(folder), "--fresh"]
    )
    assert done.exit_code == 0, done.output
    points = json.loads((folder / "frontier.json").read_text())["points"]
    files = sorted(folder.glob("*-broadcast-S*.json"))
    assert len(files) == len(points) > 1
    assert f"wrote {len(points)} schedules" in done.output
    checked = CliRunner().invoke(root, ["verify", *map(str, files), str(folder / "frontier.json")])
    assert checked.exit_code == 0 and checked.output.count(": verified") == len(points) + 1


def test_ctrl_c_while_schedules_are_written_keeps_those_that_are(tmp_path, monkeypatch):
    folder, whole = tmp_path / "s", CompressedSchedule.save

    def save(self, path):
        if list(folder.glob("*.npz")):
            raise KeyboardInterrupt
        whole(self, path)

    monkeypatch.setattr(CompressedSchedule, "save", save)
    done = CliRunner().invoke(
        root, ["pareto", "--topo", "ring:6", "--coll", "broadcast", "--engine", "flow", "--schedules", str(folder)]
    )
    assert done.exit_code == 130
    rows = json.loads((folder / "frontier.json").read_text())["points"]
    assert [("file" in row) for row in rows] == [True, *[False] * (len(rows) - 1)]
    checked = CliRunner().invoke(root, ["verify", str(folder / "frontier.json")])
    assert checked.exit_code == 4 and checked.stdout.count("not checked: the point of ") == len(rows) - 1


def test_values_at_scale_are_verified_with_their_schedules():
    found = api.frontier("ring:6", "allgather", engine="flow")
    assert isinstance(found, ScaleFrontier)
    replayed = [line for line in api.verify(found) if "every rank ends with what it must" in line]
    assert len(replayed) == len(found.points)
    assert api.verify(found.points[0].schedule)
    with pytest.raises(VerificationError):
        api.verify(replace(found, bound=2 * found.bound))
    other = api.frontier("ring:6", "alltoall", engine="flow").points[0].schedule
    with pytest.raises(VerificationError):
        api.verify(replace(found, points=(replace(found.points[0], source=lambda: other), *found.points[1:])))

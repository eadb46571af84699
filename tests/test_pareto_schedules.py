"""`synth pareto --schedules`: a file for each point, whichever engine found it, and what Ctrl-C leaves of them."""

import json

from click.testing import CliRunner

from synth.cli.root import root
from synth.model.compressed_schedule import CompressedSchedule


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

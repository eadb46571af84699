"""Files of schedules beside a frontier, and what Ctrl-C leaves of them."""

import json
from dataclasses import replace

import pytest

from synth.commands import api
from synth.errors import VerificationError
from synth.model.compressed_schedule import CompressedSchedule
from tests.command_line import synth


def test_ctrl_c_while_schedules_are_written_keeps_those_that_are(tmp_path, monkeypatch):
    file, folder, whole = tmp_path / "s.json", tmp_path / "s.schedules", CompressedSchedule.save

    def save(self, path):
        if list(folder.glob("*.npz")):
            raise KeyboardInterrupt
        whole(self, path)

    monkeypatch.setattr(CompressedSchedule, "save", save)
    synth("pareto --topo ring:6 --coll broadcast --engine flow -o", file, code=130)
    rows = json.loads(file.read_text())["points"]
    assert [("file" in row) for row in rows] == [True, *[False] * (len(rows) - 1)]
    assert synth("verify", file, code=4).stdout.count("not checked: the point of ") == len(rows) - 1


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

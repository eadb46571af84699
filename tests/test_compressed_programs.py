"""Compact schedule files go wherever schedules go: lowered, exported, run; what is too large says so."""

import numpy as np
import pytest
from click.testing import CliRunner

import synth
from synth.checker.documents import schedule_archive
from synth.commands.root import root
from synth.errors import FormatError, UsageError
from synth.program import checked_lowering
from synth.scale.search import frontier
from synth.topologies import topology


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


@pytest.mark.parametrize("command", [["export", "--to", "msccl-xml"], ["run", "--size", "18KB"], ["show"], ["lint"]])
def test_the_commands_take_it(folder, command):
    name, *rest = command
    done = CliRunner().invoke(root, [name, str(folder / "dgx1.npz"), *rest])
    assert done.exit_code == 0, done.output
    if name == "export":
        assert "<algo" in done.output


def test_what_is_no_schedule_is_said_in_one_line(folder):
    with pytest.raises(FormatError, match=r"wrong\.npz"):
        synth.load_program(folder / "wrong.npz")
    with pytest.raises(FormatError, match=r"none\.npz"):
        synth.load_program(folder / "none.npz")


def test_a_large_one_says_so(folder, monkeypatch):
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", 10)
    with pytest.raises(UsageError, match="at most 10"):
        synth.load_program(folder / "torus.npz")


def test_nothing_is_changed_by_writing_out(folder):
    made = schedule_archive.load(folder / "torus.npz")
    whole = made.expanded()
    assert len(whole.step) == len(made.step) * 9 == made.sends == made.written_out().sends
    assert sum(len(step.sends) for step in made.written_out().steps) == len(whole.step)
    assert (np.bincount(whole.step) == 9 * np.bincount(made.step)).all()

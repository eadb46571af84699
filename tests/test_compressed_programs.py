"""Compact schedule files go wherever schedules go: lowered, exported, run; what is too large says so."""

import pytest

import synth
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


def test_what_is_no_schedule_is_said_in_one_line(folder):
    with pytest.raises(FormatError, match=r"wrong\.npz"):
        synth.load_program(folder / "wrong.npz")
    with pytest.raises(FormatError, match=r"none\.npz"):
        synth.load_program(folder / "none.npz")


def test_a_large_one_says_so(folder, monkeypatch):
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", 10)
    with pytest.raises(UsageError, match="at most 10"):
        synth.load_program(folder / "torus.npz")

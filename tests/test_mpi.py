"""The mpi executor: right and bit for bit the reference, its errors, started by itself or under an mpirun.

Starting 8 processes costs seconds of CPU, so one mpirun carries out many programs (mpi_job.py).
"""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from needs import need
from programs import all_send_first, put_allgather, ring_allgather, ring_allreduce

from synth.commands import api
from synth.errors import SynthError, UsageError
from synth.model.collective import COLLECTIVES
from synth.program import text
from synth.runtime.dtypes import DTYPES, OPERATORS
from synth.runtime.mpi import environment as mpi_world
from synth.runtime.mpi import executor
from synth.runtime.reference.deadlock_diagnosis import DeadlockError

HERE = Path(__file__).parent
SYNTH = Path(sys.executable).parent / "synth"


@pytest.fixture
def world():
    need("mpi")


def started(processes, *words, program=HERE / "mpi_job.py"):
    """Return the output of `python program words` under an mpirun."""
    command, environment = mpi_world.command(processes)
    return subprocess.run(
        [*command, sys.executable, str(program), *words],
        env=environment | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_programs_collectives_types_sizes_and_errors_under_one_mpirun(world):
    done = started(8, "programs+collectives+types+sizes+errors")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["programs"]["ring-allreduce"] == 8 * (64 << 10) // 4
    assert set(found["collectives"]) == {*COLLECTIVES, "custom"}
    assert min(found["collectives"].values()) > 0
    assert set(found["types"]) == {f"{kind.name} {op}" for kind in DTYPES for op in OPERATORS}
    assert found["sizes"]["0 elements"] == 0
    assert found["sizes"]["1 elements"] == 8 * 24
    kind, said = found["errors"]["all-send-first"]
    with pytest.raises(DeadlockError) as reference:
        api.run(all_send_first(8, 5), size=20)
    assert (kind, said) == ("DeadlockError", str(reference.value))
    assert found["errors"]["ring-allreduce"] == [
        "UsageError",
        "ring-allreduce has 4 ranks, this MPI job 8 processes: mpirun -n 4",
    ]


def test_a_run_that_starts_its_own_processes_and_one_under_mpirun(world, tmp_path):
    path = tmp_path / "ring.txt"
    path.write_text(text.dump(ring_allreduce(3)))
    words = ["run", str(path), "--executor", "mpi", "--size", "12KB", "--dtype", "bf16", "--format", "json"]
    alone = subprocess.run([str(SYNTH), *words], capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone.stderr
    under = started(3, *words, program=SYNTH)
    assert under.returncode == 0, under.stderr
    assert json.loads(alone.stdout) == json.loads(under.stdout)  # one document: only rank 0 speaks
    assert json.loads(alone.stdout)["right"] is True
    assert json.loads(alone.stdout)["picoseconds"] is None


def test_a_deadlock_is_reported_by_the_process_that_started_the_others(world):
    with pytest.raises(DeadlockError) as found:
        api.run(all_send_first(2, 3), executor="mpi", size=12, patience=0.2)
    with pytest.raises(DeadlockError) as wanted:
        api.run(all_send_first(2, 3), size=12)
    assert str(found.value) == str(wanted.value)
    assert found.value.cycle == wanted.value.cycle


def test_what_makes_no_sense_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(mpi_world, "missing", lambda: None)
    with pytest.raises(UsageError, match=r"has 4 ranks, and each is a process: -n 4, not 8"):
        api.run(ring_allgather(4), executor="mpi", size=64, processes=8)
    with pytest.raises(UsageError, match=r"writes into other ranks' memory.* --executor reference or host"):
        api.run(put_allgather(4), executor="mpi", size=64)
    with pytest.raises(UsageError, match="gives no times"):
        api.run(ring_allgather(4), executor="mpi", size=64, data=False)


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mpi_world, "installed", lambda module: False)
    with pytest.raises(
        SynthError, match=r"the mpi executor cannot run here: mpi4py is not installed: pip install 'ccl-synth\[mpi\]'"
    ):
        api.run(ring_allgather(4), executor="mpi", size=64)
    monkeypatch.setattr(mpi_world, "installed", lambda module: True)
    monkeypatch.setattr(mpi_world, "mpirun", lambda: None)
    assert "no mpirun on PATH" in (executor.Mpi().available() or "")
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "2")
    assert executor.Mpi().available() is None
    assert mpi_world.current_job() == (4, 2)


def test_an_mpirun_that_fails_ends_in_one_line(world, monkeypatch):
    monkeypatch.setattr(
        mpi_world, "command", lambda n: ([sys.executable, "-c", "raise SystemExit('no such node')"], {})
    )
    with pytest.raises(SynthError, match="mpirun ended with code 1: no such node"):
        api.run(ring_allgather(2), executor="mpi", size=64)


def test_errors_go_from_process_to_process():
    with pytest.raises(DeadlockError) as error:
        api.run(all_send_first(2, 3), size=12)
    again = pickle.loads(pickle.dumps(error.value))
    assert isinstance(again, DeadlockError)
    assert (str(again), again.cycle, again.closed) == (str(error.value), error.value.cycle, error.value.closed)

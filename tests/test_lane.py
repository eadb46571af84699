"""Programs between processes that share memory: right in any order of programs, sizes and types; faults are named."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from synth.errors import SynthError
from synth.runtime.kernel import build_host
from synth.runtime.shared.lane import MOST_SIZES
from synth.runtime.shared.segment import SharedSegment
from tests.lane_job import SIZES

pytestmark = pytest.mark.skipif(build_host.compiler() is None, reason="needs g++")
JOB = Path(__file__).with_name("lane_job.py")


def run(folder, ranks, case):
    """Return what each rank prints, and its exit code."""
    started = []
    for rank in range(ranks):
        command = [sys.executable, "-m", "tests.lane_job", str(folder), str(rank), str(ranks), case]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=JOB.parent.parent))
    printed = [process.communicate(timeout=120)[0].strip() for process in started]
    return printed, [process.returncode for process in started]


@pytest.mark.parametrize(("ranks", "case"), [(2, "right"), (3, "right"), (3, "wrapped")])
def test_all_results_are_right_whatever_came_before(tmp_path, ranks, case):
    """Wrapped: the number of launches passes 2^24, the most that counters hold beside a slice and an op."""
    printed, codes = run(tmp_path, ranks, case)
    assert printed == [str(3 * len(SIZES))] * ranks and codes == [0] * ranks


def test_a_forked_process_is_refused(tmp_path):
    printed, _ = run(tmp_path, 2, "forked")
    assert printed == ["a forked process cannot use the groups of its parent: let it make its own"] * 2


def test_launches_of_few_sizes_are_kept(tmp_path):
    printed, _ = run(tmp_path, 2, "sizes")
    right, kept = printed[0].split()
    assert int(right) == 3 * 299 and int(kept) <= MOST_SIZES


def test_blocks_that_wait_long_sleep(tmp_path):
    printed, _ = run(tmp_path, 2, "idle")
    assert float(printed[0]) < 0.1  # of the second in which the other rank does not come


def test_ctrl_c_ends_a_wait_on_all_ranks(tmp_path):
    start = time.monotonic()
    printed, codes = run(tmp_path, 3, "interrupted")
    assert printed[0].splitlines() == ["call 3 was interrupted True 2"] * 2 and codes[0] == 0
    assert printed[1] == "another rank gave up before this one came to its call 3"
    why = "it was interrupted or failed there, or its group was destroyed"
    assert printed[2] == f"call 3, allreduce, was given up on another rank: {why}"
    assert time.monotonic() - start < 50  # the lane's limit is 60 s


def test_one_process_compiles_while_others_wait(tmp_path):
    env = os.environ | {"SYNTH_CACHE": str(tmp_path), "CXX": str(tmp_path / "g++")}
    (tmp_path / "g++").write_text(f'#!/bin/sh\necho . >>{tmp_path}/runs\nsleep 2.5\nexec g++ -O0 "$@"\n')
    (tmp_path / "g++").chmod(0o755)
    code = "from synth.runtime.kernel import build_host; build_host.library('copy', note='compiling copy')"
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) for _ in range(3)]
    assert sorted(process.communicate(timeout=100)[1] for process in started) == ["", "", "compiling copy\n"]
    assert (tmp_path / "runs").read_text() == ".\n" and not list(tmp_path.glob("kernels/*.lock"))


FAULTS = {
    "killed": "rank 1 has ended, in or before call 3, allreduce",
    "another": "call 3, allreduce, is alltoall on rank 1: all ranks must make the same calls in the same order",
    "late": "rank 1 did not come to call 3, allreduce, within the timeout of 2 s",
}


@pytest.mark.parametrize("case", FAULTS)
def test_all_others_leave_and_name_the_rank(tmp_path, case):
    printed, codes = run(tmp_path, 3, case)
    assert [printed[0], printed[2]] == [FAULTS[case]] * 2
    assert codes[1] == (-9 if case == "killed" else 0)
    if case == "late":
        assert printed[1] == "another rank gave up before this one came to its call 3"


class Memory(dict):
    """A store of one process."""

    def set(self, key, value):
        self[key] = value.encode()


def test_no_room_is_said_before_anything_runs():
    with pytest.raises(SynthError, match=r"rank 0 has no shared memory: /dev/shm does not give .* MiB: .*--shm-size"):
        SharedSegment(Memory(), 0, 1, 1 << 50)

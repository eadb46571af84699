"""Programs between processes that share memory: right in any order of programs, sizes and types; faults are named."""

import subprocess
import sys
from pathlib import Path

import pytest

from synth.errors import SynthError
from synth.runtime.kernel import build_host
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


FAULTS = {
    "killed": "rank 1 has ended, in or before call 3, allreduce",
    "another": "call 3, allreduce, is alltoall on rank 1: all ranks must make the same calls in the same order",
    "late": "rank 1 did not come to call 3, allreduce, within 2 s",
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

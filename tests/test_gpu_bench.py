"""The GPU suite and the GPU bench, rehearsed: on CPU threads, and on the stand-in for CuPy, so that a GPU is not the
first to run them."""

import json
import subprocess
import sys

import pytest

from bench import gpu, gpu_checks, gpu_common
from synth.commands import api
from synth.errors import VerificationError
from synth.runtime import reference_data
from synth.runtime.cuda import executor
from synth.runtime.kernel import build_host

pytestmark = pytest.mark.skipif(build_host.compiler() is None, reason="no C++ compiler here: apt install g++")


@pytest.fixture
def standin(gpu, monkeypatch):
    cupy = gpu()
    monkeypatch.setattr(gpu_common, "prebuild", lambda group: None)
    return cupy


def document(module, path, *words, code=0):
    assert module.main([*words, "-o", str(path)]) == code
    found = json.loads(path.read_text())
    assert found["wrong"] == sum(row["good"] is False for row in found["rows"])
    return found


BOTH = ("launches", "graphs", "deadlock", "large")


@pytest.mark.parametrize(
    ("place", "section"),
    [*(("host", one) for one in (*BOTH, "plans")), *(("cuda", one) for one in (*BOTH, "kernels", "collectives"))],
)
def test_the_suite_on_cpu_threads_and_on_the_stand_in(tmp_path, place, section, standin, capsys):
    words = ("--executor", "host") if place == "host" else ("--small",)
    found = document(gpu_checks, tmp_path / "a.json", *words, "--only", section)
    assert found["schema"] == "synth.gpu_suite/1" and (found["executor"], found["small"]) == (place, True)
    assert found["rows"] and f"{len(found['rows'])} rows, 0 wrong" in capsys.readouterr().out
    assert place == "host" or found["device"]["gpus"][0]["name"] == "A GPU"


@pytest.mark.parametrize(
    ("words", "section"),
    [(["--executor", "host"], "hops"), pytest.param(["--small"], "allgather", marks=pytest.mark.slow)],
)
def test_the_bench_on_cpu_threads_and_on_the_stand_in(tmp_path, words, section, standin):
    found = document(gpu, tmp_path / "a.json", *words, "--only", section)
    assert found["wrong"] == 0
    assert all(row["good"] is None for row in found["rows"] if row["name"].startswith("GOAL"))
    names = " ".join(row["name"] for row in found["rows"])
    for part in (
        ("per hop, LL", "per hop, FIFO") if section == "hops" else ("direct allgather", "DGX-1 allgather", "GOAL")
    ):
        assert part in names


def test_a_wrong_element_and_a_crash_are_rows_and_the_exit_code(tmp_path, monkeypatch):
    def wrong(*words):
        raise VerificationError("rank 0 output chunk 0 element 0: found 1, the allreduce (sum) is 2")

    monkeypatch.setattr(reference_data, "check", wrong)
    found = document(gpu_checks, tmp_path / "a.json", "--executor", "host", "--only", "collectives", code=1)
    assert found["wrong"] == 3
    assert "rank 0 output chunk 0 element 0" in found["rows"][0]["found"]
    monkeypatch.setattr(gpu_checks.synth, "prepare", lambda *words, **more: 1 / 0)
    found = document(gpu_checks, tmp_path / "a.json", "--executor", "host", "--only", "launches", code=1)
    assert found["rows"][-1]["found"].startswith("ZeroDivisionError") and "traceback" in found["rows"][-1]


def test_where_nothing_can_run_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(executor, "missing", lambda: "needs CuPy: pip install it")
    with pytest.raises(SystemExit, match=r"^the cuda executor cannot run here: needs CuPy"):
        gpu_checks.main(["-o", str(tmp_path / "a.json")])


def test_no_solver_is_needed():
    """The frontiers are in the repository: a machine with a GPU needs no solver."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('z3', 'ortools', 'pysat')))\n"
        "from bench.gpu_common import Suite, frontier\nfrom bench import gpu, gpu_checks\n"
        "from synth.commands import api\n"
        "print([len(frontier(name).points) for name in ('allgather', 'allreduce')])\n"
        "[api.lower(point.schedule) for name in ('allgather', 'allreduce') for point in frontier(name).points]\n"
        "[Suite('cuda', True).program(*names) for names in gpu_checks.COLLECTIVES]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=gpu_common.ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[2, 4]\n"


def test_bytes_that_must_move():
    direct, ring = api.baseline("direct", "full:4", "allgather"), api.baseline("ring", "full:4", "allreduce")
    assert gpu.mandatory(direct, 4000, True) == 2 * 4 * 3 * 1000
    assert gpu.mandatory(direct, 4000, False) == 2 * 4 * 4 * 1000
    # of each chunk: three sums (two operands and a result), three copies
    assert gpu.mandatory(ring, 4800, False) == gpu.mandatory(ring, 4800, True) == (3 * 3 + 3 * 2) * 4800

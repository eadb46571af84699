"""The backend `synth` in PyTorch jobs: every collective, works, groups, compiled graphs, training as with gloo."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.needs import need, torch_python

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def job(ranks, *arguments, file="torch_job.py", **environment):
    """Run a file of this folder on so many ranks; return what they print, and their exit codes."""
    need("torch")
    port, started = free_port(), []
    for rank in range(ranks):
        command = [torch_python(), "-W", "ignore", str(ROOT / "tests" / file), str(rank), str(ranks), port, *arguments]
        started.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment,
            )
        )  # fmt: skip
    printed = [process.communicate(timeout=300)[0] for process in started]
    return printed, [process.returncode for process in started]


@pytest.mark.parametrize(
    ("ranks", "backend", "environment"),
    [
        (2, "cpu:synth", {}),
        (3, "synth", {}),
        (2, "cpu:synth", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        (2, "cpu:synth", {"SYNTH_DISABLE": "1"}),
    ],
    ids=["two", "three", "detail", "disabled"],
)
def test_all_collectives_and_training(ranks, backend, environment):
    printed, codes = job(ranks, backend, **environment)
    assert codes == [0] * ranks, printed
    assert not [text for text in printed if "Traceback" in text], printed

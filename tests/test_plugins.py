"""Encodings and solvers of other packages take part as docs/cli.md says."""

import os
import subprocess
import sys

import pytest

CODE = '''
from dataclasses import dataclass

from synth.solvers.python_sat import Cadical
from synth.encodings.step import StepEncoding
from synth.model.outcome import Unknown


class Mine(StepEncoding):
    """An encoding: apply and invert."""


@dataclass(frozen=True)
class Own(Cadical):
    """A solver: solve(model)."""


def gives_up(problem, budget):
    """An engine: problem and budget in, a verdict out."""
    return Unknown("gave-up", "as it always does")
'''
POINTS = "[synth.plugins]\nencodings.mine = others:Mine\nencodings.idle = others:gives_up\nsolvers.own = others:Own\n"


@pytest.fixture(scope="module")
def solve(tmp_path_factory):
    """Runs ``synth solve`` where a package with three plug-ins is installed; arguments to exit code, output and
    messages."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "others.py").write_text(CODE)
    info = folder / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(words):
        command = [sys.executable, "-m", "synth", "solve", "--topo", "ring:4", "--coll", "allgather", *words.split()]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("words", [
    "--encoding mine", "--solver own",
    *(pytest.param(f"--encoding {name} --solver own", marks=pytest.mark.slow) for name in ("mine", "step")),
])  # fmt: skip
def test_an_encoding_and_a_solver(solve, words):
    code, out, said = solve(f"--chunks 2 --steps 2 --rounds 3 {words}")
    assert (code, said) == (0, "")
    assert ("mine/" in out) == ("mine" in words)
    assert solve(f"--chunks 2 --steps 2 --rounds 2 {words} --deterministic")[0] == 3


def test_an_engine_brings_its_own_solver(solve):
    code, _, said = solve("--chunks 2 --steps 2 --rounds 3 --encoding idle")
    assert code == 4
    assert "as it always does" in said
    code, _, said = solve("--chunks 2 --steps 2 --rounds 3 --encoding idle --solver own")
    assert code == 2
    assert "encoding idle brings its own solver" in said

"""Needs of some tests: without them they are skipped with the reason, or fail where SYNTH_CI_NEEDS names
it."""

import importlib.util
import os
import shutil
import sys

import pytest

from bench import chromium
from synth.runtime.kernel import nvrtc
from synth.runtime.mpi import environment

WHAT = {
    "mpi": environment.missing,
    "g++": lambda: None if shutil.which("g++") else "there is no g++ on PATH: apt install g++",
    "chromium": chromium.missing,
    "node": lambda: None if shutil.which("node") else "there is no node on PATH: apt install nodejs",
    "torch": lambda: None if torch_python() else "no torch: pip install '.[torch]', or SYNTH_TORCH_PYTHON=its Python",
    "nvrtc": lambda: None if nvrtc.library_path() else nvrtc.MISSING,
}


def torch_python() -> str:
    """Return a Python that has torch: this one, or the one that SYNTH_TORCH_PYTHON names; "" where there is none."""
    return sys.executable if importlib.util.find_spec("torch") else os.environ.get("SYNTH_TORCH_PYTHON", "")


def need(what: str) -> None:
    """Go on where `what` is here; else skip, or fail where the environment says that it must be."""
    lack = WHAT[what]()
    if lack is None:
        return
    if what in os.environ.get("SYNTH_CI_NEEDS", "").split():
        pytest.fail(f"needs {what}: {lack}", pytrace=False)
    pytest.skip(f"needs {what}: {lack}")

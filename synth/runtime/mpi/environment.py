"""Which MPI is at hand: whether this process runs under one, and with what a new one is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from synth.errors import MissingDependencyError, SynthError
from synth.model.registry import installed, need

INSTALL = "pip install 'ccl-synth[mpi]'"
# (size, rank) as Open MPI, MPICH and its relatives, and MVAPICH tell them
_WORLDS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
)


_agreed = False


class World(NamedTuple):
    """The MPI job that this process belongs to: how many processes it has, and which one this is."""

    size: int
    rank: int


def inside() -> World | None:
    """The job that started this process; None where no mpirun did. Reads the environment only."""
    for size, rank in _WORLDS:
        found = os.environ.get(size, ""), os.environ.get(rank, "")
        if all(text.isdecimal() for text in found):
            return World(int(found[0]), int(found[1]))
    return None


def mpirun() -> str | None:
    """The path of mpirun: the one beside this Python first (a wheel brings it), else the first on PATH."""
    for name in ("mpirun", "mpiexec"):
        beside = Path(sys.executable).parent / name
        found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
        if found:
            return found
    return None


def missing() -> str | None:
    """What the executor lacks, and the command that installs it; None where it has all."""
    if not installed("mpi4py"):
        return f"mpi4py is not installed: {INSTALL}"
    if inside() is None and mpirun() is None:
        return f"there is no mpirun on PATH: {INSTALL} brings one, as does a system's Open MPI or MPICH"
    return None


def module() -> Any:
    """mpi4py.MPI, which starts MPI when first imported. Raises MissingDependencyError."""
    try:
        return need("mpi4py.MPI", "the mpi executor", INSTALL)
    except (ImportError, RuntimeError) as error:  # the wheel of mpi4py brings no MPI of its own
        raise MissingDependencyError(f"mpi4py finds no MPI library ({str(error).splitlines()[0]}): {INSTALL}") from None


def command(processes: int) -> tuple[list[str], dict[str, str]]:
    """How to start that many processes here, and their environment. Raises MissingDependencyError."""
    lack = missing()
    program = mpirun()
    if lack is not None or program is None:
        raise MissingDependencyError(f"the mpi executor cannot run here: {lack}")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [program, "-n", str(processes)]
    if "Open MPI" in said.stdout:
        words.append("--oversubscribe")
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            # Open MPI refuses to run as root, as in a container, unless it is told twice
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return words, environment


def same(size: int, ranks: int) -> None:
    """Raises SynthError where mpirun started as many processes as asked but MPI knows of fewer: two MPIs are mixed."""
    if size != ranks:
        raise SynthError(
            f"mpirun started {ranks} processes, but mpi4py sees {size}: they belong to different MPIs; {INSTALL}"
        )


def agree() -> None:
    """From now on all processes of this job know the same, the errors of any of them included."""
    global _agreed
    _agreed = True


def speaks() -> bool:
    """Whether this process reports to the user: any but those of a job whose rank 0 reports what all of them know."""
    world = inside()
    return world is None or world.rank == 0 or not _agreed

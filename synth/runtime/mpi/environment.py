"""The MPI installation: the job that this process belongs to, and the command that starts a new one."""

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
# environment variables of size and rank: Open MPI, MPICH and its derivatives, MVAPICH
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


def current_job() -> World | None:
    """Return the job that started this process; None where no mpirun did. Reads the environment only."""
    for size, rank in _WORLDS:
        values = os.environ.get(size, ""), os.environ.get(rank, "")
        if all(text.isdecimal() for text in values):
            return World(int(values[0]), int(values[1]))
    return None


def mpirun() -> str | None:
    """Return the path of mpirun: the one beside this Python (installed by a wheel), else the first on PATH, or None."""
    for name in ("mpirun", "mpiexec"):
        wheel = Path(sys.executable).parent / name
        path = str(wheel) if os.access(wheel, os.X_OK) else shutil.which(name)
        if path:
            return path
    return None


def missing() -> str | None:
    """Return the part that the executor lacks, with the command that installs it; None where it lacks nothing."""
    if not installed("mpi4py"):
        return f"mpi4py is not installed: {INSTALL}"
    if current_job() is None and mpirun() is None:
        return f"there is no mpirun on PATH: {INSTALL} brings one, as does a system's Open MPI or MPICH"
    return None


def module() -> Any:
    """Return mpi4py.MPI, which starts MPI when first imported. Raises MissingDependencyError."""
    try:
        return need("mpi4py.MPI", "the mpi executor", INSTALL)
    except (ImportError, RuntimeError) as error:  # the wheel of mpi4py brings no MPI of its own
        raise MissingDependencyError(f"mpi4py finds no MPI library ({str(error).splitlines()[0]}): {INSTALL}") from None


def command(processes: int) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts `processes` processes here, and their environment.

    Raises MissingDependencyError.
    """
    lack = missing()
    program = mpirun()
    if lack is not None or program is None:
        raise MissingDependencyError(f"the mpi executor cannot run here: {lack}")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [program, "-n", str(processes)]
    if "Open MPI" in said.stdout:
        words.append("--oversubscribe")
        environment.setdefault("OMPI_MCA_osc", "^ucx")  # without UCX on this machine it prints an error, and works
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            # Open MPI refuses to run as root, as in a container, unless both variables are set
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return words, environment


def check_process_count(size: int, ranks: int) -> None:
    """Raise SynthError where mpi4py's MPI does not have the `ranks` processes of mpirun: two MPIs are mixed."""
    if size != ranks:
        raise SynthError(
            f"mpirun started {ranks} processes, but mpi4py sees {size}: they belong to different MPIs; {INSTALL}"
        )


def set_agreed() -> None:
    """Record that all processes of this job have the same results from now on, so that only rank 0 reports them."""
    global _agreed
    _agreed = True


def reports_to_user() -> bool:
    """Return True where this process reports to the user.

    False only for a rank other than 0 of a job whose processes all have the same results.
    """
    world = current_job()
    return world is None or world.rank == 0 or not _agreed

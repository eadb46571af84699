"""The MPI executor: every rank is a process, started by an own mpirun or belonging to the job of this process.

Outside an MPI job (``synth run --executor mpi``) it writes the job into a folder, starts one process for
each rank of the program and reads their outputs. Under an mpirun that the user started, every process of the job calls
it with the same program; it runs the rank of that process, and every process receives the outputs of all ranks.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from synth.errors import SynthError, UsageError
from synth.model.topology import Network
from synth.program.program import Program
from synth.runtime.dtypes import dtype as element_type
from synth.runtime.executor import Execution, chunk_elements
from synth.runtime.mpi import environment as mpi_world
from synth.runtime.mpi.child import ERROR, JOB, OUTPUT
from synth.runtime.mpi.rank import RankTask, gather_values, run_rank
from synth.runtime.slicing import FifoOptions

_comm: Any = None  # a communicator of this executor alone, so that no other messages are mixed with its own


@dataclass(frozen=True)
class Mpi(FifoOptions):
    """The executor that runs each rank as an MPI process.

    `processes`: if given, it must be the number of ranks. `patience`: seconds without any message until a run is
    reported as a deadlock. `network` is not used: a run has no times.
    """

    network: Network | None = None
    processes: int | None = None
    patience: float = 3.0

    def available(self) -> str | None:
        """Return None where mpi4py and an mpirun exist, else the missing one and the command that installs it."""
        return mpi_world.missing()

    def time(self, program: Program, elements: int, *, dtype: str = "float32", in_place: bool = False) -> Execution:
        """Raise UsageError, always: the times of processes on one machine say nothing about another."""
        raise UsageError("the mpi executor moves data and gives no times; use --executor reference for the time alone")

    def run(
        self, program: Program, arrays: Sequence[np.ndarray], *, dtype: str, op: str = "sum", in_place: bool = False
    ) -> Execution:
        """Run `program` once on `arrays` (rows are chunks).

        Raises UsageError where the number of processes is not that of its ranks.
        """
        world = mpi_world.current_job()
        if program.one_sided:
            raise UsageError(
                f"{program.name} writes into other ranks' memory, and the mpi executor sends messages; run it with "
                f"--executor reference or host"
            )
        if self.processes not in (None, program.ranks):
            raise UsageError(
                f"{program.name} has {program.ranks} ranks, and each is a process: -n {program.ranks}, not "
                f"{self.processes}"
            )
        if world is not None and world.size != program.ranks:
            raise UsageError(
                f"{program.name} has {program.ranks} ranks, this MPI job {world.size} processes: mpirun -n "
                f"{program.ranks}"
            )
        fifos = FifoOptions(protocol=self.protocol, depth=self.depth, part=self.part, runtime=self.runtime)
        task = RankTask(program, chunk_elements(arrays), element_type(dtype).name, op, in_place, fifos, self.patience)
        run = _started if world is None else _joined
        return Execution(tuple(run(task, arrays)), None)


def _joined(task: RankTask, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run as one process of a running job. Returns the outputs of all ranks."""
    global _comm
    if _comm is None:
        _comm = mpi_world.module().COMM_WORLD.Dup()
    mpi_world.check_process_count(_comm.size, task.program.ranks)
    try:
        return gather_values(_comm, run_rank(_comm, task, arrays[_comm.rank]))
    finally:
        mpi_world.set_agreed()


def _started(task: RankTask, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run by a new mpirun. Returns the outputs of all ranks; raises a rank's error, SynthError where mpirun fails."""
    words, environment = mpi_world.command(task.program.ranks)
    with tempfile.TemporaryDirectory(prefix="synth-mpi-") as name:
        folder = Path(name)
        (folder / JOB).write_bytes(pickle.dumps((task, list(arrays))))
        process = subprocess.Popen(
            [*words, sys.executable, "-m", "synth.runtime.mpi.child", name],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            said, _ = process.communicate()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if (folder / ERROR).is_file():
            raise pickle.loads((folder / ERROR).read_bytes())
        if process.returncode:
            # The most informative line: the last error of a process, else the first line.
            lines = [line.strip() for line in said.splitlines() if line.strip().strip("-=*")]
            errors = [line for line in lines if "Error" in line]
            reason = (errors[-1:] or lines[:1] or ["it said nothing"])[0]
            raise SynthError(f"mpirun ended with code {process.returncode}: {reason}")
        outputs = []
        for rank in range(task.program.ranks):
            outputs.append(pickle.loads((folder / OUTPUT.format(rank)).read_bytes()))
        return outputs

"""The program that mpirun starts: ``python -m synth.runtime.mpi.child FOLDER``.

The folder holds the job (task and inputs by rank). Each process writes its output there, or rank 0 the error of a run
that gave none: pickles, since both ends are the same installation and the folder belongs to one user.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from synth.errors import SynthError
from synth.runtime.mpi import environment
from synth.runtime.mpi.rank import run_rank

JOB, ERROR, OUTPUT = "job", "error", "output-{}"


def main(folder: Path) -> None:
    """Run the part of one process. All processes raise the same SynthError."""
    comm = environment.module().COMM_WORLD
    task, arrays = pickle.loads((folder / JOB).read_bytes())
    try:
        environment.check_process_count(comm.size, task.program.ranks)
        done = run_rank(comm, task, arrays[comm.rank])
    except SynthError as error:
        if comm.rank == 0:
            (folder / ERROR).write_bytes(pickle.dumps(error))
        return
    (folder / OUTPUT.format(comm.rank)).write_bytes(pickle.dumps(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

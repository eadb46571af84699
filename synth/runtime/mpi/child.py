"""The program that mpirun starts: a process that reads its part of a job from a folder and writes its output there.

python -m synth.runtime.mpi.child FOLDER

program.json, task.json    the same for all processes    input-R, output-R    elements of rank R, as in memory
error.json                 the error of a run that gave no output
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from synth.errors import SynthError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.dtypes import dtype
from synth.runtime.mpi import environment
from synth.runtime.mpi.rank import RankTask, error_of, run_rank
from synth.runtime.reference.deadlock_diagnosis import DeadlockError, StuckBlock


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    folder: Path

    @property
    def error(self) -> Path:
        """The file in which rank 0 reports an error."""
        return self.folder / "error.json"

    def write(self, task: RankTask, arrays: Sequence[np.ndarray]) -> None:
        """Write program, call and inputs for the processes."""
        (self.folder / "program.json").write_text(json.dumps(task.program.to_json()))
        (self.folder / "task.json").write_text(json.dumps(task._asdict() | {"program": None}))
        for rank, array in enumerate(arrays):
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(self.folder / f"input-{rank}")

    def task(self) -> RankTask:
        """Read the call that `write` wrote."""
        program = Program.from_json(json.loads((self.folder / "program.json").read_text()))
        return RankTask(**json.loads((self.folder / "task.json").read_text()) | {"program": program})

    def input(self, task: RankTask, rank: int) -> np.ndarray:
        """Return the input of a rank; rows are chunks."""
        return self._read(task, f"input-{rank}", len(_layout(task).inputs[rank]))

    def output(self, task: RankTask, rank: int) -> np.ndarray:
        """Return the output of a rank; rows are chunks."""
        return self._read(task, f"output-{rank}", len(_layout(task).outputs[rank]))

    def _read(self, task: RankTask, name: str, rows: int) -> np.ndarray:
        return np.fromfile(self.folder / name, np.uint8).view(dtype(task.dtype).numpy).reshape(rows, task.elements)


def _layout(task: RankTask) -> Layout:
    if task.program.collective is None:
        raise SynthError(f"{task.program.name}: the file does not say which collective this is; name it")
    return Layout(task.program.collective, task.program.chunks)


def error_json(error: SynthError) -> dict:
    """Return an error as JSON, for the process that started the job."""
    doc: dict = {"kind": type(error).__name__, "text": str(error)}
    if isinstance(error, DeadlockError):
        doc |= {"name": error.name, "closed": error.closed, "cycle": [list(stuck) for stuck in error.cycle]}
    return doc


def read_error(doc: dict) -> SynthError:
    """Return the error that `error_json` wrote as `doc`."""
    if "cycle" not in doc:
        return error_of((doc["kind"], doc["text"]))
    cycle = []
    for rank, block, op, text, waits_for, holder in doc["cycle"]:
        place = None if holder is None else (holder[0], holder[1])
        cycle.append(StuckBlock(rank, block, op, text, waits_for, place))
    return DeadlockError(doc["name"], tuple(cycle), doc["closed"])


def main(folder: str) -> None:
    """Run the part of one process. All processes raise the same SynthError, which rank 0 writes to the folder."""
    job = RunFolder(Path(folder))
    mpi = environment.module()
    comm = mpi.COMM_WORLD
    task = job.task()
    try:
        environment.check_process_count(comm.size, task.program.ranks)
        done = run_rank(mpi, comm, task, job.input(task, comm.rank))
    except SynthError as error:
        if comm.rank == 0:
            job.error.write_text(json.dumps(error_json(error)), encoding="utf-8")
        return
    np.ascontiguousarray(done).reshape(-1).view(np.uint8).tofile(job.folder / f"output-{comm.rank}")


if __name__ == "__main__":
    main(sys.argv[1])

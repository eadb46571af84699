"""Devices and software of this machine that run programs: GPUs with peer access, a compiler, MPI; and what is missing.

Nothing here raises because one of them is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from synth.model.registry import load
from synth.runtime import EXECUTORS
from synth.runtime.cuda.gpu_status import CudaDevice, gpu_status
from synth.runtime.mpi import environment


class ExecutorStatus(NamedTuple):
    """An executor on this machine.

    `on`: the devices or processes that it would use. `missing`: what it lacks and the command that installs it; None
    where it can run.
    """

    executor: str
    on: str
    missing: str | None


@dataclass(frozen=True)
class Devices:
    """The document of `synth devices`. `cuda`: one line on GPUs, driver and CuPy."""

    cuda: str
    gpus: tuple[CudaDevice, ...]
    runs: tuple[ExecutorStatus, ...]

    def to_json(self) -> dict:
        """Return the document of `synth devices`."""
        return {
            "schema": "synth.devices/1",
            "cuda": self.cuda,
            "gpus": [gpu._asdict() | {"peers": list(gpu.peers)} for gpu in self.gpus],
            "executors": [row._asdict() for row in self.runs],
        }


def devices() -> Devices:
    """Return the devices and executors of this machine; starts nothing but the CUDA driver."""
    cuda, gpus = gpu_status()
    runs = []
    for name, target in EXECUTORS.items():
        missing = load(target)().available()
        runs.append(ExecutorStatus(name, "" if missing else _place(name, gpus), missing))
    return Devices(cuda, gpus, tuple(runs))


def _place(executor: str, gpus: tuple[CudaDevice, ...]) -> str:
    if executor == "cuda":
        return f"all ranks on GPU 0, or --ranks-on 0..{len(gpus) - 1}" if len(gpus) > 1 else "all ranks on GPU 0"
    if executor == "mpi":
        world = environment.current_job()
        if world:
            return f"the MPI job of {world.size} processes that runs this"
        return f"processes of this machine, by {environment.mpirun()}"
    return {"reference": "this process", "host": "threads of this process"}.get(executor, "a plug-in's choice")

"""Executors, which run a Program. Each is a class with the interface `synth.runtime.executor.Executor`."""

from __future__ import annotations

from collections.abc import Mapping

EXECUTORS: Mapping[str, str] = {
    "reference": "synth.runtime.reference.executor:Reference",
    "host": "synth.runtime.host.executor:Host",
    "cuda": "synth.runtime.cuda.executor:Cuda",
    "mpi": "synth.runtime.mpi.executor:Mpi",
}
SUMMARIES: Mapping[str, str] = {
    "reference": "NumPy: the result, checked, and the time under the cost model",
    "host": "the CUDA kernel's source on CPU threads: the result, checked",
    "cuda": "CuPy: all ranks on one GPU: the result, checked",
    "mpi": "MPI processes, one a rank: the result, checked",
}

__all__ = ["EXECUTORS", "SUMMARIES"]

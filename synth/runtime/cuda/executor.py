"""The cuda executor: all ranks on one GPU by one launch, or each rank on a chosen GPU by its own launch, with CuPy.

Buffers, FIFOs and counters lie in the GPUs' memory. No grid is ever made smaller: where blocks cannot all be resident
at once, the program is refused. Machine code is compiled by NVRTC at first use and cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from synth.errors import SynthError, UsageError
from synth.model.registry import installed, need
from synth.model.topology import Network
from synth.program.program import Program
from synth.runtime.cuda import devices
from synth.runtime.cuda.devices import driver_version, gpu_description
from synth.runtime.cuda.graph_timing import time_replays
from synth.runtime.cuda.loaded_program import CudaMachine, LoadedCall
from synth.runtime.dtypes import dtype as element_type
from synth.runtime.dtypes import operator
from synth.runtime.executor import Execution, Repetitions, chunk_elements
from synth.runtime.kernel import build_host, nvrtc, sources
from synth.runtime.kernel.logical_clock import timed_execution
from synth.runtime.slicing import FifoOptions, Padding

WHEELS = ("cupy-cuda12x", "cupy-cuda13x")
INSTALL = "pip install 'ccl-synth[cuda12]' or 'ccl-synth[cuda13]'"


def installed_wheels() -> list[str]:
    """Return the names of the distributions of CuPy that are installed. More than one exclude each other."""
    found = []
    for name in WHEELS:
        with suppress(metadata.PackageNotFoundError):
            metadata.distribution(name)
            found.append(name)
    return found


def missing() -> str | None:
    """Return the reason why nothing can run on a GPU here, with the remedy; None where it can. Imports CuPy."""
    wheels = installed_wheels()
    if len(wheels) > 1:
        return (
            f"{' and '.join(wheels)} are both installed and exclude each other: pip uninstall the one that the "
            f"driver does not suit"
        )
    if not installed("cupy"):
        return f"needs CuPy: {INSTALL}"
    if nvrtc.library_path() is None:
        return nvrtc.MISSING
    try:
        cupy = _cupy()
    except ImportError as error:
        return f"CuPy cannot be imported: {_line(error)}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA GPU or no driver: {_line(error)}"
    return None if count else "no CUDA GPU here; --executor host runs the same kernel on CPU threads"


def _cupy() -> Any:
    return need("cupy", "the cuda executor", INSTALL)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def errors_in_one_line(what: str) -> Iterator[None]:
    """Convert CUDA's errors inside the ``with`` block to a SynthError of one line that begins with `what`."""
    cupy = _cupy()
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise SynthError(f"{what}: not enough GPU memory ({_line(error)}); choose a smaller size") from None
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        if getattr(error, "status", None) == devices.NO_MEMORY:
            raise SynthError(f"{what}: not enough GPU memory; choose a smaller size") from None
        raise SynthError(f"{what}: {_line(error)}") from None


def kernel(group: str, symbol: str, *, cooperative: bool, scope: str = "gpu") -> Any:
    """Return the compiled kernel for the current GPU, a `cupy.RawKernel`, from the cache if possible.

    `scope`: "sys" where blocks on several GPUs wait for each other. `cooperative`: the driver refuses a grid that is
    not resident at once, and runs no two such grids side by side.
    """
    return _kernel(_cupy().cuda.Device().id, group, symbol, cooperative, scope)


@cache
def _kernel(device: int, group: str, symbol: str, cooperative: bool, scope: str) -> Any:
    target = _built(int(_cupy().cuda.Device(device).compute_capability), group, scope)
    with errors_in_one_line(f"loading {target}"):
        return _cupy().RawModule(path=str(target), enable_cooperative_groups=cooperative).get_function(symbol)


def prebuild(group: str) -> None:
    """Compile a group of kernels (of `sources.GROUPS`) for the current GPU, unless it is cached. Thread-safe."""
    _built(int(_cupy().cuda.Device().compute_capability), group, "gpu")


def _built(arch: int, group: str, scope: str) -> Path:
    version = nvrtc.version()
    if arch < 75 and version[0] >= 13:
        raise SynthError(
            f"this GPU is sm_{arch}; NVRTC {version[0]} compiles for sm_75 and later: use CuPy and NVRTC of CUDA 12"
        )
    options = () if scope == "gpu" else (f'--define-macro=SYNTH_SCOPE="{scope}"',)
    stamp = sources.fingerprint(sources.lines(group), f"{version[0]}.{version[1]}", str(arch), *options)
    target = build_host.cache_directory() / f"cuda-{group}-sm{arch}-{stamp}.cubin"
    if not build_host.is_cached(target):
        build_host.write_atomically(target, nvrtc.compile_group(group, arch, options).cubin)
    return target


@dataclass(frozen=True)
class Cuda(FifoOptions):
    """The executor that runs all ranks of a program on the current GPU, or each rank on its own.

    `ranks_on`: the GPU of each rank, each rank being a launch of its own, on different GPUs with peer access or side by
    side on one. `threads`: of each block; by default the maximum, up to 256, with which all blocks of every GPU are
    resident at once. `timeout`: seconds without any progress until a run is given up. `direct`: put messages directly
    into the receiver's buffer where that is proved safe. `clock`: logical (the time of an execution-driven model over
    the links of `network`, computed by the kernel as it moves the data). `graphs`: time launches in replays of CUDA
    graphs. `fetch`: fetch and compare their outputs. Without a clock, `network` is only named in the report.
    """

    network: Network | None = None
    threads: int | None = None
    timeout: float = 10.0
    ranks_on: tuple[int, ...] | None = None
    direct: bool = True
    clock: str | None = None
    graphs: bool = True
    fetch: bool = True

    def available(self) -> str | None:
        """Return None where a GPU can be used, else the reason."""
        return missing()

    def time(self, program: Program, elements: int, *, dtype: str = "float32", in_place: bool = False) -> Execution:
        """Return the logical time of a launch on unspecified data. Raises UsageError unless there is a clock."""
        if self.clock is None:
            raise UsageError(
                "the cuda executor moves data and knows no modelled times without --clock logical; --no-data is for "
                "reference"
            )
        machine = self.load(program, elements, dtype=dtype, in_place=in_place)
        with errors_in_one_line(f"running {program.name}"):
            machine.launch()
            machine.finish()
            return timed_execution(None, machine.timed)

    def load(
        self, program: Program, elements: int, *, dtype: str, op: str = "sum", in_place: bool = False
    ) -> CudaMachine:
        """Load `program` on the current GPU for calls of `elements` elements a chunk, with tables and FIFOs.

        Raises SynthError where its thread blocks cannot all be resident at once, and for CUDA's errors.
        """
        return self._loaded(program, Padding(elements * program.chunks, program.chunks), dtype, op, in_place)

    def _loaded(self, program: Program, padding: Padding, dtype: str, op: str, in_place: bool) -> CudaMachine:
        if (why := missing()) is not None:
            raise SynthError(f"the cuda executor cannot run here: {why}")
        with errors_in_one_line(f"loading {program.name}"):
            call = LoadedCall(padding, element_type(dtype), operator(op), in_place)
            return CudaMachine(_cupy(), self, program, call, kernel)

    def prepare(self, program: Program, unit: int, *, dtype: str, op: str, in_place: bool) -> tuple[CudaMachine, Any]:
        """Return a machine for the caller's arrays of `unit` elements a unit of data, and an error guard.

        The guard turns CUDA's errors into one line; see `CudaMachine.use` and `errors_in_one_line`.
        """
        return self._loaded(program, Padding(unit, program.chunks), dtype, op, in_place), errors_in_one_line

    def run(
        self, program: Program, arrays: Sequence[np.ndarray], *, dtype: str, op: str = "sum", in_place: bool = False
    ) -> Execution:
        """Run `program` once on `arrays` (rows are chunks) and fetch the outputs. Raises DeadlockError, SynthError."""
        machine = self.load(program, chunk_elements(arrays), dtype=dtype, op=op, in_place=in_place)
        with errors_in_one_line(f"running {program.name}"):
            machine.fill(arrays)
            machine.launch()
            machine.finish()
            return timed_execution(machine.outputs(), machine.timed)

    def measure(
        self,
        program: Program,
        arrays: Sequence[np.ndarray],
        *,
        dtype: str,
        op: str = "sum",
        in_place: bool = False,
        repetitions: Repetitions,
    ) -> tuple[tuple[np.ndarray, ...], list[float]]:
        """Return the outputs of a single launch, and the seconds of a launch in each timed replay of a graph.

        Where all ranks share one GPU's memory, these times say nothing about links. See
        synth.runtime.cuda.graph_timing.
        """
        machine = self.load(program, chunk_elements(arrays), dtype=dtype, op=op, in_place=in_place)
        with errors_in_one_line(f"running {program.name}"):
            return time_replays(machine, arrays, *repetitions, graphs=self.graphs, fetch=self.fetch)

    def facts(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the GPUs in use with the driver, and the versions of CuPy, CUDA's runtime and NVRTC."""
        cupy = _cupy()
        on = sorted(set(self.ranks_on or (cupy.cuda.Device().id,)))
        runtime, nvrtc_version = cupy.cuda.runtime, nvrtc.version()
        versions = {
            "cupy": str(cupy.__version__),
            "cuda": _dotted(runtime.runtimeGetVersion()),
            "nvrtc": f"{nvrtc_version[0]}.{nvrtc_version[1]}",
        }
        return {
            "gpus": [gpu_description(runtime, index) for index in on],
            "ranks_on": list(self.ranks_on) if self.ranks_on else None,
            "driver": driver_version(),
            "driver_cuda": _dotted(runtime.driverGetVersion()),
        }, versions


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"

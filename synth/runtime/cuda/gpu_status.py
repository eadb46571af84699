"""GPUs of this machine as CuPy and the CUDA driver see them, or the reason why there are none.

Nothing here raises because a library, a driver or a GPU is missing.
"""

from __future__ import annotations

import ctypes
import importlib
import warnings
from importlib import metadata
from typing import Any, NamedTuple

from synth.model.registry import installed

WHEELS = ("cupy-cuda12x", "cupy-cuda13x")
INSTALL = "pip install 'ccl-synth[cuda13]' (CUDA 13, from sm_75 on) or 'ccl-synth[cuda12]' (CUDA 12, V100 too)"


class CudaDevice(NamedTuple):
    """One CUDA device. `bytes`: its memory. `processors`: streaming multiprocessors. `peers`: devices it can access."""

    index: int
    name: str
    compute: str
    bytes: int
    processors: int
    peers: tuple[int, ...]


def gpu_status() -> tuple[str, tuple[CudaDevice, ...]]:
    """Return one line on GPUs, driver and CuPy, and the GPUs; starts nothing but the CUDA driver."""
    wheels = installed_wheels()
    count = driver()
    if len(wheels) > 1:
        return (
            f"{' and '.join(wheels)} are both installed and exclude each other: pip uninstall {wheels[0]} or "
            f"{wheels[1]}",
            (),
        )
    if count is None:
        advice = "" if installed("cupy") else f"; for a machine that has one: {INSTALL}"
        return f"no CUDA driver is installed here, so no GPU can be used{advice}", ()
    if count == 0:
        return "the CUDA driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?)", ()
    if not installed("cupy"):
        return f"{_gpus(count)} here, but CuPy is not installed: {INSTALL}", ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runtime = cupy().cuda.runtime
            gpus = tuple(_gpu(runtime, i, runtime.getDeviceCount()) for i in range(runtime.getDeviceCount()))
            line = (
                f"{_gpus(len(gpus))}, driver for CUDA {_dotted(runtime.driverGetVersion())}, "
                f"{' '.join(wheels) or 'CuPy'} for CUDA {_dotted(runtime.runtimeGetVersion())}"
            )
            return line, gpus
    except Exception as error:  # a half-installed CUDA raises errors of many types; each becomes one line
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        return f"CuPy cannot use the GPU: {type(error).__name__}: {reason}", ()


def cupy() -> Any:
    """Return the imported CuPy library."""
    return importlib.import_module("cupy")


def _gpu(runtime: Any, index: int, count: int) -> CudaDevice:
    properties = runtime.getDeviceProperties(index)
    name = properties["name"].decode() if isinstance(properties["name"], bytes) else str(properties["name"])
    peers = tuple(p for p in range(count) if p != index and runtime.deviceCanAccessPeer(index, p))
    return CudaDevice(
        index,
        name,
        f"{properties['major']}.{properties['minor']}",
        int(properties["totalGlobalMem"]),
        int(properties["multiProcessorCount"]),
        peers,
    )


def driver() -> int | None:
    """Return the number of GPUs that the CUDA driver sees; None where there is no driver. Needs no CuPy."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return 0
        return count.value
    except (OSError, AttributeError):
        return None


def installed_wheels() -> list[str]:
    """Return the names of the distributions of CuPy that are installed. More than one exclude each other."""
    return [name for name in WHEELS if _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"

"""GPUs of a program's ranks: checks, peer access, memory that peers can access, and streams."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from synth.errors import SynthError, UsageError

ALREADY = 704  # cudaErrorPeerAccessAlreadyEnabled
NO_MEMORY = 2  # cudaErrorMemoryAllocation


def check_ranks_on(cupy: Any, on: Sequence[int] | None) -> None:
    """Raise UsageError if ranks cannot run on the GPUs `on`, the GPU of each rank; None is always possible.

    A GPU may be missing. Launches that wait for each other may be made to run one after another.
    """
    if on is None:
        return
    count = cupy.cuda.runtime.getDeviceCount()
    if max(on, default=0) >= count:
        there = "GPU 0 alone" if count == 1 else f"GPUs 0 to {count - 1}"
        fitting = ",".join(str(device % count) for device in on)
        raise UsageError(
            f"--ranks-on names GPU {max(on)}, and here {'is' if count == 1 else 'are'} {there}: --ranks-on "
            f"{fitting} fits"
        )
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        raise UsageError(
            "CUDA_LAUNCH_BLOCKING makes every launch wait for its end, and the launches of --ranks-on wait for each "
            "other: unset it"
        )


def enable_peer_access(cupy: Any, devices: Sequence[int]) -> None:
    """Enable peer access between all `devices`. Raises SynthError naming two that have none."""
    runtime = cupy.cuda.runtime
    pairs = [(i, j) for i in devices for j in devices if i != j]
    for i, j in pairs:
        if not runtime.deviceCanAccessPeer(i, j):
            raise SynthError(
                f"GPU {i} has no peer access to the memory of GPU {j}, and ranks on both share FIFOs: put all ranks "
                f"on GPUs that reach each other"
            )
    for i, j in pairs:
        with cupy.cuda.Device(i):
            try:
                runtime.deviceEnablePeerAccess(j)
            except runtime.CUDARuntimeError as error:
                if getattr(error, "status", None) != ALREADY:
                    raise


def zeros(cupy: Any, device: int, size: int) -> Any:
    """Return `size` zero bytes on `device`, allocated by the driver: peers may not reach memory of CuPy's pool."""
    size = max(1, size)
    with cupy.cuda.Device(device):
        try:
            memory = cupy.cuda.Memory(size)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if getattr(error, "status", None) != NO_MEMORY:
                raise
            cupy.get_default_memory_pool().free_all_blocks()
            memory = cupy.cuda.Memory(size)
        array = cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))
        array.data.memset(0, size)
        return array


def stream(cupy: Any, given: Any) -> Any:
    """Return `given` as a CuPy stream of the current GPU.

    `given`: None (CuPy's current stream), a torch.cuda.Stream, a cudaStream_t as an int, or a CuPy stream.
    """
    if given is None:
        return cupy.cuda.get_current_stream()
    if hasattr(given, "cuda_stream"):
        return cupy.cuda.ExternalStream(given.cuda_stream)
    return cupy.cuda.ExternalStream(given) if isinstance(given, int) else given


def gpu_description(runtime: Any, index: int) -> dict[str, Any]:
    """Return the description of a GPU in documents."""
    properties = runtime.getDeviceProperties(index)
    name = properties["name"].decode() if isinstance(properties["name"], bytes) else str(properties["name"])
    return {
        "index": index,
        "name": name,
        "compute": f"{properties['major']}.{properties['minor']}",
        "bytes": int(properties["totalGlobalMem"]),
        "processors": int(properties["multiProcessorCount"]),
        "l2_bytes": int(properties["l2CacheSize"]),
    }


def driver_version() -> str | None:
    """Return the version of the NVIDIA kernel module, as in ``580.65.06``; None where it is unknown."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", file.readline())
    except OSError:
        return None
    return match[0] if match else None

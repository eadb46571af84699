"""The time of a device-to-device copy of all output bytes: where all ranks are on one GPU, no program is faster."""

from __future__ import annotations

from typing import Any

from synth.runtime.cuda.devices import zeros
from synth.runtime.executor import Repetitions

SAYS = (
    "a device-to-device copy of as many bytes as all outputs hold, by the GPU's own memcpy: what no program on one GPU "
    "exceeds"
)
AT_ONCE = 20  # copies between two events


def copy_seconds(cupy: Any, size: int, repetitions: Repetitions) -> list[float]:
    """Return the seconds of a copy of `size` bytes in each timed repeat."""
    cuda = cupy.cuda
    device = cuda.Device()
    cache = device.attributes.get("L2CacheSize", 0)
    # Buffers in turn, together larger than the cache where the size allows.
    sets = max(1, min(AT_ONCE, -(-4 * cache // max(1, 2 * size))))
    pairs = [(zeros(cupy, device.id, size), zeros(cupy, device.id, size)) for _ in range(sets)]
    stream = cuda.Stream(non_blocking=True)
    device.synchronize()
    result = []
    for k in range(sum(repetitions)):
        begin, end = cuda.Event(), cuda.Event()
        begin.record(stream)
        for i in range(AT_ONCE):
            source, target = pairs[i % sets]
            target.data.copy_from_device_async(source.data, max(1, size), stream)
        end.record(stream)
        stream.synchronize()
        if k >= repetitions.warmup:
            result.append(cuda.get_elapsed_time(begin, end) / 1000 / AT_ONCE)
    return result

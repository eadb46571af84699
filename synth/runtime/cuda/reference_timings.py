"""Reference timings for programs on GPUs: a device-to-device copy of all output bytes, and NCCL.

Where all ranks are on one GPU, no program writes its outputs faster than the copy. NCCL puts no two ranks on one GPU,
so it is timed only where each rank has its own GPU (`--ranks-on`).
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from synth.errors import UsageError
from synth.program.buffer_layout import Layout
from synth.runtime.cuda.devices import enable_peer_access, zeros
from synth.runtime.dtypes import Dtype

SAYS = {
    "copy": "a device-to-device copy of as many bytes as all outputs hold, by the GPU's own memcpy: what no program "
    "on one GPU exceeds",
    "nccl": "NCCL's own choice of algorithm, by cupy.cuda.nccl",
}
AT_ONCE = 20  # copies, or calls of NCCL, between two events
_NAMES = {
    "allreduce": "allReduce",
    "allgather": "allGather",
    "reduce-scatter": "reduceScatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}


class TimedCall(NamedTuple):
    """A call to time: layout, elements of a chunk, type, operator, and the GPU of each rank (None: the current one)."""

    layout: Layout
    elements: int
    kind: Dtype
    op: str
    on: tuple[int, ...] | None
    warmup: int
    repeats: int


def reference_timing(cupy: Any, name: str, call: TimedCall) -> tuple[int, list[float]]:
    """Return the bytes that are written, and the seconds of each repeat, of copy or nccl.

    Raises UsageError with the reason where it cannot be timed.
    """
    return (_copy if name == "copy" else _nccl)(cupy, call)


def _copy(cupy: Any, call: TimedCall) -> tuple[int, list[float]]:
    size = sum(map(len, call.layout.outputs)) * call.elements * call.kind.size
    device = cupy.cuda.Device()
    cache = device.attributes.get("L2CacheSize", 0)
    sets = max(1, min(AT_ONCE, -(-4 * cache // max(1, 2 * size))))
    pairs = [(zeros(cupy, device.id, size), zeros(cupy, device.id, size)) for _ in range(sets)]
    stream = cupy.cuda.Stream(non_blocking=True)
    device.synchronize()

    def once(k: int) -> None:
        source, target = pairs[k % sets]
        target.data.copy_from_device_async(source.data, max(1, size), stream)

    return size, _timed(cupy, once, [stream], call)


def _timed(cupy: Any, once: Callable[[int], None], streams: Sequence[Any], call: TimedCall) -> list[float]:
    """Return the seconds of one call of `once` in each repeat, between events of the first stream.

    The other streams take part in the same collectives, so they end with the first.
    """
    cuda, result = cupy.cuda, []
    for k in range(call.warmup + call.repeats):
        begin, end = cuda.Event(), cuda.Event()
        begin.record(streams[0])
        for i in range(AT_ONCE):
            once(i)
        end.record(streams[0])
        for stream in streams:
            stream.synchronize()
        if k >= call.warmup:
            result.append(cuda.get_elapsed_time(begin, end) / 1000 / AT_ONCE)
    return result


def _library(cupy: Any) -> Any:
    """Return CuPy's NCCL module, which is loaded at first use and warns where there is no NCCL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(cupy.cuda, "nccl", None) or importlib.import_module("cupy.cuda.nccl")


def _nccl(cupy: Any, call: TimedCall) -> tuple[int, list[float]]:
    layout, task, on = call.layout, call.layout.collective, call.on
    if on is None or len(set(on)) < task.ranks:
        raise UsageError(
            f"NCCL puts no two ranks on one GPU, so it stands beside {task.ranks} ranks on as many: --ranks-on 0,1,.."
        )
    nccl = _library(cupy)
    if not nccl.available:
        raise UsageError("CuPy finds no NCCL: pip install nvidia-nccl-cu13 (or -cu12)")
    short = call.kind.name.upper()
    kind, op = getattr(nccl, f"NCCL_{short}", None), getattr(nccl, f"NCCL_{call.op.upper()}", None)
    if task.name not in _NAMES or kind is None or (task.combining and op is None):
        what = f"{task.name}{' (' + call.op + ')' if task.combining else ''} of {call.kind.name}"
        raise UsageError(f"this NCCL, as CuPy reaches it, has no {what}; it has {', '.join(_NAMES)}")
    enable_peer_access(cupy, sorted(set(on)))
    width = call.elements * call.kind.size
    read = [zeros(cupy, device, len(held) * width) for device, held in zip(on, layout.inputs, strict=True)]
    written = [zeros(cupy, device, len(held) * width) for device, held in zip(on, layout.outputs, strict=True)]
    streams = []
    for device in on:
        with cupy.cuda.Device(device) as here:
            streams.append(cupy.cuda.Stream(non_blocking=True))
            here.synchronize()
    comms = nccl.NcclCommunicator.initAll(list(on))
    # of one rank: of its input for allgather and reduce, of its output for reduce-scatter, of either elsewhere
    count = min(len(part) for part in (*layout.inputs, *layout.outputs) if part) * call.elements
    tail = {"allreduce": (op,), "allgather": (), "reduce-scatter": (op,), "broadcast": (), "reduce": (op,)}[task.name]
    root = task.roots[:1] if task.name in ("broadcast", "reduce") else ()

    def once(_: int) -> None:
        nccl.groupStart()
        for rank, comm in enumerate(comms):
            with cupy.cuda.Device(on[rank]):
                send = read[rank] if layout.inputs[rank] else written[rank]
                getattr(comm, _NAMES[task.name])(
                    send.data.ptr, written[rank].data.ptr, count, kind, *tail, *root, streams[rank].ptr
                )
        nccl.groupEnd()

    with cupy.cuda.Device(on[0]):
        return sum(map(len, layout.outputs)) * width, _timed(cupy, once, streams, call)

"""Times of a loaded program on a GPU: replays of a CUDA graph of launches between two events.

A replay launches `n` times in turn on `sets` of buffers, which together are larger than the L2 cache where the size
allows, so that one launch does not find in the cache what the one before it left. Before anything is timed a launch by
itself on poisoned memory gives the outputs that the caller checks; after it, what every set holds must be the same to
the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from synth.errors import VerificationError

if TYPE_CHECKING:
    from synth.runtime.cuda.loaded_program import CudaMachine

MOST_SETS, CACHES = 16, 4  # so many sets at most; together so many times the cache
LEAST, MOST = 1e-3, 64  # seconds that a replay should take, launches in one at most


def timed(
    machine: CudaMachine, given: Sequence[np.ndarray], warmup: int, repeats: int, *, graphs: bool, fetch: bool
) -> tuple[tuple[np.ndarray, ...], list[float]]:
    """The outputs of the first launch, and the seconds of one launch in each of `repeats` replays, after `warmup`.
    Without `fetch` there are no outputs, and nothing is compared.

    Raises VerificationError where a later launch gave something else, DeadlockError.
    """
    machine.fill(given)
    machine.launch()
    machine.finish()
    outputs = machine.outputs() if fetch else ()
    sets = _sets(machine)
    for k in range(sets):
        machine.fill(given, k)
    stream = machine.cupy.cuda.Stream(non_blocking=True)
    count = -(-_count(machine, stream) // sets) * sets
    replay = _replay(machine, stream, count, sets, graphs)
    found = []
    for k in range(warmup + repeats):
        seconds = _between(machine, stream, replay) / count
        if k >= warmup:
            found.append(seconds)
    if fetch:
        _same(machine, given, outputs, sets)
    return outputs, found


def _sets(machine: CudaMachine) -> int:
    total = sum(rows * machine.elements * machine.kind.size for rows in machine.arena.rows)
    cache = machine.cupy.cuda.Device().attributes.get("L2CacheSize", 0)
    return max(1, min(MOST_SETS, -(-CACHES * cache // max(1, total))))


def _count(machine: CudaMachine, stream: Any) -> int:
    """Launches a replay, by the time of a second one."""
    machine.own()
    _between(machine, stream, lambda: machine.launch(stream))
    once = _between(machine, stream, lambda: machine.launch(stream))
    return max(1, min(MOST, round(LEAST / max(once, LEAST / MOST))))


def _replay(machine: CudaMachine, stream: Any, count: int, sets: int, graphs: bool) -> Callable[[], None]:
    def launches() -> None:
        for k in range(count):
            machine.own(k % sets)
            machine.launch(stream)

    if not graphs:
        return launches
    for k in range(sets):  # the arguments are made before, for nothing may be allocated while a graph is captured
        machine.own(k)
    stream.begin_capture()
    launches()
    graph = stream.end_capture()
    return lambda: graph.launch(stream)


def _between(machine: CudaMachine, stream: Any, work: Callable[[], None]) -> float:
    cuda = machine.cupy.cuda
    begin, end = cuda.Event(), cuda.Event()
    begin.record(stream)
    work()
    end.record(stream)
    machine.finish(stream)
    return cuda.get_elapsed_time(begin, end) / 1000


def _same(machine: CudaMachine, given: Sequence[np.ndarray], outputs: Sequence[np.ndarray], sets: int) -> None:
    if machine.in_place and machine.layout.collective.combining:  # the inputs are gone: the sums have been summed again
        for k in range(sets):
            machine.fill(given, k)
            machine.launch()
            machine.finish()
    for k in range(sets):
        for rank, (first, now) in enumerate(zip(outputs, machine.outputs(k), strict=True)):
            if not np.array_equal(first.reshape(-1).view(np.uint8), now.reshape(-1).view(np.uint8)):
                name = machine.program.name
                raise VerificationError(
                    f"{name}: after the timed launches the output of rank {rank} is not that of the first"
                )

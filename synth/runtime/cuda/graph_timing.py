"""Times of a loaded program on a GPU, by replays of a CUDA graph of launches between two events.

A replay makes several launches, in turn on several sets of buffers. Together the sets are larger than the L2 cache
where the size allows, so that no launch finds data of the launch before it in the cache. Before the timing, a single
launch on poisoned memory gives the outputs that the caller checks. After the timing, the outputs in every set must
equal these bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from synth.errors import VerificationError

if TYPE_CHECKING:
    from synth.runtime.cuda.loaded_program import CudaMachine


MOST_SETS, CACHES = 16, 4  # maximum sets of buffers, and their total size in multiples of the L2 cache
LEAST, MOST = 1e-3, 64  # minimum duration of a replay in seconds, and maximum launches in one


def time_replays(
    machine: CudaMachine, given: Sequence[np.ndarray], warmup: int, repeats: int, *, graphs: bool, fetch: bool
) -> tuple[tuple[np.ndarray, ...], list[float]]:
    """Return the outputs of the first launch, and the seconds of one launch in each of `repeats` replays.

    `given`: the inputs by rank. `warmup`: replays before the timed ones. `graphs`: replay CUDA graphs. Without `fetch`
    there are no outputs, and nothing is compared. Raises VerificationError if a later launch gives other outputs,
    DeadlockError.
    """
    machine.fill(given)
    machine.launch()
    machine.finish()
    outputs = machine.outputs() if fetch else ()
    total = sum(rows * machine.elements * machine.kind.size for rows in machine.arena.rows)
    cache = machine.cupy.cuda.Device().attributes.get("L2CacheSize", 0)
    sets = max(1, min(MOST_SETS, -(-CACHES * cache // max(1, total))))
    for k in range(sets):
        machine.fill(given, k)
    stream = machine.cupy.cuda.Stream(non_blocking=True)
    # The number of launches in a replay, from the time of the second of two launches.
    machine.use_own_buffers()
    _between(machine, stream, lambda: machine.launch(stream))
    once = _between(machine, stream, lambda: machine.launch(stream))
    count = -(-max(1, min(MOST, round(LEAST / max(once, LEAST / MOST)))) // sets) * sets
    replay = _replay(machine, stream, count, sets, graphs)
    found = []
    for k in range(warmup + repeats):
        seconds = _between(machine, stream, replay) / count
        if k >= warmup:
            found.append(seconds)
    if fetch:
        # repeated launches in place combine their own results, so each set is filled and launched once more
        if machine.in_place and machine.layout.collective.combining:
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
    return outputs, found


def _replay(machine: CudaMachine, stream: Any, count: int, sets: int, graphs: bool) -> Callable[[], None]:
    def launches() -> None:
        for k in range(count):
            machine.use_own_buffers(k % sets)
            machine.launch(stream)

    if not graphs:
        return launches
    for k in range(sets):  # allocates the kernels' arguments now, since a capture allows no allocation
        machine.use_own_buffers(k)
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

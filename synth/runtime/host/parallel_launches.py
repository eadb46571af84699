"""Parallel launches on CPU threads. Each has its own stream, a thread that runs its launches one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np


def side_by_side(starts: Sequence[Callable[[], int]], abort: np.ndarray, times: int = 1) -> int:
    """Call each of `starts` `times` times; several have a thread each, and none waits for the end of another.

    Returns 0, or the first result that is not 0, which means that this launch could not start. Then `abort` is set, so
    that the others leave. No launch begins while `abort` is set.
    """
    results = [0] * len(starts)

    def stream(k: int) -> None:
        for _ in range(times):
            if abort[0]:
                return
            results[k] = starts[k]()
            if results[k]:
                abort[0] = 1
                return

    if len(starts) == 1:
        stream(0)
        return results[0]
    threads = [threading.Thread(target=stream, args=(k,), daemon=True) for k in range(len(starts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next((code for code in results if code), 0)

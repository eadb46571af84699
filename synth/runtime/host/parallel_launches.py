"""Launches side by side on CPU threads: each on a stream of its own, which here is a thread that makes them one after
the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np


def side_by_side(starts: Sequence[Callable[[], int]], abort: np.ndarray, times: int = 1) -> int:
    """Call each of `starts` `times` times; where they are several each has its own thread, and none waits for another's
    end.

    0, or the first result that is not: nothing has run then, all others are told to leave, and no more are started.
    After
    `abort` is set no launch begins either.
    """
    found = [0] * len(starts)

    def stream(k: int) -> None:
        for _ in range(times):
            if abort[0]:
                return
            found[k] = starts[k]()
            if found[k]:
                abort[0] = 1
                return

    if len(starts) == 1:
        stream(0)
        return found[0]
    threads = [threading.Thread(target=stream, args=(k,), daemon=True) for k in range(len(starts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next((code for code in found if code), 0)

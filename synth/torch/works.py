"""Works, which calls return: one that has ended, or that waits for the lane's thread; and the futures on it.

A future's callbacks may issue collectives (PowerSGD does), so they never run on the thread that carries collectives
out, but on threads of a pool that grows as callbacks wait. An error is raised by `wait`, never set on a future: DDP
ends the process where a future has an exception.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from copy import copy
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from synth.errors import SynthError


def fresh(error: Exception) -> Exception:
    """Return a copy of an error that was raised before, since each raise adds to an error's traceback."""
    again = copy(error)
    again.__cause__ = error
    return again


class Done(Work):
    """A call that had ended when it returned."""

    def __init__(self, tensors: list) -> None:
        super().__init__()
        self.tensors = tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list:
        return self.tensors

    def get_future(self) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self.tensors)
        return future


class Pending(Work):
    """A call that another thread carries out."""

    def __init__(self, tensors: list) -> None:
        super().__init__()
        self.tensors = tensors
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._future: torch.futures.Future | None = None
        self._lock = threading.Lock()

    def finish(self, error: Exception | None = None) -> None:
        """Say that the call has ended, or failed."""
        with self._lock:
            self._error = error
            self._ended.set()
            future = self._future
        if future is not None:
            callbacks.put(lambda: future.set_result(self.tensors))

    def wait(self, timeout: timedelta | None = None) -> bool:
        seconds = timeout.total_seconds() if timeout else 0  # torch's 0 means the group's own limit
        if not self._ended.wait(seconds or None):
            raise SynthError(f"the call has not ended within {seconds:g} s")
        if self._error is not None:
            raise fresh(self._error)
        return True

    def is_completed(self) -> bool:
        return self._ended.is_set()

    def is_success(self) -> bool:
        return self._ended.is_set() and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> list:
        return self.tensors

    def get_future(self) -> torch.futures.Future:
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._ended.is_set():
                    self._future.set_result(self.tensors)
            return self._future


class Received(Pending):
    """A receive from any rank, which says from which."""

    def __init__(self, work: Any, tensors: list) -> None:
        super().__init__(tensors)
        self._inner = work

    def wait(self, timeout: timedelta | None = None) -> bool:
        found = self._inner.wait(timeout) if timeout else self._inner.wait()
        self.finish()
        return found

    def _source_rank(self) -> int:
        return self._inner._source_rank()

    source_rank = _source_rank


class Callbacks:
    """Threads that complete futures, as many as are busy at once."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def put(self, function: Callable[[], None]) -> None:
        """Call `function` on a thread that nothing else waits for."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, daemon=True).start()
        self._queue.put(function)

    def _work(self) -> None:
        while True:
            self._queue.get()()
            with self._lock:
                self._idle += 1


callbacks = Callbacks()

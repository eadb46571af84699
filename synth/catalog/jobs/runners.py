"""Where tasks run: in child processes of this machine, or on the workers of a Dask scheduler, in child processes too.

A child has a deadline, ends with its parent, however that ends, and takes its sweep's processes with it. One that is
killed has crashed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol

from synth.catalog.jobs.task import FAILED, Task, TaskAnswer
from synth.errors import SynthError, UsageError
from synth.model.registry import need
from synth.version import __version__

# A sweep ends itself at its time limit, give or take a linear program. A child is killed this many times its limit,
# plus this many seconds, after it was started.
LATE, LATER = 1.5, 20.0
CONNECT_SECONDS = 5.0  # seconds to wait for an answer of a scheduler

_children: set[subprocess.Popen] = set()


class Runner(Protocol):
    """An executor of tasks, `slots` at a time."""

    @property
    def slots(self) -> int:
        """The number of tasks that can run at a time."""
        ...

    def submit(self, task: Task) -> Future[TaskAnswer]:
        """Start a task."""
        ...

    def close(self) -> None:
        """End every running task."""
        ...


class Processes:
    """A runner of `slots` child processes on this machine."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._executor = ThreadPoolExecutor(slots)

    def submit(self, task: Task) -> Future[TaskAnswer]:
        """Start a task in a child process."""
        return self._executor.submit(in_child, task)

    def close(self) -> None:
        """End every child process."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for child in list(_children):
            child.kill()
        self._executor.shutdown()


class Dask:
    """A runner of tasks on all workers of the Dask scheduler at `address`, which has to be running.

    If a worker dies, the scheduler starts its task again on another one. Raises MissingDependencyError, UsageError for
    a malformed address, SynthError for a scheduler that does not answer or workers with another synth.
    """

    def __init__(self, address: str) -> None:
        distributed: Any = need("distributed", "--dask", "pip install 'ccl-synth[cluster]'")
        if ":" not in address.removeprefix("tcp://"):
            raise UsageError(f"--dask {address}: expected the address of a scheduler, such as tcp://host:8786")
        for name in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            self.client = distributed.Client(address, timeout=CONNECT_SECONDS)
            versions = set(self.client.run(version).values())
        except Exception as error:  # a program other than Dask may listen there, and answer with anything
            why = " ".join(str(error).split())[:120] or type(error).__name__
            raise SynthError(f"no Dask scheduler with workers that have synth answers at {address} ({why})") from None
        if versions - {__version__}:
            self.client.close()
            raise SynthError(f"the workers of {address} have synth {', '.join(versions)}, here it is {__version__}")
        self._executor: Executor = self.client.get_executor(pure=False)

    @property
    def slots(self) -> int:
        """The number of threads of all present workers; at least 1, so that tasks wait for workers to start."""
        return max(1, sum(self.client.nthreads().values()))

    def submit(self, task: Task) -> Future[TaskAnswer]:
        """Submit a task to the scheduler."""
        return self._executor.submit(in_child, task)

    def close(self) -> None:
        """Disconnect. A task that a worker has started runs to its end there."""
        with contextlib.suppress(Exception):
            self.client.close()


def version() -> str:
    """Return the version of synth in this process."""
    return __version__


def in_child(task: Task) -> TaskAnswer:
    """Solve a task in a child process. Raises SynthError where it ends without an answer."""
    limit, began = task.options.time_limit, time.monotonic()
    code = f"import sys; sys.path[:] = {sys.path!r}; from synth.catalog.jobs.runners import child; child({_pipe()})"
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[_pipe()], process_group=0
    )
    _children.add(child)
    try:
        out, errors = child.communicate(pickle.dumps(task), None if limit is None else LATE * limit + LATER)
        return pickle.loads(out)
    except subprocess.TimeoutExpired:
        return TaskAnswer(None, FAILED, f"ended after {time.monotonic() - began:.0f} s; its log is kept")
    except (EOFError, pickle.UnpicklingError):
        said = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise SynthError(said[:300] or f"its process ended with code {child.returncode}") from None
    finally:
        child.kill()
        child.communicate()
        _children.discard(child)


@cache
def _pipe() -> int:
    return os.pipe()[0]


def child(parent: int) -> None:
    """Solve the task on stdin and write its answer to stdout, in a child whose parent holds the other end of a pipe."""

    def watch() -> None:
        os.read(parent, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    task: Task = pickle.load(sys.stdin.buffer)
    with open(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        pickle.dump(task.answer(), out)

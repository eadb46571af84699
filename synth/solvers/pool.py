"""Calls in processes that can be suspended and killed: their time, their memory and Ctrl-C end them and nothing else.

    submit                 begin a call; returns a `ProcessJob`
    wait                   wait for the first of several jobs; the jobs continue
    result, outcome        wait for one job and decode what came of it
    end                    kill jobs that are not needed
    run_in_process         one call under the ambient deadline

Each tuple of modules has a fork server: a fresh interpreter with one thread, which imports them once. So a job starts
in milliseconds, whatever threads this process runs, and nothing of a user's script runs again, as it would with
`multiprocessing`. The server forks a supervisor for each job, which forks the worker that runs the call.

    this process --control socket--> server       a job: its socket, the file of the pickled call, its memory
    this process --job socket------> supervisor   bytes: signals to the worker. The end of the socket kills it
    this process <--job socket------ worker       its process id, the pickled result
    this process <--job socket------ supervisor   its ending: process id, wait status, CPU seconds, peak bytes

When this process dies, however it dies, its sockets close, and nothing is left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import resource
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from synth.errors import SynthError, UndecidedError
from synth.model.outcome import Unknown
from synth.solvers import deadline as ambient
from synth.solvers.deadline import MEMORY, NEVER, Deadline, OutOfMemory, TimeUp

Result = TypeVar("Result")

_NUMBER = struct.Struct("=q")
_ENDING = struct.Struct("=qidq")
# Share of its memory limit from which a worker that died is taken to have died for lack of memory: an array that is to
# be doubled then needs the other two thirds.
NEAR_LIMIT = 1 / 3
# Ranks up to which a bound takes less time than the start of a process, and is computed in this one.
MAX_RANKS_IN_PROCESS = 8
# Seconds to wait for the ends of killed jobs.
ENDING_SECONDS = 2.0
# The fork servers, by process and modules: a fork of this process has none of them.
_servers: dict[tuple[int, tuple[str, ...]], tuple[subprocess.Popen, socket.socket]] = {}
# Held by the thread that starts or ends a server, or a job.
_lock = threading.RLock()
# True in a process that `run_in_process` began.
_inside = False


class ProcessDied(UndecidedError):
    """The process of a job ended without an answer, which refutes nothing."""


@dataclass(eq=False)
class ProcessJob:
    """A call, of the function `name`, in a worker that may use `memory` bytes (None: no limit).

    `done`: the worker has ended, with wait status `status`, after `cpu` seconds of CPU time, with at most `peak`
    resident bytes. `result` is then ``("ok", value)`` or ``("error", exception)``, or None where it gave no answer.
    """

    name: str
    channel: socket.socket
    memory: int | None = None
    pid: int = 0
    done: bool = False
    status: int = signal.SIGKILL
    cpu: float = 0.0
    peak: int = 0
    result: tuple[str, Any] | None = None
    _data: bytearray = field(default_factory=bytearray)

    @property
    def out_of_memory(self) -> bool:
        """True when the worker ended near its memory limit."""
        return self.memory is not None and self.peak > NEAR_LIMIT * self.memory

    def signal(self, number: int) -> None:
        """Send a signal to the worker: SIGSTOP suspends it, SIGCONT continues it, SIGKILL ends it."""
        with contextlib.suppress(OSError):  # it has ended
            self.channel.send(bytes([number]))

    def cpu_seconds(self) -> float | None:
        """Return the CPU seconds of the worker so far, or None where the system (not Linux) does not say."""
        if self.pid and not self.done and sys.platform == "linux":
            with contextlib.suppress(OSError):  # it has just ended
                self.cpu = time.clock_gettime((~self.pid << 3) | 2)  # its CPU clock: see clock_getcpuclockid(3)
        return self.cpu if self.done or sys.platform == "linux" else None

    def receive(self) -> None:
        """Read what the worker and its supervisor have sent. Call when `channel` is readable."""
        try:
            part = self.channel.recv(1 << 20)
        except OSError:
            part = b""
        self._data += part
        if not self.pid and len(self._data) >= _NUMBER.size:
            (self.pid,) = _NUMBER.unpack_from(self._data)
        if part:
            return
        # The end: an ending of this worker, unless the supervisor was killed.
        self.done = True
        self.channel.close()
        ending = bytes(self._data[_NUMBER.size :][-_ENDING.size :])
        if len(ending) == _ENDING.size and _ENDING.unpack(ending)[0] == self.pid:
            _, self.status, self.cpu, self.peak = _ENDING.unpack(ending)
            if self.status == 0:
                self.result = pickle.loads(self._data[_NUMBER.size : -_ENDING.size])
        self._data.clear()


def warm(imports: tuple[str, ...]) -> None:
    """Start the fork server for the modules `imports` without waiting for it, so that the first job finds them
    ready."""
    with _lock:
        _server(imports)


def stop() -> None:
    """End every fork server of this process. They also end with the process, and start again when needed."""
    with _lock:
        for pid, modules in list(_servers):
            server, control = _servers.pop((pid, modules))
            control.close()
            if pid == os.getpid():
                server.kill()
                server.wait()


atexit.register(stop)


def submit(imports: tuple[str, ...], call: Callable, arguments: tuple, memory: int | None = MEMORY) -> ProcessJob:
    """Begin ``call(*arguments)`` in a process that may use `memory` bytes (None: no limit), with `imports` imported.

    Every job must be passed to `result`, `outcome` or `end`.
    """
    ours, theirs = socket.socketpair()
    # The call is handed over as a file: a socket would block until the server has imported its modules.
    with theirs, tempfile.TemporaryFile() as call_file, _lock:
        pickle.dump((call, arguments), call_file, protocol=pickle.HIGHEST_PROTOCOL)
        call_file.flush()
        for _ in range(2):
            try:
                socket.send_fds(_server(imports), [_NUMBER.pack(memory or 0)], [theirs.fileno(), call_file.fileno()])
                break
            except OSError:  # the server has died: another one
                _servers.pop((os.getpid(), imports))[1].close()
    return ProcessJob(getattr(call, "__name__", ""), ours, memory)


def wait(jobs: Sequence[ProcessJob], deadline: Deadline = NEVER) -> None:
    """Wait until the first of `jobs` has ended, or until the deadline. The jobs continue."""
    if any(job.done for job in jobs):
        return
    with selectors.DefaultSelector() as selector:
        for job in jobs:
            selector.register(job.channel, selectors.EVENT_READ, job)
        while not any(job.done for job in jobs) and not deadline.over:
            for key, _ in selector.select(deadline.remaining() if deadline.limited else None):
                key.data.receive()


def result(job: ProcessJob, deadline: Deadline = NEVER) -> Any:
    """Wait for the result of the call of a job, and return it. A job that has not ended at the deadline is killed.

    Raises what the call raised, TimeUp at the deadline, OutOfMemory where it needed more memory than it may use, and
    ProcessDied where it ended without an answer.
    """
    try:
        wait([job], deadline)
    finally:
        if not job.done:
            job.signal(signal.SIGKILL)
    match job.result:
        case ("ok", value):
            return value
        case ("error", MemoryError()):
            raise OutOfMemory
        case ("error", error):
            raise error
    if not job.done:
        raise TimeUp
    if job.out_of_memory:
        raise OutOfMemory
    raise ProcessDied(f"the process of {job.name} died; allow it more memory, or time")


def outcome(job: ProcessJob, deadline: Deadline = NEVER, *, errors_crash: bool = False) -> Any:
    """Return the result of the call of a job as `result` does, or Unknown with the reason why there is none.

    Raises what the call raised. With `errors_crash` an error that is no SynthError counts as a crash instead.
    """
    try:
        return result(job, deadline)
    except OutOfMemory:
        return Unknown("memory", "out of memory")
    except TimeUp:
        return Unknown("time")
    except ProcessDied:
        return Unknown("crash", f"ended with wait status {job.status}")
    except SynthError:
        raise
    except Exception as error:
        if not errors_crash:
            raise
        return Unknown("crash", f"{type(error).__name__}: {error}")


def end(jobs: Sequence[ProcessJob]) -> None:
    """Kill the jobs that have not ended, and wait for the ends of those that have begun, `ENDING_SECONDS` at most."""
    for job in jobs:
        job.signal(signal.SIGKILL)
    deadline = Deadline.after(ENDING_SECONDS)
    while running := [job for job in jobs if job.pid and not job.done]:
        wait(running, deadline)
        if deadline.over:
            break
    for job in jobs:
        job.done = True
        job.channel.close()


def run_in_process(call: Callable[..., Result], *arguments: object, imports: tuple[str, ...] = ()) -> Result:
    """Return ``call(*arguments)`` from another process, which Ctrl-C and the ambient deadline kill at once.

    It is for long calls of C libraries, which notice neither. `call` is a function of a module. It, the arguments and
    the result are pickled. `imports`: modules that the process imports first, besides that of `call`. A nested call
    runs in the same process. Raises as `result`.
    """
    ambient.check_deadline()
    if _inside:
        return call(*arguments)
    deadline = ambient.current_deadline()
    return result(submit((*imports, call.__module__), _under_deadline, (deadline, call, arguments)), deadline)


def _under_deadline(deadline: Deadline, call: Callable[..., Result], arguments: tuple) -> Result:
    """Run `call` in the process of `run_in_process`."""
    global _inside
    _inside = True
    with ambient.time_limited(deadline):
        return call(*arguments)


def _server(modules: tuple[str, ...]) -> socket.socket:
    """Return the control socket of the fork server with these modules, started where there is none, or a dead one."""
    key = (os.getpid(), modules)
    if key in _servers and _servers[key][0].poll() is None:
        return _servers[key][1]
    ours, theirs = socket.socketpair()
    code = f"import sys; sys.path[:] = {sys.path!r}; from synth.solvers.pool import serve; serve({theirs.fileno()}, "
    null = subprocess.DEVNULL
    # a process group of its own, which Ctrl-C in a terminal does not reach; one thread, since it forks
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{code}{modules!r})"],
            pass_fds=[theirs.fileno()],
            stdin=null,
            stdout=null,
            stderr=null,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            process_group=0,
        )
    _servers[key] = process, ours
    return ours


# ---- below: code of the fork server, of supervisors and of workers ----


def serve(fd: int, modules: tuple[str, ...]) -> None:
    """Import `modules`, and fork a supervisor for each job that the control socket `fd` brings, until it closes."""
    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
    for module in modules:
        with contextlib.suppress(Exception):  # the call will say it
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    while True:
        memory, fds, _, _ = socket.recv_fds(control, _NUMBER.size, 2)
        if not memory:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            _supervise(socket.socket(fileno=fds[0]), fds[1], *_NUMBER.unpack(memory))
        for each in fds:
            os.close(each)


def _supervise(channel: socket.socket, call_file: int, memory: int) -> None:
    """Fork the worker of a job, pass signals on to it, and report its ending."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        running, held = os.pipe()  # the worker holds an end of the pipe as long as it runs
        worker = os.fork()
        if worker == 0:
            _run_call(channel, call_file, memory)
        os.close(held)
        ready: list = []
        while running not in ready:
            ready, _, _ = select.select([channel, running], [], [])
            if channel in ready:
                try:
                    numbers = channel.recv(64)
                except OSError:
                    numbers = b""
                for number in numbers or [signal.SIGKILL]:
                    os.kill(worker, number)
        _, status, usage = os.wait4(worker, 0)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        channel.sendall(_ENDING.pack(worker, status, usage.ru_utime + usage.ru_stime, peak))
    finally:
        os._exit(0)


def _run_call(channel: socket.socket, call_file: int, memory: int) -> None:
    """Run the worker: read the call, run it, write the result, and exit without clean-up."""
    try:
        channel.sendall(_NUMBER.pack(os.getpid()))
        if memory:
            # Only what the call adds counts, not what the libraries map.
            with contextlib.suppress(ValueError, OSError):
                with open("/proc/self/statm", "rb") as file:
                    mapped = int(file.read().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
        with open(call_file, "rb") as file:
            file.seek(0)
            call, arguments = pickle.load(file)
        try:
            data = pickle.dumps(("ok", call(*arguments)), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            data = pickle.dumps(("error", _portable(error)), protocol=pickle.HIGHEST_PROTOCOL)
        channel.sendall(data)
        os._exit(0)
    finally:
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """Return an exception that survives pickling, or one with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

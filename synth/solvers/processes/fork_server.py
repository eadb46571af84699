"""The fork server: a process that imports one library and forks a child for each job.

A job starts in milliseconds with the library already there. It may be stopped, continued and killed at any time, and no
kill touches another job. The fork server is a fresh interpreter with a single thread, so its forks are safe whatever
threads the parent runs. When the parent dies, however it dies, the server's socket closes, and it kills its children
and ends.

    parent  --control socket-->  server        commands: job (with its own socket, and a file), stop, continue, kill
    parent  <--control socket--  server        endings: job, wait status, CPU seconds, peak bytes, out of memory?
    parent  --job file-------->  child         the pickled call
    parent  <--job socket------  child         its process id, the pickled result

A child that exceeds its memory limit is killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_COMMAND = struct.Struct("=cqq")  # command, job, bytes of memory allowed (0: no limit)
_ENDING = struct.Struct("=qidqc")  # job, wait status, CPU seconds, peak bytes, memory limit hit
_LENGTH = struct.Struct("=q")
# Bytes of address space above the memory limit: libraries map more than they touch.
_HEADROOM = 2 << 30
# Type of a process's CPU clock in Linux: the clock of process pid is (~pid << 3) | 2 (clock_getcpuclockid(3)).
_PROCESS_CLOCK = 2
# Seconds between looks at the children's memory.
_WATCH = 0.05
# Share of its memory limit from which a child that died is taken to have died for lack of memory.
NEAR_LIMIT = 0.8
# Seconds that a fork server has to end its children before it is killed.
PATIENCE = 1.0


@dataclass
class ProcessJob:
    """A call, of the function `name`, that runs in a child and may use `memory` bytes (None: no limit).

    `result` is None until the child has answered, then ``("ok", value)`` or ``("error", exception)``. `ended`: the
    child has ended, with wait status `status`. `cpu`: its CPU seconds. `peak`: its maximum of resident bytes.
    """

    number: int
    server: ForkServer
    channel: socket.socket
    name: str = ""
    memory: int | None = None
    result: tuple | None = None
    ended: bool = False
    status: int = 0
    cpu: float = 0.0
    peak: int = 0
    over_memory: bool = False
    pid: int = 0
    _parts: list[bytes] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """True when the child has answered or ended."""
        return self.ended or self.result is not None

    @property
    def out_of_memory(self) -> bool:
        """True when the child was killed for its memory, or ended near its limit."""
        return self.over_memory or (self.memory is not None and self.peak > NEAR_LIMIT * self.memory)

    def cpu_seconds(self) -> float | None:
        """Return the CPU seconds of the child so far, or None where the system does not report those of other
        processes."""
        if self.ended:
            return self.cpu
        if not sys.platform.startswith("linux"):
            return None
        if self.pid:
            with contextlib.suppress(OSError):  # it has just ended
                self.cpu = time.clock_gettime((~self.pid << 3) | _PROCESS_CLOCK)
        return self.cpu

    def receive(self) -> None:
        """Read the child's output. Call when `channel` is readable."""
        try:
            part = self.channel.recv(1 << 20)
        except OSError:
            part = b""
        if part:
            self._parts.append(part)
            if not self.pid and len(self._parts[0]) >= _LENGTH.size:
                self.pid = _LENGTH.unpack_from(self._parts[0])[0]
            return
        data = b"".join(self._parts)[_LENGTH.size :]
        if len(data) >= _LENGTH.size and len(data) == _LENGTH.size + _LENGTH.unpack_from(data)[0]:
            self.result = pickle.loads(data[_LENGTH.size :])
        self.channel.close()

    def suspend(self) -> None:
        """Suspend the child."""
        self.server.command(b"s", self.number)

    def resume(self) -> None:
        """Continue a suspended child."""
        self.server.command(b"c", self.number)

    def kill(self) -> None:
        """Kill the child. Its ending still arrives at the fork server's control socket."""
        self.server.command(b"k", self.number)


class ForkServer:
    """A fork server: an interpreter that imports `modules` and forks a child for each job."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        """Start the interpreter."""
        self.control, theirs = socket.socketpair()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from synth.solvers.processes.fork_server import serve; "
            f"serve({theirs.fileno()}, {modules!r})"
        )
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=null,
            stdout=null,
            stderr=null,
            env=environment,
            process_group=0,
        )
        theirs.close()
        self.dead = False
        self.jobs: dict[int, ProcessJob] = {}
        self._partial = b""

    def start(self, number: int, call: Callable, arguments: tuple, memory: int | None) -> ProcessJob:
        """Begin ``call(*arguments)`` in a child that may use `memory` bytes (None: no limit); return it as a job."""
        ours, theirs = socket.socketpair()
        job = ProcessJob(number, self, ours, getattr(call, "__name__", ""), memory)
        self.jobs[number] = job
        data = pickle.dumps((call, arguments), protocol=pickle.HIGHEST_PROTOCOL)
        # a file, because a socket would block until the server has imported its modules
        with tempfile.TemporaryFile() as call_file:
            call_file.write(data)
            call_file.flush()
            try:
                socket.send_fds(
                    self.control, [_COMMAND.pack(b"j", number, memory or 0)], [theirs.fileno(), call_file.fileno()]
                )
            except OSError:
                self._lost()
            finally:
                theirs.close()
        return job

    def command(self, what: bytes, number: int) -> None:
        """Send a command about job `number`: b"s" to stop it, b"c" to continue it, b"k" to kill it.

        It has no effect on a fork server that has died, as all its jobs have ended.
        """
        if not self.dead:
            try:
                self.control.sendall(_COMMAND.pack(what, number, 0))
            except OSError:
                self._lost()

    def receive(self) -> None:
        """Read endings from the control socket. Call when it is readable."""
        try:
            data = self.control.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._partial += data
        while len(self._partial) >= _ENDING.size:
            number, status, cpu, peak, over = _ENDING.unpack_from(self._partial)
            self._partial = self._partial[_ENDING.size :]
            job = self.jobs.pop(number, None)
            if job is not None:
                job.ended, job.status, job.cpu, job.peak, job.over_memory = True, status, cpu, peak, over == b"y"

    def _lost(self) -> None:
        self.dead = True
        for job in self.jobs.values():
            job.ended, job.status = True, signal.SIGKILL
        self.jobs.clear()

    def hang_up(self) -> None:
        """Tell the fork server to end its children and itself. `close` waits until it has."""
        self.dead = True
        self.control.close()

    def close(self, patience: float = PATIENCE) -> None:
        """End the fork server and its children, and wait for it.

        A server that still imports after `patience` seconds has no children, and is killed.
        """
        self.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


# ---- below: code of the fork server and of its children ----


@dataclass
class _Child:
    """A child of the fork server. `memory`: its limit in bytes. `over`: killed for its memory."""

    number: int
    memory: int
    over: bool = False


def serve(fd: int, modules: tuple[str, ...]) -> None:
    """Run the loop of the fork server. It ends when the control socket closes, and leaves no child behind.

    `fd`: the control socket. `modules`: what to import.
    """
    import gc
    import importlib

    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    _libc()  # loaded once for all children
    gc.collect()
    gc.freeze()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    children: dict[int, _Child] = {}
    try:
        while True:
            ready, _, _ = select.select([control, wake], [], [], _WATCH if children else None)
            if wake in ready:
                os.read(wake, 4096)
                _report_endings(control, children)
            if control in ready and not _execute_command(control, children, wake, woken):
                return
            for pid, child in children.items():
                if child.memory and not child.over and _resident(pid) > child.memory:
                    child.over = True
                    os.kill(pid, signal.SIGKILL)
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _execute_command(control: socket.socket, children: dict[int, _Child], wake: int, woken: int) -> bool:
    """Execute one command of the parent. Return False when the parent is gone."""
    data, fds, _, _ = socket.recv_fds(control, _COMMAND.size, 2)
    while data and len(data) < _COMMAND.size:
        more = control.recv(_COMMAND.size - len(data))
        if not more:
            return False
        data += more
    if not data:
        return False
    command, number, memory = _COMMAND.unpack(data)
    if command == b"j":
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            _end_with(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            os.close(wake)
            os.close(woken)
            _run_call(socket.socket(fileno=fds[0]), fds[1], memory)
        for fd in fds:
            os.close(fd)
        children[pid] = _Child(number, memory)
        return True
    order = {b"s": signal.SIGSTOP, b"c": signal.SIGCONT, b"k": signal.SIGKILL}[command]
    for pid, child in children.items():
        if child.number == number:
            os.kill(pid, order)
    return True


@cache
def _libc() -> Any:
    """Return the C library where the kernel can end a process with its parent (Linux), None elsewhere."""
    if sys.platform != "linux":
        return None
    import ctypes

    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "prctl") else None
    except OSError:
        return None


def _end_with(server: int) -> None:
    """Have the kernel end this child with the fork server, which may be killed without notice."""
    library = _libc()
    if library is not None:
        library.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != server:
            os._exit(1)


def _report_endings(control: socket.socket, children: dict[int, _Child]) -> None:
    """Wait for the children that have ended, and send their endings to the parent."""
    while children:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        child = children.pop(pid)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        over = b"y" if child.over else b"n"
        with contextlib.suppress(OSError):
            control.sendall(_ENDING.pack(child.number, status, usage.ru_utime + usage.ru_stime, peak, over))


def _resident(pid: int) -> int:
    """Return the resident bytes of a process, 0 where they are unknown."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        if sys.platform == "linux":
            return 0
    output = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return int(output) * 1024 if output.strip().isdigit() else 0


def _run_call(channel: socket.socket, call_file: int, memory: int) -> None:
    """Run the child: read the call, run it, write the result, and exit without clean-up."""
    try:
        if memory:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_AS, (memory + _HEADROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
        channel.sendall(_LENGTH.pack(os.getpid()))
        with open(call_file, "rb") as file:
            file.seek(0)
            call, arguments = pickle.load(file)
        try:
            result: tuple[str, Any] = ("ok", call(*arguments))
        except Exception as error:
            result = ("error", error if _portable(error) else RuntimeError(f"{type(error).__name__}: {error}"))
        data = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
        channel.sendall(_LENGTH.pack(len(data)) + data)
        os._exit(0)
    finally:
        os._exit(1)


def _portable(error: Exception) -> bool:
    """Return True where an exception survives pickling."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True

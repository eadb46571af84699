"""Processes that can be killed: one *nursery* per library imports it once, and forks a child per job.

A job starts in milliseconds with the library already there, may be stopped, continued and killed at any time, and no
kill touches another job. The nursery is a fresh interpreter, single-threaded, so its forks are safe whatever threads
the parent runs; when the parent dies, however it dies, the nursery sees its socket close, kills its children and ends.

    parent  --control socket-->  nursery        commands: job (with the job's own socket), stop, continue, kill
    parent  <--control socket--  nursery        endings: job, wait status, CPU seconds, peak bytes, out of memory?
    parent  <--job socket----->  child          its process id out, the pickled call in, the pickled result out

A child that needs more memory than it was allowed is killed. So is the largest child of all nurseries of a process
where all together need more than half of the machine's: each nursery keeps what its children hold on a page that they
share.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
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
from pathlib import Path
from typing import Any

_COMMAND = struct.Struct("=cqq")  # what, job, bytes of memory allowed (0: no limit)
_ENDING = struct.Struct("=qidqc")  # job, wait status, CPU seconds, peak bytes, memory limit hit
_LENGTH = struct.Struct("=q")
_HEADROOM = 2 << 30  # address space above the resident limit: libraries map more than they touch
_PROCESS_CLOCK = 2  # how Linux numbers the CPU clock of a process: (~pid << 3) | 2, as clock_getcpuclockid(3) gives it
_WATCH = 0.05  # seconds between looks at the children's memory
_ROW = struct.Struct(
    "=qq"
)  # of a nursery, on the shared page: bytes that its children hold, and bytes of the largest of them
_ROWS = 64  # nurseries of one process at a time
PATIENCE = 1.0  # seconds that a nursery has to end its children
MOST_TOGETHER = 32 << 30  # bytes of all children of a process, where the machine has more than twice as much


@dataclass
class Job:
    """A call running in a child. `result` is ``("ok", value)`` or ``("error", exception)``; None until it answered."""

    number: int
    nursery: Nursery
    channel: socket.socket
    result: tuple | None = None
    ended: bool = False
    status: int = 0
    cpu: float = 0.0
    peak: int = 0
    over_memory: bool = False
    pid: int = 0
    _parts: list[bytes] = field(default_factory=list)

    def spent(self) -> float | None:
        """CPU seconds so far; None where this system does not tell them of other processes."""
        if self.ended:
            return self.cpu
        if not sys.platform.startswith("linux"):
            return None
        if self.pid:
            with contextlib.suppress(OSError):  # it has just ended
                self.cpu = time.clock_gettime((~self.pid << 3) | _PROCESS_CLOCK)
        return self.cpu

    def receive(self) -> None:
        """Takes what the child has written; call when `channel` is readable."""
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

    def stop(self) -> None:
        """Suspends the child."""
        self.nursery.command(b"s", self.number)

    def resume(self) -> None:
        """Continues a suspended child."""
        self.nursery.command(b"c", self.number)

    def kill(self) -> None:
        """Ends the child at once; its ending still arrives at the nursery's control socket."""
        self.nursery.command(b"k", self.number)


class Nursery:
    """Starts an interpreter that imports `modules` and forks a child for each job."""

    def __init__(self, modules: tuple[str, ...], together: int | None = None) -> None:
        """`together`: bytes that the children of all nurseries may hold, half of the machine's memory unless given."""
        self.control, theirs = socket.socketpair()
        self._page, self._row = _page(os.getpid()), next(_rows) % _ROWS
        given = theirs.fileno(), modules, self._page, self._row, together or _together()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from synth.solvers.processes.fork_server import serve; "
            f"serve{given!r}"
        )
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno(), self._page],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            env=environment,
            process_group=0,
        )
        theirs.close()
        self.dead = False
        self.jobs: dict[int, Job] = {}
        self._partial = b""

    def start(self, number: int, call: Callable, arguments: tuple, memory: int | None) -> Job:
        """Runs ``call(*arguments)`` in a child that may use `memory` bytes."""
        ours, theirs = socket.socketpair()
        job = Job(number, self, ours)
        self.jobs[number] = job
        data = pickle.dumps((call, arguments), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            socket.send_fds(self.control, [_COMMAND.pack(b"j", number, memory or 0)], [theirs.fileno()])
            theirs.close()
            ours.sendall(_LENGTH.pack(len(data)) + data)
        except OSError:
            self._lost()
        return job

    def command(self, what: bytes, number: int) -> None:
        """Sends a command about a job; a nursery that died has ended all its jobs."""
        if not self.dead:
            try:
                self.control.sendall(_COMMAND.pack(what, number, 0))
            except OSError:
                self._lost()

    def receive(self) -> None:
        """Takes endings from the control socket; call when it is readable."""
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
        self._forget()

    def _forget(self) -> None:
        """Takes what its children held from the page."""
        os.pwrite(self._page, bytes(_ROW.size), self._row * _ROW.size)

    def hang_up(self) -> None:
        """Tells the nursery to end its children and itself; `close` waits until it has."""
        self.dead = True
        self.control.close()

    def close(self, patience: float = PATIENCE) -> None:
        """Ends the nursery and its children, and waits for it: one that still imports after so many seconds has none,
        and is killed."""
        self.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._forget()


_rows = itertools.count()


@cache
def _page(process: int) -> int:
    """The file without a name that all nurseries of `process`, this one, share: a row for each."""
    page, path = tempfile.mkstemp(prefix=f"synth-{process}-")
    os.unlink(path)
    os.ftruncate(page, _ROWS * _ROW.size)
    return page


@cache
def _together() -> int:
    """Half of the memory of the machine, or of the container, and no more than `MOST_TOGETHER`."""
    known = [2 * MOST_TOGETHER]
    with contextlib.suppress(OSError, ValueError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):  # "max" where the container has no limit
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(known) // 2


# ---- below: what runs in the nursery and in its children ----


@dataclass
class _Child:
    number: int
    memory: int
    over: bool = False
    resident: int = 0


def serve(fd: int, modules: tuple[str, ...], page: int, row: int, together: int) -> None:
    """The nursery's loop. Ends when the control socket closes, and never leaves a child behind."""
    import gc
    import importlib

    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    _libc()  # once for all children
    gc.collect()
    gc.freeze()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    children: dict[int, _Child] = {}
    shared = mmap.mmap(page, _ROWS * _ROW.size)
    try:
        while True:
            ready, _, _ = select.select([control, wake], [], [], _WATCH if children else None)
            if wake in ready:
                os.read(wake, 4096)
                _reap(control, children)
            if control in ready and not _obey(control, children, wake, woken):
                return
            _watch(children, shared, row, together)
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _obey(control: socket.socket, children: dict[int, _Child], wake: int, woken: int) -> bool:
    """Carries out one command. False when the parent is gone."""
    data, fds, _, _ = socket.recv_fds(control, _COMMAND.size, 1)
    while data and len(data) < _COMMAND.size:
        more = control.recv(_COMMAND.size - len(data))
        if not more:
            return False
        data += more
    if not data:
        return False
    what, number, memory = _COMMAND.unpack(data)
    if what == b"j":
        nursery, pid = os.getpid(), os.fork()
        if pid == 0:
            _end_with(nursery)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            os.close(wake)
            os.close(woken)
            _work(socket.socket(fileno=fds[0]), memory)
        os.close(fds[0])
        children[pid] = _Child(number, memory)
        return True
    order = {b"s": signal.SIGSTOP, b"c": signal.SIGCONT, b"k": signal.SIGKILL}[what]
    for pid, child in children.items():
        if child.number == number:
            os.kill(pid, order)
    return True


@cache
def _libc() -> Any:
    """The C library, where the kernel can end a process with its parent (Linux); None elsewhere."""
    if sys.platform != "linux":
        return None
    import ctypes

    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "prctl") else None
    except OSError:
        return None


def _end_with(nursery: int) -> None:
    """Have the kernel end this child when the nursery is killed in a way that it cannot see."""
    library = _libc()
    if library is not None:
        library.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != nursery:
            os._exit(1)


def _reap(control: socket.socket, children: dict[int, _Child]) -> None:
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


def _watch(children: dict[int, _Child], shared: mmap.mmap, row: int, together: int) -> None:
    """Kills children whose resident memory is above their limit, and the largest of all nurseries where all together
    are above theirs."""
    for pid, child in children.items():
        child.resident = 0 if child.over else _resident(pid)
        if child.memory and child.resident > child.memory:
            _end(pid, child)
    largest = max(children, key=lambda pid: children[pid].resident, default=0)
    most = children[largest].resident if children else 0
    _ROW.pack_into(shared, row * _ROW.size, sum(child.resident for child in children.values()), most)
    rows = list(_ROW.iter_unpack(shared[:]))
    biggest = max((size, place) for place, (_, size) in enumerate(rows))
    if most and sum(held for held, _ in rows) > together and biggest == (most, row):
        _end(largest, children[largest])


def _end(pid: int, child: _Child) -> None:
    """Kills a child for its memory."""
    child.over, child.resident = True, 0
    os.kill(pid, signal.SIGKILL)


def _resident(pid: int) -> int:
    """Resident bytes of a process; 0 when it cannot be told."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        if sys.platform == "linux":
            return 0
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return int(shown) * 1024 if shown.strip().isdigit() else 0


def _work(channel: socket.socket, memory: int) -> None:
    """The child: read the call, run it, write the result, leave without clean-up."""
    try:
        if memory:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_AS, (memory + _HEADROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
        channel.sendall(_LENGTH.pack(os.getpid()))
        call, arguments = pickle.loads(_read(channel))
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
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def _read(channel: socket.socket) -> bytes:
    data = bytearray()
    size = None
    while size is None or len(data) < size:
        part = channel.recv(1 << 20)
        if not part:
            raise EOFError
        data += part
        if size is None and len(data) >= _LENGTH.size:
            size = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    return bytes(data[_LENGTH.size :])

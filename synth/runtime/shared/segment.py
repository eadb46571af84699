"""One piece of memory that the processes of a host share, and that nothing is left of when they are gone.

Rank 0 makes a file in /dev/shm, all map it, and its name is removed before the first use: kill -9 leaves nothing
behind. All of it is reserved at once, since a page that does not fit into /dev/shm later would end the process.
"""

from __future__ import annotations

import json
import mmap
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from synth.errors import SynthError

FOLDER = "/dev/shm"


class Rendezvous(Protocol):
    """Where processes meet: a key-value store such as that of torch.distributed. `get` waits for its key."""

    def set(self, key: str, value: str) -> Any:
        """Write a value."""
        ...

    def get(self, key: str) -> bytes:
        """Return a value, once it has been written."""
        ...


def exchange(store: Rendezvous, key: str, rank: int, size: int, value: str) -> list[str]:
    """Return the values of all ranks, in their order, once each has given one."""
    store.set(f"{key}/{rank}", value)
    return [bytes(store.get(f"{key}/{other}")).decode() for other in range(size)]


class SharedSegment:
    """`nbytes` shared bytes, all 0, the same in each process; `take` hands them out in the same order everywhere.

    Raises SynthError, on all ranks alike, where some rank cannot make or map it.
    """

    def __init__(self, store: Rendezvous, rank: int, size: int, nbytes: int) -> None:
        said, path, mapped = "", f"{FOLDER}/synth-{uuid.uuid4().hex}", None
        if rank == 0:
            said = _make(path, nbytes)
            store.set("segment", json.dumps([path, said]))
        path, problem = json.loads(bytes(store.get("segment")).decode())

        # each maps the file, and says whether that went well; the name goes when all have
        if not problem:
            try:
                file = os.open(path, os.O_RDWR)
                try:
                    mapped = mmap.mmap(file, nbytes)
                finally:
                    os.close(file)
            except OSError as error:
                said = f"{path}: {error.strerror}; are all ranks on one host, and in one container?"
        try:
            problems = exchange(store, "mapped", rank, size, problem or said)
        finally:
            if rank == 0:
                with suppress(OSError):
                    os.unlink(path)
        for other, text in enumerate(problems):
            if text:
                raise SynthError(f"rank {other} has no shared memory: {text}")
        assert mapped is not None
        self.bytes = np.frombuffer(mapped, np.uint8)
        self._used = 0

    @property
    def left(self) -> int:
        """Bytes that have not been handed out."""
        return len(self.bytes) - self._used

    def take(self, shape: Sequence[int], kind: np.dtype) -> np.ndarray:
        """Return the next part of the memory as an array, on a cache line of its own. Raises SynthError: it is full."""
        first = -(-self._used // 128) * 128
        array_bytes = int(np.prod(shape)) * kind.itemsize
        if first + array_bytes > len(self.bytes):
            raise SynthError(f"the shared segment of {len(self.bytes) >> 20} MiB is full")
        self._used = first + array_bytes
        return self.bytes[first : self._used].view(kind).reshape(shape)


def _make(path: str, nbytes: int) -> str:
    """Make the file; return why that is not possible, or nothing."""
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(file, 0, nbytes)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(file)
    except OSError as error:
        return f"{FOLDER} does not give {nbytes >> 20} MiB: {error.strerror}; containers take --shm-size"
    return ""


def same_host(store: Rendezvous, rank: int, size: int) -> bool:
    """Return True if all ranks share /dev/shm and see each other's processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        mine = f"{boot} {os.stat(FOLDER).st_dev} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError as error:
        mine = f"rank {rank}: {error}"
    return len(set(exchange(store, "host", rank, size, mine))) == 1


def alive(process: int, started: int) -> bool:
    """Return True if the process that began at `started` (clock ticks after boot) has not ended."""
    return started_at(process) == started


def started_at(process: int) -> int:
    """Return when a process began, in clock ticks after boot; -1: there is none, or it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in "ZX" else int(fields[19])

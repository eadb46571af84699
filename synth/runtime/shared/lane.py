"""A lane: the calls of the processes of one host, in one order, by Programs in a shared segment.

Each process is one rank. It runs its own blocks of the host kernel on threads that stay; messages go through FIFOs in
the segment. The FIFOs belong to pairs of ranks, not to programs: their slots are equally large in every call, and
their counters only grow, so calls of all programs and sizes follow one another without clearing anything.

Every rank makes the same calls in the same order. Each writes down what it calls before it begins; so a rank that
calls something else, has ended, or does not come is named on all others, who leave within `timeout` seconds.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from synth.errors import SynthError
from synth.program.buffer_layout import layout_of
from synth.program.program import Program
from synth.runtime.dtypes import Dtype
from synth.runtime.kernel import build_host, sources
from synth.runtime.kernel import tables as flat
from synth.runtime.kernel.launches import local_dependencies, plan_launches
from synth.runtime.kernel.tables import address
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.op_tables import compile_program
from synth.runtime.shared.segment import Rendezvous, SharedSegment, alive, exchange, started_at
from synth.runtime.slicing import Slicing

DEPTH = 4  # slots of a FIFO
SLOT_BYTES = 256 << 10  # of a slot, where few ranks share the segment; a slot is then in the cache of both
SEGMENT_BYTES = 48 << 20  # Docker gives 64 MiB of /dev/shm by default
MAX_BLOCKS = 32  # of a rank
MOST_SIZES = 256  # of each program, whose launches are kept for the next call of the size
REMEMBERED = 256  # calls of each rank that are written down; a chain of n ranks lets its root lead by some 4 n
YIELDS = 100  # of a rank that waits for others, some 100 us, before it sleeps
WATCH_SECONDS = 0.5  # between two looks at the other processes
WORD = np.dtype("u8")
CALL = np.dtype([("what", "S56"), ("number", "u8")])
ROW = struct.Struct("56sQ")
ENDED, DIFFERS, LEFT = 1, 2, 3  # why a call was given up, where another process saw it


class LaneLaunch(NamedTuple):
    """A launch: the kernel, its threads, its arguments and their address."""

    function: Any
    pool: ctypes.c_void_p
    prog: np.ndarray
    address: ctypes.c_void_p


@dataclass(frozen=True)
class LaneProgram:
    """A program, ready for calls of any size: this process's part of the kernel's tables. `rank`: the rank of the
    program that this process plays. `kept`: arrays that `prog` points to."""

    program: Program
    rank: int
    tables: flat.Tables
    prog: np.ndarray
    buffers: memoryview
    kept: tuple[np.ndarray, ...]
    prepared: dict[tuple[int, Dtype, str], LaneLaunch]


class Lane:
    """The calls of the processes of one host.

    `timeout`: seconds without any progress until a call is given up. Raises SynthError where there is no segment.
    """

    def __init__(self, store: Rendezvous, rank: int, size: int, timeout: float, nbytes: int = SEGMENT_BYTES) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self.broken: Exception | None = None
        self._process = os.getpid()
        self.calls = 0
        self._met = 0  # the latest call that `meet` has waited for
        self.segment = SharedSegment(store, rank, size, nbytes)
        me = f"{os.getpid()} {started_at(os.getpid())}"
        self._processes = [tuple(map(int, text.split())) for text in exchange(store, "process", rank, size, me)]

        # what all ranks see beside FIFOs: who gave up, what has moved, what blocks wait for, what was called
        self._abort = self.segment.take((2,), WORD)
        self._flags = self._abort.data.cast("B").cast("Q")  # whether all leave, and why
        self._beats = self.segment.take((size, MAX_BLOCKS), WORD)
        self._status = self.segment.take((size, MAX_BLOCKS), flat.STATUS)
        self._called = self.segment.take((size, REMEMBERED), CALL)
        self._finished = self.segment.take((size, 16), WORD)
        self._rows = self._called.view(np.uint8).reshape(-1).data
        self._times = self.segment.take((REMEMBERED, size), np.dtype("f8")).reshape(-1).data.cast("B").cast("d")

        # connections by source, destination and number; with slots for all pairs in half of the segment
        pairs = max(1, size * (size - 1))
        fair = self.segment.left // (2 * pairs * DEPTH)
        self._slot = max(4096, min(SLOT_BYTES, 1 << fair.bit_length() - 1))
        self._wires: dict[tuple[int, int, int], int] = {}
        self._conns = np.zeros(4 * pairs, flat.CONN)
        beats = [(address(self._beats[other]), MAX_BLOCKS) for other in range(size)]
        self._launches = np.array(beats, flat.LAUNCH)
        self._scratch = np.zeros(0, np.uint8)
        self._programs: list[LaneProgram] = []
        self._pool: ctypes.c_void_p | None = None
        self._ends: list[Callable[[], Any]] = []  # end the threads of the pool
        self._attend: Any = None  # what the pool calls while it waits
        self._interrupt: BaseException | None = None
        self._busy = False
        self._watcher: threading.Thread | None = None

    def load(self, program: Program, *, in_place: bool, root: int = 0) -> LaneProgram:
        """Return a program for `call`. All ranks load the same programs in the same order.

        `root`: the rank that plays rank 0 of the program; those after it play the next ones.

        Raises SynthError for a program that no lane runs: one-sided, of too many blocks, or for which the segment has
        no room.
        """
        if program.one_sided or program.ranks != self.size:
            raise SynthError(
                f"{program.name}: a lane of {self.size} processes runs two-sided programs of as many ranks"
            )
        if max(len(gpu.blocks) for gpu in program.gpus) > MAX_BLOCKS:
            raise SynthError(f"{program.name}: a rank has more than {MAX_BLOCKS} thread blocks")
        layout = layout_of(program)
        arena = Arena(program, layout, in_place=in_place, slices=1)
        code = compile_program(program, arena, in_place=in_place)
        tables = flat.tables(code, Slicing(1, ((0, 1),), flat.MAX_INT, DEPTH))
        if not tables.balanced:
            raise SynthError(f"{program.name}: a connection takes fewer messages than are sent")
        if tables.slot_chunks * 8 > self._slot:
            raise SynthError(
                f"{program.name}: a message of {tables.slot_chunks} chunks does not fit into a FIFO's slot"
            )
        wires = []
        for wire in code.wires:
            src, dst = ((end + root) % self.size for end in (wire.src, wire.dst))
            wires.append(self._wire(src, dst, wire.channel))

        # this rank's blocks, numbered from 0, with the lane's connections
        launches = plan_launches(code, (0,) * program.ranks)
        played = (self.rank - root) % self.size
        launch = next((launch for launch in launches if launch.rank == played), None)
        first, count = (0, 0) if launch is None else (launch.first, launch.count)
        blocks = tables.blocks[first : first + count].copy()
        for name in ("into", "out"):
            blocks[name] = [(*wires, -1)[wire] for wire in blocks[name]]
        deps = local_dependencies(tables, code, launches)
        done, run = np.zeros((max(1, count), 2), WORD), np.zeros(max(1, count), WORD)
        buffers = np.zeros(3 * program.ranks, WORD)
        arrays = {"blocks": blocks, "ops": tables.ops, "deps": deps, "conns": self._conns, "buffers": buffers}
        arrays |= {"done": done, "run": run, "beat": self._beats[self.rank], "abort": self._abort}
        prog = flat.kernel_argument(
            {**arrays, "status": self._status[self.rank], "launches": self._launches},
            stride=self._slot,
            timeout=int(self.timeout * 1e9),
            nblocks=count,
            part=flat.MAX_INT,
            nslots=DEPTH,
            slot_chunks=tables.slot_chunks,
            nlaunches=self.size,
            sleeps=1,
        )
        own = buffers[3 * played : 3 * played + 3].data.cast("B").cast("Q")
        loaded = LaneProgram(program, played, tables, prog, own, (blocks, deps, done, run, buffers), {})
        self._programs.append(loaded)
        return loaded

    def set_timeout(self, seconds: float) -> None:
        """Give calls up after so long without progress from now on."""
        self.timeout = seconds
        for loaded in self._programs:
            for prog in (loaded.prog, *[launch.prog for launch in loaded.prepared.values()]):
                prog["timeout"] = int(seconds * 1e9)

    def _wire(self, src: int, dst: int, channel: int) -> int:
        """Return the lane's number of a connection, with a FIFO in the segment at its first use."""
        found = self._wires.get((src, dst, channel))
        if found is not None:
            return found
        found = len(self._wires)
        if found == len(self._conns):
            raise SynthError(f"the programs of a lane have more than {found} connections together")
        counters, fifo = self.segment.take((2, 16), WORD), self.segment.take((DEPTH * self._slot,), np.dtype("u1"))
        self._conns[found]["fifo"] = address(fifo)
        self._conns[found]["tail"], self._conns[found]["head"] = address(counters[0]), address(counters[1])
        self._wires[src, dst, channel] = found
        return found

    def call(self, loaded: LaneProgram, elements: int, kind: Dtype, op: str, source: int, target: int) -> None:
        """Run a program on `elements` elements a chunk, from the address `source` to `target`, and return when this
        rank has its result.

        Raises SynthError where a rank calls something else, has ended, or does not come; the lane is then broken, and
        further calls say the same. Raises what a signal's handler raises, such as KeyboardInterrupt, and all leave.
        """
        if self.broken is not None:
            raise self._refusal()
        key = elements, kind, op
        prepared = loaded.prepared.get(key)
        if prepared is None:
            prepared = loaded.prepared[key] = self._prepare(loaded, elements, kind, op)
        buffers = loaded.buffers
        buffers[0], buffers[1], buffers[2] = source, target, address(self._scratch)
        self._busy = True
        failed = prepared.function(prepared.pool, prepared.address)
        self._busy = False
        if self._interrupt is not None:
            error, self._interrupt = self._interrupt, None
            self.broken = SynthError(f"call {self.calls} was interrupted")
            raise error
        if failed:
            self.abort(SynthError("the system gives no more threads"))
        elif self._flags[0] or not self._agreed():
            self.abort(self._diagnosis())
        if self.broken is not None:
            raise self._refusal()

    def _refusal(self) -> SynthError:
        """Return why the lane is broken, as a new error each time, since each raise adds to an error's traceback."""
        error = SynthError(str(self.broken))
        error.__cause__ = self.broken
        return error

    def _signals(self) -> Iterator[None]:
        """Let Python handle signals at each `next`. Where a handler raises, all ranks leave the call.

        It is a generator since the handlers of an ordinary function run before its `try` begins.
        """
        while True:
            try:
                yield
            except GeneratorExit:
                return
            except BaseException as error:
                self._interrupt = error
                self._flags[1], self._flags[0] = LEFT, 1

    def _prepare(self, loaded: LaneProgram, elements: int, kind: Dtype, op: str) -> LaneLaunch:
        """Return a program's launch for one size, type and operator."""
        instance = sources.instance(loaded.program, kind, op)
        note = (
            f"synth: compiling {instance.symbol} for this processor, once; it stays in {build_host.cache_directory()}"
        )
        library = build_host.library(instance.group, "pool", _flags(), instance.symbol, note)
        if self._pool is None:  # it serves the kernels of all libraries, which are compiled from the same source
            signals = self._signals()
            next(signals)
            self._attend = ctypes.CFUNCTYPE(None)(partial(next, signals))
            library.synth_pool.restype = ctypes.c_void_p
            self._pool = ctypes.c_void_p(library.synth_pool(self._attend))
            self._ends.append(partial(library.synth_end, self._pool))
        scratch = loaded.program.gpus[loaded.rank].scratch * elements * kind.size
        if len(self._scratch) < scratch:
            self._scratch = np.zeros(scratch, np.uint8)

        # slices as long as a slot holds of all chunks of a message
        step = max(1, min(elements, self._slot // (loaded.tables.slot_chunks * kind.size)))
        scale, prog = kind.size // instance.size, loaded.prog.copy()
        prog["elements"], prog["step"], prog["slices"] = elements * scale, step * scale, -(-elements // step)
        function = getattr(library, instance.symbol)
        if len(loaded.prepared) >= MOST_SIZES:
            loaded.prepared.clear()
        if self._watcher is None:  # no kernel can see that another process was killed
            self._watcher = threading.Thread(target=self._look, daemon=True)
            self._watcher.start()
        return LaneLaunch(function, self._pool, prog, ctypes.c_void_p(address(prog)))

    def begin(self, what: bytes) -> float:
        """Say what this rank calls next: at most 56 bytes, the same on all ranks. `call` may follow several times.
        Return the time, which `begun` tells the others.

        Raises SynthError where the lane is broken, on this rank or another.
        """
        if os.getpid() != self._process:
            raise SynthError("a forked process cannot use the groups of its parent: let it make its own")
        if self._flags[0] and self.broken is None:
            self.broken = SynthError(f"another rank gave up before this one came to its call {self.calls + 1}")
        if self.broken is not None:
            raise self._refusal()
        self.calls += 1
        now = time.perf_counter()
        ROW.pack_into(self._rows, self._row(self.rank), what, self.calls)
        self._times[self._times_at(self.calls) + self.rank] = now
        self._times[self._times_at(self.calls + REMEMBERED // 2) + self.rank] = 0.0  # no rank is so far ahead
        return now

    def begun(self) -> Sequence[float]:
        """Return when each rank began the present call, by the clock of time.perf_counter; 0: it has not."""
        at = self._times_at(self.calls)
        return self._times[at : at + self.size].tolist()

    def _times_at(self, call: int) -> int:
        return self.size * (call % REMEMBERED)

    def _row(self, rank: int) -> int:
        """Return where a rank writes its call of the present number down."""
        return ROW.size * (rank * REMEMBERED + self.calls % REMEMBERED)

    def _agreed(self) -> bool:
        """Return False if another rank has made, or begun, another call of this number."""
        at = self._row(self.rank)
        mine = self._rows[at : at + ROW.size]
        for rank in range(self.size):
            at = self._row(rank)
            if self._rows[at : at + ROW.size] != mine and rank in self._differing():
                return False
        return True

    def close(self) -> None:
        """End the threads; no call may follow, or be under way."""
        self.broken = self.broken or SynthError("the group was destroyed")
        while self._ends and os.getpid() == self._process:  # a forked process has no threads of its parent
            self._ends.pop()()
        self._attend = None

    def finish(self) -> None:
        """Say that this rank has the result of its call."""
        self._finished[self.rank, 0] = self.calls

    def meet(self) -> None:
        """Wait until all ranks have begun this call, before another library carries it out.

        Raises SynthError where one calls something else, has ended or does not come within `timeout` seconds.
        """
        if self._met == self.calls:
            return
        limit, pause, yields = time.monotonic() + self.timeout, 0.0, 0
        while not all(self.begun()) and not self._flags[0]:
            if yields < YIELDS:  # others are mostly here soon, and a sleep takes longer than it says
                yields += 1
                os.sched_yield()
                continue
            if self._differing() or self._ended() or time.monotonic() > limit:
                break
            pause = min(5e-4, 2 * pause + 1e-5)
            time.sleep(pause)
        else:
            if not self._flags[0] and not self._differing():
                self._met = self.calls
                return
        if self._flags[0] == 0:
            self._flags[1] = self._flags[1] or self._reason()
        error = self._diagnosis()
        self.abort(error)
        raise error

    def under_way(self) -> bool:
        """Return True if this rank has begun a call, and neither has its result nor given it up."""
        return os.getpid() == self._process and self.broken is None and self._finished[self.rank, 0] < self.calls

    def refuse(self) -> None:
        """Raise SynthError where the lane is broken on this rank."""
        if self.broken is not None:
            raise self._refusal()

    def check(self) -> None:
        """Raise SynthError where a rank has ended, or calls something else than this one."""
        reason = self._reason()
        if reason:
            self._flags[1] = self._flags[1] or reason
            raise self._diagnosis()

    def abort(self, error: Exception | None = None) -> None:
        """Let the call that is under way end, on all ranks: each raises, this one `error`."""
        if not self._flags[0]:
            self._flags[1], self._flags[0] = self._flags[1] or LEFT, 1
        self.broken = error or SynthError("the group was aborted")

    # ------------------------------------------------------------ the other ranks

    def _differing(self) -> dict[int, str]:
        """Return what those ranks call that make another call of this number."""
        rows = self._called[:, self.calls % REMEMBERED]
        other = (rows["number"] == self.calls) & (rows["what"] != rows["what"][self.rank])
        return {rank: rows["what"][rank].decode() for rank in np.flatnonzero(other).tolist()}

    def _ended(self) -> list[int]:
        """Return the ranks that ended before they had the result of this call."""
        found = []
        for other, process in enumerate(self._processes):
            if self._finished[other, 0] < self.calls and not alive(*process):
                found.append(other)
        return found

    def _reason(self) -> int:
        if self._ended():
            return ENDED
        return DIFFERS if self._differing() else 0

    def _look(self) -> None:
        """Look at the other processes while a call waits long, and let all leave where it waits in vain."""
        seen = 0
        while self.broken is None:
            time.sleep(WATCH_SECONDS)
            if self._busy and self.calls == seen and not self._flags[0]:
                reason = self._reason()
                if reason:  # what another rank writes meanwhile must stay
                    self._flags[1], self._flags[0] = self._flags[1] or reason, 1
            seen = self.calls

    def _diagnosis(self) -> SynthError:
        """Return why this call was given up, as far as this rank can see it."""
        here = self._called["what"][self.rank, self.calls % REMEMBERED].decode()
        call = f"call {self.calls}, {here},"
        late = np.flatnonzero(self._called["number"].max(axis=1) < self.calls).tolist()
        gone = self._ended() if self._flags[1] == ENDED else []
        if gone:
            return SynthError(f"rank {_list(gone)} has ended, in or before {call.rstrip(',')}")
        for rank, there in self._differing().items():
            return SynthError(f"{call} is {there} on rank {rank}: all ranks must make the same calls in the same order")
        if self._flags[1] == DIFFERS:
            return SynthError(f"{call} was given up: two other ranks do not make the same call")
        if self._flags[1] == LEFT:
            return SynthError(
                f"{call} was given up on another rank: it was interrupted or failed there, or its group was destroyed"
            )
        if late:
            return SynthError(f"rank {_list(late)} did not come to {call} within the timeout of {self.timeout:g} s")
        return SynthError(f"{call} made no progress for {self.timeout:g} s")


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def _flags() -> tuple[str, ...]:
    """Return the compiler's flags for this very processor, whose name goes into that of the compiled file."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return "-O3", "-march=native", f"-DSYNTH_PROCESSOR=0x{hashlib.sha256(features.encode()).hexdigest()[:8]}"

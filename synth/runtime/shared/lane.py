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
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from synth.errors import SynthError
from synth.program.buffer_layout import layout_of
from synth.program.program import Program
from synth.runtime.dtypes import Dtype
from synth.runtime.kernel import build_host, sources
from synth.runtime.kernel import tables as flat
from synth.runtime.kernel.launches import local_dependencies, plan_launches
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.op_tables import CompiledProgram, compile_program
from synth.runtime.shared.segment import Segment, Store, alive, exchange, started_at
from synth.runtime.slicing import Slicing

DEPTH = 4  # slots of a FIFO
SLOT_BYTES = 256 << 10  # of a slot, where few ranks share the segment; a slot is then in the cache of both
SEGMENT_BYTES = 48 << 20  # Docker gives 64 MiB of /dev/shm unless it is told otherwise
MAX_BLOCKS = 32  # of a rank
REMEMBERED = 64  # calls of each rank that are written down
WATCH_SECONDS = 0.5  # between two looks at the other processes
WORD = np.dtype("u8")


@dataclass(frozen=True)
class Loaded:
    """A program, ready for calls of any size: this rank's part of the kernel's tables. Kept alive by the lane."""

    program: Program
    code: CompiledProgram
    tables: flat.Tables
    wires: tuple[int, ...]
    first: int
    prog: np.ndarray
    buffers: np.ndarray
    kept: tuple[np.ndarray, ...]


class Lane:
    """The calls of the processes of one host.

    `timeout`: seconds without any progress until a call is given up. Raises SynthError where there is no segment.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: float, nbytes: int = SEGMENT_BYTES) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self.broken: Exception | None = None
        self.calls = 0
        self.segment = Segment(store, rank, size, nbytes)
        me = f"{os.getpid()} {started_at(os.getpid())}"
        self._processes = [tuple(map(int, text.split())) for text in exchange(store, "process", rank, size, me)]

        # what all ranks see beside FIFOs: who gave up, what has moved, what blocks wait for, what was called
        self._abort = self.segment.take((2,), WORD)
        self._beats = self.segment.take((size, MAX_BLOCKS), WORD)
        self._status = self.segment.take((size, MAX_BLOCKS), flat.STATUS)
        self._called = self.segment.take((size, REMEMBERED, 2), WORD)
        self._own_calls = memoryview(self._called[rank]).cast("B").cast("Q")

        # connections by source, destination and number; slots as large as a quarter of the segment allows for all pairs
        pairs = max(1, size * (size - 1))
        fair = self.segment.left // (2 * pairs * DEPTH)
        self._slot = max(4096, min(SLOT_BYTES, 1 << fair.bit_length() - 1))
        self._wires: dict[tuple[int, int, int], int] = {}
        self._conns = np.zeros(4 * pairs, flat.CONN)
        self._fifos: list[np.ndarray] = []
        crews = [(_at(self._beats[other]), MAX_BLOCKS) for other in range(size)]
        self._crews = np.array(crews, flat.LAUNCH)
        self._scratch = np.zeros(0, np.uint8)
        self._pools: dict[str, ctypes.c_void_p] = {}
        self._functions: dict[tuple[int, str, str], tuple[object, int]] = {}
        self._loaded: list[Loaded] = []
        self._busy = threading.Event()
        self._watcher: threading.Thread | None = None

    def load(self, program: Program, *, in_place: bool) -> Loaded:
        """Return a program for `call`. All ranks load the same programs in the same order.

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
        wires = tuple(self._wire(wire.src, wire.dst, wire.channel) for wire in code.wires)

        # this rank's blocks, numbered from 0, with the lane's connections
        launches = plan_launches(code, (0,) * program.ranks)
        launch = next((launch for launch in launches if launch.rank == self.rank), None)
        first, count = (0, 0) if launch is None else (launch.first, launch.count)
        blocks = tables.blocks[first : first + count].copy()
        for name in ("into", "out"):
            blocks[name] = [wires[wire] if wire >= 0 else -1 for wire in blocks[name]]
        deps = local_dependencies(tables, code, launches)
        done, run = np.zeros(max(1, count), WORD), np.zeros(max(1, count), WORD)
        buffers = np.zeros(3 * program.ranks, WORD)
        prog = np.zeros((), flat.PROG)
        for name, array in (
            ("blocks", blocks), ("ops", tables.ops), ("deps", deps), ("conns", self._conns), ("buffers", buffers),
            ("done", done), ("run", run), ("beat", self._beats[self.rank]), ("abort", self._abort),
            ("status", self._status[self.rank]), ("launches", self._crews),
        ):  # fmt: skip
            prog[name] = _at(array)
        for name, value in (
            ("stride", self._slot), ("timeout", int(self.timeout * 1e9)), ("nblocks", count), ("part", flat.MAX_INT),
            ("nslots", DEPTH), ("slot_chunks", tables.slot_chunks), ("nlaunches", self.size), ("sleeps", 1),
        ):  # fmt: skip
            prog[name] = value
        found = Loaded(program, code, tables, wires, first, prog, buffers, (blocks, deps, done, run))
        self._loaded.append(found)
        return found

    def _wire(self, src: int, dst: int, channel: int) -> int:
        """Return the lane's number of a connection, with a FIFO in the segment at its first use."""
        found = self._wires.get((src, dst, channel))
        if found is not None:
            return found
        found = len(self._wires)
        if found == len(self._conns):
            raise SynthError(f"the programs of a lane have more than {found} connections together")
        counters, fifo = self.segment.take((2, 16), WORD), self.segment.take((DEPTH * self._slot,), np.dtype("u1"))
        self._conns[found]["fifo"] = _at(fifo)
        self._conns[found]["tail"], self._conns[found]["head"] = _at(counters[0]), _at(counters[1])
        self._fifos.append(fifo)
        self._wires[src, dst, channel] = found
        return found

    def call(self, loaded: Loaded, elements: int, kind: Dtype, op: str, source: int, target: int) -> None:
        """Run a program on `elements` elements a chunk, from the address `source` to `target`, and return when this
        rank has its result.

        Raises SynthError where a rank calls something else, has ended, or does not come;
        the lane is then broken, and further calls raise the same.
        """
        if self.broken is not None:
            raise self.broken
        function, scale, pool = self._function(loaded.program, kind, op)
        chunk_bytes = elements * kind.size
        scratch = loaded.program.gpus[self.rank].scratch * chunk_bytes
        if len(self._scratch) < scratch:
            self._scratch = np.zeros(scratch, np.uint8)
        loaded.buffers[3 * self.rank : 3 * self.rank + 3] = source, target, _at(self._scratch)

        # slices as long as a slot holds of all chunks of a message
        step = max(1, min(elements, self._slot // (loaded.tables.slot_chunks * kind.size)))
        prog = loaded.prog
        prog["elements"], prog["step"], prog["slices"] = elements * scale, step * scale, -(-elements // step)

        # what this rank calls, for the others to compare
        self.calls += 1
        at = 2 * (self.calls % REMEMBERED)
        self._own_calls[at + 1] = signature = _signature(loaded.program.name, elements, kind.name, op)
        self._own_calls[at] = self.calls
        self._watch()
        self._busy.set()
        failed = function(pool, ctypes.c_void_p(_at(prog)))
        self._busy.clear()
        if failed:
            self._abort[0] = 1
            self.broken = SynthError("the system gives no more threads")
            raise self.broken
        if self._abort[0] or self._differing(signature):
            self._abort[0] = 1
            self.broken = self._diagnosis(loaded, signature)
            raise self.broken

    def abort(self) -> None:
        """Let the call that is under way end, on all ranks: each raises."""
        self._abort[0] = 1

    def _function(self, program: Program, kind: Dtype, op: str) -> tuple:
        key = id(program), kind.name, op
        found = self._functions.get(key)
        if found is None:
            instance = sources.instance(program, kind, op)
            library = build_host.library(instance.group, "pool", _flags())
            if instance.group not in self._pools:
                library.synth_pool.restype = ctypes.c_void_p
                self._pools[instance.group] = ctypes.c_void_p(library.synth_pool())
            function = getattr(library, instance.symbol)
            found = self._functions[key] = function, kind.size // instance.size, self._pools[instance.group]
        return found

    # ------------------------------------------------------------ the other ranks

    def _differing(self, signature: int) -> list[int]:
        """Return the ranks whose call of this number is another one than this rank's."""
        rows = self._called[:, self.calls % REMEMBERED]
        return np.flatnonzero((rows[:, 0] == self.calls) & (rows[:, 1] != signature)).tolist()

    def _ended(self) -> list[int]:
        return [other for other, process in enumerate(self._processes) if not alive(*process)]

    def _watch(self) -> None:
        """Begin to look at the other processes while a call waits: no kernel can see that one was killed."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._look, daemon=True)
            self._watcher.start()

    def _look(self) -> None:
        seen = 0
        while self.broken is None:
            self._busy.wait()
            number = self.calls
            threading.Event().wait(WATCH_SECONDS)
            if self._busy.is_set() and number == self.calls == seen:
                signature = int(self._called[self.rank, number % REMEMBERED, 1])
                if self._ended() or self._differing(signature):
                    self._abort[0] = 1
            seen = number

    def _diagnosis(self, loaded: Loaded, signature: int) -> SynthError:
        """Return why this call was given up, as far as this rank can see it."""
        ended, differing = self._ended(), self._differing(signature)
        if ended:
            return SynthError(f"rank {_list(ended)} has ended, in or before call {self.calls} ({loaded.program.name})")
        if differing:
            return SynthError(
                f"call {self.calls} is {loaded.program.name} here, and another call on rank {_list(differing)}"
            )
        numbers = self._called[:, :, 0].max(axis=1)
        late = np.flatnonzero(numbers < self.calls).tolist()
        if late:
            return SynthError(
                f"rank {_list(late)} did not come to call {self.calls} ({loaded.program.name}) within {self.timeout:g} s"
            )
        return SynthError(f"call {self.calls} ({loaded.program.name}) made no progress for {self.timeout:g} s")


def _signature(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def _flags() -> tuple[str, ...]:
    """Return the compiler's flags for this very processor, whose name goes into that of the compiled file."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return "-O3", "-march=native", f"-DSYNTH_PROCESSOR=0x{hashlib.sha256(features.encode()).hexdigest()[:8]}"


def _at(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]

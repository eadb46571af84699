"""The host executor: the CUDA kernel's source on CPU threads, one for each GPU thread."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from synth.errors import SynthError, UsageError
from synth.model.rational import counted
from synth.model.topology import Network
from synth.program.buffer_layout import Layout, layout_of
from synth.program.program import Program
from synth.runtime.dtypes import Dtype, operator
from synth.runtime.dtypes import dtype as element_type
from synth.runtime.executor import Execution, Repetitions, chunk_elements
from synth.runtime.kernel import build_host, sources, transports
from synth.runtime.kernel import tables as flat
from synth.runtime.kernel.launches import launch_arguments, local_dependencies, plan_launches, waits
from synth.runtime.kernel.logical_clock import ClockMemory, ClockTimes, make_clock, timed_execution
from synth.runtime.kernel.tables import address
from synth.runtime.kernel.transports import KernelProgram
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import diagnose, halted_state
from synth.runtime.reference.op_tables import CompiledProgram, compile_program
from synth.runtime.slicing import FifoOptions, cut

# Parallel launches on CPU threads. Each has its own stream, a thread that runs its launches one after another.


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


MAX_THREADS = 4096  # maximum CPU threads of all blocks of a program together
THREADS = 4  # default threads of a block, fewer where all blocks together would have more than the maximum
LINE = 16  # u64 between counters, so that two blocks do not write one cache line


class HostProgram:
    """A program loaded for CPU threads: tables, connections and counters, which outlive a launch.

    `launch` may be called repeatedly. Counters are cleared only after a launch that was cut short, or that leaves
    messages behind. `timeout`: seconds without progress until a launch is given up. `on`: the device of each rank, if
    each rank is a launch of its own. `clock`: keeps logical time, whose result is `timed` after a launch.
    """

    def __init__(
        self, program: KernelProgram, *, timeout: float, on: Sequence[int] | None = None,
        clock: ClockMemory | None = None,
    ) -> None:  # fmt: skip
        code, cut, feature, tables, size = program
        self.code, self.cut, self.launches = code, cut, plan_launches(code, on)
        self.feature, self.tables, self.size = feature, tables, size
        self.clock = clock
        self.timed: ClockTimes | None = None
        count, wires = len(code.place), max(1, len(tables.ends))
        slot = program.slot(cut.step)
        self.fifo = np.zeros((wires, cut.depth * slot + 16), np.uint8)
        self.counters = np.zeros((wires, 3, LINE), np.uint64)
        self.conns = np.zeros(wires, flat.CONN)
        self.done, self.run, self.beat, self.abort = (np.zeros(n, np.uint64) for n in (count, count, count, 1))
        self.status = np.zeros(count, flat.STATUS)
        self.buffers = np.zeros(3 * code.program.ranks, np.uint64)
        for w in range(len(tables.ends)):
            self.conns[w]["fifo"] = -(-address(self.fifo[w]) // 16) * 16
            for k, name in enumerate(("tail", "head", "entry")):
                self.conns[w][name] = address(self.counters[w, k])
        self.deps = tables.deps if on is None else local_dependencies(tables, code, self.launches)
        memory = {name: getattr(tables, name) for name in ("blocks", "ops", "acts", "terms")}
        memory |= {name: getattr(self, name) for name in ("deps", "conns", "buffers", "done", "run", "beat", "abort")}
        self.prog = flat.kernel_argument(
            {**memory, "status": self.status},
            elements=cut.elements,
            step=cut.step,
            timeout=int(timeout * 1e9),
            nblocks=count,
            slices=len(cut.bounds),
            part=min(cut.part, flat.MAX_INT),
            nslots=cut.depth,
            slot_chunks=tables.slot_chunks,
        )
        beats = [(address(self.beat[launch.first :]), launch.count) for launch in self.launches]
        self.watched = np.array(beats, flat.LAUNCH)

    def clear(self) -> None:
        """Reset to the state before the first launch: no message under way, all counters 0."""
        stale = (self.fifo,) if self.feature == sources.LL else ()  # the slots of packets hold flags
        for array in (self.counters, self.done, self.run, self.beat, self.abort, *stale):
            array[...] = 0
        self.conns["sent"] = self.conns["taken"] = 0

    def use_arena(self, arena: Arena) -> None:
        """Let the next launches work on the buffers of `arena`, which the caller keeps alive."""
        for gpu in self.code.program.gpus:
            for k, buffer in enumerate("ios"):
                # a buffer without chunks gets some address, which no op uses
                self.buffers[3 * gpu.rank + k] = address(arena.view(gpu.rank, buffer, 1))

    def function(self, kind: Dtype, op: str) -> tuple[Any, int]:
        """Return the compiled function for `kind`, and the number of its elements in one element of `kind`.

        That number is the size of the element if the function moves bytes, else 1: `scale` of `launch`.
        """
        instance = sources.instance(self.code.program, kind, op, self.feature)
        return getattr(build_host.library(instance.group), instance.symbol), kind.size // instance.size

    def launch(self, function: Any, threads: int, scale: int = 1, times: int = 1) -> None:
        """Run the compiled `function` `times` times, back to back, with `threads` threads a block.

        `scale`: elements of the function in one element, where it moves bytes. With a clock there is one run, and
        `timed` receives its result. Raises DeadlockError with the blocks that wait for each other, SynthError where the
        system gives no more threads.
        """
        prog = self.prog.copy()
        prog["elements"] *= scale
        prog["step"] *= scale
        image = np.zeros(0, np.uint8)
        if self.clock is not None:
            times, image = 1, np.zeros(self.clock.size, np.uint8)
            image[:] = self.clock.image(address(image), self.size // scale)
            prog["clock"] = address(image)
        progs = [prog]  # one launch of all ranks
        if not any(launch.rank is None for launch in self.launches):
            count, watched = len(self.launches), address(self.watched)
            progs = [launch_arguments(prog, launch, count, watched) for launch in self.launches]

        def start(k: int) -> int:
            launch = self.launches[k]
            self.status["kind"][launch.first : launch.first + launch.count] = flat.RUNNING
            return function(ctypes.c_void_p(address(progs[k])), ctypes.c_int(threads))

        failed = side_by_side([partial(start, k) for k in range(len(progs))], self.abort, times)
        stopped = bool(self.abort[0])
        if failed or stopped or not self.tables.balanced:
            self.clear()
        if failed:
            raise SynthError(
                f"the system does not give {len(self.code.place) * threads} threads; ask for fewer a block (--threads)"
            )
        if stopped:
            raise diagnose(halted_state(self.code, self.cut, waits(self.tables, self.status)))
        if self.clock is not None:
            self.timed = self.clock.read(image)


@dataclass(frozen=True)
class Host(FifoOptions):
    """The executor that runs the CUDA kernel's source on CPU threads.

    Every element moves as on a GPU; the real time says nothing about one. `threads`: of each thread block (None: 4, or
    as many as 4096 threads in all allow). `timeout`: seconds without any progress until the run is given up.
    `ranks_on`: a device for each rank; here all are this machine, and each rank is a launch of its own. `direct`: put
    messages directly into the receiver's buffer where that is proved safe. `clock`: logical (the time of an execution-
    driven model over the links of `network`, computed by the kernel as it moves the data). Without a clock, `network`
    is only named in the report.
    """

    network: Network | None = None
    threads: int | None = None
    timeout: float = 5.0
    ranks_on: tuple[int, ...] | None = None
    direct: bool = True
    clock: str | None = None

    def available(self) -> str | None:
        """Return None where a C++ compiler is installed, else a message that asks for one."""
        return None if build_host.compiler() else build_host.MISSING

    def time(self, program: Program, elements: int, *, dtype: str = "float32", in_place: bool = False) -> Execution:
        """Return the logical time of a run on unspecified data. Raises UsageError unless there is a clock."""
        if self.clock is None:
            raise UsageError(
                "the host executor moves data and knows no times without --clock logical; --no-data is for reference"
            )
        kind = element_type(dtype)
        machine, _ = self.load(program, elements, kind, in_place=in_place)
        self._launch(machine, kind, "sum")
        return timed_execution(None, machine.timed)

    def run(
        self, program: Program, arrays: Sequence[np.ndarray], *, dtype: str, op: str = "sum", in_place: bool = False
    ) -> Execution:
        """Run `program` once on `arrays` (rows are chunks), which are not changed. Raises DeadlockError, SynthError."""
        kind, op = element_type(dtype), operator(op)
        machine, arena = self.load(program, chunk_elements(arrays), kind, in_place=in_place)
        layout = layout_of(program)
        arena.fill(arrays, layout, len(machine.cut.bounds))
        self._launch(machine, kind, op)
        return timed_execution(collect_outputs(arena, layout, kind, op), machine.timed)

    def measure(
        self,
        program: Program,
        arrays: Sequence[np.ndarray],
        *,
        dtype: str,
        op: str = "sum",
        in_place: bool = False,
        repetitions: Repetitions,
    ) -> tuple[tuple[np.ndarray, ...], list[float]]:
        """Return the outputs of the last launch, and the wall seconds of each timed one."""
        kind, seconds = element_type(dtype), []
        machine, arena = self.load(program, chunk_elements(arrays), kind, in_place=in_place)
        layout = layout_of(program)
        for _ in range(sum(repetitions)):
            arena.fill(arrays, layout, len(machine.cut.bounds))
            start = time.perf_counter()
            self._launch(machine, kind, op)
            seconds.append(time.perf_counter() - start)
        return collect_outputs(arena, layout, kind, op), seconds[repetitions.warmup :]

    def _launch(self, machine: HostProgram, kind: Dtype, op: str) -> None:
        function, scale = machine.function(kind, op)
        threads = self.block_threads(machine.code)
        machine.launch(function, threads, scale)

    def load(self, program: Program, elements: int, kind: Dtype, *, in_place: bool) -> tuple[HostProgram, Arena]:
        """Return `program`, ready to launch with `elements` elements a chunk, and its buffers, filled with poison."""
        parts = cut(program, elements, kind, self)
        arena = Arena(program, layout_of(program), in_place=in_place, slices=len(parts.bounds))
        arena.allocate(kind, elements)
        code = compile_program(program, arena, in_place=in_place)
        self.block_threads(code)
        timed = make_clock(self, code, parts, kind, in_place)
        feature, tables = transports.choose_transport(
            code, parts, protocol=self.protocol, in_place=in_place, direct=self.direct, clock=timed is not None
        )  # fmt: skip
        loaded = KernelProgram(code, parts, feature, tables, kind.size)
        machine = HostProgram(loaded, timeout=self.timeout, on=self.ranks_on, clock=timed)
        machine.use_arena(arena)
        return machine, arena

    def block_threads(self, code: CompiledProgram) -> int:
        """Return the threads of each thread block.

        Raises UsageError if the host does not take so many, or the timeout is not above 0.
        """
        blocks, threads = len(code.place), self.threads
        if threads is None:
            threads = max(1, min(THREADS, MAX_THREADS // max(1, blocks)))
        if not 1 <= threads <= 256 or blocks * threads > MAX_THREADS:
            raise UsageError(
                f"{code.program.name} has {blocks} thread blocks; with {counted(threads, 'thread')} each that is not "
                f"1 to 256 a block and at most {MAX_THREADS} together (--threads)"
            )
        if self.timeout <= 0:
            raise UsageError(f"a timeout of {self.timeout} s: it must be greater than 0")
        return threads


def collect_outputs(arena: Arena, layout: Layout, kind: Dtype, op: str) -> tuple[np.ndarray, ...]:
    """Return the outputs by rank, after the kernel's division where `op` is avg."""
    outputs = [arena.view(rank, "o", len(wanted)) for rank, wanted in enumerate(layout.outputs)]
    if op == "avg" and layout.collective.combining and outputs:
        divide(layout, kind, [address(view) for view in outputs], outputs[0].shape[1])
    return tuple(outputs)


def divide(layout: Layout, kind: Dtype, outputs: Sequence[int], elements: int) -> None:
    """Divide the sums in the outputs at these addresses by rank, whose chunks have `elements` elements, for avg."""
    function = getattr(build_host.library(kind.short), f"synth_{kind.short}_divide")
    size = layout.chunks * elements
    for rank, wanted in enumerate(layout.outputs):
        for first in range(0, len(wanted), layout.chunks):
            at = outputs[rank] + first * elements * kind.size
            count = len(layout.collective.wanted(wanted[first] // layout.chunks, rank))
            function(ctypes.c_void_p(at), ctypes.c_longlong(size), ctypes.c_ulonglong(count))

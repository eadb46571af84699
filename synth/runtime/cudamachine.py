"""A program loaded on one GPU: tables, FIFOs and counters in its memory, launched as often as wanted, on any stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from synth.errors import SynthError, UsageError
from synth.program.layout import Layout
from synth.program.program import Program
from synth.runtime import arrays as flat
from synth.runtime import kernels
from synth.runtime.compiled import compiled
from synth.runtime.dtypes import Dtype, poison
from synth.runtime.host import layout_of, waits
from synth.runtime.memory import Arena
from synth.runtime.sizes import cut
from synth.runtime.waits import diagnose, halted

if TYPE_CHECKING:
    from synth.runtime.cuda import Cuda

LINE = 128  # bytes between counters


class CudaMachine:
    """`launch` does not wait; `finish` does, and tells a deadlock. Nothing is cleared or allocated between launches, so a launch
    can be captured into a CUDA graph once one has run; each replay is a launch. `use` lets it work on the caller's arrays."""

    def __init__(
        self, cupy: Any, options: Cuda, program: Program, elements: int, kind: Dtype, op: str, in_place: bool,
        kernel: Callable[[str, str], Any],
    ) -> None:  # fmt: skip
        self.cupy, self.program, self.kind, self.op, self.in_place = cupy, program, kind, op, in_place
        parts = cut(program, elements, kind, protocol=options.protocol, depth=options.depth, part=options.part, runtime=options.runtime)
        self.arena = Arena(program, layout_of(program), in_place=in_place, slices=1)
        self.code = compiled(program, self.arena, in_place=in_place)
        self.tables = tables = flat.tables(self.code, parts)
        if not tables.balanced:
            raise SynthError(f"{program.name}: a connection takes fewer messages than are sent; on a GPU the next launch would find them")
        self.cut = parts = flat.finer(parts, options.slot // (tables.slot_chunks * kind.size))
        self.elements = elements
        made = kernels.instance(program, kind, op)
        self.kernel = kernel(made.group, made.symbol)
        averages = op == "avg" and program.collective is not None and program.collective.combining
        self.divide: Any = kernel(kind.short, f"synth_{kind.short}_divide") if averages else None
        self.blocks = len(self.code.place)
        self.threads = self._fit(options.threads)
        scale = kind.size // made.size
        self.step = max((high - low for low, high in parts.bounds), default=0)
        self._tables = [cupy.asarray(np.frombuffer(t.tobytes() or b"\0", np.uint8)) for t in (tables.blocks, tables.ops, tables.deps)]
        self._state(options, scale)
        self.memory = [cupy.zeros(max(1, rows * elements * kind.size), cupy.uint8) for rows in self.arena.rows]
        self._programs: dict[tuple[int, ...], tuple[Any, Any]] = {}
        self._own = tuple(self._place(r, b) for r in range(program.ranks) for b in "ios")
        self._pointers = self._own
        self._now = self._program(self._own)

    def _fit(self, asked: int | None) -> int:
        """Threads a block with which all blocks are resident at once. Raises SynthError where none is."""
        driver, device = self.cupy.cuda.driver, self.cupy.cuda.Device()
        units = device.attributes["MultiProcessorCount"]
        room = 0
        for threads in (asked,) if asked else (256, 128, 64, 32):
            if not 1 <= threads <= 256:
                raise UsageError(f"{threads} threads a block: 1 to 256 (--threads)")
            room = driver.occupancyMaxActiveBlocksPerMultiprocessor(self.kernel.kernel.ptr, threads, 0) * units
            if self.blocks <= room:
                return threads
        raise SynthError(
            f"{self.program.name} has {self.blocks} thread blocks; at most {room} are resident at once on this GPU,"
            " and those left out would be waited for: lower it with fewer instances or channels"
        )

    def _state(self, options: Cuda, scale: int) -> None:
        cupy, wires, size = self.cupy, max(1, len(self.code.wires)), self.kind.size
        slots = -(-self.cut.depth * self.tables.slot_chunks * self.step * size // 128) * 128 or 128
        self._fifo = cupy.zeros(wires * slots, cupy.uint8)
        self._counters = cupy.zeros(wires * 3 * LINE, cupy.uint8)
        self._flags = cupy.zeros((3, max(1, self.blocks)), cupy.uint64)  # done, run, beat
        self._abort = cupy.zeros(1, cupy.uint64)
        self._status = cupy.zeros(max(1, self.blocks) * flat.STATUS.itemsize, cupy.uint8)
        conns = np.zeros(wires, flat.CONN)
        for w in range(wires):
            conns[w]["fifo"] = self._fifo.data.ptr + w * slots
            for k, name in enumerate(("tail", "head", "entry")):
                conns[w][name] = self._counters.data.ptr + (3 * w + k) * LINE
        self._fresh = np.frombuffer(conns.tobytes(), np.uint8)
        self._conns = cupy.asarray(self._fresh)
        prog = self._prog = np.zeros((), flat.PROG)
        for name, array in zip(("blocks", "ops", "deps"), self._tables, strict=True):
            prog[name] = array.data.ptr
        for name, array in (("conns", self._conns), ("abort", self._abort), ("status", self._status)):
            prog[name] = array.data.ptr
        for k, name in enumerate(("done", "run", "beat")):
            prog[name] = self._flags[k].data.ptr
        for name, value in (
            ("elements", self.elements * scale), ("step", self.step * scale), ("timeout", int(options.timeout * 1e9)),
            ("nblocks", self.blocks), ("slices", len(self.cut.bounds)), ("part", min(self.cut.part, flat.MAX_INT)),
            ("nslots", self.cut.depth), ("slot_chunks", self.tables.slot_chunks),
        ):  # fmt: skip
            prog[name] = value

    def _place(self, rank: int, buffer: str) -> int:
        return self.memory[rank].data.ptr + self.arena.first(rank, buffer) * self.elements * self.kind.size

    def _program(self, pointers: tuple[int, ...]) -> tuple[Any, Any]:
        """The kernel's argument for these buffers; made once for each set of them."""
        if pointers not in self._programs:
            table = self.cupy.asarray(np.array(pointers, np.uint64))
            prog = self._prog.copy()
            prog["buffers"] = table.data.ptr
            self._programs[pointers] = self.cupy.asarray(np.frombuffer(prog.tobytes(), np.uint8)), table
        return self._programs[pointers]

    def use(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Let the next launches read and write the caller's arrays, one a rank (CuPy, torch: whatever has
        `__cuda_array_interface__`), contiguous, on this GPU. In place, inputs and outputs lie as the program's layout says."""
        layout = layout_of(self.program)
        pointers = list(self._own)
        for k, (what, given, held) in enumerate((("input", inputs, layout.inputs), ("output", outputs, layout.outputs))):
            if len(given) != self.program.ranks:
                raise UsageError(f"{len(given)} {what}s for {self.program.ranks} ranks")
            for rank, array in enumerate(given):
                if held[rank]:
                    pointers[3 * rank + k] = self._pointer(array, what, rank, len(held[rank]))
        self._pointers = tuple(pointers)
        self._now = self._program(self._pointers)

    def _pointer(self, array: Any, what: str, rank: int, chunks: int) -> int:
        try:
            facts = array.__cuda_array_interface__
        except AttributeError:
            raise UsageError(f"the {what} of rank {rank} is no array in GPU memory (no __cuda_array_interface__)") from None
        size = np.dtype(facts["typestr"]).itemsize
        if facts.get("strides") is not None:
            raise UsageError(f"the {what} of rank {rank} is not contiguous")
        found = int(np.prod(facts["shape"]))
        if size != self.kind.size or found != chunks * self.elements:
            wanted = f"{chunks * self.elements} of {self.kind.name}"
            raise UsageError(f"the {what} of rank {rank} has {found} elements of {size} bytes; this call takes {wanted}")
        return facts["data"][0]

    def fill(self, given: Sequence[np.ndarray]) -> None:
        """Poison all memory and put the inputs in its own buffers."""
        layout, width = layout_of(self.program), self.elements * self.kind.size
        for rank, rows in enumerate(self.arena.rows):
            image = np.full((rows, self.elements), poison(self.kind), self.kind.numpy)
            first = self.arena.first(rank, "i")
            image[first : first + len(layout.inputs[rank])] = given[rank]
            self.memory[rank][: rows * width].set(np.frombuffer(image.tobytes(), np.uint8))

    def launch(self, stream: Any = None) -> None:
        """One run on `stream` (CuPy's current one unless given; torch's as `cupy.cuda.ExternalStream`). Does not wait."""
        with stream or self.cupy.cuda.get_current_stream():
            self.kernel((self.blocks,), (self.threads,), (self._now[0],))
            if self.divide:
                self._divide(layout_of(self.program))

    def _divide(self, layout: Layout) -> None:
        """avg ends with one division, of the outputs of this launch, on the same stream."""
        part = layout.chunks * self.elements
        for rank, wanted in enumerate(layout.outputs):
            for unit in range(0, len(wanted), layout.chunks):
                count = len(layout.collective.wanted(wanted[unit] // layout.chunks, rank))
                at = self._pointers[3 * rank + 1] + unit * self.elements * self.kind.size
                self.divide((64,), (256,), (np.uint64(at), np.int64(part), np.uint64(count)))

    def finish(self, stream: Any = None) -> None:
        """Wait for what was launched. Raises DeadlockError with who waits for whom; the next launch starts afresh."""
        (stream or self.cupy.cuda.get_current_stream()).synchronize()
        status = np.frombuffer(self._status.get().tobytes(), flat.STATUS)[: self.blocks]
        if self.blocks and int(status[0]["kind"]) == flat.WRONG_GRID:
            raise SynthError(f"{self.program.name}: the grid was not of {self.blocks} blocks")
        if int(self._abort.get()[0]):
            self.clear()
            raise diagnose(halted(self.code, self.cut, waits(self.code, self.tables, status)))

    def timed(self, given: Sequence[np.ndarray], warmup: int, repeats: int) -> list[float]:
        """Seconds of each of `repeats` launches, by events of the GPU around it. In place the inputs are put back before each."""
        cuda, found = self.cupy.cuda, []
        for k in range(warmup + repeats):
            if k == 0 or self.in_place:
                self.fill(given)
            begin, end = cuda.Event(), cuda.Event()
            begin.record()
            self.launch()
            end.record()
            self.finish()
            if k >= warmup:
                found.append(cuda.get_elapsed_time(begin, end) / 1000)
        return found

    def clear(self) -> None:
        """As before the first launch."""
        for array in (self._counters, self._flags, self._abort):
            array.fill(0)
        self._conns.set(self._fresh)

    def outputs(self, layout: Layout) -> tuple[np.ndarray, ...]:
        """The outputs in its own buffers, fetched."""
        found, width = [], self.elements * self.kind.size
        for rank, wanted in enumerate(layout.outputs):
            first = self.arena.first(rank, "o")
            raw = self.memory[rank][first * width : (first + len(wanted)) * width].get()
            found.append(raw.view(self.kind.numpy).reshape(len(wanted), self.elements))
        return tuple(found)

"""The device memory that launches read and write (sets of buffers, or the caller's arrays), and kernel arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.program.program import Program
from synth.runtime.buffer_binding import ArrayLayout, BoundArrays, bind_arrays
from synth.runtime.cuda import devices
from synth.runtime.cuda.device_state import DeviceState
from synth.runtime.reference.buffers import Arena

# Byte that poisons buffers of integers, so that unwritten memory is no plausible result; floats are poisoned with NaN.
SPOILED = 0xA5
Pointers = tuple[int, ...]  # by rank: input, output, scratch


class Buffers:
    """Device buffers of a program for calls of `arrays`, which have a GPU for each rank.

    `sets[k][r]`: input and output of rank r in the k-th set, one piece of memory; allocated when first used.
    """

    def __init__(self, cupy: Any, program: Program, arena: Arena, state: DeviceState, arrays: ArrayLayout) -> None:
        self.cupy, self.program, self.arena, self.state, self.arrays = cupy, program, arena, state, arrays
        self.layout, self.padding, self.kind, on, self.in_place = arrays
        self.elements, self.on = self.padding.elements, on or ()
        self.sets: list[list[Any]] = []
        self._scratch = [self._zeros(rank, gpu.scratch) for rank, gpu in enumerate(program.gpus)]
        self._known: dict[Pointers, tuple[Any, ...]] = {}
        self._held: BoundArrays | None = None  # the caller's arrays in use
        self._pointers: Pointers = ()
        self._now: tuple[Any, ...] = ()  # the argument of each launch
        state.synchronize()

    def _zeros(self, rank: int, rows: int) -> Any:
        return devices.zeros(self.cupy, self.on[rank], rows * self.elements * self.kind.size)

    def use_own_buffers(self, k: int = 0) -> None:
        """Let the next launches work on the k-th set of own input and output buffers, not on the caller's arrays."""
        while len(self.sets) <= k:
            rows = zip(self.arena.rows, self.program.gpus, strict=True)
            self.sets.append([self._zeros(rank, count - gpu.scratch) for rank, (count, gpu) in enumerate(rows)])
        width = self.elements * self.kind.size
        pointers: list[int] = []
        for rank, memory in enumerate(self.sets[k]):
            pointers += [memory.data.ptr + self.arena.first(rank, buffer) * width for buffer in "io"]
            pointers.append(self._scratch[rank].data.ptr)
        self._bind(tuple(pointers))
        self._held = None

    def use(self, inputs: Any, outputs: Any) -> None:
        """Let the next launches read and write the caller's arrays.

        `inputs`, `outputs`: a list of one array a rank, or one array with a row a rank. Arrays are contiguous and on
        the GPU of their rank (CuPy's, torch's); None where a rank has none. In place, they lie as the
        program's layout says. Allocates and waits for arrays that were not used before, so it must not be called
        with such arrays while a graph is captured. Raises UsageError in one line.
        """
        arrays = bind_arrays(self.arrays, inputs, outputs)
        if self.padding.padded:
            self.use_own_buffers()
            self._held = arrays
            return
        pointers = list(arrays.pointers)
        for rank, scratch in enumerate(self._scratch):
            pointers[3 * rank + 2] = scratch.data.ptr
        self._bind(tuple(pointers))
        self._held = arrays

    def _bind(self, pointers: Pointers) -> None:
        """Select the kernels' arguments for these buffers; they are built once for each tuple of pointers."""
        if pointers not in self._known:
            arguments, tables = [], {}
            for launch, prog in zip(self.state.launches, self.state.progs, strict=True):
                with self.cupy.cuda.Device(launch.device):
                    if launch.device not in tables:
                        tables[launch.device] = self.cupy.asarray(np.array(pointers, np.uint64))
                    argument = prog.copy()
                    argument["buffers"] = tables[launch.device].data.ptr
                    arguments.append(self.cupy.asarray(np.frombuffer(argument.tobytes(), np.uint8)))
            self._known[pointers] = (*arguments, *tables.values())  # the tables are kept alive with them
            self.state.synchronize()
        self._pointers, self._now = pointers, self._known[pointers]

    def fill(self, given: Sequence[np.ndarray], k: int = 0) -> None:
        """Poison the k-th set of buffers, copy the inputs `given` there, and let the next launches work on it."""
        self.use_own_buffers(k)
        width = self.elements * self.kind.size
        spoiled = 0xFF if self.kind.digits else SPOILED  # 0xFF in every byte is NaN in each float type
        for rank, memory in enumerate(self.sets[k]):
            at = self.arena.first(rank, "i") * width
            held = np.ascontiguousarray(given[rank], self.kind.numpy).reshape(-1).view(np.uint8)
            with self.cupy.cuda.Device(self.on[rank]):
                memory.data.memset(spoiled, memory.nbytes)
                memory[at : at + held.nbytes].set(held)
        self.state.synchronize()

    def outputs(self, k: int = 0) -> tuple[np.ndarray, ...]:
        """Return the outputs in the k-th set of buffers, copied to the host's memory; rows are chunks."""
        outputs, width = [], self.elements * self.kind.size
        for rank, wanted in enumerate(self.layout.outputs):
            first = self.arena.first(rank, "o")
            with self.cupy.cuda.Device(self.on[rank]):
                raw = self.sets[k][rank][first * width : (first + len(wanted)) * width].get()
            outputs.append(raw.view(self.kind.numpy).reshape(len(wanted), self.elements))
        return tuple(outputs)

    def copy(self, buffer: str, ranks: Sequence[int], stream: Any) -> None:
        """Copy, on `stream`, the caller's inputs of `ranks` to the padded buffers ("i"), or the outputs back ("o").

        Does nothing if no chunk is padded, or if no arrays are in use.
        """
        if self._held is None or not self.padding.padded:
            return
        runtime, size = self.cupy.cuda.runtime, self.kind.size
        arrays, first = (self._held.inputs, 0) if buffer == "i" else (self._held.outputs, 1)
        short, long = self.padding.unit * size, self.padding.chunks * self.elements * size
        for rank in ranks:
            facts = arrays[rank]
            if facts is None:
                continue
            ends = [(self._pointers[3 * rank + first], long), (facts.pointer, short)]
            (to, to_pitch), (source, pitch) = ends if buffer == "i" else ends[::-1]
            runtime.memcpy2DAsync(
                to, to_pitch, source, pitch, short, facts.size // self.padding.unit, runtime.memcpyDefault, stream.ptr
            )  # fmt: skip

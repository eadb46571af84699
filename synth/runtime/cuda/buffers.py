"""The memory that launches read and write: sets of buffers of the machine's own, or the caller's arrays; and the
kernels' arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.errors import UsageError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.buffer_binding import Bound, bound
from synth.runtime.cuda import devices
from synth.runtime.cuda.device_state import State
from synth.runtime.dtypes import Dtype
from synth.runtime.padding import Padding
from synth.runtime.reference.buffers import Arena

SPOILED = 0xA5  # what memory that nobody has written holds, in integers; floats hold no number
Pointers = tuple[int, ...]  # by rank: input, output, scratch


class Buffers:
    """Device buffers of a program for units of `padding` and elements of `kind`, rank r on GPU `on[r]`.

    `sets[k][r]`: input and output, made when first used.
    """

    def __init__(
        self, cupy: Any, program: Program, layout: Layout, arena: Arena, state: State, *, padding: Padding, kind: Dtype,
        on: Sequence[int], in_place: bool,
    ) -> None:  # fmt: skip
        self.cupy, self.program, self.layout, self.arena, self.state = cupy, program, layout, arena, state
        self.padding, self.elements, self.kind, self.on, self.in_place = padding, padding.elements, kind, on, in_place
        self.sets: list[list[Any]] = []
        self._scratch = [self._zeros(rank, gpu.scratch) for rank, gpu in enumerate(program.gpus)]
        self._known: dict[Pointers, tuple[Any, ...]] = {}
        self._held: Bound | None = None  # the caller's arrays in use
        self._pointers: Pointers = ()
        self._now: tuple[Any, ...] = ()  # the argument of each launch
        state.synchronize()

    def _zeros(self, rank: int, rows: int) -> Any:
        return devices.zeros(self.cupy, self.on[rank], rows * self.elements * self.kind.size)

    def own(self, k: int = 0) -> None:
        """Let the next launches work on the k-th set of input and output buffers that the machine itself keeps."""
        while len(self.sets) <= k:
            rows = zip(self.arena.rows, self.program.gpus, strict=True)
            self.sets.append([self._zeros(rank, count - gpu.scratch) for rank, (count, gpu) in enumerate(rows)])
        width = self.elements * self.kind.size
        self._bind(tuple(
            self._scratch[rank].data.ptr if b == "s" else memory.data.ptr + self.arena.first(rank, b) * width
            for rank, memory in enumerate(self.sets[k]) for b in "ios"
        ))  # fmt: skip
        self._held = None

    def use(self, inputs: Any, outputs: Any) -> None:
        """Let the next launches read and write the caller's arrays: a list of one a rank, or one array with a row a
        rank.

        They are contiguous and on the GPU of their rank (CuPy, torch, anything with DLPack); None where a rank has
        none. In place, they lie as the program's layout says. Allocates and waits, where these arrays are new: not
        while a graph is captured. Raises UsageError: one line.
        """
        found = bound(
            self.program, self.layout, self.padding, self.kind, inputs, outputs, on=self.on, in_place=self.in_place
        )
        if self.padding.padded:
            self.own()
            self._held = found
            return
        pointers = list(found.pointers)
        for rank, scratch in enumerate(self._scratch):
            pointers[3 * rank + 2] = scratch.data.ptr
        self._bind(tuple(pointers))
        self._held = found

    def _bind(self, pointers: Pointers) -> None:
        """The kernels' arguments for these buffers; made once for each set of them."""
        if pointers not in self._known:
            self._known[pointers] = self._arguments(pointers)
            self.state.synchronize()
        self._pointers, self._now = pointers, self._known[pointers]

    def _arguments(self, pointers: Pointers) -> tuple[Any, ...]:
        found, tables = [], {}
        for crew, prog in zip(self.state.crews, self.state.progs, strict=True):
            with self.cupy.cuda.Device(crew.device):
                if crew.device not in tables:
                    tables[crew.device] = self.cupy.asarray(np.array(pointers, np.uint64))
                own = prog.copy()
                own["buffers"] = tables[crew.device].data.ptr
                found.append(self.cupy.asarray(np.frombuffer(own.tobytes(), np.uint8)))
        return (*found, *tables.values())

    def fill(self, given: Sequence[np.ndarray], k: int = 0) -> None:
        """Poison the k-th set of buffers, put the inputs there, and let the next launches work on it."""
        self.own(k)
        width, spoiled = self.elements * self.kind.size, 0xFF if self.kind.digits else SPOILED  # not a number
        for rank, memory in enumerate(self.sets[k]):
            at = self.arena.first(rank, "i") * width
            held = np.ascontiguousarray(given[rank], self.kind.numpy).reshape(-1).view(np.uint8)
            with self.cupy.cuda.Device(self.on[rank]):
                memory.data.memset(spoiled, memory.nbytes)
                memory[at : at + held.nbytes].set(held)
        self.state.synchronize()

    def outputs(self, k: int = 0) -> tuple[np.ndarray, ...]:
        """The outputs in the k-th set of buffers, fetched; rows are chunks."""
        found, width = [], self.elements * self.kind.size
        for rank, wanted in enumerate(self.layout.outputs):
            first = self.arena.first(rank, "o")
            with self.cupy.cuda.Device(self.on[rank]):
                raw = self.sets[k][rank][first * width : (first + len(wanted)) * width].get()
            found.append(raw.view(self.kind.numpy).reshape(len(wanted), self.elements))
        return tuple(found)

    def fetch(self, what: str, stream: Any = None) -> tuple[np.ndarray, ...]:
        """The caller's inputs or outputs (`what`), after all that `stream` holds; rows are chunks."""
        devices.stream(self.cupy, stream).synchronize()
        if self._held is None:
            raise UsageError("no arrays are in use: call use(inputs, outputs) first")
        given, rows = (
            (self._held.inputs, self.layout.inputs) if what == "input" else (self._held.outputs, self.layout.outputs)
        )
        found = []
        for rank, facts in enumerate(given):
            raw = np.zeros(0, np.uint8)
            if facts is not None and facts.size:
                with self.cupy.cuda.Device(self.on[rank]):
                    raw = devices.alias(self.cupy, facts, self.kind.size, self.on[rank]).get()
            rows_of_it, width = (len(rows[rank]), self.elements) if not self.padding.padded else (-1, self.padding.unit)
            found.append(raw.view(self.kind.numpy).reshape(rows_of_it, width))
        return tuple(found)

    def copy(self, buffer: str, ranks: Sequence[int], stream: Any) -> None:
        """On `stream`: the caller's inputs (`buffer` i) of `ranks` into the padded buffers, or the outputs (o) out of
        these. Nothing where no chunk is padded, or no arrays are in use."""
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

    def spoil(self, stream: Any = None) -> None:
        """Overwrite the caller's outputs, on `stream`: what nobody writes is no result of an earlier call."""
        for rank, facts in enumerate(self._held.outputs if self._held else ()):
            if facts is not None and facts.size:
                array = devices.alias(self.cupy, facts, self.kind.size, self.on[rank])
                array.data.memset_async(SPOILED, array.nbytes, devices.stream(self.cupy, stream))

"""A program loaded for CPU threads on the caller's arrays; unlike with `CudaMachine`, each launch runs to its end."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from synth.errors import SynthError
from synth.program.program import Program
from synth.runtime.array_info import view
from synth.runtime.buffer_binding import ArrayLayout, BoundArrays, bind_arrays
from synth.runtime.dtypes import Dtype, dtype, poison
from synth.runtime.host.executor import Host, HostProgram, divide, layout_of
from synth.runtime.kernel import transports
from synth.runtime.kernel.tables import address
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.op_tables import compile_program
from synth.runtime.slicing import Padding, cut


class HostMachine:
    """A program on the caller's arrays: `use` selects them, then `launch` may be called repeatedly.

    Only scratch is allocated, so arrays may be of any size. Where chunks are padded, buffers are allocated too, from
    and to which each launch copies.
    """

    def __init__(self, host: Host, program: Program, unit: int, kind: Dtype, op: str, in_place: bool) -> None:
        self.host, self.program, self.kind, self.op, self.in_place = host, program, kind, op, in_place
        self.layout, self.padding = layout_of(program), Padding(unit, program.chunks)
        elements = self.elements = self.padding.elements
        parts = cut(program, elements, kind, host)
        self.arena = Arena(program, self.layout, in_place=in_place, slices=1)
        self.code = compile_program(program, self.arena, in_place=in_place)
        self.threads = host.block_threads(self.code)
        feature, tables = transports.choose_transport(
            self.code, parts, protocol=host.protocol, in_place=in_place, direct=host.direct
        )
        if not tables.balanced:
            raise SynthError(
                f"{program.name}: a connection takes fewer messages than are sent; the next launch would find them"
            )
        loaded = transports.KernelProgram(self.code, parts, feature, tables, kind.size)
        self.machine = HostProgram(loaded, timeout=host.timeout, on=host.ranks_on)
        self._bound: BoundArrays | None = None
        self._scratch: list[np.ndarray] = []
        if self.padding.padded:
            self.arena.allocate(kind, elements)
            self.machine.use_arena(self.arena)
        else:
            self._scratch = [np.full((gpu.scratch, elements), poison(kind), kind.numpy) for gpu in program.gpus]

    def use(self, inputs: Any, outputs: Any) -> None:
        """Let the next launches read and write the caller's arrays (NumPy's, or torch's in the host's memory).

        An array is None where a rank has none. In place, they lie as the program's layout says. Raises UsageError in
        one line.
        """
        arrays = ArrayLayout(self.layout, self.padding, self.kind, None, self.in_place)
        self._bound = bind_arrays(arrays, inputs, outputs)
        if self.padding.padded:
            return
        self.machine.buffers[:] = self._bound.pointers
        for rank, scratch in enumerate(self._scratch):
            self.machine.buffers[3 * rank + 2] = address(scratch)

    def launch(self, stream: Any = None, times: int = 1) -> None:
        """Run `times` times back to back, to the end.

        Raises DeadlockError with the blocks that wait for each other; the next launch then starts from a clear state.
        """
        function, scale = self.machine.function(self.kind, self.op)
        for inside, outside in self._copied("i"):
            inside[...] = outside
        self.machine.launch(function, self.threads, scale, times)
        if self.op == "avg" and self.layout.collective.combining:
            divide(self.layout, self.kind, [int(at) for at in self.machine.buffers[1::3]], self.elements)
        for inside, outside in self._copied("o"):
            outside[...] = inside

    def finish(self, stream: Any = None) -> None:
        """Do nothing: a launch has ended when it returns."""

    def _copied(self, buffer: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return pairs of a padded input or output (`buffer`), without its padding, and the caller's array.

        There are none where no chunk is padded.
        """
        if not self.padding.padded or self._bound is None:
            return []
        if buffer == "i":
            arrays, chunks = self._bound.inputs, self.layout.inputs
        else:
            arrays, chunks = self._bound.outputs, self.layout.outputs
        pairs = []
        for rank, facts in enumerate(arrays):
            if facts is not None:
                inside = self.padding.units(self.arena.view(rank, buffer, len(chunks[rank])))
                pairs.append((inside, view(facts, self.kind.numpy).reshape(inside.shape)))
        return pairs


def prepare(host: Host, program: Program, unit: int, name: str, op: str, in_place: bool) -> tuple[HostMachine, Any]:
    """Return a machine for the caller's arrays, and a guard that leaves errors as they are."""
    return HostMachine(host, program, unit, dtype(name), op, in_place), nullcontext

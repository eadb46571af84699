"""A program loaded on one GPU, or on several: launched as often as wanted, on any stream, on its own arrays or on the
caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from synth.errors import SynthError, UsageError
from synth.program.buffer_layout import layout_of
from synth.program.program import Program
from synth.runtime.cuda import devices
from synth.runtime.cuda.buffers import Buffers
from synth.runtime.cuda.device_state import State
from synth.runtime.dtypes import Dtype
from synth.runtime.kernel import sources, transports
from synth.runtime.kernel import tables as flat
from synth.runtime.kernel.block_status import waits
from synth.runtime.kernel.launches import crews
from synth.runtime.kernel.logical_clock import Timed, clockwork
from synth.runtime.padding import Padding
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import diagnose, halted
from synth.runtime.reference.op_tables import compiled
from synth.runtime.slicing import cut

if TYPE_CHECKING:
    from synth.runtime.cuda.executor import Cuda

SLOT, SLOTS = 512 << 10, {sources.DIRECT: 2 << 20}  # bytes: small FIFOs stay in the cache; what is put needs none
PACED = 16  # real time per logical time where nothing is said


class CudaMachine(Buffers):
    """`launch` does not wait; `finish` does, and tells a deadlock. Nothing is cleared or allocated between launches, so
    they can be captured into a CUDA graph; each replay is a launch. `use` lets them work on the caller's arrays.

    Where ranks are launches of their own, each has a stream; they follow what the caller's stream holds, and it waits
    for them.
    """

    def __init__(
        self, cupy: Any, options: Cuda, program: Program, padding: Padding, kind: Dtype, op: str, in_place: bool,
        kernel: Callable[..., Any],
    ) -> None:  # fmt: skip
        self.op, layout = op, layout_of(program)
        devices.check(cupy, options.ranks_on)
        parts = cut(
            program,
            padding.elements,
            kind,
            protocol=options.protocol,
            depth=options.depth,
            part=options.part,
            runtime=options.runtime,
        )
        arena = Arena(program, layout, in_place=in_place, slices=1)
        self.code = compiled(program, arena, in_place=in_place)
        self.clock = clockwork(options, self.code, parts, kind, in_place)
        self.timed: Timed | None = None
        timed = self.clock is not None
        feature, self.tables = transports.tables(
            self.code, parts, protocol=options.protocol, in_place=in_place, direct=options.direct, clock=timed
        )
        tables = self.tables
        if not tables.balanced:
            raise SynthError(
                f"{program.name}: a connection takes fewer messages than are sent; on a GPU the next launch would "
                f"find them"
            )
        most = options.slot or SLOTS.get(feature, SLOT)
        # logical time is that of the slices that the reference executor makes
        self.cut = parts if timed else flat.finer(parts, most // flat.slot_bytes(tables, 1, kind.size, feature))
        self.crews = crews(self.code, options.ranks_on, cupy.cuda.Device().id)
        self.devices = sorted({crew.device for crew in self.crews}) or [cupy.cuda.Device().id]
        devices.connect(cupy, self.devices)
        made, several = sources.instance(program, kind, op, feature), len(self.devices) > 1
        averages = op == "avg" and layout.collective.combining
        self.kernels, self.divides = {}, {}
        for device in self.devices:
            with cupy.cuda.Device(device):
                alone = sum(crew.device == device for crew in self.crews) == 1
                self.kernels[device] = kernel(
                    made.group, made.symbol, cooperative=alone, scope="sys" if several else "gpu"
                )
                if averages:
                    self.divides[device] = kernel(
                        kind.short, f"synth_{kind.short}_divide", cooperative=False, scope="gpu"
                    )
        self.threads = self._fit(cupy, program.name, options.threads)
        scale = kind.size // made.size
        slot = partial(flat.slot_bytes, tables, size=kind.size, feature=feature)
        state = State(cupy, self.code, tables, self.cut, self.crews, slot=slot, scale=scale, timeout=options.timeout)
        if self.clock is not None:
            self._hands = devices.zeros(cupy, self.devices[0], self.clock.size)
            state.progs[0]["clock"] = self._hands.data.ptr
            self._size, self._stretch = made.size, (options.stretch or PACED) if options.clock == "paced" else 0
        on = options.ranks_on or (self.devices[0],) * program.ranks
        super().__init__(cupy, program, layout, arena, state, padding=padding, kind=kind, on=on, in_place=in_place)
        self._sides = [self._stream(crew.device) for crew in self.crews] if len(self.crews) > 1 else []
        self._forks = {cupy.cuda.Device().id: cupy.cuda.Event(disable_timing=True)}

    def _stream(self, device: int) -> tuple[Any, Any]:
        with self.cupy.cuda.Device(device):
            return self.cupy.cuda.Stream(non_blocking=True), self.cupy.cuda.Event(disable_timing=True)

    def _fit(self, cupy: Any, name: str, asked: int | None) -> int:
        """Threads a block with which all blocks of each GPU are resident at once. Raises SynthError where none is."""
        driver = cupy.cuda.driver
        if asked is not None and not 1 <= asked <= 256:
            raise UsageError(f"{asked} threads a block: 1 to 256 (--threads)")
        found = 256
        for device in self.devices:
            blocks, room = sum(crew.count for crew in self.crews if crew.device == device), 0
            with cupy.cuda.Device(device) as here:
                units = here.attributes["MultiProcessorCount"]
                for threads in (asked,) if asked else (256, 128, 64, 32):
                    room = (
                        driver.occupancyMaxActiveBlocksPerMultiprocessor(self.kernels[device].kernel.ptr, threads, 0)
                        * units
                    )
                    if blocks <= room:
                        found = min(found, threads)
                        break
                else:
                    where = "this GPU" if len(self.devices) == 1 else f"GPU {device}"
                    raise SynthError(
                        f"{name} has {blocks} thread blocks{'' if where == 'this GPU' else f' on {where}'}; at most "
                        f"{room} are resident at"
                        f" once on {where}, and those left out would be waited for: lower it with fewer instances "
                        f"or channels"
                    )
        return found

    def launch(self, stream: Any = None) -> None:
        """One run on `stream`: a CuPy or torch stream, a cudaStream_t; CuPy's current one unless given. Does not wait,
        and allocates nothing. A list gives each rank's launch a stream of its own, none of which waits for the
        others."""
        if not self._now:
            self.own()
        if self.clock is not None:  # waits: such a launch is for its time, not for a graph
            with self.cupy.cuda.Device(self.devices[0]):
                self._hands.set(self.clock.image(self._hands.data.ptr, self._size, self._stretch))
                self.state.synchronize()
        cuda, current = self.cupy.cuda, self.cupy.cuda.Device().id
        if isinstance(stream, list | tuple):
            self._start([stream[crew.rank or 0] for crew in self.crews])
        elif len(self.crews) == 1:
            self._start([stream])
        else:
            caller = devices.stream(self.cupy, stream)
            if current not in self._forks:
                self._forks[current] = cuda.Event(disable_timing=True)
            self._forks[current].record(caller)
            for side, _ in self._sides:
                side.wait_event(self._forks[current])
            self._start([side for side, _ in self._sides])
            for side, done in self._sides:
                done.record(side)
                caller.wait_event(done)

    def _start(self, streams: Sequence[Any]) -> None:
        """All launches, and only then what follows one of them: streams may share a queue of the GPU's, where what
        waits for the end of one launch would keep back the next, for which the first waits."""
        crews = [(range(self.program.ranks) if crew.rank is None else (crew.rank,), crew.device) for crew in self.crews]
        self._copied("i", crews, streams)
        for crew, argument, stream in zip(self.crews, self._now, streams, strict=False):
            with self.cupy.cuda.Device(crew.device), devices.stream(self.cupy, stream):
                self.kernels[crew.device]((crew.count,), (self.threads,), (argument,))
        for crew, stream in zip(self.crews, streams, strict=True) if self.divides else ():
            with self.cupy.cuda.Device(crew.device), devices.stream(self.cupy, stream):
                for rank in range(self.program.ranks) if crew.rank is None else (crew.rank,):
                    self._divide(rank, self.divides[crew.device])
        self._copied("o", crews, streams)

    def _copied(self, buffer: str, crews: Sequence[tuple[Sequence[int], int]], streams: Sequence[Any]) -> None:
        for (ranks, device), stream in zip(crews, streams, strict=True):
            with self.cupy.cuda.Device(device):
                self.copy(buffer, ranks, devices.stream(self.cupy, stream))

    def _divide(self, rank: int, divide: Any) -> None:
        """avg ends with one division, of the outputs of this launch, on the same stream."""
        layout, part, wanted = self.layout, self.layout.chunks * self.elements, self.layout.outputs[rank]
        for unit in range(0, len(wanted), layout.chunks):
            count = len(layout.collective.wanted(wanted[unit] // layout.chunks, rank))
            at = self._pointers[3 * rank + 1] + unit * self.elements * self.kind.size
            divide((64,), (256,), (np.uint64(at), np.int64(part), np.uint64(count)))

    def finish(self, stream: Any = None) -> None:
        """Wait for what was launched. Raises DeadlockError with who waits for whom; the next launch starts afresh."""
        if isinstance(stream, list | tuple):
            self.state.synchronize()
        else:
            devices.stream(self.cupy, stream).synchronize()
        if not self.crews:
            return
        status = self.state.statuses()
        if (status["kind"] == flat.WRONG_GRID).any():
            raise SynthError(
                f"{self.program.name}: a grid was not of the blocks that it has; is the driver another program's?"
            )
        if self.state.given_up():
            self.state.synchronize()
            status = self.state.statuses()
            self.state.clear()
            raise diagnose(halted(self.code, self.cut, waits(self.code, self.tables, status)))
        if self.clock is not None:
            with self.cupy.cuda.Device(self.devices[0]):
                self.timed = self.clock.read(self._hands.get())._replace(stretch=self._stretch)

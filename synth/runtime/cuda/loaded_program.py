"""A program loaded on one or several GPUs, for repeated launches on any stream, on its own or the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from synth.errors import SynthError, UsageError
from synth.program.buffer_layout import layout_of
from synth.program.program import Program
from synth.runtime.buffer_binding import ArrayLayout
from synth.runtime.cuda import devices
from synth.runtime.cuda.buffers import Buffers
from synth.runtime.cuda.device_state import DeviceState
from synth.runtime.dtypes import Dtype
from synth.runtime.kernel import sources, transports
from synth.runtime.kernel import tables as flat
from synth.runtime.kernel.launches import Launch, plan_launches, waits
from synth.runtime.kernel.logical_clock import ClockTimes, make_clock
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import diagnose, halted_state
from synth.runtime.reference.op_tables import compile_program
from synth.runtime.slicing import Padding, cut

if TYPE_CHECKING:
    from synth.runtime.cuda.executor import Cuda

# Maximum bytes of a FIFO slot, and by kernel feature. Small FIFOs stay in the L2 cache; a direct put passes
# through no FIFO, so its slices may be larger.
SLOT, SLOTS = 512 << 10, {sources.DIRECT: 2 << 20}


class LoadedCall(NamedTuple):
    """The calls that a program is loaded for: units of data, type, operator, and in place or not."""

    padding: Padding
    kind: Dtype
    op: str
    in_place: bool


class CudaMachine(Buffers):
    """A program loaded on GPUs. `launch` does not wait; `finish` does, and reports a deadlock.

    Nothing is cleared or allocated between launches, so they can be captured into a CUDA graph; each replay is a
    launch. `use` lets launches work on the caller's arrays. Where each rank is a launch of its own, each has a stream
    that waits for the work on the caller's stream, which in turn waits for all of them.
    """

    def __init__(
        self, cupy: Any, options: Cuda, program: Program, call: LoadedCall, kernel: Callable[..., Any]
    ) -> None:
        padding, kind, op, in_place = call
        self.op, layout = op, layout_of(program)
        devices.check_ranks_on(cupy, options.ranks_on)
        parts = cut(program, padding.elements, kind, options)
        arena = Arena(program, layout, in_place=in_place, slices=1)
        self.code = compile_program(program, arena, in_place=in_place)
        self.clock = make_clock(options, self.code, parts, kind, in_place)
        self.timed: ClockTimes | None = None
        timed = self.clock is not None
        feature, self.tables = transports.choose_transport(
            self.code, parts, protocol=options.protocol, in_place=in_place, direct=options.direct, clock=timed
        )
        tables = self.tables
        if not tables.balanced:
            raise SynthError(
                f"{program.name}: a connection takes fewer messages than are sent; on a GPU the next launch would "
                f"find them"
            )
        slot_limit = SLOTS.get(feature, SLOT)
        # logical time is defined by the slices of the reference executor, so these are not cut finer
        # one-sided programs have no slots and no slices
        self.cut = (
            parts
            if timed or feature == sources.PORTS
            else flat.with_smaller_slices(parts, slot_limit // flat.slot_bytes(tables, 1, kind.size, feature))
        )
        self.launches = plan_launches(self.code, options.ranks_on, cupy.cuda.Device().id)
        self.devices = sorted({launch.device for launch in self.launches}) or [cupy.cuda.Device().id]
        devices.enable_peer_access(cupy, self.devices)
        instance, several = sources.instance(program, kind, op, feature), len(self.devices) > 1
        averages = op == "avg" and layout.collective.combining
        self.kernels, self.divides = {}, {}
        for device in self.devices:
            with cupy.cuda.Device(device):
                # the driver runs no two cooperative launches side by side
                cooperative = sum(launch.device == device for launch in self.launches) == 1
                self.kernels[device] = kernel(
                    instance.group, instance.symbol, cooperative=cooperative, scope="sys" if several else "gpu"
                )
                if averages:
                    self.divides[device] = kernel(
                        kind.short, f"synth_{kind.short}_divide", cooperative=False, scope="gpu"
                    )
        # The threads a block with which all blocks of each GPU are resident at once.
        requested = options.threads
        driver = cupy.cuda.driver
        if requested is not None and not 1 <= requested <= 256:
            raise UsageError(f"{requested} threads a block: 1 to 256 (--threads)")
        result = 256
        for device in self.devices:
            blocks, capacity = sum(launch.count for launch in self.launches if launch.device == device), 0
            with cupy.cuda.Device(device) as current:
                units = current.attributes["MultiProcessorCount"]
                for threads in (requested,) if requested else (256, 128, 64, 32):
                    pointer = self.kernels[device].kernel.ptr
                    capacity = driver.occupancyMaxActiveBlocksPerMultiprocessor(pointer, threads, 0) * units
                    if blocks <= capacity:
                        result = min(result, threads)
                        break
                else:
                    single = len(self.devices) == 1
                    gpu = "this GPU" if single else f"GPU {device}"
                    raise SynthError(
                        f"{program.name} has {blocks} thread blocks{'' if single else f' on {gpu}'}; at most "
                        f"{capacity} are resident at once on {gpu}, and those left out would be waited for: lower it "
                        f"with fewer instances or channels"
                    )
        self.threads = result
        scale = kind.size // instance.size
        loaded = transports.KernelProgram(self.code, self.cut, feature, tables, kind.size)
        state = DeviceState(cupy, loaded, self.launches, scale=scale, timeout=options.timeout)
        if self.clock is not None:
            self._hands = devices.zeros(cupy, self.devices[0], self.clock.size)
            state.progs[0]["clock"] = self._hands.data.ptr
            self._size = instance.size
        on = options.ranks_on or (self.devices[0],) * program.ranks
        super().__init__(cupy, program, arena, state, ArrayLayout(layout, padding, kind, on, in_place))
        self._sides: list[tuple[Any, Any]] = []  # stream and end event of each launch, where there are several
        if len(self.launches) > 1:
            for launch in self.launches:
                with cupy.cuda.Device(launch.device):
                    side = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event(disable_timing=True)
                self._sides.append(side)
        self._forks = {cupy.cuda.Device().id: cupy.cuda.Event(disable_timing=True)}

    def launch(self, stream: Any = None) -> None:
        """Start one run on `stream`, without waiting and without allocating.

        `stream`: a CuPy or torch stream, or a cudaStream_t; by default CuPy's current one. A list gives each rank's
        launch its own stream, none of which waits for the others.
        """
        if not self._now:
            self.use_own_buffers()
        if self.clock is not None:  # this waits: such a launch measures logical time and is captured in no graph
            with self.cupy.cuda.Device(self.devices[0]):
                self._hands.set(self.clock.image(self._hands.data.ptr, self._size))
                self.state.synchronize()
        cuda, current = self.cupy.cuda, self.cupy.cuda.Device().id
        if isinstance(stream, list | tuple):
            self._start([stream[launch.rank or 0] for launch in self.launches])
        elif len(self.launches) == 1:
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
        """Start all launches, and only then the work that follows each of them.

        Streams may share a hardware queue. There, work that waits for the end of one launch would hold up the next
        launch, for which the first waits in turn.
        """
        self._copy_padded("i", streams)
        for launch, argument, stream in zip(self.launches, self._now, streams, strict=False):
            with self.cupy.cuda.Device(launch.device), devices.stream(self.cupy, stream):
                self.kernels[launch.device]((launch.count,), (self.threads,), (argument,))
        for launch, stream in zip(self.launches, streams, strict=True) if self.divides else ():
            with self.cupy.cuda.Device(launch.device), devices.stream(self.cupy, stream):
                for rank in self._ranks(launch):
                    # avg is the sum, divided once at the end, on the current stream.
                    divide = self.divides[launch.device]
                    layout, part, wanted = self.layout, self.layout.chunks * self.elements, self.layout.outputs[rank]
                    for unit in range(0, len(wanted), layout.chunks):
                        count = len(layout.collective.wanted(wanted[unit] // layout.chunks, rank))
                        at = self._pointers[3 * rank + 1] + unit * self.elements * self.kind.size
                        divide((64,), (256,), (np.uint64(at), np.int64(part), np.uint64(count)))
        self._copy_padded("o", streams)

    def _ranks(self, launch: Launch) -> Sequence[int]:
        return range(self.program.ranks) if launch.rank is None else (launch.rank,)

    def _copy_padded(self, buffer: str, streams: Sequence[Any]) -> None:
        for launch, stream in zip(self.launches, streams, strict=True):
            with self.cupy.cuda.Device(launch.device):
                self.copy(buffer, self._ranks(launch), devices.stream(self.cupy, stream))

    def finish(self, stream: Any = None) -> None:
        """Wait for the launches on `stream` (on a list of streams: for all).

        Raises DeadlockError with the blocks that wait for each other; the next launch then starts from a clear state.
        """
        if isinstance(stream, list | tuple):
            self.state.synchronize()
        else:
            devices.stream(self.cupy, stream).synchronize()
        if not self.launches:
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
            raise diagnose(halted_state(self.code, self.cut, waits(self.tables, status)))
        if self.clock is not None:
            with self.cupy.cuda.Device(self.devices[0]):
                self.timed = self.clock.read(self._hands.get())

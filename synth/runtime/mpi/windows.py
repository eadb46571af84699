"""One-sided ops between MPI processes: every rank's memory lies in a window of MPI, and ops are calls of RMA.

A put is an MPI_Put and a fetched source an MPI_Get, each completed by a flush. A signal is an MPI_Accumulate that adds
one to a counter of the receiver, which polls it. A put completes before the signal after it, so what is ordered by
signals alone is ordered here. MPI has no switch that multicasts: a multicast is a put to each rank of the group, and a
fetched sum a get from each, combined in the order of the sources, which gives all executors the same bits.

The window of a rank holds: its counters, int64 each; its buffers, row by row; for each row a byte that says that it is
written; for each row a byte that says that it is written as packets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from synth.errors import VerificationError
from synth.runtime.reference.event_loop import Engine
from synth.runtime.reference.onesided_ops import Job, OneSidedOps
from synth.runtime.reference.op_tables import CompiledOp, CompiledProgram, Place, PortKey

_COUNTER = np.dtype(np.int64)


class Windows:
    """The windows of all ranks, as rank `rank` accesses them; it and `close` are called by all processes together.

    `row_bytes`: bytes of a row. `signals`: signals on each port of this rank that have been seen.
    """

    def __init__(self, mpi: Any, comm: Any, engine: Engine, code: CompiledProgram) -> None:
        self.mpi, self.rank, self.rows = mpi, comm.rank, engine.arena.rows
        self.row_bytes = engine.cut.elements * engine.size
        self.counters = _numbered_ports(code)
        self.signals = dict.fromkeys(self.counters[self.rank], 0)
        rows, buffers, written, flags = self.rows[self.rank], *self._places(self.rank)
        self.window = mpi.Win.Allocate(flags + rows, 1, comm=comm)
        memory = np.frombuffer(self.window.tomemory(), np.uint8)
        memory[:] = 0
        self.own_counters = memory[:buffers].view(_COUNTER)
        self.own_buffers = memory[buffers:written]
        self.own_written, self.own_packets = memory[written:flags], memory[flags : flags + rows]
        self.window.Lock_all()

    def _places(self, rank: int) -> tuple[int, int, int]:
        """Return where buffers, bytes for written rows and bytes for packets begin in the window of `rank`."""
        buffers = len(self.counters[rank]) * _COUNTER.itemsize
        written = buffers + self.rows[rank] * self.row_bytes
        return buffers, written, written + self.rows[rank]

    def put(self, place: Place, count: int, value: np.ndarray) -> None:
        """Write `count` rows of another rank."""
        buffers, written, _ = self._places(place.rank)
        self._write(place.rank, buffers + place.row * self.row_bytes, np.ascontiguousarray(value))
        self._write(place.rank, written + place.row, np.ones(count, np.uint8))
        self.window.Flush(place.rank)

    def put_flags(self, place: Place, count: int) -> None:
        """Mark `count` rows of another rank as packets that have been written."""
        self._write(place.rank, self._places(place.rank)[2] + place.row, np.ones(count, np.uint8))
        self.window.Flush(place.rank)

    def get(self, place: Place, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of `count` rows of another rank from row `first` of `place`, and which ones are written."""
        buffers, written, _ = self._places(place.rank)
        row = place.row + first
        data, flags = np.empty(count * self.row_bytes, np.uint8), np.empty(count, np.uint8)
        for at, array in ((buffers + row * self.row_bytes, data), (written + row, flags)):
            self.window.Get([array, self.mpi.BYTE], place.rank, target=(at, array.nbytes, self.mpi.BYTE))
        self.window.Flush(place.rank)
        return data, flags

    def signal(self, port: PortKey) -> None:
        """Add one signal to a port of another rank."""
        at = self.counters[port[0]][port] * _COUNTER.itemsize
        one, kind = np.ones(1, _COUNTER), self.mpi.INT64_T
        self.window.Accumulate([one, kind], port[0], target=(at, 1, kind), op=self.mpi.SUM)
        self.window.Flush(port[0])

    def new_signals(self) -> list[PortKey]:
        """Return the ports of this rank on which signals have arrived since the last call, one entry a signal."""
        self.window.Sync()
        arrived = []
        for port, number in self.counters[self.rank].items():
            count = int(self.own_counters[number])
            arrived += [port] * (count - self.signals[port])
            self.signals[port] = count
        return arrived

    def close(self) -> None:
        """Free the windows, when all processes have ended their ops."""
        self.window.Unlock_all()
        self.window.Free()

    def _write(self, rank: int, at: int, value: np.ndarray) -> None:
        data = value.reshape(-1).view(np.uint8)
        self.window.Put([data, self.mpi.BYTE], rank, target=(at, data.nbytes, self.mpi.BYTE))
        # the array may change or be freed once the put has completed here
        self.window.Flush_local(rank)


def _numbered_ports(code: CompiledProgram) -> list[dict[PortKey, int]]:
    """Return for each rank the number of each of its ports that sends or takes signals."""
    ports: set[PortKey] = set()
    for steps in code.steps:
        for step in steps:
            for rank, kind, peer, index in step.ports:
                ports.update([(rank, kind, peer, index), (peer, kind, rank, index)])
    numbers: list[dict[PortKey, int]] = [{} for _ in range(code.program.ranks)]
    for port in sorted(ports):
        numbers[port[0]][port] = len(numbers[port[0]])
    return numbers


class WindowEngine(Engine):
    """The event loop of one rank, whose ops reach the memory of other ranks through `windows`."""

    windows: Windows

    def open_windows(self, mpi: Any, comm: Any, code: CompiledProgram) -> None:
        """Move this rank's memory into a window. `code`: the ops of all ranks; called by all processes together."""
        self.windows = Windows(mpi, comm, self, code)
        self.one_sided = WindowOps(self)
        rank, data = comm.rank, self.arena.data
        if data is not None:
            inside = self.windows.own_buffers.view(data[rank].dtype).reshape(data[rank].shape)
            inside[:] = data[rank]
            data[rank] = inside
        self.windows.own_written[:] = np.frombuffer(self.arena.written[rank], np.uint8)
        self.windows.window.Sync()

    def close_windows(self) -> None:
        """Move this rank's memory out of its window; called by all processes together, when none has an op left."""
        rank, data = self.windows.rank, self.arena.data
        self.windows.window.Sync()
        if data is not None:
            data[rank] = data[rank].copy()
        self.arena.written[rank][:] = self.windows.own_written.tobytes()
        self.windows.close()

    def poll(self) -> int:
        """Wake the blocks that wait for a signal or for packets that have arrived. Returns the number of both."""
        ops, rank = self.one_sided, self.windows.rank
        arrived = self.windows.new_signals()
        for port in arrived:
            ops.receive_signal(port, self.now)
        packets = self.windows.own_packets.tobytes()
        if packets != ops.flags[rank]:
            ops.flags[rank][:] = packets
            ops.wake_readers(rank)
            return len(arrived) + 1
        return len(arrived)

    def load(self, b: int, place: Place, first: int, count: int, late: tuple[int, int] | None = None) -> Any:
        """Return `count` rows from row `first` of a span; those of another rank are fetched."""
        rank, data = self.windows.rank, self.arena.data
        if place.rank == rank or data is None:
            row = place.row + first
            self.arena.written[rank][row : row + count] = self.windows.own_written[row : row + count].tobytes()
            return super().load(b, place, first, count, late)
        fetched, written = self.windows.get(place, first, count)
        if not written.all():
            name = self.arena.name(place.rank, place.row + first + int(written.argmin()))
            where = self.code.where(b, late[0] if late else self.pc[b])
            raise VerificationError(f"{where} reads {name} of rank {place.rank}, which nothing has written yet")
        return fetched.view(data[rank].dtype).reshape(count, self.cut.elements)

    def put(self, place: Place, first: int, count: int, value: Any, which: int) -> None:
        """Write `value` into `count` rows from row `first` of a span, on this rank or another one."""
        if place.rank != self.windows.rank:
            self.windows.put(place._replace(row=place.row + first), count, value)
            return
        super().put(place, first, count, value, which)
        self.windows.own_written[place.row + first : place.row + first + count] = 1


class WindowOps(OneSidedOps):
    """One-sided ops whose signals and packets go through windows."""

    engine: WindowEngine

    def _signal(self, b: int, step: CompiledOp) -> Job:
        engine = self.engine
        yield engine.resume_at(b, engine.now)  # the puts before it, which the event loop has put off, go first
        for rank, kind, peer, index in step.ports:
            engine.windows.signal((peer, kind, rank, index))
        return engine.now

    def _land(self, place: Place, count: int, value: Any, which: int) -> None:
        windows = self.engine.windows
        if place.rank == windows.rank:
            super()._land(place, count, value, which)
            if place.packet:
                windows.own_packets[place.row : place.row + count] = 1
            return
        self.engine.put(place, 0, count, value, which)
        if place.packet:
            windows.put_flags(place, count)

"""What a loaded program keeps in GPU memory: tables, FIFOs, counters and flags, where the launch that reads or waits
for them is.

A FIFO and its count of messages sent lie in the receiver's memory, the counts of messages taken and of launches that
the receiver has begun in the sender's, so nobody polls across a link. Each launch has tables, flags and statuses of its
own; giving up is one flag, in the first's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from synth.runtime.cuda.devices import zeros
from synth.runtime.kernel import tables as flat
from synth.runtime.kernel.launches import Crew, own_deps
from synth.runtime.reference.op_tables import Compiled
from synth.runtime.slicing import Cut

LINE = 128  # bytes between counters


class State:
    """`progs[k]`: the kernel's Prog of launch k, all but the buffers. `slot`: bytes of a FIFO slot for slices of so
    many elements of a chunk. `scale`: what the kernel calls elements, of one element."""

    def __init__(
        self,
        cupy: Any,
        code: Compiled,
        tables: flat.Tables,
        cut: Cut,
        crews: Sequence[Crew],
        *,
        slot: Callable[[int], int],
        scale: int,
        timeout: float,
    ) -> None:
        self.cupy, self.code, self.crews = cupy, code, crews
        self.step = max((high - low for low, high in cut.bounds), default=0)
        self.slots = -(-cut.depth * slot(self.step) // 128) * 128 or 128
        devices = sorted({crew.device for crew in crews})
        self._lines: list[Any] = []  # memory of counters and FIFOs, by device
        conns = self._connections(devices)
        self._fresh = np.frombuffer(conns.tobytes(), np.uint8)
        deps = own_deps(tables, code, crews) if len(crews) > 1 else tables.deps
        self._tables = {device: [self._put(device, t) for t in (tables.blocks, tables.ops, deps)] for device in devices}
        self._conns = {device: self._put(device, conns) for device in devices}
        self.flags = [zeros(cupy, crew.device, 3 * 8 * max(1, crew.count)) for crew in crews]  # done, run, beat
        self.status = [zeros(cupy, crew.device, crew.count * flat.STATUS.itemsize) for crew in crews]
        self.abort = zeros(cupy, crews[0].device if crews else 0, 8)
        watched = np.array(
            [(f.data.ptr + 16 * crew.count, crew.count) for f, crew in zip(self.flags, crews, strict=True)], flat.CREW
        )
        self._watched = {device: self._put(device, watched) for device in devices}
        common = {
            "elements": cut.elements * scale,
            "step": self.step * scale,
            "timeout": int(timeout * 1e9),
            "slices": len(cut.bounds),
            "part": min(cut.part, flat.MAX_INT),
            "nslots": cut.depth,
            "slot_chunks": tables.slot_chunks,
            "ncrews": len(crews),
            "abort": self.abort.data.ptr,
        }
        self.progs = [self._prog(k, common) for k in range(len(crews))]

    def _put(self, device: int, table: np.ndarray) -> Any:
        with self.cupy.cuda.Device(device):
            return self.cupy.asarray(np.frombuffer(table.tobytes() or b"\0", np.uint8))

    def _connections(self, devices: Sequence[int]) -> np.ndarray:
        """The table of connections, and the memory of their FIFOs and counters."""
        wires = self.code.wires
        home = {crew.rank: crew.device for crew in self.crews}
        at = [
            (home.get(w.src, devices[0]), home.get(w.dst, devices[0])) if None not in home else (devices[0],) * 2
            for w in wires
        ]
        conns = np.zeros(max(1, len(wires)), flat.CONN)
        for device in devices:
            taken = [w for w, (_, there) in enumerate(at) if there == device]
            sent = [w for w, (here, _) in enumerate(at) if here == device]
            fifos = zeros(self.cupy, device, len(taken) * self.slots)
            lines = zeros(self.cupy, device, (len(taken) + 2 * len(sent)) * LINE)
            self._lines += [fifos, lines]
            for k, w in enumerate(taken):
                conns[w]["fifo"], conns[w]["tail"] = fifos.data.ptr + k * self.slots, lines.data.ptr + k * LINE
            for k, w in enumerate(sent):
                conns[w]["head"] = lines.data.ptr + (len(taken) + 2 * k) * LINE
                conns[w]["entry"] = conns[w]["head"] + LINE
        return conns

    def _prog(self, k: int, common: dict[str, int]) -> np.ndarray:
        crew, prog = self.crews[k], np.zeros((), flat.PROG)
        blocks, ops, deps = self._tables[crew.device]
        own = {
            "blocks": blocks.data.ptr + crew.first * flat.BLOCK.itemsize,
            "ops": ops.data.ptr,
            "deps": deps.data.ptr,
            "conns": self._conns[crew.device].data.ptr,
            "status": self.status[k].data.ptr,
            "crews": self._watched[crew.device].data.ptr,
            "nblocks": crew.count,
        }
        flags = {name: self.flags[k].data.ptr + 8 * crew.count * i for i, name in enumerate(("done", "run", "beat"))}
        for name, value in (common | own | flags).items():
            prog[name] = value
        return prog

    def statuses(self) -> np.ndarray:
        """How every block has ended, in the order of `code.place`."""
        found = []
        for crew, status in zip(self.crews, self.status, strict=True):
            with self.cupy.cuda.Device(crew.device):
                found.append(np.frombuffer(status.get().tobytes(), flat.STATUS)[: crew.count])
        return np.concatenate(found) if found else np.zeros(0, flat.STATUS)

    def given_up(self) -> bool:
        """Whether a block has found that nothing moves any more."""
        with self.cupy.cuda.Device(self.crews[0].device):
            return bool(np.frombuffer(self.abort.get().tobytes(), np.uint64)[0])

    def clear(self) -> None:
        """As before the first launch: counters, flags and what the connections remember of them are 0."""
        for array in (*self._lines, *self.flags, *self.status, self.abort):
            with self.cupy.cuda.Device(array.device.id):
                array.data.memset(0, array.nbytes)
        for device, conns in self._conns.items():
            with self.cupy.cuda.Device(device):
                conns.set(self._fresh)
        self.synchronize()

    def synchronize(self) -> None:
        """Waits for all of the GPUs in use."""
        for device in {crew.device for crew in self.crews}:
            with self.cupy.cuda.Device(device) as here:
                here.synchronize()

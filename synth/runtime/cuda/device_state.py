"""Tables, FIFOs, counters and flags of a loaded program in GPU memory, each beside the launch that polls it.

A FIFO and its count of messages sent lie in the receiver's memory. The counts of messages taken, and of launches that
the receiver has begun, lie in the sender's. So no block polls across a link. Each launch has its own tables, flags and
statuses. All share one abort flag, in the memory of the first launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.runtime.cuda.devices import zeros
from synth.runtime.kernel import tables as flat
from synth.runtime.kernel.launches import Launch, local_dependencies
from synth.runtime.kernel.transports import KernelProgram

LINE = 128  # bytes between counters: a cache line of the GPU, so that two counters do not share one


class DeviceState:
    """The state of a loaded program in GPU memory; `progs[k]` is the kernel's Prog of launch k without the buffers.

    `timeout`: seconds without progress until the kernel gives up. `scale`: the kernel's elements in one element of the
    program (its bytes, where the kernel moves bytes).
    """

    def __init__(
        self,
        cupy: Any,
        program: KernelProgram,
        launches: Sequence[Launch],
        *,
        scale: int,
        timeout: float,
    ) -> None:
        code, cut, _, tables, _ = program
        self.cupy, self.code, self.launches, self._ends = cupy, code, launches, tables.ends
        self.slots = -(-cut.depth * program.slot(cut.step) // 128) * 128 or 128
        devices = sorted({launch.device for launch in launches})
        self._lines: list[Any] = []  # memory of counters and FIFOs, by device
        # The table of connections; allocates their FIFOs and counters.
        # one launch of all ranks has rank None: then no rank is found, and the default is its device
        home = {launch.rank: launch.device for launch in self.launches}
        ends = [(home.get(src, devices[0]), home.get(dst, devices[0])) for src, dst in self._ends]
        conns = np.zeros(max(1, len(ends)), flat.CONN)
        for device in devices:
            taken = [w for w, (_, receiver) in enumerate(ends) if receiver == device]
            sent = [w for w, (sender, _) in enumerate(ends) if sender == device]
            fifos = zeros(self.cupy, device, len(taken) * self.slots)
            lines = zeros(self.cupy, device, (len(taken) + 2 * len(sent)) * LINE)
            self._lines += [fifos, lines]
            for k, w in enumerate(taken):
                conns[w]["fifo"], conns[w]["tail"] = fifos.data.ptr + k * self.slots, lines.data.ptr + k * LINE
            for k, w in enumerate(sent):
                conns[w]["head"] = lines.data.ptr + (len(taken) + 2 * k) * LINE
                conns[w]["entry"] = conns[w]["head"] + LINE
        self._fresh = np.frombuffer(conns.tobytes(), np.uint8)
        deps = local_dependencies(tables, code, launches) if len(launches) > 1 else tables.deps
        arrays = {"blocks": tables.blocks, "ops": tables.ops, "deps": deps, "acts": tables.acts, "terms": tables.terms}
        arrays["conns"] = conns
        self._tables: dict[int, dict[str, Any]] = {}
        for device in devices:
            self._tables[device] = {name: self._put(device, table) for name, table in arrays.items()}
        self.flags = [
            zeros(cupy, launch.device, 3 * 8 * max(1, launch.count)) for launch in launches
        ]  # done, run, beat
        self.status = [zeros(cupy, launch.device, launch.count * flat.STATUS.itemsize) for launch in launches]
        self.abort = zeros(cupy, launches[0].device if launches else 0, 8)
        pairs = zip(self.flags, launches, strict=True)  # the beats follow `done` and `run`, 8 bytes a block each
        watched = np.array([(flags.data.ptr + 16 * launch.count, launch.count) for flags, launch in pairs], flat.LAUNCH)
        for device in devices:
            self._tables[device]["launches"] = self._put(device, watched)
        common = {
            "elements": cut.elements * scale,
            "step": cut.step * scale,
            "timeout": int(timeout * 1e9),
            "slices": len(cut.bounds),
            "part": min(cut.part, flat.MAX_INT),
            "nslots": cut.depth,
            "slot_chunks": tables.slot_chunks,
            "nlaunches": len(launches),
            "abort": self.abort.data.ptr,
        }
        self.progs = [self._prog(k, common) for k in range(len(launches))]

    def _put(self, device: int, table: np.ndarray) -> Any:
        with self.cupy.cuda.Device(device):
            return self.cupy.asarray(np.frombuffer(table.tobytes() or b"\0", np.uint8))

    def _prog(self, k: int, common: dict[str, int]) -> np.ndarray:
        """Return the kernel's argument for launch k: its own blocks, flags and statuses, and what its device has."""
        launch, tables = self.launches[k], {}
        for name, table in self._tables[launch.device].items():
            tables[name] = table.data.ptr
        tables["blocks"] += launch.first * flat.BLOCK.itemsize
        for i, name in enumerate(("done", "run", "beat")):
            tables[name] = self.flags[k].data.ptr + 8 * launch.count * i
        return flat.kernel_argument({}, **common, **tables, status=self.status[k].data.ptr, nblocks=launch.count)

    def statuses(self) -> np.ndarray:
        """Return the final status of every block, in the order of `code.place`."""
        rows = []
        for launch, status in zip(self.launches, self.status, strict=True):
            with self.cupy.cuda.Device(launch.device):
                rows.append(np.frombuffer(status.get().tobytes(), flat.STATUS)[: launch.count])
        return np.concatenate(rows) if rows else np.zeros(0, flat.STATUS)

    def given_up(self) -> bool:
        """Return True if a block has set the abort flag, because no block made progress for `timeout` seconds."""
        with self.cupy.cuda.Device(self.launches[0].device):
            return bool(np.frombuffer(self.abort.get().tobytes(), np.uint64)[0])

    def clear(self) -> None:
        """Reset to the state before the first launch: counters, flags and the connections' copies of them are 0."""
        for array in (*self._lines, *self.flags, *self.status, self.abort):
            with self.cupy.cuda.Device(array.device.id):
                array.data.memset(0, array.nbytes)
        for device, tables in self._tables.items():
            with self.cupy.cuda.Device(device):
                tables["conns"].set(self._fresh)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait for all GPUs in use."""
        for device in {launch.device for launch in self.launches}:
            with self.cupy.cuda.Device(device) as here:
                here.synchronize()

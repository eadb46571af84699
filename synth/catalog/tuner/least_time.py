"""The least time that a schedule's program can take by the clock of predicted times, without a run of it.

A message is on its way for the α of its link and for the bytes of its first slice; it leaves after every message to its
sender, in earlier steps, that brought or added to its chunk. The longest chain of such messages is one lower bound.
What the busiest link or shared limit carries in all is another. Neither counts that messages wait for each other, or
the cost of a message. NCCL's rings for allgather, reduce-scatter and allreduce took 1 to 1.09 times as long in runs (4
machines of 8 to 32 ranks, 4 KB to 64 MB), its pipelined broadcasts up to 2.2 times.
"""

from __future__ import annotations

import numpy as np

from synth.model.schedule import Schedule
from synth.model.topology import Network


class LeastTime:
    """The least time of the program of `schedule`, which has no sends through switches that multicast.

    `network`: that of the schedule, with the latencies and the bandwidth of the program's protocol.
    """

    def __init__(self, schedule: Schedule, network: Network) -> None:
        index = network.route_index
        # by step: chunk, source, destination and route of each send
        self._steps: list[np.ndarray] = []
        for step in schedule.steps:
            sends = [send for send in step.unicast_sends if not send.local]
            rows = [(send.chunk, send.src, send.dst, index[send.src, send.dst, send.via]) for send in sends]
            self._steps.append(np.array(rows, dtype=np.int64).reshape(-1, 4))
        every = np.concatenate([np.empty((0, 4), dtype=np.int64), *self._steps])
        sends = np.bincount(every[:, 3], minlength=len(network.routes))
        unit = float(network.unit) * 1000  # bytes/µs
        self._latency = np.array([float(route.latency) for route in network.routes])
        self._rate = np.array([float(route.units) for route in network.routes]) * unit
        self._ends = network.ranks, 1 + int(every[:, 0].max(initial=-1))
        # of each route and limit that is used: its least latency, and its µs for a byte of each chunk
        used = sends > 0
        self._busy = list(zip(self._latency[used], (sends / self._rate)[used], strict=True))
        for cap in network.caps:
            routes = np.array([route for route in cap.routes if used[route]], dtype=np.int64)
            if len(routes):
                carried = float(sends[routes].sum()) / (float(cap.units) * unit)
                self._busy.append((self._latency[routes].min(), carried))

    def microseconds(self, chunk: float, slice_bytes: int) -> float:
        """Return the least µs without a launch, for chunks of `chunk` bytes in slices of at most `slice_bytes`."""
        hop = self._latency + min(chunk, slice_bytes) / self._rate
        arrived = np.zeros(self._ends)
        for rows in self._steps:
            number, src, dst, route = rows.T
            np.maximum.at(arrived, (dst, number), arrived[src, number] + hop[route])
        return float(max(arrived.max(initial=0.0), *(latency + chunk * share for latency, share in self._busy), 0.0))

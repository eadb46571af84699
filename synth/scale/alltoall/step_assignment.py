"""List scheduling of paths: an alltoall as a schedule whose hops are distributed evenly over the steps.

Each hop of a chunk gets a later step than the hop before. With as many steps as the longest path has hops, there is
little choice. With more steps the loads become even, and R / C falls towards the congestion of the flows. Loads count
all images under the group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.errors import UsageError
from synth.model.compressed_schedule import COPY, CompressedSchedule
from synth.scale.alltoall.concurrent_flow import ConcurrentFlow
from synth.scale.alltoall.flow_decomposition import chunk_count, chunk_paths
from synth.scale.forests.pipelining import link_orbits
from synth.solvers.deadline import check_deadline

# Limit on the hops of all paths.
MOST_HOPS = 1 << 23
# Chunks that are scheduled between two checks of the deadline.
LOOK = 256


class AlltoallPaths:
    """The paths of all chunks of an alltoall, from the flows `made`. `longest`: hops of the longest path."""

    def __init__(self, made: ConcurrentFlow, chunks: int | None = None) -> None:
        self.made, self.topology = made, made.fabric.topology
        self.chunks = chunk_count(made) if chunks is None else chunks
        if self.chunks < 1:
            raise UsageError(f"{self.chunks} chunks; at least 1")
        ranks = self.topology.ranks
        ends = ranks + len(self.topology.switches)
        self.generators = tuple(tuple(pi[:ends].tolist()) for pi in made.group)
        self.copies = ranks // len(made.sources)
        self.items: list[tuple[int, tuple[tuple[int, ...], ...]]] = []
        for source, routes in zip(made.sources.tolist(), chunk_paths(made, self.chunks), strict=True):
            names = [
                (source * ranks + t) * self.chunks + i for t in range(ranks) if t != source for i in range(self.chunks)
            ]
            self.items += zip(names, routes, strict=True)
        if sum(len(path) for _, path in self.items) > MOST_HOPS:
            raise UsageError(f"more than {MOST_HOPS} hops; ask for fewer chunks")
        self.longest = max((len(path) for _, path in self.items), default=0)
        self._resources()

    def _resources(self) -> None:
        """Compute the resources of each link, orbits of links and limits, and their capacities in one round."""
        topology = self.topology
        label = link_orbits(topology, [np.array(pi, np.int64) for pi in self.generators])
        size = np.bincount(label, minlength=len(label))
        unit = topology.unit_bandwidth()
        used = sorted({i for _, path in self.items for hop in path for i in hop})
        orbits = np.unique(label[used])
        number = {int(o): r for r, o in enumerate(orbits)}
        # The load of an orbit of links counts all images, and its capacity is that of all its links.
        self.capacity = [int(topology.links[o].bandwidth / unit) * int(size[o]) for o in orbits]
        self.uses: dict[int, list[tuple[int, int]]] = {i: [(number[int(label[i])], self.copies)] for i in used}
        wanted = set(map(int, orbits))
        rows: dict[tuple, int] = {}
        for limit in topology.limits:
            members, times = np.unique(label[np.array(limit.links, np.int64)], return_counts=True)
            relevant = [(int(m), int(n)) for m, n in zip(members, times, strict=True) if int(m) in wanted]
            key = (limit.bandwidth, tuple(relevant))
            if not relevant or key in rows:
                continue
            rows[key] = len(self.capacity)
            # a hop over a link of orbit o puts copies * n / size[o] on this limit: counted in common parts
            scale = int(np.lcm.reduce([int(size[m]) for m, _ in relevant]))
            self.capacity.append(int(limit.bandwidth / unit) * scale)
            for m, n in relevant:
                for i in used:
                    if label[i] == m:
                        self.uses[i].append((rows[key], self.copies * n * (scale // int(size[m]))))

    def schedule(self, steps: int) -> CompressedSchedule:
        """Return the schedule with `steps` steps. Raises UsageError where the longest path has more hops."""
        if steps < self.longest:
            raise UsageError(f"{steps} steps; the longest path has {self.longest} hops")
        capacity = np.array(self.capacity, float)
        total = np.zeros(len(capacity))
        for _, way in self.items:
            for hop in way:
                for i in hop:
                    for r, n in self.uses[i]:
                        total[r] += n
        # Rounds of the most loaded resource divided by the steps: the load up to which a step is filled first.
        even = (total / capacity).max(initial=0.0) / max(steps, 1)
        load = np.zeros((steps, len(capacity)))
        placed: list[tuple[int, int, tuple[int, ...]]] = []
        for at, (chunk, way) in enumerate(sorted(self.items, key=lambda item: -len(item[1]))):
            earliest = 0
            if not at % LOOK:
                check_deadline()
            for h, hop in enumerate(way):
                last = steps - (len(way) - h)
                use = [pair for i in hop for pair in self.uses[i]]
                t = self._step(load, use, capacity, range(earliest, last + 1), even)
                for r, n in use:
                    load[t, r] += n / capacity[r]
                placed.append((t, chunk, hop))
                earliest = t + 1
        rounds = np.maximum(1, np.ceil(load.max(axis=1, initial=0.0) - 1e-9)).astype(np.int64)
        paths: dict[tuple[int, ...], int] = {}
        step = np.array([t for t, _, _ in placed], np.int64)
        chunk = np.array([c for _, c, _ in placed], np.int64)
        path = np.array([paths.setdefault(hop, len(paths)) for _, _, hop in placed], np.int64)
        kind = np.full(len(placed), COPY)
        return CompressedSchedule(
            self.topology, "alltoall", None, self.chunks, rounds, step, chunk, path, kind, tuple(paths), self.generators
        )

    def _step(
        self,
        load: np.ndarray,
        use: Sequence[tuple[int, int]],
        capacity: np.ndarray,
        steps: range,
        even: float,
    ) -> int:
        """Return the first step whose load stays below `even`, else the least loaded step."""
        best, least = steps.start, float("inf")
        for t in steps:
            top = max(load[t, r] + n / capacity[r] for r, n in use)
            if top <= even + 1e-9:
                return t
            if top < least - 1e-12:
                best, least = t, top
        return best


def with_more_chunks(flows: ConcurrentFlow, way: AlltoallPaths, slack: int = 4) -> AlltoallPaths:
    """Return paths with more chunks: links need about `slack` times as many rounds as the longest path has hops.

    `way`: the paths with the least number of chunks.
    """
    first = way.chunks
    wanted = -(-slack * way.longest // max(1, int(flows.congestion * first)))
    hops = sum(len(route) for _, route in way.items)
    times = max(1, min(wanted, MOST_HOPS // max(1, 4 * hops)))
    return way if times == 1 else AlltoallPaths(flows, first * times)

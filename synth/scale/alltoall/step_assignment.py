"""List scheduling of paths: an alltoall as a schedule whose hops are distributed evenly over the steps.

Each hop of a chunk gets a later step than the hop before. With as many steps as the longest path has hops, there is
little choice. With more steps the loads become even, and R / C falls towards the congestion of the flows. Loads count
all images under the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from synth.errors import UsageError
from synth.model.compressed_schedule import COPY, CompressedSchedule
from synth.scale.alltoall.concurrent_flow import ConcurrentFlow
from synth.scale.alltoall.flow_decomposition import chunk_count, chunk_paths
from synth.scale.fabric.link_loads import link_loads
from synth.solvers.deadline import check_deadline, current_deadline

# Limit on the hops of all paths.
MOST_HOPS = 1 << 23
# Rounds of the fullest link with many chunks, as a multiple of the hops of the longest path.
SLACK = 4
# Chunks that are scheduled between two checks of the deadline.
LOOK = 256


class AlltoallPaths:
    """The paths of all chunks of an alltoall, from the flows `made`. `longest`: hops of the longest path."""

    def __init__(self, made: ConcurrentFlow, chunks: int) -> None:
        self.topology, self.chunks = made.fabric.topology, chunks
        ranks = self.topology.ranks
        ends = ranks + len(self.topology.switches)
        self.generators = tuple(tuple(pi[:ends].tolist()) for pi in made.group)
        self.items: list[tuple[int, tuple[tuple[int, ...], ...]]] = []
        for source, routes in zip(made.sources.tolist(), chunk_paths(made, self.chunks), strict=True):
            names = [
                (source * ranks + t) * self.chunks + i for t in range(ranks) if t != source for i in range(self.chunks)
            ]
            self.items += zip(names, routes, strict=True)
        if sum(len(path) for _, path in self.items) > MOST_HOPS:
            raise UsageError(f"more than {MOST_HOPS} hops; ask for fewer chunks")
        self.longest = max((len(path) for _, path in self.items), default=0)

        # What a chunk takes of a round of each orbit of links and limit on each link, with all its images.
        usage, capacity = link_loads(self.topology, [np.array(pi, np.int64) for pi in self.generators])
        links = np.array([link for _, path in self.items for hop in path for link in hop], np.int64)
        used, times = np.unique(links, return_counts=True)
        rows = usage[used]
        busy, place = np.unique(rows.indices, return_inverse=True)
        shares = rows.data / capacity[rows.indices]
        self.total = np.bincount(place, shares * np.repeat(times, np.diff(rows.indptr)), len(busy))
        self.uses: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for link, (start, end) in zip(used.tolist(), pairwise(rows.indptr.tolist()), strict=True):
            self.uses[link] = place[start:end], shares[start:end]

    def schedule(self, steps: int) -> CompressedSchedule:
        """Return the schedule with `steps` steps. Raises UsageError where the longest path has more hops."""
        if steps < self.longest:
            raise UsageError(f"{steps} steps; the longest path has {self.longest} hops")
        # Rounds of the most loaded resource divided by the steps: the load up to which a step is filled first.
        even = self.total.max(initial=0.0) / max(steps, 1)
        load = np.zeros((steps, len(self.total)))
        placed: list[tuple[int, int, tuple[int, ...]]] = []
        for at, (chunk, way) in enumerate(sorted(self.items, key=lambda item: -len(item[1]))):
            earliest = 0
            if not at % LOOK:
                check_deadline()
            for h, hop in enumerate(way):
                # the first step whose load stays below `even`, else the least loaded one
                last = steps - (len(way) - h)
                resources, shares = map(np.concatenate, zip(*(self.uses[link] for link in hop), strict=True))
                tops = (load[earliest : last + 1, resources] + shares).max(axis=1)
                low = np.flatnonzero(tops <= even + 1e-9)
                t = earliest + int(low[0] if len(low) else tops.argmin())
                np.add.at(load[t], resources, shares)
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


def path_sets(flows: ConcurrentFlow, few_chunks: bool = False) -> Iterator[AlltoallPaths]:
    """Yield paths of the flows with the least number of chunks that they need, then with many; or with one chunk alone.

    Under a time limit paths of one chunk come first. With many chunks links need about `SLACK` times as many rounds as
    the longest path has hops.
    """
    least = chunk_count(flows)
    if few_chunks or (least > 1 and current_deadline().limited):
        yield AlltoallPaths(flows, 1)
    if few_chunks:
        return
    few = AlltoallPaths(flows, least)
    yield few
    wanted = -(-SLACK * few.longest // max(1, int(flows.congestion * least)))
    hops = sum(len(route) for _, route in few.items)
    times = min(wanted, MOST_HOPS // max(1, 4 * hops))
    if times > 1:
        yield AlltoallPaths(flows, least * times)

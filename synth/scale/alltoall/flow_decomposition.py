"""Flow decomposition: the flows of an alltoall as paths of whole chunks, `chunks` for each source and destination.

The flow of a source is multiplied by the number of chunks and rounded to integers by one maximum flow, which loses
nothing because it is a single commodity. The integral flow is then decomposed into paths from the source.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

import numpy as np

from synth.errors import SynthError
from synth.scale.alltoall.concurrent_flow import ConcurrentFlow
from synth.scale.fabric.fabric import Fabric
from synth.solvers.deadline import check_deadline
from synth.solvers.max_flow import MaxFlow

# Limit on the number of chunks that is tried to make the flows integral without rounding.
MOST_CHUNKS = 24
# Limit on the equally short detours over which the chunks of a pair are distributed.
MOST_DETOURS = 64


def chunk_count(flows: ConcurrentFlow) -> int:
    """Return the least number of chunks that makes the flows integral, else one that rounds them by a few percent."""
    values = np.unique(np.round(flows.flow % 1, 7))
    if len(values) > 200:
        return 4
    for chunks in range(1, MOST_CHUNKS + 1):
        scaled = values * chunks
        if (abs(scaled - np.round(scaled)) < 1e-5).all():
            return chunks
    shares = {Fraction(float(v)).limit_denominator(60).denominator for v in values}
    return min(max(shares), MOST_CHUNKS)


def chunk_paths(flows: ConcurrentFlow, chunks: int) -> list[list[tuple[tuple[int, ...], ...]]]:
    """Return for each source the paths of its chunks, sorted by (destination, chunk).

    A path is a tuple of hops from rank to rank, and a hop is the tuple of its links.
    """
    fabric = flows.fabric
    paths, detours = [], _Detours(fabric)
    for k, source in enumerate(flows.sources.tolist()):
        check_deadline()
        flow = _integral(fabric, source, flows.flow[k] * chunks, chunks)
        paths.append([_hops(fabric, path, detours) for path in _paths(fabric, source, flow, chunks)])
    return paths


def _integral(fabric: Fabric, source: int, flow: np.ndarray, chunks: int) -> np.ndarray:
    """Return an integral flow of `chunks` from the source to every other rank, near `flow`. Raises SynthError."""
    near = np.round(flow).astype(np.int64)
    if abs(flow - near).max(initial=0) < 1e-4 and _balanced(fabric, source, near, chunks):
        return near
    wanted = np.arange(fabric.ranks) != source
    sinks = np.flatnonzero(wanted)
    network = MaxFlow(np.r_[fabric.src, sinks], np.r_[fabric.dst, np.full(len(sinks), fabric.nodes)])
    for slack in range(64):  # the solver balances flows up to a tolerance only, so that slack may be needed
        network.set_capacities(np.r_[np.ceil(flow - 1e-6).astype(np.int64) + slack, np.full(len(sinks), chunks)])
        if network.value(source, fabric.nodes) == chunks * len(sinks):
            return network.flows()[: len(fabric.src)].copy()
    raise SynthError(f"{fabric.name}: the flows from rank {source} do not reach every rank")


def _balanced(fabric: Fabric, source: int, flow: np.ndarray, chunks: int) -> bool:
    net = np.zeros(fabric.nodes, np.int64)
    np.add.at(net, fabric.dst, flow)
    np.subtract.at(net, fabric.src, flow)
    wanted = np.zeros(fabric.nodes, np.int64)
    wanted[: fabric.ranks] = chunks
    wanted[source] = -chunks * (fabric.ranks - 1)
    return bool((net == wanted).all())


def _paths(fabric: Fabric, source: int, flow: np.ndarray, chunks: int) -> list[tuple[int, ...]]:
    """Decompose a flow into paths of edges: `chunks` from the source to each other rank, in order of ranks.

    Each path is traced backwards over edges with remaining flow. A cycle on the way is cut out, with its flow.
    """
    into: list[list[int]] = [[] for _ in range(fabric.nodes)]
    for e in np.flatnonzero(flow).tolist():
        into[int(fabric.dst[e])].append(e)
    remaining, src = flow.tolist(), fabric.src.tolist()
    paths = []
    for rank in range(fabric.ranks):
        for _ in range(0 if rank == source else chunks):
            path, at = [], rank
            left: dict[int, int] = {}  # the edges of the path before each node on it
            while at != source:
                if at in left:
                    nodes = [rank, *(src[e] for e in path)]
                    for node in nodes[left[at] + 1 : -1]:
                        del left[node]
                    del path[left[at] :]
                left[at] = len(path)
                while remaining[into[at][-1]] == 0:
                    into[at].pop()
                e = into[at][-1]
                remaining[e] -= 1
                path.append(e)
                at = src[e]
            paths.append(tuple(reversed(path)))
    return paths


def _hops(fabric: Fabric, path: tuple[int, ...], detours: _Detours) -> tuple[tuple[int, ...], ...]:
    """Return the hops of a path. A hop through a gadget without a link of these ends becomes a detour over links."""
    hops: list[tuple[int, ...]] = []
    start = 0
    for i, e in enumerate(path):
        if fabric.dst[e] < fabric.ranks:
            part = path[start : i + 1]
            links = fabric.links_of(part)
            hops += detours.between(int(fabric.src[part[0]]), int(fabric.dst[e])) if links is None else [links]
            start = i + 1
    return tuple(hops)


class _Detours:
    """Shortest paths over links, for pairs of ranks that are joined by a gadget of the fabric and by no link."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.calls: dict[tuple[int, int], int] = {}
        self.known: dict[tuple[int, int], list[list[tuple[int, ...]]]] = {}

    @cached_property
    def _leaving(self) -> list[list[tuple[int, int]]]:
        """For each node (link, node at its end) of the links that leave it."""
        nodes = int(max(self.fabric.tail.max(), self.fabric.head.max())) + 1
        leaving: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
        for k, (a, b) in enumerate(zip(self.fabric.tail.tolist(), self.fabric.head.tolist(), strict=True)):
            leaving[a].append((k, b))
        return leaving

    def between(self, start: int, end: int) -> list[tuple[int, ...]]:
        """Return the hops of a shortest path. Calls cycle through such paths, to spread the chunks of the pair."""
        if (start, end) not in self.known:
            self.known[start, end] = self._shortest(start, end)
        index = self.calls[start, end] = self.calls.get((start, end), -1) + 1
        paths = self.known[start, end]
        return paths[index % len(paths)]

    def _shortest(self, start: int, end: int) -> list[list[tuple[int, ...]]]:
        """Return up to `MOST_DETOURS` paths with the fewest links. Raises SynthError where there is none."""
        distance, order = {end: 0}, [end]
        entering: dict[int, list[tuple[int, int]]] = {}
        for a, row in enumerate(self._leaving):
            for k, b in row:
                entering.setdefault(b, []).append((k, a))
        for node in order:
            for _, before in entering.get(node, ()):
                if before not in distance:
                    distance[before] = distance[node] + 1
                    order.append(before)
        if start not in distance:
            raise SynthError(f"{self.fabric.name}: no links lead from rank {start} to rank {end}")
        partial: list[tuple[int, list[int]]] = [(start, [])]
        for left in range(distance[start] - 1, -1, -1):
            partial = [
                (b, [*path, k]) for at, path in partial for k, b in self._leaving[at] if distance.get(b) == left
            ][:MOST_DETOURS]
        return [self._cut(path) for _, path in partial]

    def _cut(self, links: list[int]) -> list[tuple[int, ...]]:
        """Return the hops of a path of links."""
        hops, start = [], 0
        for i, k in enumerate(links):
            if self.fabric.head[k] < self.fabric.ranks:
                hops.append(tuple(links[start : i + 1]))
                start = i + 1
        return hops

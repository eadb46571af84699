"""Flow decomposition: the flows of an alltoall as paths of whole chunks, `chunks` for each source and destination.

The flow of a source is multiplied by the number of chunks and rounded to integers by one maximum flow, which loses
nothing because it is a single commodity. The integral flow is then decomposed into paths from the source.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from synth.errors import SynthError
from synth.scale.alltoall.concurrent_flow import ConcurrentFlow
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.graphs import distances
from synth.solvers.deadline import check_deadline
from synth.solvers.max_flow import MaxFlow

# Limit on the number of chunks that is tried to make the flows integral without rounding.
MOST_CHUNKS = 24


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
        self.fabric, self.calls = fabric, 0
        self.far: dict[int, np.ndarray] = {}  # the links on a shortest path from each node, by its end
        self.leaving: dict[int, list[tuple[int, int]]] = {}
        for k, (a, b) in enumerate(zip(fabric.tail.tolist(), fabric.head.tolist(), strict=True)):
            self.leaving.setdefault(a, []).append((k, b))

    def between(self, start: int, end: int) -> list[tuple[int, ...]]:
        """Return the hops of a shortest path. Each call takes other ones, to spread the chunks of the pair.

        Raises SynthError where there is none.
        """
        fabric = self.fabric
        if end not in self.far:
            nodes = fabric.ranks + len(fabric.topology.switches)
            self.far[end] = distances(nodes, fabric.head, fabric.tail, end)
        far, at = self.far[end], start
        if far[start] < 0:
            raise SynthError(f"{fabric.name}: no links lead from rank {start} to rank {end}")
        hops: list[tuple[int, ...]] = []
        hop: tuple[int, ...] = ()
        self.calls += 1
        while at != end:
            nearer = [(k, b) for k, b in self.leaving[at] if far[b] == far[at] - 1]
            link, at = nearer[self.calls % len(nearer)]
            hop = (*hop, link)
            if at < fabric.ranks:
                hops.append(hop)
                hop = ()
        return hops

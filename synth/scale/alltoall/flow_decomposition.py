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

Hop = tuple[int, ...]  # its links


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


def chunk_paths(flows: ConcurrentFlow, chunks: int) -> list[list[tuple[Hop, ...]]]:
    """Return for each source the paths of its chunks, sorted by (destination, chunk), as tuples of hops."""
    fabric = flows.fabric
    links_to: dict[int, np.ndarray] = {}  # the links on a shortest path from each node, by its end
    found = []
    for source, flow in zip(flows.sources.tolist(), flows.flow, strict=True):
        check_deadline()
        whole = _integral(fabric, source, flow * chunks, chunks)
        paths = []
        for turn, edges in enumerate(_paths(fabric, source, whole, chunks)):
            # A hop ends at a rank. One through a gadget without a link of these ends becomes a detour over links.
            hops: list[Hop] = []
            start = 0
            for i, e in enumerate(edges, 1):
                if fabric.dst[e] < fabric.ranks:
                    links = fabric.links_of(edges[start:i])
                    ends = int(fabric.src[edges[start]]), int(fabric.dst[e])
                    hops += _detour(fabric, *ends, turn, links_to) if links is None else [links]
                    start = i
            paths.append(tuple(hops))
        found.append(paths)
    return found


def _integral(fabric: Fabric, source: int, flow: np.ndarray, chunks: int) -> np.ndarray:
    """Return an integral flow of `chunks` from the source to every other rank, near `flow`. Raises SynthError."""
    sinks = np.flatnonzero(np.arange(fabric.ranks) != source)
    network = MaxFlow(np.r_[fabric.src, sinks], np.r_[fabric.dst, np.full(len(sinks), fabric.nodes)])
    for slack in range(64):  # the solver balances flows up to a tolerance only, so that slack may be needed
        network.set_capacities(np.r_[np.ceil(flow - 1e-4).astype(np.int64) + slack, np.full(len(sinks), chunks)])
        if network.value(source, fabric.nodes) == chunks * len(sinks):
            return network.flows()[: len(fabric.src)].copy()
    raise SynthError(f"{fabric.name}: the flows from rank {source} do not reach every rank")


def _paths(fabric: Fabric, source: int, flow: np.ndarray, chunks: int) -> list[Hop]:
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
            passed: dict[int, int] = {}  # how many edges of the path lie behind each node on it
            while at != source:
                if at in passed:
                    path = path[: passed[at]]
                    passed = {node: edges for node, edges in passed.items() if edges < len(path)}
                passed[at] = len(path)
                while remaining[into[at][-1]] == 0:
                    into[at].pop()
                e = into[at][-1]
                remaining[e] -= 1
                path.append(e)
                at = src[e]
            paths.append(tuple(reversed(path)))
    return paths


def _detour(fabric: Fabric, start: int, end: int, turn: int, links_to: dict[int, np.ndarray]) -> list[Hop]:
    """Return the hops of a shortest path over links. Each `turn` takes other ones, to spread the chunks of the pair.

    Raises SynthError where there is none.
    """
    if end not in links_to:
        nodes = fabric.ranks + len(fabric.topology.switches)
        links_to[end] = distances(nodes, fabric.head, fabric.tail, end)
    far, at = links_to[end], start
    if far[start] < 0:
        raise SynthError(f"{fabric.name}: no links lead from rank {start} to rank {end}")
    hops: list[Hop] = []
    hop: Hop = ()
    while at != end:
        nearer = np.flatnonzero((fabric.tail == at) & (far[fabric.head] == far[at] - 1))
        link = int(nearer[turn % len(nearer)])
        hop, at = (*hop, link), int(fabric.head[link])
        if at < fabric.ranks:
            hops.append(hop)
            hop = ()
    return hops

"""From the flows of an alltoall to whole chunks on ways: `chunks` of them from each source to each rank.

A source's flow scaled by the number of chunks is made whole by one maximum flow between its floors and ceilings (flows
of one commodity round without loss), then taken apart into ways from the source.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

import numpy as np

from synth.errors import SynthError
from synth.scale.alltoall.concurrent_flow import Flows
from synth.scale.fabric.fabric import Fabric
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import check

# Numbers of chunks tried to make the flows whole without rounding.
MOST_CHUNKS = 24
# Detours as short as each other that the chunks of a pair are spread over.
MOST_DETOURS = 64


def chunks_of(made: Flows) -> int:
    """The least number of chunks that makes the flows whole, else one that rounds them to a few percent."""
    values = np.unique(np.round(made.flow % 1, 7))
    if len(values) > 200:
        return 4
    for chunks in range(1, MOST_CHUNKS + 1):
        scaled = values * chunks
        if (abs(scaled - np.round(scaled)) < 1e-5).all():
            return chunks
    shares = {Fraction(float(v)).limit_denominator(60).denominator for v in values}
    return min(max(shares), MOST_CHUNKS)


def ways(made: Flows, chunks: int) -> list[list[tuple[tuple[int, ...], ...]]]:
    """For each source, and there for each (rank, chunk) in order, the hops from rank to rank; a hop is the topology's
    links it takes."""
    fabric = made.fabric
    found, detours = [], _Detours(fabric)
    for k, source in enumerate(made.sources.tolist()):
        check()
        flow = _whole(fabric, source, made.flow[k] * chunks, chunks)
        _acyclic(fabric, flow)
        found.append([_hops(fabric, way, detours) for way in _apart(fabric, source, flow, chunks)])
    return found


def _whole(fabric: Fabric, source: int, flow: np.ndarray, chunks: int) -> np.ndarray:
    near = np.round(flow).astype(np.int64)
    if abs(flow - near).max(initial=0) < 1e-4 and _balanced(fabric, source, near, chunks):
        return near
    wanted = np.arange(fabric.ranks) != source
    sinks = np.flatnonzero(wanted)
    network = MaxFlow(np.r_[fabric.src, sinks], np.r_[fabric.dst, np.full(len(sinks), fabric.nodes)])
    for slack in range(64):  # solvers' flows balance to a tolerance only, so a unit of slack may be needed
        network.set(np.r_[np.ceil(flow - 1e-6).astype(np.int64) + slack, np.full(len(sinks), chunks)])
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


def _acyclic(fabric: Fabric, flow: np.ndarray) -> None:
    """Takes cycles out of `flow`, which only load the links."""
    out: list[list[int]] = [[] for _ in range(fabric.nodes)]
    for e in np.flatnonzero(flow).tolist():
        out[int(fabric.src[e])].append(e)
    dst = fabric.dst.tolist()
    state = [0] * fabric.nodes  # 0 new, 1 on the way, 2 done
    for start in range(fabric.nodes):
        if state[start]:
            continue
        path: list[int] = []  # edges
        nodes = [start]
        state[start] = 1
        while nodes:
            u = nodes[-1]
            while out[u] and flow[out[u][-1]] == 0:
                out[u].pop()
            if not out[u]:
                state[u] = 2
                nodes.pop()
                if path:
                    path.pop()
                    parent = nodes[-1]
                    # the edge to u is explored; keep it aside so that it is not taken again
                    out[parent].pop()
                continue
            e = out[u][-1]
            v = dst[e]
            if state[v] == 2:
                out[u].pop()
            elif state[v] == 1:
                at = nodes.index(v)
                cycle = [*path[at:], e]
                flow[cycle] -= flow[cycle].min()
                for w in nodes[at + 1 :]:
                    state[w] = 0
                del nodes[at + 1 :], path[at:]
            else:
                state[v] = 1
                nodes.append(v)
                path.append(e)


def _apart(fabric: Fabric, source: int, flow: np.ndarray, chunks: int) -> list[tuple[int, ...]]:
    """Ways from the source, `chunks` to each rank (none to itself) in the order of the ranks, walked backwards along
    what flows."""
    into: list[list[int]] = [[] for _ in range(fabric.nodes)]
    for e in np.flatnonzero(flow).tolist():
        into[int(fabric.dst[e])].append(e)
    left, src = flow.tolist(), fabric.src.tolist()
    found = []
    for rank in range(fabric.ranks):
        for _ in range(0 if rank == source else chunks):
            way, at = [], rank
            while at != source:
                while left[into[at][-1]] == 0:
                    into[at].pop()
                e = into[at][-1]
                left[e] -= 1
                way.append(e)
                at = src[e]
            found.append(tuple(reversed(way)))
    return found


def _hops(fabric: Fabric, way: tuple[int, ...], detours: _Detours) -> tuple[tuple[int, ...], ...]:
    """The way cut at ranks. A hop through a gadget that the topology does not have is replaced by a detour over
    links."""
    hops: list[tuple[int, ...]] = []
    start = 0
    for i, e in enumerate(way):
        if fabric.dst[e] < fabric.ranks:
            part = way[start : i + 1]
            links = fabric.links_of(part)
            hops += detours.between(int(fabric.src[part[0]]), int(fabric.dst[e])) if links is None else [links]
            start = i + 1
    return tuple(hops)


class _Detours:
    """Ways of the fewest hops over a topology's links, for pairs of ranks that a gadget of its fabric joins and no link
    does."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.turns: dict[tuple[int, int], int] = {}
        self.known: dict[tuple[int, int], list[list[tuple[int, ...]]]] = {}

    @cached_property
    def _leaving(self) -> list[list[tuple[int, int]]]:
        """For each node the links that leave it, with where they lead to."""
        found: list[list[tuple[int, int]]] = [
            [] for _ in range(int(max(self.fabric.tail.max(), self.fabric.head.max())) + 1)
        ]
        for k, (a, b) in enumerate(zip(self.fabric.tail.tolist(), self.fabric.head.tolist(), strict=True)):
            found[a].append((k, b))
        return found

    def between(self, start: int, end: int) -> list[tuple[int, ...]]:
        """The hops of one such way; those that are as short take turns, so that no link carries all of the pair's
        chunks."""
        if (start, end) not in self.known:
            self.known[start, end] = self._shortest(start, end)
        turn = self.turns[start, end] = self.turns.get((start, end), -1) + 1
        ways = self.known[start, end]
        return ways[turn % len(ways)]

    def _shortest(self, start: int, end: int) -> list[list[tuple[int, ...]]]:
        """Up to `MOST_DETOURS` ways of the fewest links. Raises SynthError where there is none."""
        far, order = {end: 0}, [end]
        entering: dict[int, list[tuple[int, int]]] = {}
        for a, row in enumerate(self._leaving):
            for k, b in row:
                entering.setdefault(b, []).append((k, a))
        for node in order:
            for _, before in entering.get(node, ()):
                if before not in far:
                    far[before] = far[node] + 1
                    order.append(before)
        if start not in far:
            raise SynthError(f"{self.fabric.name}: no links lead from rank {start} to rank {end}")
        partial: list[tuple[int, list[int]]] = [(start, [])]
        for left in range(far[start] - 1, -1, -1):
            partial = [(b, [*way, k]) for at, way in partial for k, b in self._leaving[at] if far.get(b) == left][
                :MOST_DETOURS
            ]
        return [self._cut(way) for _, way in partial]

    def _cut(self, links: list[int]) -> list[tuple[int, ...]]:
        """A way cut at ranks."""
        hops, start = [], 0
        for i, k in enumerate(links):
            if self.fabric.head[k] < self.fabric.ranks:
                hops.append(tuple(links[start : i + 1]))
                start = i + 1
        return hops

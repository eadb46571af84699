"""Allreduce on pairs of in- and out-arborescences, where the two directions of a link have different bandwidths.

Each root reduces a share of the buffer along an in-arborescence and broadcasts the sum along an out-arborescence, at
the same rate x. The bandwidth reserved for the in-arborescences must let x flow from every other rank to the root, that
for the out-arborescences x from the root to every other rank. Then arborescences for both exist (Edmonds,
"Edge-disjoint branchings", 1973). A linear program chooses the rate of each root and both reservations. These are
rounded down to whole parts of a unit, maximum flows compute the rates that remain, and arborescences are packed for
these rates.

    Pair   weight up down     rank n sends its sum to up.parents[n] and receives the total from down.parents[n];
                              both are -1 at the root
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from synth.encodings.spanning_tree_packing import Tree
from synth.errors import SynthError
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule, over_links
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.arborescence_packing import pack
from synth.solvers.highs import linear
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import check_deadline

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class PairedArborescenceSettings:
    """Limits of the search for paired arborescences.

    Attributes:
        most_work: Limit on (ranks)^2 x (links), to which the size of the linear program is proportional.
        parts: Numbers of parts of a unit that are tried for the reservations. More parts mean more chunks.
        worth: More parts are taken only where they raise the rate by more than this fraction.
        close: Tolerance of the linear program: a value that falls short of an integer by less is rounded up to
            it.
    """

    most_work: int = 20_000
    parts: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 24, 60)
    worth: Fraction = Fraction(1, 100)
    close: float = 1e-7


SETTINGS = PairedArborescenceSettings()


@dataclass(frozen=True)
class ArborescencePair:
    """An in-arborescence `up` and an out-arborescence `down` with the same root, which carry `weight` chunks each."""

    weight: int
    up: Tree
    down: Tree


def applies(graph: Fabric) -> bool:
    """Return True for a machine of few ranks without switches, limits and parallel links."""
    topology = graph.topology
    if topology.switches or topology.limits or graph.ranks < 2 or graph.ranks**2 * len(graph.src) > SETTINGS.most_work:
        return False
    return len({(k.src, k.dst) for k in topology.links}) == len(topology.links)


def arborescence_pairs(graph: Fabric) -> tuple[ArborescencePair, ...]:
    """Return pairs of arborescences near the best rate that together respect the bandwidth of every link.

    Each unit of a link is cut into the same number of parts, and `ArborescencePair.weight` counts parts. Raises TimeUp.
    """
    reservations = _program(graph)
    best_rate = Fraction(0)
    best: list[tuple[int, np.ndarray, np.ndarray]] = []
    for parts in SETTINGS.parts:
        check_deadline()
        rounded = [(_rounded_down(up, parts), _rounded_down(down, parts)) for up, down in reservations]
        rates = [_rate(graph, root, up, down) for root, (up, down) in enumerate(rounded)]
        rate = Fraction(sum(rates), parts)
        if rate > best_rate * (1 + SETTINGS.worth):
            best_rate = rate
            best = [(root_rate, up, down) for root_rate, (up, down) in zip(rates, rounded, strict=True)]
    result: list[ArborescencePair] = []
    for root, (rate, up, down) in enumerate(best):
        if rate:
            try:
                result += _paired(_trees(graph.reversed(), root, up, rate), _trees(graph, root, down, rate))
            except SynthError:  # a root whose trees cannot be packed is left out
                continue
    return tuple(result)


def sends(graph: Fabric, arborescences: Sequence[ArborescencePair], depth: int) -> int:
    """Return the number of sends that `pipelined_schedule` lists."""
    weights = [pair.weight for pair in arborescences]
    weight = sum(weights) // gcd(*weights)
    return weight * depth * 2 * (graph.ranks - 1)


def pipelined_schedule(graph: Fabric, arborescences: Sequence[ArborescencePair], depth: int) -> CompressedSchedule:
    """Return the pipelined allreduce with `depth` chunks for each unit of weight, one step apart.

    All ranks end with the same bits, because a single rank computes the total of each chunk.
    """
    link = {(k.src, k.dst): i for i, k in enumerate(graph.topology.links)}
    common = gcd(*(pair.weight for pair in arborescences))
    rows, chunks = [], 0
    for pair in arborescences:
        up, down, top = pair.up, pair.down, pair.up.height
        once = [(top - up.depth(n), link[n, to], REDUCE) for n, to in enumerate(up.parents) if to >= 0]
        once += [(top + down.depth(n) - 1, link[of, n], COPY) for n, of in enumerate(down.parents) if of >= 0]
        step, over, kind = np.array(once, np.int64).T
        count = pair.weight // common * depth
        turn = np.repeat(np.arange(count), len(once))
        rows.append(
            np.stack(
                [np.tile(step, count) + turn % depth, turn + chunks, np.tile(over, count), np.tile(kind, count)], axis=1
            )
        )
        chunks += count
    table = np.concatenate(rows)
    load = np.zeros((int(table[:, 0].max()) + 1, len(graph.src)), np.int64)
    np.add.at(load, (table[:, 0], table[:, 2]), 1)
    width = np.zeros(len(graph.src), np.int64)
    width[graph.link] = graph.cap
    rounds = np.maximum(1, (-(-load // width)).max(axis=1))
    return over_links(graph.topology, "allreduce", None, chunks, rounds, table)


def _program(graph: Fabric) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each root the bandwidth of each edge reserved for the in- and for the out-arborescences.

    Linear program, for each root: maximise its rate x, where a flow of x to (from) each other rank fits into the
    reservation of each edge. The reservations of all roots together fit into the capacity of the edge.
    """
    ranks, edges = graph.ranks, len(graph.src)
    e, others = np.arange(edges), ranks - 1
    # Variables of a root: its rate, two reservations by edge, and for both directions a flow for each other rank.
    each = 1 + 2 * edges + 2 * others * edges
    bounded: list[Entries] = []  # flow - reservation <= 0
    conserved: list[Entries] = []  # flow out of each node - flow into it = x at the start, -x at the end
    upper = equal = 0
    for root in range(ranks):
        rate = root * each
        for direction in range(2):
            reservation = rate + 1 + direction * edges
            for i, other in enumerate(n for n in range(ranks) if n != root):
                flow = rate + 1 + 2 * edges + (direction * others + i) * edges
                bounded += [(upper + e, flow + e, np.ones(edges)), (upper + e, reservation + e, -np.ones(edges))]
                upper += edges
                start, end = (other, root) if direction == 0 else (root, other)
                conserved.append((equal + graph.src, flow + e, np.ones(edges)))
                conserved.append((equal + graph.dst, flow + e, -np.ones(edges)))
                ends, values = np.array([equal + start, equal + end]), np.array([-1.0, 1.0])
                conserved.append((ends, np.array([rate, rate]), values))
                equal += ranks
    capacity: list[Entries] = []
    for root in range(ranks):
        for direction in range(2):
            capacity.append((upper + e, root * each + 1 + direction * edges + e, np.ones(edges)))
    size = ranks * each
    cost = np.zeros(size)
    cost[::each] = -1
    a_ub = _matrix([*bounded, *capacity], (upper + edges, size))
    b_ub = np.r_[np.zeros(upper), graph.cap.astype(float)]
    a_eq = _matrix(conserved, (equal, size))
    solution = linear(cost, A_ub=a_ub, b_ub=b_ub, A_eq=a_eq, b_eq=np.zeros(equal), method="highs")
    if solution.status != 0:
        return [(np.zeros(edges), np.zeros(edges))] * ranks
    rows = solution.x.reshape(ranks, each)
    return [(row[1 : 1 + edges], row[1 + edges : 1 + 2 * edges]) for row in rows]


def _matrix(parts: Sequence[Entries], shape: tuple[int, int]) -> csr_matrix:
    """Return the sparse matrix with the entries (rows, columns, values) of all parts."""
    from scipy.sparse import csr_matrix

    row, column, value = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    return csr_matrix((value, (row, column)), shape=shape)


def _rounded_down(share: np.ndarray, parts: int) -> np.ndarray:
    return np.floor(share * parts + SETTINGS.close * parts).astype(np.int64)


def _rate(graph: Fabric, root: int, up: np.ndarray, down: np.ndarray) -> int:
    """Return the least maximum flow from a rank to the root within `up`, or from the root to a rank within `down`."""
    flow, least = MaxFlow(graph.src, graph.dst), None
    for share, out in ((up, False), (down, True)):
        flow.set_capacities(share)
        for other in range(graph.ranks):
            if other != root:
                value = flow.value(root, other) if out else flow.value(other, root)
                least = value if least is None else min(least, value)
    return least or 0


def _trees(graph: Fabric, root: int, share: np.ndarray, rate: int) -> Iterator[tuple[int, Tree]]:
    """Yield (weight, tree) for trees from the root, of total weight `rate`, within the share of each edge."""
    shards = (np.arange(graph.ranks) == root).astype(np.int64)
    used = share > 0
    narrow = replace(
        graph, src=graph.src[used], dst=graph.dst[used], cap=share[used], link=graph.link[used], limit=graph.limit[used]
    )
    grown = pack(narrow, Fraction(1, rate), shards)
    if grown is None:
        return
    for weight, branches in zip(grown.weights, grown.branches, strict=True):
        parents = [-1] * graph.ranks
        for n, branch in branches.items():
            parents[n] = branch.parent
        yield weight * rate // grown.weight, Tree(root, tuple(parents))


def _paired(ups: Iterator[tuple[int, Tree]], downs: Iterator[tuple[int, Tree]]) -> Iterator[ArborescencePair]:
    """Yield pairs with the least common weight, in-arborescences of large height with out-arborescences of small."""
    first = sorted(ups, key=lambda tree: -tree[1].height)
    second = sorted(downs, key=lambda tree: tree[1].height)
    while first and second:
        (a, up), (b, down) = first.pop(), second.pop()
        weight = min(a, b)
        yield ArborescencePair(weight, up, down)
        if a > weight:
            first.append((a - weight, up))
        if b > weight:
            second.append((b - weight, down))

"""Allreduce where directions differ: up trees that end at a rank, and down other trees from there, both at once.

Where the links of a pair are not alike, a tree that is narrow upwards may be wide downwards, and the best trees up are
not those down. For each rank a share of the buffer is summed up there at a rate x and sent out again at the same rate:
the bandwidth that is set apart for the way up must let x flow from every other rank to it, and that for the way down x
from it to every other; then trees for both exist (Edmonds, "Edge-disjoint branchings", 1973). A linear program gives
each rank its rate and both its bandwidth; it is rounded down to whole parts of a unit, what the parts carry is found by
flows, and trees are packed for just that.

    Pair   weight up down     up.parents[n]: whom rank n sends its sum to; down.parents[n]: whom it has the total from;
                              -1 at the root
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
from synth.model.compressed_schedule import COPY, REDUCE, Bulk, over_links
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.arborescence_packing import pack
from synth.solvers.highs import linear
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import check

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
# Ranks times ranks times links up to which the linear program is small.
MOST_WORK = 20_000
# Parts of a unit that bandwidth is set apart in; more are taken only for more than `WORTH` of the rate.
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 24, 60)
WORTH = Fraction(1, 100)
CLOSE = 1e-7  # what the linear program's numbers may lack of a whole part


@dataclass(frozen=True)
class Pair:
    """A tree up and one down with the same root, for `weight` chunks at a time."""

    weight: int
    up: Tree
    down: Tree


def applies(graph: Fabric) -> bool:
    """Whether this is for the machine: few ranks joined by links alone, no two with the same ends."""
    topology = graph.topology
    if topology.switches or topology.limits or graph.ranks < 2 or graph.ranks**2 * len(graph.src) > MOST_WORK:
        return False
    return len({(k.src, k.dst) for k in topology.links}) == len(topology.links)


def pairs(graph: Fabric) -> tuple[Pair, ...]:
    """Pairs of trees that use no link beyond its bandwidth times some whole number of parts, and together go near the
    best rate.

    Each pair takes `weight` of one part of a unit. Raises TimeUp.
    """
    shares = _program(graph)
    best: tuple[Fraction, int, list[tuple[int, np.ndarray, np.ndarray]]] | None = None
    for parts in PARTS:
        check()
        whole = [(_whole(up, parts), _whole(down, parts)) for up, down in shares]
        rates = [_carried(graph, root, up, down) for root, (up, down) in enumerate(whole)]
        rate = Fraction(sum(rates), parts)
        if rate and (best is None or rate > best[0] * (1 + WORTH)):
            best = rate, parts, [(r, up, down) for r, (up, down) in zip(rates, whole, strict=True)]
    if best is None:
        return ()
    made: list[Pair] = []
    for root, (rate, up, down) in enumerate(best[2]):
        if rate:
            try:
                made += _joined(_trees(graph.reversed(), root, up, rate), _trees(graph, root, down, rate))
            except SynthError:  # the trees of one rank may be missing; those of the others stand
                continue
    return tuple(made)


def sends(graph: Fabric, made: Sequence[Pair], depth: int) -> int:
    """How many sends `bulk` lists."""
    weight = sum(pair.weight for pair in made) // gcd(*(pair.weight for pair in made))
    return weight * depth * 2 * (graph.ranks - 1)


def bulk(graph: Fabric, made: Sequence[Pair], depth: int) -> Bulk:
    """The allreduce with `depth` chunks for each unit of weight, one step behind the other. All ranks end with the same
    bits."""
    link = {(k.src, k.dst): i for i, k in enumerate(graph.topology.links)}
    common = gcd(*(pair.weight for pair in made))
    rows, chunks = [], 0
    for pair in made:
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
    """For each rank the bandwidth of each edge that is set apart for the ways up to it, and for those down from it."""
    ranks, edges = graph.ranks, len(graph.src)
    e, others = np.arange(edges), ranks - 1
    each = 1 + 2 * edges + 2 * others * edges  # of a root: its rate, both shares, a flow for each other rank both ways
    bounded: list[Entries] = []  # flow - share <= 0
    kept: list[Entries] = []
    upper = equal = 0
    for root in range(ranks):
        rate = root * each
        for way in range(2):
            share = rate + 1 + way * edges
            for i, other in enumerate(n for n in range(ranks) if n != root):
                flow = rate + 1 + 2 * edges + (way * others + i) * edges
                bounded += [(upper + e, flow + e, np.ones(edges)), (upper + e, share + e, -np.ones(edges))]
                upper += edges
                start, end = (other, root) if way == 0 else (root, other)
                kept += [(equal + graph.src, flow + e, np.ones(edges)), (equal + graph.dst, flow + e, -np.ones(edges))]
                kept += [(np.array([equal + start, equal + end]), np.array([rate, rate]), np.array([-1.0, 1.0]))]
                equal += ranks
    room = [(upper + e, root * each + 1 + way * edges + e, np.ones(edges)) for root in range(ranks) for way in range(2)]
    size = ranks * each
    cost = np.zeros(size)
    cost[::each] = -1
    a_ub = _matrix([*bounded, *room], (upper + edges, size))
    b_ub = np.r_[np.zeros(upper), graph.cap.astype(float)]
    found = linear(cost, A_ub=a_ub, b_ub=b_ub, A_eq=_matrix(kept, (equal, size)), b_eq=np.zeros(equal), method="highs")
    if found.status != 0:
        return [(np.zeros(edges), np.zeros(edges))] * ranks
    shares = found.x.reshape(ranks, each)
    return [(row[1 : 1 + edges], row[1 + edges : 1 + 2 * edges]) for row in shares]


def _matrix(parts: Sequence[Entries], shape: tuple[int, int]) -> csr_matrix:
    """A sparse matrix of entries (rows, columns, values) that stand in several parts."""
    from scipy.sparse import csr_matrix

    row, column, value = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    return csr_matrix((value, (row, column)), shape=shape)


def _whole(share: np.ndarray, parts: int) -> np.ndarray:
    return np.floor(share * parts + CLOSE * parts).astype(np.int64)


def _carried(graph: Fabric, root: int, up: np.ndarray, down: np.ndarray) -> int:
    """What flows from every other rank to the root, and back, at least."""
    flow, least = MaxFlow(graph.src, graph.dst), None
    for share, out in ((up, False), (down, True)):
        flow.set(share)
        for other in range(graph.ranks):
            if other != root:
                value = flow.value(root, other) if out else flow.value(other, root)
                least = value if least is None else min(least, value)
    return least or 0


def _trees(graph: Fabric, root: int, share: np.ndarray, rate: int) -> Iterator[tuple[int, Tree]]:
    """Trees from the root of `rate` together, within the share of each edge: (weight, tree)."""
    shards = (np.arange(graph.ranks) == root).astype(np.int64)
    kept = share > 0
    narrow = replace(
        graph, src=graph.src[kept], dst=graph.dst[kept], cap=share[kept], link=graph.link[kept], limit=graph.limit[kept]
    )
    grown = pack(narrow, Fraction(1, rate), shards)
    if grown is None:
        return
    for weight, row in zip(grown.weights, grown.branches, strict=True):
        parents = tuple(row[n].parent if n in row else -1 for n in range(graph.ranks))
        yield weight * rate // grown.weight, Tree(root, parents)


def _joined(ups: Iterator[tuple[int, Tree]], downs: Iterator[tuple[int, Tree]]) -> Iterator[Pair]:
    """High trees up with low ones down; each pair as heavy as both allow."""
    first = sorted(ups, key=lambda tree: -tree[1].height)
    second = sorted(downs, key=lambda tree: tree[1].height)
    while first and second:
        (a, up), (b, down) = first.pop(), second.pop()
        weight = min(a, b)
        yield Pair(weight, up, down)
        if a > weight:
            first.append((a - weight, up))
        if b > weight:
            second.append((b - weight, down))

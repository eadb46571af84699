"""Symmetric forests where ranks are joined by links alone, in arrays: what `symmetric` does with layers by distance.

A way is one edge and its kind that edge's orbit, so the layers are distances from the root, a rank hears over an edge
from one step nearer, and one flow from ranks to orbits shares out what each orbit can carry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.partial_trees import Flat
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import check

# Trees times ranks of a forest that is made in arrays.
MOST = 1 << 26


def grow(
    fabric: Fabric, orbit: np.ndarray, roots: Sequence[int], share: Mapping[int, Fraction], most_weight: int
) -> Flat | None:
    """Trees for `roots` on a fabric without switches; None where layers by distance leave too little choice.

    `orbit[e]`: the least edge of the orbit of e; `share[o]`: what that orbit can carry, in shards.
    """
    weight = math.lcm(*(s.denominator for s in share.values()))
    if weight > most_weight:
        return None
    names, kind = np.unique(orbit, return_inverse=True)
    budget = np.array([math.floor(share[int(o)] * weight) for o in names], np.int64)
    options = [_options(fabric, kind, root) for root in roots]
    if any(len(np.unique(fabric.dst[edges])) < fabric.ranks - 1 for edges in options):
        return None
    # what is shared out: (tree, rank) by number, an edge and its kind; in order of these
    edges = np.concatenate(options)
    who = np.concatenate([j * fabric.ranks + fabric.dst[row] for j, row in enumerate(options)])
    order = np.lexsort((kind[edges], who))
    edges, who = edges[order], who[order]
    amounts = _shared(who, kind[edges], budget, weight)
    return None if amounts is None else _trees(fabric, edges, who, amounts, roots, weight)


def _options(fabric: Fabric, kind: np.ndarray, root: int) -> np.ndarray:
    """Edges that lead one step away from the root, for each rank and kind the first."""
    far = _distances(fabric, root)
    edges = np.flatnonzero((far[fabric.src] >= 0) & (far[fabric.src] + 1 == far[fabric.dst]))
    key = fabric.dst[edges] * (int(kind.max()) + 1) + kind[edges]
    return edges[np.sort(np.unique(key, return_index=True)[1])]


def _distances(fabric: Fabric, root: int) -> np.ndarray:
    """Edges on the way from the root to each rank; -1 where there is none."""
    order = np.argsort(fabric.src, kind="stable")
    ends = fabric.dst[order]
    starts = np.searchsorted(fabric.src[order], np.arange(fabric.nodes + 1))
    far = np.full(fabric.nodes, -1, np.int64)
    far[root], layer, step = 0, np.array([root]), 0
    while len(layer):
        check()
        step += 1
        count = starts[layer + 1] - starts[layer]
        at = np.repeat(starts[layer] - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(
            int(count.sum())
        )
        near = ends[at]
        layer = np.unique(near[far[near] < 0])
        far[layer] = step
    return far


def _shared(who: np.ndarray, kind: np.ndarray, budget: np.ndarray, weight: int) -> np.ndarray | None:
    """How much of `weight` goes over each option; None where the budgets do not allow it."""
    _, number = np.unique(who, return_inverse=True)
    count, kinds = int(number.max(initial=-1)) + 1, len(budget)
    source, sink = count + kinds, count + kinds + 1
    flow = MaxFlow(
        np.r_[np.full(count, source), number, count + np.arange(kinds)],
        np.r_[np.arange(count), count + kind, np.full(kinds, sink)],
    )
    total = count * weight
    flow.set(np.r_[np.full(count + len(who), weight), np.minimum(budget, total)].astype(np.int64))
    return flow.flows()[count : count + len(who)] if flow.value(source, sink) == total else None


def _trees(
    fabric: Fabric, edges: np.ndarray, who: np.ndarray, amounts: np.ndarray, roots: Sequence[int], weight: int
) -> Flat | None:
    """Cuts the unit interval of each root's tree wherever a rank changes its parent."""
    used = amounts > 0
    edges, who, amounts = edges[used], who[used], amounts[used]
    ranks, total = fabric.ranks, np.cumsum(amounts)
    first = np.r_[True, who[1:] != who[:-1]]
    base = np.repeat((total - amounts)[first], np.diff(np.r_[np.flatnonzero(first), len(who)]))
    upto = total - base
    keys = who * (weight + 1) + upto
    found: list[tuple[int, int, np.ndarray, np.ndarray]] = []
    size = 0
    for j, root in enumerate(roots):
        cuts = np.unique(np.r_[0, upto[who // ranks == j]])
        size += len(cuts) * ranks
        if size > MOST:
            return None
        others = np.delete(np.arange(ranks), root)
        for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            at = np.searchsorted(keys, (j * ranks + others) * (weight + 1) + start, side="right")
            edge = np.full(ranks, -1, np.int64)
            edge[others] = edges[at]
            found.append((root, end - start, np.where(edge >= 0, fabric.src[edge], -1), edge))
    taken = np.array([e for *_, e in found])
    ways, number = np.unique(taken, return_inverse=True)  # the first is the root's: none
    parent, way = np.array([p for *_, p, _ in found]), number.reshape(taken.shape) - 1
    return Flat(
        weight, [r for r, *_ in found], [w for _, w, *_ in found], parent, way, [(e,) for e in ways[1:].tolist()]
    )

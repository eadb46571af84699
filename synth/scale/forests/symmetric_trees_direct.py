"""Symmetric forests on fabrics without switches, computed on arrays: the case of `symmetric_trees` with layers by
distance.

A path from rank to rank is one edge, and its kind the orbit of this edge. So the layers are distances from the root,
the parent of a rank is one step nearer to the root, and one flow from ranks to orbits distributes the capacity of each
orbit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.graphs import distances
from synth.scale.forests.partial_trees import ArrayForest
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import check_deadline

# Limit on (trees) x (ranks) of a forest: bounds the memory of its arrays.
MAX_ENTRIES = 1 << 26


def grow(
    fabric: Fabric, orbit: np.ndarray, roots: Sequence[int], share: Mapping[int, Fraction], most_weight: int
) -> ArrayForest | None:
    """Return trees for `roots` on a fabric without switches, or None where shortest-path trees exceed the capacities.

    `orbit[e]`: the least edge of the orbit of e. `share[o]`: the shards that this orbit can carry. `most_weight`: the
    limit on the units into which a shard is cut.
    """
    weight = math.lcm(*(s.denominator for s in share.values()))
    if weight > most_weight:
        return None
    names, kind = np.unique(orbit, return_inverse=True)
    capacity = np.array([math.floor(share[int(o)] * weight) for o in names], np.int64)
    options = [_options(fabric, kind, root) for root in roots]
    if any(len(np.unique(fabric.dst[edges])) < fabric.ranks - 1 for edges in options):
        return None
    # One row for each option: the number of (tree, rank) and an edge, sorted by number and kind of edge.
    edges = np.concatenate(options)
    who = np.concatenate([j * fabric.ranks + fabric.dst[row] for j, row in enumerate(options)])
    order = np.lexsort((kind[edges], who))
    edges, who = edges[order], who[order]
    amounts = _shared(who, kind[edges], capacity, weight)
    return None if amounts is None else _trees(fabric, edges, who, amounts, roots, weight)


def _options(fabric: Fabric, kind: np.ndarray, root: int) -> np.ndarray:
    """Return the edges that lead one step away from the root, one for each rank and kind."""
    check_deadline()
    distance = distances(fabric.nodes, fabric.src, fabric.dst, root)
    edges = np.flatnonzero((distance[fabric.src] >= 0) & (distance[fabric.src] + 1 == distance[fabric.dst]))
    key = fabric.dst[edges] * (int(kind.max()) + 1) + kind[edges]
    return edges[np.sort(np.unique(key, return_index=True)[1])]


def _shared(who: np.ndarray, kind: np.ndarray, capacity: np.ndarray, weight: int) -> np.ndarray | None:
    """Return the part of `weight` over each option, or None where the capacities do not allow it.

    `who` and `kind` give (tree, rank) and orbit of each option. `capacity` is by kind.
    """
    _, number = np.unique(who, return_inverse=True)
    count, kinds = int(number.max(initial=-1)) + 1, len(capacity)
    source, sink = count + kinds, count + kinds + 1
    flow = MaxFlow(
        np.r_[np.full(count, source), number, count + np.arange(kinds)],
        np.r_[np.arange(count), count + kind, np.full(kinds, sink)],
    )
    total = count * weight
    flow.set_capacities(np.r_[np.full(count + len(who), weight), np.minimum(capacity, total)].astype(np.int64))
    return flow.flows()[count : count + len(who)] if flow.value(source, sink) == total else None


def _trees(
    fabric: Fabric, edges: np.ndarray, who: np.ndarray, amounts: np.ndarray, roots: Sequence[int], weight: int
) -> ArrayForest | None:
    """Return integral trees: the weight of each root's tree is cut wherever the parent of a rank changes."""
    used = amounts > 0
    edges, who, amounts = edges[used], who[used], amounts[used]
    ranks, total = fabric.ranks, np.cumsum(amounts)
    first = np.r_[True, who[1:] != who[:-1]]
    base = np.repeat((total - amounts)[first], np.diff(np.r_[np.flatnonzero(first), len(who)]))
    end_unit = total - base  # the option serves the units of its (tree, rank) below this one
    keys = who * (weight + 1) + end_unit
    tree_roots: list[int] = []
    weights: list[int] = []
    parents: list[np.ndarray] = []
    tree_edges: list[np.ndarray] = []
    size = 0
    for j, root in enumerate(roots):
        cuts = np.unique(np.r_[0, end_unit[who // ranks == j]])
        size += len(cuts) * ranks
        if size > MAX_ENTRIES:
            return None
        others = np.delete(np.arange(ranks), root)
        for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            at = np.searchsorted(keys, (j * ranks + others) * (weight + 1) + start, side="right")
            edge = np.full(ranks, -1, np.int64)
            edge[others] = edges[at]
            tree_roots.append(root)
            weights.append(end - start)
            parents.append(np.where(edge >= 0, fabric.src[edge], -1))
            tree_edges.append(edge)
    table = np.array(tree_edges)
    distinct, number = np.unique(table, return_inverse=True)  # the first is -1, at the roots
    paths = [(e,) for e in distinct[1:].tolist()]
    return ArrayForest(weight, tree_roots, weights, np.array(parents), number.reshape(table.shape) - 1, paths)

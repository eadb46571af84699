"""Broadcast on a symmetric machine: the trees of its symmetric allgather, re-rooted at the broadcast's root.

A tree of the allgather spans all ranks, whichever rank is its root. To re-root it, the hops on the path from its root
to the broadcast's root are reversed. All images of the trees under the group are candidates. A linear program gives
each candidate its share of the data. The shares are then rounded to whole units and the loads are counted in integers,
so that the time is exact. The caller compares the time with the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from synth.model.gc_pause import collector_off
from synth.scale.fabric.automorphisms import edge_images
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.partial_trees import Branch, BranchForest
from synth.solvers.deadline import check_deadline
from synth.solvers.linear_program import linear
from synth.solvers.rationalise import largest_remainders

# Limit on (candidate trees) x (edges of a tree), and on (group elements) x (edges of the fabric): bounds the memory.
MOST_HOPS = 40_000_000
# Limit on the switches on a path from rank to rank.
MOST_SWITCHES = 3
# Limit on the units into which the data is cut: the number of chunks of the schedule.
MOST_UNITS = 4096
# More units are taken only where they reduce the time by more than this fraction.
NEAR = Fraction(1, 500)

Path = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Tree:
    """A candidate tree rooted at the broadcast's root.

    `parent[r]` is -1 at the root. `flat` holds the edges of all hops one after the other; those of the hop to rank r
    are ``flat[starts[r]:starts[r + 1]]``.
    """

    parent: np.ndarray
    flat: np.ndarray
    starts: np.ndarray


@collector_off()
def reroot(
    fabric: Fabric, grown: BranchForest, group: Sequence[np.ndarray], root: int, bound: Fraction
) -> tuple[BranchForest, Fraction] | None:
    """Return trees from `root` and the time they need (in the unit of `bound`), or None where the candidates are too
    many or none can be re-rooted.

    `grown` are the trees of a symmetric allgather on the same fabric, with edges in the direction in which data
    spreads. `group` generates its symmetries.
    """
    originals = []  # of each tree the parent of each rank, and the edges to each rank from its parent
    for branches in grown.branches:
        parent = np.full(fabric.ranks, -1, np.int64)
        paths: list[Path] = [()] * fabric.ranks
        for y, branch in branches.items():
            parent[y], paths[y] = branch.parent, branch.path
        originals.append((parent, paths))
    images = _group_elements(fabric, group)
    if images is None:
        return None
    hops = max(sum(map(len, paths)) for _, paths in originals)
    if len(images) * len(originals) * hops > MOST_HOPS:
        return None
    router = _ShortestPaths(fabric)
    candidates = [_reroot(original, element, root, router) for original in originals for element in images]
    trees = [tree for tree in candidates if tree is not None]
    if not trees:
        return None
    variants = [_with_one_leaf_at_root(tree, root, k, router) for k, tree in enumerate(trees)]
    trees += [tree for tree in variants if tree is not None]
    units, time = _tree_units(fabric, trees, bound)
    used = np.flatnonzero(units).tolist()
    weights = units[used].tolist()
    rows = []
    for t in used:
        check_deadline()
        flat, starts = trees[t].flat.tolist(), trees[t].starts.tolist()
        hops = zip(trees[t].parent.tolist(), pairwise(starts), strict=True)
        rows.append({y: Branch(x, tuple(flat[a:b])) for y, (x, (a, b)) in enumerate(hops) if y != root})
    return BranchForest(sum(weights), [root] * len(used), weights, rows), time


def _group_elements(fabric: Fabric, generators: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return every element of the group as (images of the nodes, images of the edges).

    None where a generator is no automorphism, or the elements are too many.
    """
    moves = []
    for pi in generators:
        image = edge_images(fabric, pi)
        if image is None:
            return None
        moves.append((pi, image))
    identity = np.arange(fabric.nodes)
    elements = {identity.tobytes(): (identity, np.arange(len(fabric.src)))}
    queue = list(elements.values())
    for nodes, edges in queue:
        for pi, image in moves:
            product = pi[nodes]
            if product.tobytes() not in elements:
                elements[product.tobytes()] = product, image[edges]
                queue.append(elements[product.tobytes()])
                if len(elements) * len(fabric.src) > MOST_HOPS:
                    return None
    return queue


def _reroot(
    original: tuple[np.ndarray, list[Path]], element: tuple[np.ndarray, np.ndarray], root: int, router: _ShortestPaths
) -> _Tree | None:
    """Return the image of a tree under a group element, re-rooted at `root`; None where a hop cannot be reversed."""
    check_deadline()
    (parents, own), (nodes, edges) = original, element
    ranks = len(parents)
    parent = np.full(ranks, -1, np.int64)
    inner = parents >= 0
    parent[nodes[:ranks][inner]] = nodes[parents[inner]]
    preimage = np.empty(ranks, np.int64)
    preimage[nodes[:ranks]] = np.arange(ranks)
    reversed_hops: dict[int, tuple[int, Path]] = {}
    y = root
    while parent[y] >= 0:  # from `root` up to the tree's own root: each hop now leads in the other direction
        x = int(parent[y])
        path = router.path(y, x)
        if path is None:
            return None
        reversed_hops[x] = y, path
        y = x
    paths = [own[r] for r in preimage.tolist()]
    is_reversed = np.zeros(ranks, bool)
    for x, (y, path) in reversed_hops.items():
        parent[x], is_reversed[x], paths[x] = y, True, path
    parent[root], paths[root] = -1, ()
    # Paths of the original are moved by the group element; reversed hops are paths of the image already.
    tree = _tree(parent, paths)
    final = np.repeat(is_reversed, np.diff(tree.starts))
    return replace(tree, flat=np.where(final, tree.flat, edges[tree.flat]))


def _with_one_leaf_at_root(tree: _Tree, root: int, index: int, router: _ShortestPaths) -> _Tree | None:
    """Return the tree with less load on the root: one of the leaves below the root becomes the parent of the others.

    `index` chooses this leaf. None where fewer than two leaves hang below the root, or no path joins two of them.
    """
    children = np.flatnonzero(tree.parent == root).tolist()
    inner = set(tree.parent.tolist())
    leaves = [y for y in children if y not in inner]
    if len(leaves) < 2:
        return None
    first = leaves[index % len(leaves)]
    moved = {y: router.path(first, y) for y in leaves if y != first}
    if any(path is None for path in moved.values()):
        return None
    flat, starts = tree.flat.tolist(), tree.starts.tolist()
    parent, paths = tree.parent.copy(), [tuple(flat[a:b]) for a, b in pairwise(starts)]
    for y, path in moved.items():
        parent[y], paths[y] = first, path or ()
    return _tree(parent, paths)


def _tree(parent: np.ndarray, paths: Sequence[Path]) -> _Tree:
    flat = np.array([e for path in paths for e in path], np.int64)
    return _Tree(parent, flat, np.concatenate([[0], np.cumsum([len(path) for path in paths])]))


class _ShortestPaths:
    """Shortest paths from rank to rank through at most `MOST_SWITCHES` switches, remembered."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.src, self.dst = fabric.src.tolist(), fabric.dst.tolist()
        self.to_switches: list[list[int]] = [[] for _ in range(fabric.nodes)]
        self.to_ranks: list[dict[int, list[int]]] = [{} for _ in range(fabric.nodes)]
        for e, (a, b) in enumerate(zip(self.src, self.dst, strict=True)):
            if b < fabric.ranks:
                self.to_ranks[a].setdefault(b, []).append(e)
            else:
                self.to_switches[a].append(e)
        self.known: dict[tuple[int, int], Path | None] = {}

    def path(self, a: int, b: int) -> Path | None:
        """Return the edges of a path from rank a to rank b that schedules may take, or None."""
        if (a, b) not in self.known:
            self.known[a, b] = self._search(a, b)
        return self.known[a, b]

    def _search(self, a: int, b: int) -> Path | None:
        queue: list[tuple[int, Path]] = [(a, ())]
        for node, path in queue:
            for e in self.to_ranks[node].get(b, ()):
                if self.fabric.links_of((*path, e)) is not None:
                    return (*path, e)
            if len(path) < MOST_SWITCHES:
                queue += [(self.dst[e], (*path, e)) for e in self.to_switches[node]]
        return None


def _tree_units(fabric: Fabric, trees: Sequence[_Tree], bound: Fraction) -> tuple[np.ndarray, Fraction]:
    """Return the whole units of data for each tree, and the exact time of one shard at these shares.

    Linear program: minimise t, where the shares add up to 1 and load(e) <= t * bound * cap(e) for each edge e. The
    number of units is the smallest within `NEAR` of the fastest rounding.
    """
    from scipy.sparse import csr_matrix, hstack

    count = len(trees)
    rows = np.repeat(np.arange(count), [len(tree.flat) for tree in trees])
    columns = np.concatenate([tree.flat for tree in trees])
    load = csr_matrix((np.ones(len(rows), np.int64), (rows, columns)), (count, len(fabric.src)))
    busy = np.flatnonzero(load.sum(axis=0))
    load, cap = load[:, busy].T.tocsr(), fabric.cap[busy]
    binding = _binding_rows(load, cap)
    need = load[binding].astype(float).multiply(1 / (cap[binding] * float(bound))[:, None])
    solution = linear(
        np.r_[np.zeros(count), 1], A_ub=hstack([need, -np.ones((len(binding), 1))]).tocsr(),
        b_ub=np.zeros(len(binding)), A_eq=np.r_[np.ones(count), 0][None, :], b_eq=[1], method="highs",
    )  # fmt: skip
    shares = np.maximum(solution.x[:count], 0) if solution.x is not None else np.ones(count) / count
    best: tuple[Fraction, np.ndarray] | None = None
    for total in _unit_counts(shares):
        units = np.array(largest_remainders(shares.tolist(), total))
        loads = load @ units
        worst = int(np.argmax(loads / cap))
        time = Fraction(int(loads[worst]), int(cap[worst]) * total)
        if best is None or time < best[0] * (1 - NEAR):
            best = time, units
    assert best is not None
    return best[1], best[0]


def _binding_rows(load: Any, cap: np.ndarray) -> np.ndarray:
    """Return, of the edges that all trees load alike (equal rows of `load`), the one of the least capacity: where it
    holds the load, so do the others."""
    load.sort_indices()
    narrowest: dict[tuple[bytes, bytes], int] = {}
    for row, (start, end) in enumerate(pairwise(load.indptr.tolist())):
        key = load.indices[start:end].tobytes(), load.data[start:end].tobytes()
        if key not in narrowest or cap[row] < cap[narrowest[key]]:
            narrowest[key] = row
    return np.array(sorted(narrowest.values()))


def _unit_counts(shares: np.ndarray) -> list[int]:
    """Return the numbers of units to try: powers of two, and multiples of the reciprocal of the most frequent share."""
    used = shares[shares > 1e-9]
    values, times = np.unique(np.round(used, 9), return_counts=True)
    common = max(1, round(1 / float(values[np.argmax(times)])))
    powers = {1 << k for k in range(MOST_UNITS.bit_length())}
    counts = powers | {common * k for k in range(1, 5)} | {len(used)}
    return sorted(n for n in counts if n <= MOST_UNITS)

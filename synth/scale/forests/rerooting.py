"""Broadcast on a symmetric machine: the trees of its symmetric allgather, re-rooted at the broadcast's root.

A tree of the allgather spans all ranks, whichever rank is its root. To re-root it, the hops on the path from its root
to the broadcast's root are reversed. All images of the trees under the group are candidates. A linear program gives
each candidate its share of the data. The shares are then rounded to whole units and the loads are counted in integers,
so that the time is exact. The caller compares the time with the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from synth.model.gc_pause import collector_off
from synth.scale.fabric.automorphisms import edge_images
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.partial_trees import ArrayForest, Branch, BranchForest
from synth.solvers.deadline import check_deadline
from synth.solvers.highs import linear
from synth.solvers.rationalise import largest_remainders

# Limit on (candidate trees) x (edges of a tree), and on (group elements) x (edges of the fabric): bounds the memory.
MOST_HOPS = 40_000_000
# Limit on the switches on a path from rank to rank.
MOST_SWITCHES = 3
# Limit on the units into which the data is cut: the number of chunks of the schedule.
MOST_UNITS = 4096
# More units are taken only where they reduce the time by more than this fraction.
NEAR = Fraction(1, 500)
# Hops that `_number_paths` compares in one array.
BLOCK = 1 << 20

Path = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _AllgatherTree:
    """One tree of the allgather: its root, the parent of each rank, and the edges to each rank from its parent."""

    root: int
    parent: np.ndarray
    paths: list[Path]


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
    fabric: Fabric, grown: BranchForest | ArrayForest, group: Sequence[np.ndarray], root: int, bound: Fraction
) -> tuple[ArrayForest, Fraction] | None:
    """Return trees from `root` and the time they need (in the unit of `bound`), or None where the candidates are too
    many or none can be re-rooted.

    `grown` are the trees of a symmetric allgather on the same fabric, with edges in the direction in which data
    spreads. `group` generates its symmetries.
    """
    originals = [_allgather_tree(fabric, *row) for row in zip(grown.roots, grown.branches, strict=True)]
    images = _group_elements(fabric, group)
    if images is None:
        return None
    hops = max(sum(map(len, original.paths)) for original in originals)
    if len(images) * len(originals) * hops > MOST_HOPS:
        return None
    router = _ShortestPaths(fabric)
    candidates = [_reroot(original, nodes, edges, root, router) for original in originals for nodes, edges in images]
    trees = [tree for tree in candidates if tree is not None]
    if not trees:
        return None
    variants = [_with_one_leaf_at_root(tree, root, k, router) for k, tree in enumerate(trees)]
    trees += [tree for tree in variants if tree is not None]
    units, time = _tree_units(fabric, trees, bound)
    used = np.flatnonzero(units).tolist()
    weights = units[used].tolist()
    path_numbers, paths = _number_paths([trees[t] for t in used], len(fabric.src))
    parents = np.array([trees[t].parent for t in used])
    return ArrayForest(sum(weights), [root] * len(used), weights, parents, path_numbers, paths), time


def _number_paths(trees: Sequence[_Tree], edges: int) -> tuple[np.ndarray, list[Path]]:
    """Return for each tree and rank the number of the path that leads to it (-1 at the root), and the distinct paths.

    `edges` is the number of edges of the fabric.
    """
    number: dict[Path, int] = {(): -1}
    rows = []
    block = max(1, BLOCK // len(trees[0].parent))
    for at in range(0, len(trees), block):
        check_deadline()
        part = trees[at : at + block]
        count = np.concatenate([np.diff(tree.starts) for tree in part])
        flat, starts = np.concatenate([tree.flat for tree in part]), np.cumsum(count) - count
        longest = int(count.max())
        table = np.full((len(count), longest), -1, np.int64)
        for j in range(longest):
            table[count > j, j] = flat[starts[count > j] + j]
        if (edges + 1) ** longest < 1 << 62:  # a path as one integer: comparing rows of a table is slow
            key = np.zeros(len(count), np.int64)
            for j in range(longest):
                key = key * (edges + 1) + table[:, j] + 1
            _, first, same = np.unique(key, return_index=True, return_inverse=True)
        else:
            _, first, same = np.unique(table, axis=0, return_index=True, return_inverse=True)
        distinct = [tuple(row[:n]) for row, n in zip(table[first].tolist(), count[first].tolist(), strict=True)]
        numbers = [number.setdefault(path, len(number) - 1) for path in distinct]
        rows.append(np.array(numbers, np.int32)[same.reshape(len(part), -1)])
    return np.concatenate(rows), list(number)[1:]


def _allgather_tree(fabric: Fabric, root: int, branches: Mapping[int, Branch]) -> _AllgatherTree:
    parent = np.full(fabric.ranks, -1, np.int64)
    paths: list[Path] = [()] * fabric.ranks
    for y, branch in branches.items():
        parent[y], paths[y] = branch.parent, branch.path
    return _AllgatherTree(root, parent, paths)


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
    original: _AllgatherTree, nodes: np.ndarray, edges: np.ndarray, root: int, router: _ShortestPaths
) -> _Tree | None:
    """Return the image of a tree under a group element, re-rooted at `root`; None where a hop cannot be reversed."""
    check_deadline()
    ranks = len(original.parent)
    parent = np.full(ranks, -1, np.int64)
    inner = original.parent >= 0
    parent[nodes[:ranks][inner]] = nodes[original.parent[inner]]
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
    paths = [original.paths[r] for r in preimage.tolist()]
    is_reversed = np.zeros(ranks, bool)
    for x, (y, path) in reversed_hops.items():
        parent[x], is_reversed[x], paths[x] = y, True, path
    parent[root], paths[root] = -1, ()
    counts = np.array([len(path) for path in paths], np.int64)
    flat = np.array([e for path in paths for e in path], np.int64)
    # Paths of `original` are moved by the group element; reversed hops are paths of the image already.
    final = np.repeat(is_reversed, counts)
    return _Tree(parent, np.where(final, flat, edges[flat]), np.concatenate([[0], np.cumsum(counts)]))


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
    hops = dict(_hops(tree, root))
    hops |= {y: (first, path) for y, path in moved.items() if path is not None}
    hops[root] = -1, ()
    parent = np.array([hops[y][0] for y in range(len(tree.parent))], np.int64)
    paths = [hops[y][1] for y in range(len(parent))]
    flat = np.array([e for path in paths for e in path], np.int64)
    return _Tree(parent, flat, np.concatenate([[0], np.cumsum([len(path) for path in paths])]))


def _hops(tree: _Tree, root: int) -> Iterator[tuple[int, tuple[int, Path]]]:
    """Yield ``(rank, (parent, path))`` for every rank but the root."""
    flat, starts = tree.flat.tolist(), tree.starts.tolist()
    for y, x in enumerate(tree.parent.tolist()):
        if y != root:
            yield y, (x, tuple(flat[starts[y] : starts[y + 1]]))


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
    """Return the row of the narrowest edge among those with equal rows of `load`; its constraint implies the others."""
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

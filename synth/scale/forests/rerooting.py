"""Broadcast on a symmetric machine: the trees of its symmetric allgather, hung up by one rank, each for its part of the
data.

A tree of the allgather spans all ranks, whichever rank is called its root: from the broadcast's root the hops on the
way to the tree's own are turned round. All images of the trees under the group are candidates, and a linear program
says how much of the data goes down each. The shares are then rounded to whole parts and loads counted, so that the time
is exact; how far above the bound it lies is the caller's to say.
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
from synth.scale.forests.partial_trees import Branch, Flat, Grown
from synth.solvers.highs import linear
from synth.solvers.processes.deadline import check

# Hops of all candidate trees together, times the edges of a hop, that are looked at.
MOST_HOPS = 40_000_000
MOST_SWITCHES = 3
# Parts of the data at most; more parts are taken only where they are faster by more than this.
MOST_TAKEN = 4096
NEAR = Fraction(1, 500)
# Hops of trees that are looked through together.
BLOCK = 1 << 20

Path = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Shape:
    """One tree of the allgather: its root, parents, and edges to each rank from its parent."""

    root: int
    parent: np.ndarray
    paths: list[Path]


@collector_off()
def rerooted(
    fabric: Fabric, grown: Grown | Flat, group: Sequence[np.ndarray], root: int, bound: Fraction
) -> tuple[Flat, Fraction] | None:
    """Trees from `root` and the time they need (units of shards, as `bound` is); None where there are too many to look
    at.

    `grown` are the trees of a symmetric allgather on the same fabric, edges as data spreads, `group` its generators.
    """
    shapes = [_shape(fabric, *row) for row in zip(grown.roots, grown.branches, strict=True)]
    images = _group(fabric, group)
    if images is None:
        return None
    hops = max(sum(map(len, shape.paths)) for shape in shapes)
    if len(images) * len(shapes) * hops > MOST_HOPS:
        return None
    turn = _Turner(fabric)
    made = [_hung(shape, nodes, edges, root, turn) for shape in shapes for nodes, edges in images]
    trees = [tree for tree in made if tree is not None]
    if not trees:
        return None
    trees += [tree for k, one in enumerate(trees) if (tree := _lighter(one, root, k, turn)) is not None]
    taken, time = _shares(fabric, trees, bound)
    used = np.flatnonzero(taken).tolist()
    weights = taken[used].tolist()
    way, ways = _ways([trees[t] for t in used], len(fabric.src))
    return Flat(sum(weights), [root] * len(used), weights, np.array([trees[t].parent for t in used]), way, ways), time


def _ways(trees: Sequence[_Tree], edges: int) -> tuple[np.ndarray, list[Path]]:
    """For each tree and rank which of the ways leads to it, -1 at the root; and the ways, each once."""
    number: dict[Path, int] = {}
    rows = []
    block = max(1, BLOCK // len(trees[0].parent))
    for at in range(0, len(trees), block):
        check()
        part = trees[at : at + block]
        count = np.concatenate([np.diff(tree.starts) for tree in part])
        flat, starts = np.concatenate([tree.flat for tree in part]), np.cumsum(count) - count
        deep = int(count.max())
        table = np.full((len(count), deep), -1, np.int64)
        for j in range(deep):
            table[count > j, j] = flat[starts[count > j] + j]
        if (edges + 1) ** deep < 1 << 62:  # a way as one number, as rows are compared slowly
            key = np.zeros(len(count), np.int64)
            for j in range(deep):
                key = key * (edges + 1) + table[:, j] + 1
            _, first, same = np.unique(key, return_index=True, return_inverse=True)
        else:
            _, first, same = np.unique(table, axis=0, return_index=True, return_inverse=True)
        distinct = [tuple(row[:n]) for row, n in zip(table[first].tolist(), count[first].tolist(), strict=True)]
        rows.append(
            np.array([number.setdefault(way, len(number)) if way else -1 for way in distinct], np.int32)[
                same.reshape(len(part), -1)
            ]
        )
    return np.concatenate(rows), list(number)


def _shape(fabric: Fabric, root: int, branches: Mapping[int, Branch]) -> _Shape:
    parent = np.full(fabric.ranks, -1, np.int64)
    paths: list[Path] = [()] * fabric.ranks
    for y, branch in branches.items():
        parent[y], paths[y] = branch.parent, branch.path
    return _Shape(root, parent, paths)


def _group(fabric: Fabric, generators: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Every element of the group, as it moves nodes and edges."""
    moves = []
    for pi in generators:
        image = edge_images(fabric, pi)
        if image is None:
            return None
        moves.append((pi, image))
    start = np.arange(fabric.nodes)
    found = {start.tobytes(): (start, np.arange(len(fabric.src)))}
    queue = list(found.values())
    for nodes, edges in queue:
        for pi, image in moves:
            made = pi[nodes]
            if made.tobytes() not in found:
                found[made.tobytes()] = made, image[edges]
                queue.append(found[made.tobytes()])
                if len(found) * len(fabric.src) > MOST_HOPS:
                    return None
    return queue


@dataclass(frozen=True, eq=False)
class _Tree:
    """A candidate: parents seen from the broadcast's root, the edges of all hops one after the other, and where each
    rank's start."""

    parent: np.ndarray
    flat: np.ndarray
    starts: np.ndarray


def _hung(shape: _Shape, nodes: np.ndarray, edges: np.ndarray, root: int, turn: _Turner) -> _Tree | None:
    """The image of a tree, with `root` on top; None where a hop cannot be turned round."""
    check()
    ranks = len(shape.parent)
    parent = np.full(ranks, -1, np.int64)
    inner = shape.parent >= 0
    parent[nodes[:ranks][inner]] = nodes[shape.parent[inner]]
    back = np.empty(ranks, np.int64)
    back[nodes[:ranks]] = np.arange(ranks)
    paths = {}
    y = root
    while parent[y] >= 0:  # from the root up: each hop now leads the other way
        x = int(parent[y])
        way = turn.way(y, x)
        if way is None:
            return None
        paths[x] = y, way
        y = x
    own = [shape.paths[r] for r in back.tolist()]
    lists = [() if r == root else paths[r][1] if r in paths else own[r] for r in range(ranks)]
    turned = np.zeros(ranks, bool)
    for x, (y, _) in paths.items():
        parent[x], turned[x] = y, True
    parent[root] = -1
    counts = np.array([len(p) for p in lists], np.int64)
    flat = np.array([e for p in lists for e in p], np.int64)
    keep = np.repeat(turned, counts)
    return _Tree(parent, np.where(keep, flat, edges[flat]), np.concatenate([[0], np.cumsum(counts)]))


def _lighter(tree: _Tree, root: int, turn_of: int, turn: _Turner) -> _Tree | None:
    """The tree with less for the root to send: of its leaves one hears from it, and the others from that one; None
    where it has few."""
    children = np.flatnonzero(tree.parent == root).tolist()
    inner = set(tree.parent.tolist())
    leaves = [y for y in children if y not in inner]
    if len(leaves) < 2:
        return None
    first = leaves[turn_of % len(leaves)]
    ways = {y: turn.way(first, y) for y in leaves if y != first}
    if any(way is None for way in ways.values()):
        return None
    branches = dict(_branches(tree, root))
    branches |= {y: (first, way) for y, way in ways.items() if way is not None}
    parent = np.array([branches[y][0] if y != root else -1 for y in range(len(tree.parent))], np.int64)
    paths = [branches[y][1] if y != root else () for y in range(len(parent))]
    return _Tree(
        parent,
        np.array([e for p in paths for e in p], np.int64),
        np.concatenate([[0], np.cumsum([len(p) for p in paths])]),
    )


def _branches(tree: _Tree, root: int) -> Iterator[tuple[int, tuple[int, Path]]]:
    flat, starts = tree.flat.tolist(), tree.starts.tolist()
    for y, x in enumerate(tree.parent.tolist()):
        if y != root:
            yield y, (x, tuple(flat[starts[y] : starts[y + 1]]))


class _Turner:
    """Ways from one rank to another through few switches, the shortest."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.src, self.dst = fabric.src.tolist(), fabric.dst.tolist()
        self.leaving: list[list[int]] = [[] for _ in range(fabric.nodes)]
        self.last: list[dict[int, list[int]]] = [{} for _ in range(fabric.nodes)]
        for e, (a, b) in enumerate(zip(self.src, self.dst, strict=True)):
            if b < fabric.ranks:
                self.last[a].setdefault(b, []).append(e)
            else:
                self.leaving[a].append(e)
        self.known: dict[tuple[int, int], Path | None] = {}

    def way(self, a: int, b: int) -> Path | None:
        """Edges from rank a to rank b, a way that the topology has; None where there is none."""
        if (a, b) not in self.known:
            self.known[a, b] = self._search(a, b)
        return self.known[a, b]

    def _search(self, a: int, b: int) -> Path | None:
        queue: list[tuple[int, Path]] = [(a, ())]
        for at, path in queue:
            for e in self.last[at].get(b, ()):
                if self.fabric.links_of((*path, e)) is not None:
                    return (*path, e)
            if len(path) < MOST_SWITCHES:
                queue += [(self.dst[e], (*path, e)) for e in self.leaving[at]]
        return None


def _shares(fabric: Fabric, trees: Sequence[_Tree], bound: Fraction) -> tuple[np.ndarray, Fraction]:
    """How much of the data goes down each tree, in whole parts, and the time of a unit of data then, exact."""
    from scipy.sparse import csr_matrix, hstack

    count = len(trees)
    rows = np.repeat(np.arange(count), [len(tree.flat) for tree in trees])
    load = csr_matrix(
        (np.ones(len(rows), np.int64), (rows, np.concatenate([t.flat for t in trees]))), (count, len(fabric.src))
    )
    busy = np.flatnonzero(load.sum(axis=0))
    load, cap = load[:, busy].T.tocsr(), fabric.cap[busy]
    told = _unlike(load, cap)
    need = load[told].astype(float).multiply(1 / (cap[told] * float(bound))[:, None])
    made = linear(
        np.r_[np.zeros(count), 1], A_ub=hstack([need, -np.ones((len(told), 1))]).tocsr(), b_ub=np.zeros(len(told)),
        A_eq=np.r_[np.ones(count), 0][None, :], b_eq=[1], method="highs",
    )  # fmt: skip
    part = np.maximum(made.x[:count], 0) if made.x is not None else np.ones(count) / count
    best: tuple[Fraction, np.ndarray] | None = None
    for whole in _wholes(part):
        taken = _rounded(part, whole)
        total = load @ taken
        worst = int(np.argmax(total / cap))
        time = Fraction(int(total[worst]), int(cap[worst]) * whole)
        if best is None or time < best[0] * (1 - NEAR):
            best = time, taken
    assert best is not None
    return best[1], best[0]


def _unlike(load: Any, cap: np.ndarray) -> np.ndarray:
    """Of edges that the same trees load alike the narrowest, as rows of `load`: what it carries, all of them do."""
    load.sort_indices()
    found: dict[tuple[bytes, bytes], int] = {}
    for row, (start, end) in enumerate(pairwise(load.indptr.tolist())):
        key = load.indices[start:end].tobytes(), load.data[start:end].tobytes()
        if key not in found or cap[row] < cap[found[key]]:
            found[key] = row
    return np.array(sorted(found.values()))


def _wholes(part: np.ndarray) -> list[int]:
    """Numbers of parts to try: powers of two, and multiples of what makes the most frequent share one part."""
    used = part[part > 1e-9]
    values, times = np.unique(np.round(used, 9), return_counts=True)
    common = max(1, round(1 / float(values[np.argmax(times)])))
    tried = {1 << k for k in range(MOST_TAKEN.bit_length())} | {common * k for k in range(1, 5)} | {len(used)}
    return sorted(n for n in tried if n <= MOST_TAKEN)


def _rounded(part: np.ndarray, whole: int) -> np.ndarray:
    """Whole numbers near ``part * whole`` that add up to `whole`."""
    share = part / part.sum() * whole
    taken = np.floor(share + 1e-9).astype(np.int64)
    short = whole - int(taken.sum())
    if short > 0:
        np.add.at(taken, np.argsort(taken - share, kind="stable")[:short], 1)
    elif short < 0:
        np.subtract.at(taken, np.flatnonzero(taken)[:-short], 1)
    return taken

"""Broadcast on a symmetric machine: the trees of its symmetric allgather, re-rooted at the broadcast's root."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from synth.model.gc_pause import collector_off
from synth.scale.fabric.automorphisms import edge_images, edge_orbits, group_images, orbits
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.orbit_paths import path_entries
from synth.scale.forests.partial_trees import Branch, BranchForest
from synth.solvers.deadline import check_deadline
from synth.solvers.linear_program import linear
from synth.solvers.rationalise import largest_remainders

# Limit on (candidate trees) x (edges of the fabric): bounds the memory.
MOST_LOADS = 20_000_000
# Numbers of units into which the data may be cut, which are the chunks of the schedule.
UNITS = tuple(1 << k for k in range(13))
# More units are taken only where they reduce the time by more than this fraction.
NEAR = Fraction(1, 500)


@collector_off()
def reroot(
    fabric: Fabric, grown: BranchForest, group: Sequence[np.ndarray], root: int
) -> tuple[BranchForest, Fraction] | None:
    """Return trees from `root` and the time that they need for a shard, or None where there are too many candidates or
    none.

    `grown`: trees of a symmetric allgather on this fabric, whose edges have the direction in which data spreads.
    `group` generates its symmetries.
    """
    # Every element of the group, as the images of the nodes and, after them, of the edges.
    ranks, nodes, edges = fabric.ranks, fabric.nodes, len(fabric.src)
    moves = []
    for pi in group:
        image = edge_images(fabric, pi)
        assert image is not None
        moves.append(np.concatenate([pi, nodes + image]))
    most = MOST_LOADS // (2 * edges * len(grown.roots))
    elements = group_images(moves, np.arange(nodes + edges), most + 1)
    entries = path_entries(fabric, edge_orbits(fabric, group), orbits(ranks, [pi[:ranks] for pi in group]))
    if entries is None or len(elements) > most:
        return None

    def hop(a: int, b: int) -> Branch | None:
        entering = (entries.entries[d] for d in entries.into[b])
        paths = [(*entry.paths[a], entry.last[b]) for entry in entering if a in entry.paths]
        allowed = [path for path in paths if fabric.links_of(path) is not None]
        return Branch(a, min(allowed, key=len)) if allowed else None

    # A tree spans all ranks, whichever rank is its root. Before an element moves it, it is re-rooted at the rank that
    # moves to `root`: the hops from there up to its own root are reversed.
    candidates: list[tuple[np.ndarray, dict[int, Branch]]] = []
    for element in elements:
        check_deadline()
        start = int(np.flatnonzero(element == root)[0])
        for own, branches in zip(grown.roots, grown.branches, strict=True):
            tree: dict[int, Branch | None] = dict(branches)
            y = start
            while y != own:
                above = branches[y].parent
                tree[above] = hop(y, above)
                y = above
            tree.pop(start, None)

            # A variant has less load on the root: one of the leaves below it becomes the parent of the others.
            variants = [tree]
            inner = {branch.parent for branch in tree.values() if branch}
            leaves = [y for y, branch in tree.items() if branch and branch.parent == start and y not in inner]
            if len(leaves) > 1:
                first = leaves[len(candidates) % len(leaves)]
                variants.append(tree | {y: hop(first, y) for y in leaves if y != first})
            for variant in variants:
                whole = {y: branch for y, branch in variant.items() if branch}
                if len(whole) == ranks - 1:
                    candidates.append((element, whole))
    if not candidates:
        return None

    # The loads of each candidate on the edges, and its units of the data.
    loads = np.zeros((len(candidates), edges), np.int64)
    for k, (element, whole) in enumerate(candidates):
        used = np.array([e for branch in whole.values() for e in branch.path])
        loads[k] = np.bincount(element[nodes + used] - nodes, minlength=edges)
    units, time = _units(loads, fabric.cap)

    # The candidates that carry any units, moved by their elements.
    forest = BranchForest(sum(units), [], [], [])
    for weight, (element, whole) in zip(units, candidates, strict=True):
        if weight:
            moved = {}
            for y, branch in whole.items():
                path = element[nodes + np.array(branch.path)] - nodes
                moved[int(element[y])] = Branch(int(element[branch.parent]), tuple(path.tolist()))
            forest.roots.append(root)
            forest.weights.append(weight)
            forest.branches.append(moved)
    return forest, time


def _units(loads: np.ndarray, capacity: np.ndarray) -> tuple[list[int], Fraction]:
    """Return whole units of the data for each candidate, and the exact time of one shard cut into these.

    `loads`: a row for each candidate, a column for each edge.
    """
    # Of edges that all candidates load alike, the narrowest counts.
    rows, which = np.unique(loads.T, axis=0, return_inverse=True)
    cap = np.full(len(rows), capacity.max())
    np.minimum.at(cap, which.ravel(), capacity)

    # Linear program: the least t where the shares add up to 1 and no edge needs longer than t.
    count = len(loads)
    need = rows * (cap.max() / cap)[:, None]
    solution = linear(
        np.r_[np.zeros(count), 1], A_ub=np.c_[need, -np.ones(len(rows))], b_ub=np.zeros(len(rows)),
        A_eq=np.r_[np.ones(count), 0][None, :], b_eq=[1], method="highs",
    )  # fmt: skip
    shares = np.maximum(solution.x[:count], 0) if solution.x is not None else np.ones(count) / count

    # The fewest units that are nearly the best: a power of two, or so many that the typical share is whole.
    typical = round(1 / float(np.median(shares[shares > 1e-9])))
    best: tuple[Fraction, list[int]] | None = None
    for total in sorted({*UNITS, *(typical * k for k in range(1, 5))}):
        units = largest_remainders(shares.tolist(), total)
        load = rows @ np.array(units)
        worst = int(np.argmax(load / cap))
        time = Fraction(int(load[worst]), int(cap[worst]) * total)
        if best is None or time < best[0] * (1 - NEAR):
            best = time, units
    assert best is not None
    return best[1], best[0]

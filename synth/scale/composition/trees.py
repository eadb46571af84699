"""Cheap trees in time: from a root to all ranks within some steps, for the price of each send in each step.

A minimum-cost arborescence whose edges have increasing steps is a Steiner tree of the time-expanded network, in which
waiting is free. It is built by the shortest-path heuristic (Takahashi and Matsuyama, "An approximate solution for the
Steiner problem in graphs", Math. Japonica 24, 1980) and improved one parent at a time.
"""

from __future__ import annotations

import numpy as np

# Passes over all ranks in which each takes its cheapest parent, unless a pass changes nothing before.
PASSES = 4

# A send `(step, source, destination)`.
Send = tuple[int, int, int]


def cheap_tree(prices: np.ndarray, root: int) -> tuple[float, list[Send]] | None:
    """Return the price and the sends of a tree, or None where a rank cannot be reached in time.

    ``prices[step, source, destination]``, infinite where no link leads.
    """
    return _Tree(prices, root).completed()


class _Tree:
    """A growing tree. `arrival`: the step before which each rank holds the data; that of ranks outside is `steps` + 1.

    `sent` is the step and `parent` the source of the send to each rank.
    """

    def __init__(self, prices: np.ndarray, root: int) -> None:
        self.prices, self.root = prices, root
        self.steps, self.ranks = prices.shape[:2]
        self.arrival = np.full(self.ranks, self.steps + 1)
        self.arrival[root] = 0
        self.parent = np.full(self.ranks, -1)

    def completed(self) -> tuple[float, list[Send]] | None:
        """Return the price and the sends of the tree with all ranks; None where a rank cannot be reached in time."""
        while (self.arrival > self.steps).any():
            if not self._attach_nearest():
                return None
        for _ in range(PASSES):
            if not self._improve():
                break
        sends = self._sends()
        return sum(float(self.prices[send]) for send in sends), sends

    def _attach_nearest(self) -> bool:
        """Add cheapest paths to the ranks outside that are nearest; return False where none can be reached."""
        distance = self._distances()
        outside = np.flatnonzero(self.arrival > self.steps)
        least = distance[-1, outside].min()
        if not np.isfinite(least):
            return False
        for rank in outside[distance[-1, outside] <= least * (1 + 1e-9)].tolist():
            self._attach(distance, rank)
        return True

    def _distances(self) -> np.ndarray:
        """Return ``distance[t, rank]``, the least price of paths from the tree that end before step t."""
        distance = np.empty((self.steps + 1, self.ranks))
        distance[0] = np.where(self.arrival == 0, 0.0, np.inf)
        for t in range(self.steps):
            distance[t + 1] = np.minimum(distance[t], (distance[t][:, None] + self.prices[t]).min(axis=0))
            distance[t + 1, self.arrival <= t + 1] = 0.0
        return distance

    def _attach(self, distance: np.ndarray, rank: int) -> None:
        """Add the cheapest path to `rank`. A rank of the tree on it receives earlier than before."""
        t = self.steps
        while self.arrival[rank] > t:
            while distance[t - 1, rank] <= distance[t, rank]:
                t -= 1
            source = int((distance[t - 1] + self.prices[t - 1, :, rank]).argmin())
            self.arrival[rank], self.parent[rank] = t, source
            rank, t = source, t - 1

    def _improve(self) -> bool:
        """Give each rank the cheapest parent that serves it before its own sends; return True if one changed."""
        changed = False
        latest = np.full(self.ranks, self.steps)
        for rank in range(self.ranks):
            if rank != self.root:
                latest[self.parent[rank]] = min(latest[self.parent[rank]], self.arrival[rank] - 1)
        for rank in range(self.ranks):
            if rank == self.root:
                continue
            end = int(latest[rank])
            steps = np.arange(end)
            costs = np.where(self.arrival[None, :] <= steps[:, None], self.prices[:end, :, rank], np.inf)
            t, source = divmod(int(costs.argmin()), self.ranks)
            before = int(self.parent[rank])
            if costs[t, source] < self.prices[self.arrival[rank] - 1, before, rank] - 1e-12:
                self.arrival[rank], self.parent[rank] = t + 1, source
                latest[source] = min(latest[source], t)
                children = np.flatnonzero(self.parent == before)
                latest[before] = (self.arrival[children] - 1).min(initial=self.steps)
                changed = True
        return changed

    def _sends(self) -> list[Send]:
        """Return the sends by ascending step."""
        ranks = [rank for rank in range(self.ranks) if rank != self.root]
        return sorted((int(self.arrival[rank]) - 1, int(self.parent[rank]), rank) for rank in ranks)


def steady_tree(prices: np.ndarray, root: int, extra_levels: int) -> tuple[float, list[Send]] | None:
    """Return the price and the sends of a cheap tree, with the level of each send as its step.

    It is a cheapest arborescence, with other branches to ranks that have more than `extra_levels` levels more than a
    breadth-first tree. ``prices[source, destination]``. None where a rank cannot be reached.
    """
    parents = cheapest_arborescence(prices, root)
    if parents is None:
        return None
    most = _hops(np.isfinite(prices), root) + extra_levels
    tree = _Tree(np.broadcast_to(prices, (most, *prices.shape)), root)
    level = _levels(parents, root)
    near = level <= most
    tree.arrival[near], tree.parent[near] = level[near], parents[near]
    return tree.completed()


def _hops(joined: np.ndarray, root: int) -> int:
    """Return the greatest number of links on a shortest path from `root`; ``joined[source, destination]``."""
    reached = np.arange(len(joined)) == root
    hops = 0
    while not reached.all():
        reached |= joined[reached].any(axis=0)
        hops += 1
    return hops


def _levels(parents: np.ndarray, root: int) -> np.ndarray:
    """Return the level of each rank in a tree."""
    level = np.full(len(parents), -1)
    level[root] = 0
    for depth in range(len(parents)):
        level[(level < 0) & (level[parents] == depth)] = depth + 1
    return level


def cheapest_arborescence(prices: np.ndarray, root: int) -> np.ndarray | None:
    """Return the parent of each rank in a minimum-cost arborescence from `root`, -1 for the root; None where there is
    none.

    ``prices[source, destination]``. Edmonds, "Optimum branchings", 1967, on a dense matrix.
    """
    prices = prices.copy()
    np.fill_diagonal(prices, np.inf)
    prices[:, root] = np.inf
    count = len(prices)
    parent = prices.argmin(axis=0)
    parent[root] = -1
    paid = prices[parent, np.arange(count)]
    paid[root] = 0.0
    if not np.isfinite(paid).all():
        return None
    cycle = _cycle(parent)
    if not len(cycle):
        return parent
    # the cycle becomes the last node: entering it at a rank saves what the rank's parent on the cycle costs
    rest = np.setdiff1d(np.arange(count), cycle)
    entering = prices[np.ix_(rest, cycle)] - paid[cycle]
    leaving = prices[np.ix_(cycle, rest)]
    smaller = np.full((len(rest) + 1, len(rest) + 1), np.inf)
    smaller[:-1, :-1] = prices[np.ix_(rest, rest)]
    smaller[:-1, -1], smaller[-1, :-1] = entering.min(axis=1), leaving.min(axis=0)
    inner = cheapest_arborescence(smaller, int(np.searchsorted(rest, root)))
    if inner is None:
        return None
    last = len(rest)
    for i, rank in enumerate(rest.tolist()):
        if rank != root:
            parent[rank] = cycle[leaving[:, i].argmin()] if inner[i] == last else rest[inner[i]]
    entry = cycle[entering[inner[last]].argmin()]
    parent[entry] = rest[inner[last]]
    return parent


def _cycle(parent: np.ndarray) -> np.ndarray:
    """Return the ranks of a cycle of parents, none where there is no cycle."""
    node = np.arange(len(parent))
    for _ in range(len(parent)):
        node = np.where(node < 0, -1, parent[node])
    if (node < 0).all():
        return np.zeros(0, np.int64)
    start = int(node.max())
    cycle = [start]
    while (following := int(parent[cycle[-1]])) != start:
        cycle.append(following)
    return np.array(sorted(cycle))

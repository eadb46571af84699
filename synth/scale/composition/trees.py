"""Cheap trees in time: from roots to all ranks within some steps, for the price of each send in each step.

A minimum-cost arborescence whose edges have increasing steps is a Steiner tree of the time-expanded network, in which
waiting is free. Where it is fixed before which step each rank holds the data, its *arrival*, every rank takes its
cheapest send independently of the others. So the price of a tree is a function of the arrivals alone, and coordinate
descent improves them one rank at a time.
"""

from __future__ import annotations

import numpy as np

from synth.scale.composition.settings import SETTINGS

# A send `(step, source, destination)`.
Send = tuple[int, int, int]


class ArrivalDescent:
    """Coordinate descent on the arrivals of trees, for ``prices[step, source, destination]``, infinite without a link.

    Arrivals are arrays ``[tree, rank]``. The arrival of the root is the first step in which it may send.
    """

    def __init__(self, prices: np.ndarray) -> None:
        steps, ranks = prices.shape[:2]
        # A send that cannot be is dear, so that descent repairs trees that are none yet.
        self._dear = ranks * float(prices[np.isfinite(prices)].max())
        self.prices = np.minimum(prices, self._dear)
        least = np.full((steps + 1, steps + 1, ranks, ranks), self._dear)
        for first in range(steps):
            for end in range(first + 1, steps + 1):
                np.minimum(least[first, end - 1], self.prices[end - 1], out=least[first, end])
        # least[source, destination, first, end]: the least price of a send in steps first <= t < end
        self._least = np.ascontiguousarray(least.transpose(2, 3, 0, 1))
        self._steps, self._ranks = steps, np.arange(ranks)

    def improve(self, arrivals: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """Improve the arrivals of a tree from each root in place; return the prices of the trees.

        The price is infinite where no send reaches a rank in time.
        """
        for forwards in [True, False] * SETTINGS.descent_passes:
            costs = self._costs(arrivals, roots)
            order = self._ranks if forwards else self._ranks[::-1]
            changes = [self._improve_rank(costs, arrivals, roots, rank) for rank in order]
            if not any(changes):
                break
        total = self._costs(arrivals, roots).min(axis=1).sum(axis=1)
        return np.where(total < self._dear, total, np.inf)

    def _costs(self, arrivals: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """Return ``costs[tree, source, destination]`` of the cheapest send in time, 0 into the root."""
        source, destination = self._ranks[None, :, None], self._ranks[None, None, :]
        costs = self._least[source, destination, arrivals[:, :, None], arrivals[:, None, :]]
        costs[np.arange(len(roots)), :, roots] = 0.0
        return costs

    def _improve_rank(self, costs: np.ndarray, arrivals: np.ndarray, roots: np.ndarray, rank: int) -> bool:
        """Give one rank of each tree its best arrival, where that is better; return True if one changed."""
        kept = costs[:, rank].copy()
        costs[:, rank] = np.inf
        others = costs.min(axis=1)
        costs[:, rank] = kept
        others[:, rank] = 0.0
        others[np.arange(len(roots)), roots] = 0.0
        # for each arrival from 1 on: the price of the rank's own send, and those of all others
        into = self._least[self._ranks, rank, arrivals][:, :, 1:].min(axis=1)
        onwards = self._least[rank, self._ranks, 1:, arrivals]
        total = into + np.minimum(others[:, :, None], onwards).sum(axis=1)
        trees = np.arange(len(roots))
        best = total.argmin(axis=1) + 1
        now = np.maximum(arrivals[:, rank], 1)
        better = (total[trees, best - 1] < total[trees, now - 1] * (1 - 1e-9)) & (roots != rank)
        if not better.any():
            return False
        arrivals[better, rank] = best[better]
        costs[:, rank] = self._least[rank, self._ranks, arrivals[:, rank, None], arrivals]
        costs[:, :, rank] = self._least[self._ranks, rank, arrivals, arrivals[:, rank, None]]
        costs[trees, :, roots] = 0.0
        return True

    def sends(self, arrivals: np.ndarray, root: int) -> list[Send]:
        """Return the cheapest sends in time for the arrivals of one tree, by ascending step."""
        sends = []
        for rank in self._ranks.tolist():
            if rank != root:
                source = int(self._least[self._ranks, rank, arrivals, arrivals[rank]].argmin())
                first, end = int(arrivals[source]), int(arrivals[rank])
                sends.append((first + int(self.prices[first:end, source, rank].argmin()), source, rank))
        return sorted(sends)


def hops(joined: np.ndarray, root: int) -> np.ndarray:
    """Return the number of links on a shortest path from `root` to each rank, -1 where there is none.

    ``joined[source, destination]`` is True where a link leads.
    """
    distance = np.full(len(joined), -1)
    distance[root] = 0
    level = distance == 0
    while level.any():
        level = joined[level].any(axis=0) & (distance < 0)
        distance[level] = distance.max() + 1
    return distance


def levels(parents: np.ndarray, root: int) -> np.ndarray:
    """Return the level of each rank in a tree."""
    level = np.full(len(parents), -1)
    level[root] = 0
    for depth in range(len(parents)):
        level[(level < 0) & (level[parents] == depth)] = depth + 1
    return level


def cheapest_arborescence(prices: np.ndarray, root: int) -> np.ndarray | None:
    """Return the parent of each rank in a minimum-cost arborescence from `root`, -1 for the root; None where there is
    none.

    ``prices[source, destination]``. Edmonds, "Optimum branchings", 1967, on a dense matrix; all cycles of cheapest
    edges are contracted at once.
    """
    prices = prices.copy()
    np.fill_diagonal(prices, np.inf)
    prices[:, root] = np.inf
    count = len(prices)
    parent = prices.argmin(axis=0)
    parent[root] = root
    paid = prices[parent, np.arange(count)]
    paid[root] = 0.0
    if not np.isfinite(paid).all():
        return None
    cycle = _cycles(parent)
    on_top = cycle == np.arange(count)  # one rank of each cycle, and those on none
    if not on_top.all():
        # each cycle becomes a node: entering it at a rank saves what the rank's parent on the cycle costs
        node = (np.cumsum(on_top) - 1)[cycle]
        sizes = np.bincount(node)
        order, starts = np.argsort(node, kind="stable"), np.cumsum(sizes) - sizes
        extra = prices - paid
        rows = np.minimum.reduceat(extra[order], starts, axis=0)
        inner = cheapest_arborescence(np.minimum.reduceat(rows[:, order], starts, axis=1), int(node[root]))
        if inner is None:
            return None
        # of each node the cheapest edge from the node above, the first source among equal ones
        allowed = np.where(node[:, None] == inner[node], extra, np.inf)
        source = allowed.argmin(axis=0)
        ranked = np.lexsort((source, allowed.min(axis=0), node))
        entries = ranked[starts][inner >= 0]
        parent[entries] = source[entries]
    parent[root] = -1
    return parent


def _cycles(parent: np.ndarray) -> np.ndarray:
    """Return the least node of the cycle of parents that each node lies on, the node itself where it lies on none."""
    nodes = np.arange(len(parent))
    ahead, least = parent, nodes
    for _ in range(len(parent).bit_length()):
        least = np.minimum(least, least[ahead])
        ahead = ahead[ahead]
    cyclic = np.zeros(len(nodes), bool)
    cyclic[ahead] = True  # many parents up from any node lies a node of a cycle
    return np.where(cyclic, least, nodes)

"""Cheap trees in time: from roots to all ranks within some steps, for the price of each send in each step.

A minimum-cost arborescence whose edges have increasing steps is a Steiner tree of the time-expanded network, in which
waiting is free. Where it is fixed before which step each rank holds the data, its *arrival*, every rank takes its
cheapest send independently of the others. So the price of a tree is a function of the arrivals alone, and coordinate
descent improves them one rank at a time.
"""

from __future__ import annotations

import numpy as np

# A send `(step, source, destination)`.
Send = tuple[int, int, int]
# Passes over all ranks, forwards and backwards, in which a tree is improved at one set of prices.
PASSES = 2


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
        for forwards in [True, False] * PASSES:
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

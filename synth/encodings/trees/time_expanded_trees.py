"""Time-expanded arborescences, the trees of single chunks, and a heuristic search for the cheapest ones at given
prices.

A *tree* says for every rank that ever receives the chunk by which route and in which step: at most once, in a step
later than the one in which the sender received it. Ranks that are no destination may relay. With one destination a
tree is a path and the search is exact; with several it is a Steiner arborescence, searched here by repeated
shortest-path insertion (Takahashi and Matsuyama, Math. Japonica 24, 1980) into many trees at once, and improved by
destroying and repairing parts of the best ones (Shaw, CP 1998).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from synth.model.topology import Network

# Standard deviation of the log-price of whole steps; at 0 a search stays in the steps of its first trees.
TILT = 1.0

Tree = tuple[tuple[int, int], ...]
"""The sends ``(step, route)`` of one chunk, sorted; steps count from 1."""


class TreeBatch:
    """`size` trees under construction: `arrive[b, n]` is the step in which rank n of tree b receives, by route
    `parent[b, n]`.

    Sources have arrived at step 0; ranks that are not in the tree arrive at ``steps + 1``.
    """

    def __init__(self, arrive: np.ndarray, parent: np.ndarray) -> None:
        self.arrive, self.parent = arrive, parent

    def take(self, rows: np.ndarray) -> TreeBatch:
        """Return a copy of the trees at indices `rows`, which may repeat."""
        return TreeBatch(self.arrive[rows], self.parent[rows])

    def join(self, other: TreeBatch) -> TreeBatch:
        """Return a forest of these trees and those of `other`, in this order."""
        return TreeBatch(np.concatenate([self.arrive, other.arrive]), np.concatenate([self.parent, other.parent]))

    def trees(self) -> list[Tree]:
        """Return the trees as sends, one `Tree` each."""
        trees = []
        for arrive, parent in zip(self.arrive, self.parent, strict=True):
            sends = [(int(t), int(r)) for t, r in zip(arrive, parent, strict=True) if r >= 0]
            trees.append(tuple(sorted(sends)))
        return trees


class TreeSearch:
    """Heuristic pricer: searches for cheap trees from `sources` to all of `targets` within `steps` steps. Call
    `search`."""

    def __init__(self, network: Network, steps: int, sources: Iterable[int], targets: Iterable[int], seed: int) -> None:
        self.network, self.steps = network, steps
        self.sources = np.array(sorted(sources))
        self.targets = np.array(sorted(set(targets) - set(self.sources.tolist())), dtype=int)
        self.random = np.random.default_rng(seed)
        self.src = np.array([r.src for r in network.routes])
        width = max((len(rs) for rs in network.into), default=1)
        self._into = np.full(
            (width, network.ranks), len(network.routes)
        )  # routes into each rank; a missing one costs infinity
        for n, rs in enumerate(network.into):
            self._into[: len(rs), n] = rs
        self._from = np.append(self.src, 0)[self._into]
        self._wanted = np.zeros(network.ranks, dtype=bool)
        self._wanted[self.targets] = True

    @property
    def exact(self) -> bool:
        """True for at most one target: then the shortest path is the cheapest tree."""
        return len(self.targets) <= 1

    def empty(self, size: int) -> TreeBatch:
        """Return `size` trees that consist of the sources alone."""
        arrive = np.full((size, self.network.ranks), self.steps + 1)
        arrive[:, self.sources] = 0
        return TreeBatch(arrive, np.full((size, self.network.ranks), -1))

    def plant(self, trees: Sequence[Tree]) -> TreeBatch:
        """Return `trees` as a forest."""
        forest = self.empty(len(trees))
        for b, tree in enumerate(trees):
            for step, route in tree:
                head = self.network.routes[route].dst
                forest.arrive[b, head], forest.parent[b, head] = step, route
        return forest

    def cost(self, forest: TreeBatch, prices: np.ndarray) -> np.ndarray:
        """Return the price of each tree at ``prices[route, step]``, where column 0 is unused."""
        used = forest.parent >= 0
        return np.where(used, prices[forest.parent, np.where(used, forest.arrive, 0)], 0.0).sum(axis=1)

    def grow(
        self, forest: TreeBatch, prices: np.ndarray, noise: float, wander: float, tilt: float = 0.0
    ) -> TreeBatch | None:
        """Connect every tree to all targets by shortest paths, in place; return it, or None if a target is out of
        reach.

        The nearest missing target of a tree is connected first. ``prices[route, step]``: the price of a send, where
        column 0 is unused. `noise`: relative perturbation of the prices, for each tree anew (0: none). `wander`:
        relative perturbation of the distances that order the targets. `tilt`: standard deviation of the log-factor on
        all prices of a step, in the second half of the trees.
        """
        size = len(forest.arrive)
        seen = np.broadcast_to(prices, (size, *prices.shape))
        if noise:
            scale = prices[:, 1:].mean()
            seen = seen * self.random.uniform(
                1 - noise, 1 + noise, seen.shape
            ) + scale * 1e-3 * noise * self.random.random(seen.shape)
        if tilt:
            step = np.exp(tilt * self.random.standard_normal((size, 1, self.steps + 1)))
            step[: size // 2] = 1.0
            seen = seen * step
        padded = np.full((self.steps + 1, size, len(self.src) + 1), np.inf)
        padded[:, :, :-1] = seen.transpose(2, 0, 1)
        seen = padded[:, :, self._into]
        rows = np.arange(size)
        while True:
            missing = self._wanted & (forest.arrive > self.steps)
            if not missing.any():
                return self._prune(forest)
            far = self._distances(forest, seen)
            key = far[-1] * (1 + wander * self.random.random(far[-1].shape)) if wander else far[-1]
            key = np.where(missing, key, np.inf)
            pick = key.argmin(axis=1)
            todo = missing.any(axis=1)
            if np.isinf(key[rows, pick][todo]).any():
                return None
            self._attach(forest, far, seen, rows[todo], pick[todo])

    def _distances(self, forest: TreeBatch, seen: np.ndarray) -> np.ndarray:
        """Return `far[t, b, n]`, the cost to have rank n hold the chunk of tree b after step t."""
        far = np.empty((self.steps + 1, *forest.arrive.shape))
        far[0] = np.where(forest.arrive == 0, 0.0, np.inf)
        here = forest.arrive == np.arange(self.steps + 1)[:, None, None]
        for t in range(1, self.steps + 1):
            reach = far[t - 1][:, self._from]
            reach += seen[t]
            np.minimum(far[t - 1], reach.min(axis=1), out=far[t])
            np.copyto(far[t], 0.0, where=here[t])
        return far

    def _attach(self, forest: TreeBatch, far: np.ndarray, seen: np.ndarray, rows: np.ndarray, node: np.ndarray) -> None:
        """Add the shortest path to `node[i]` to tree `rows[i]`, arriving as early as it can for the price."""
        for t in range(self.steps, 0, -1):
            live = forest.arrive[rows, node] > t
            if not live.all():
                rows, node = rows[live], node[live]
                if not len(rows):
                    return
            move = np.flatnonzero(far[t - 1, rows, node] > far[t, rows, node])
            if not len(move):
                continue
            moving, head = rows[move], node[move]
            price = far[t - 1][moving[:, None], self._from[:, head].T] + seen[t][moving, :, head]
            route = self._into[price.argmin(axis=1), head]
            forest.arrive[moving, head] = t
            forest.parent[moving, head] = route
            node = node.copy()
            node[move] = self.src[route]

    def _prune(self, forest: TreeBatch) -> TreeBatch:
        """Remove relays that have no target below them."""
        if self._wanted.sum() + len(self.sources) == self.network.ranks:
            return forest
        for _ in range(self.steps):
            needed = np.broadcast_to(self._wanted, forest.arrive.shape).copy()
            rows, heads = np.nonzero(forest.parent >= 0)
            needed[rows, self.src[forest.parent[rows, heads]]] = True
            idle = (forest.parent >= 0) & ~needed
            if not idle.any():
                break
            forest.arrive[idle], forest.parent[idle] = self.steps + 1, -1
        return forest

    def destroy(self, forest: TreeBatch, share: float) -> TreeBatch:
        """Remove each rank from each tree with probability `share`, with all that is below it, in place; return it."""
        gone = (self.random.random(forest.arrive.shape) < share) & (forest.parent >= 0)
        above = self.src[forest.parent]
        rows = np.arange(len(gone))[:, None]
        for _ in range(self.steps):
            gone |= (forest.parent >= 0) & gone[rows, above]
        forest.arrive[gone], forest.parent[gone] = self.steps + 1, -1
        return forest

    def search(self, prices: np.ndarray, known: Sequence[Tree], size: int, turns: int) -> list[tuple[float, Tree]]:
        """Return cheap trees as (cost, tree) pairs at ``prices[route, step - 1]``, cheapest first, without repetition.

        A pool of `size` trees, at first new ones and `known`, is improved in `turns` turns of destroying and repairing.
        The result is empty if no tree reaches every target in time.
        """
        padded = np.hstack([np.zeros((len(prices), 1)), np.maximum(prices, 0.0)])
        fresh = self.grow(self.empty(1), padded, 0.0, 0.0)
        if fresh is None:
            return []
        if not self.exact:
            more = self.grow(self.empty(size), padded, 0.3, 0.3, TILT)
            if more is not None:
                fresh = fresh.join(more)
        pool = fresh if not known else fresh.join(self.plant(known))
        found: dict[Tree, float] = {}
        self._note(found, pool, padded)
        for turn in range(0 if self.exact else turns):
            cost = self.cost(pool, padded)
            best = np.argsort(cost, kind="stable")[:size]
            pool = pool.take(best)
            rows = (self.random.random(size) ** 2 * len(best)).astype(int)
            child = self.destroy(pool.take(rows), (0.15, 0.3, 0.5)[turn % 3])
            child = self.grow(child, padded, (0.0, 0.1, 0.3)[turn % 3], 0.2, TILT)
            if child is not None:
                self._note(found, child, padded)
                pool = self._distinct(pool.join(child))
        return sorted((c, t) for t, c in found.items())

    def _note(self, found: dict[Tree, float], forest: TreeBatch, padded: np.ndarray) -> None:
        found.update(zip(forest.trees(), self.cost(forest, padded).tolist(), strict=True))

    @staticmethod
    def _distinct(forest: TreeBatch) -> TreeBatch:
        _, first = np.unique(np.hstack([forest.arrive, forest.parent]), axis=0, return_index=True)
        return forest.take(np.sort(first))

"""Exact cheapest trees on few ranks: a walk over the sets of ranks that hold the chunk, step by step.

While holding costs nothing, all that the rest of a tree can depend on after step t is who holds the chunk. So the
cheapest tree is a shortest path over pairs (t, set of holders), in the way of Dreyfus and Wagner (Networks 1, 1971): from set A to
A ∪ D in one step costs, for each rank of D, the cheapest route into it from A. There are 3^f pairs (A, D), f the ranks
that do not hold the chunk at the start; all of them are looked at, in arrays.

From both ends at once this also gives the cheapest tree in which a given rank receives at a given step, for every rank and
step: many different columns for one price.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from synth.bounds.arborescence import Grower, Tree
from synth.topology import Network

MOST_FREE = 9  # ranks without the chunk at the start; 3^9 pairs a step


class Holders:
    """Cheapest trees from `sources` to all of `targets` within `steps` steps of `network`, at any prices, exactly.

    `fits` says whether there are few enough ranks for it.
    """

    def __init__(self, network: Network, steps: int, sources: Iterable[int], targets: Iterable[int]) -> None:
        self.network, self.steps = network, steps
        start = frozenset(sources)
        self.free = [n for n in range(network.ranks) if n not in start]
        place = {n: k for k, n in enumerate(self.free)}
        self.wanted = sum(1 << place[n] for n in set(targets) - start)
        count = len(self.free)
        self.arcs = [(i, count if r.src in start else place[r.src], place[r.dst]) for i, r in enumerate(network.routes) if r.dst in place]
        codes = np.arange(3**count)
        digits = np.stack([codes // 3**k % 3 for k in range(count)]) if count else np.zeros((0, 1), dtype=int)
        bits = 1 << np.arange(count)
        self.before = (bits[:, None] * (digits == 1)).sum(axis=0)
        self.after = (bits[:, None] * (digits > 0)).sum(axis=0)
        self.fresh = digits == 2
        self.receiving = [np.flatnonzero(row) for row in self.fresh]
        self.by_after = np.argsort(self.after, kind="stable")
        self.by_before = np.argsort(self.before, kind="stable")
        self.starts_after = np.searchsorted(self.after[self.by_after], np.arange(1 << count))
        self.starts_before = np.searchsorted(self.before[self.by_before], np.arange(1 << count))

    exact = True

    @staticmethod
    def fits(network: Network, sources: Iterable[int]) -> bool:
        """Whether there are few enough ranks."""
        return network.ranks - len(frozenset(sources)) <= MOST_FREE

    def price(self, prices: np.ndarray) -> float:
        """Take ``prices[route, step - 1]``; the cost of a cheapest tree (infinite where there is none)."""
        self.prices = prices
        count, steps = len(self.free), self.steps
        cost = np.full((steps, count + 1, count), np.inf)  # from each rank, the sources last, into each
        self.route = np.full((steps, count + 1, count), -1)
        for i, a, b in self.arcs:
            better = prices[i] < cost[:, a, b]
            cost[better, a, b] = prices[i][better]
            self.route[better, a, b] = i
        into = np.empty((steps, 1 << count, count))  # from any rank of a set
        into[:, 0] = cost[:, count]
        for k in range(count):
            np.minimum(into[:, : 1 << k], cost[:, k : k + 1], out=into[:, 1 << k : 2 << k])
        self.cost = cost
        self.pay = np.zeros((steps, len(self.before)))
        for k, receiving in enumerate(self.receiving):
            self.pay[:, receiving] += into[:, self.before[receiving], k]
        self.reach = np.full((steps + 1, 1 << count), np.inf)
        self.reach[0, 0] = 0.0
        for t in range(steps):
            total = self.reach[t, self.before] + self.pay[t]
            self.reach[t + 1] = np.minimum.reduceat(total[self.by_after], self.starts_after)
        self.rest = np.empty((steps + 1, 1 << count))
        sets = np.arange(1 << count)
        self.rest[steps] = np.where(sets & self.wanted == self.wanted, 0.0, np.inf)
        for t in range(steps - 1, -1, -1):
            total = self.rest[t + 1, self.after] + self.pay[t]
            self.rest[t] = np.minimum.reduceat(total[self.by_before], self.starts_before)
        return float(self.rest[0, 0])

    def search(self, prices: np.ndarray, known: Sequence[Tree] = (), size: int = 0, rounds: int = 0) -> list[tuple[float, Tree]]:
        """Cheap trees at ``prices[route, step - 1]``, a cheapest first, without repetition; empty where there is none at all.

        The arguments that `Grower.search` takes besides are of no use here.
        """
        del known, size, rounds
        return self.through() if self.price(np.maximum(prices, 0.0)) < np.inf else []

    def through(self) -> list[tuple[float, Tree]]:
        """For each rank and step the cheapest tree in which it receives then, with its cost; cheapest first, without repetition."""
        found: set[Tree] = set()
        for t in range(self.steps):
            total = self.reach[t, self.before] + self.pay[t] + self.rest[t + 1, self.after]
            for receiving in self.receiving:
                code = int(receiving[total[receiving].argmin()])
                if total[code] < np.inf:
                    pairs = [*self._backwards(t, int(self.before[code])), code, *self._onwards(t + 1, int(self.after[code]))]
                    found.add(self._tree(pairs))
        return sorted((float(sum(self.prices[route, step - 1] for step, route in tree)), tree) for tree in found)

    def _onwards(self, t: int, held: int) -> list[int]:
        """The pairs of steps t + 1, ... from `held` after step t."""
        codes = []
        for s in range(t, self.steps):
            low = self.starts_before[held]
            high = self.starts_before[held + 1] if held + 1 < len(self.starts_before) else len(self.by_before)
            options = self.by_before[low:high]
            code = int(options[(self.rest[s + 1, self.after[options]] + self.pay[s, options]).argmin()])
            codes.append(code)
            held = int(self.after[code])
        return codes

    def _backwards(self, t: int, held: int) -> list[int]:
        """The pairs of steps 1, ..., t up to `held` after step t."""
        codes = []
        for s in range(t, 0, -1):
            low = self.starts_after[held]
            high = self.starts_after[held + 1] if held + 1 < len(self.starts_after) else len(self.by_after)
            options = self.by_after[low:high]
            code = int(options[(self.reach[s - 1, self.before[options]] + self.pay[s - 1, options]).argmin()])
            codes.append(code)
            held = int(self.before[code])
        return codes[::-1]

    def _tree(self, pairs: Sequence[int]) -> Tree:
        """The tree of one pair for each step."""
        sends = []
        for t, pair in enumerate(pairs):
            held = [*(k for k in range(len(self.free)) if self.before[pair] >> k & 1), len(self.free)]
            for k in np.flatnonzero(self.fresh[:, pair]):
                sends.append((t + 1, int(self.route[t, held[int(self.cost[t, held, k].argmin())], k])))
        return self._pruned(sends)

    def _pruned(self, sends: list[tuple[int, int]]) -> Tree:
        """Without relays that nothing hangs on."""
        routes, kept = self.network.routes, []
        needed = {n for k, n in enumerate(self.free) if self.wanted >> k & 1}
        for step, route in sorted(sends, reverse=True):
            if routes[route].dst in needed:
                needed.add(routes[route].src)
                kept.append((step, route))
        return tuple(sorted(kept))


def pricer(network: Network, steps: int, sources: Iterable[int], targets: Iterable[int], seed: int) -> Holders | Grower:
    """What finds cheap trees: exactly where there are few ranks, else by search."""
    sources = tuple(sources)
    return Holders(network, steps, sources, targets) if Holders.fits(network, sources) else Grower(network, steps, sources, targets, seed)

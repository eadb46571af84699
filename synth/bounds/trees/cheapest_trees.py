"""Exact cheapest trees on few ranks: a walk over the sets of ranks that hold the chunk, step by step.

While holding costs nothing, all that the rest of a tree can depend on after step t is who holds the chunk. So the
cheapest tree is a shortest path over pairs (t, set of holders), in the way of Dreyfus and Wagner (Networks 1, 1971):
from set A to A ∪ D in one step costs, for each rank of D, the cheapest route into it from A. There are 3^f pairs (A,
D), f the ranks that do not hold the chunk at the start; all of them are looked at, in arrays.

From both ends at once this also gives the cheapest tree in which a given rank receives at a given step, for every rank
and step: many different columns for one price.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from synth.bounds.trees.time_expanded_trees import Grower, Tree
from synth.model.topology import Network

MOST_FREE = 9  # ranks without the chunk at the start; 3^9 pairs a step


class Pairs:
    """All pairs (A, D) of disjoint sets of `count` ranks, bit sets: `before` A, `after` A ∪ D, `new[pair]` the members
    of D."""

    def __init__(self, count: int) -> None:
        codes = np.arange(3**count)
        digits = np.stack([codes // 3**k % 3 for k in range(count)]) if count else np.zeros((0, 1), dtype=int)
        bits = 1 << np.arange(count)
        self.before = (bits[:, None] * (digits == 1)).sum(axis=0)
        self.after = (bits[:, None] * (digits > 0)).sum(axis=0)
        fresh = digits == 2
        self.receiving = [np.flatnonzero(row) for row in fresh]
        self.new = [tuple(np.flatnonzero(column).tolist()) for column in fresh.T]
        self.of_before, self.of_after = self.before.tolist(), self.after.tolist()
        self._by = [
            (order, sets[order]) for sets in (self.before, self.after) for order in [np.argsort(sets, kind="stable")]
        ]
        self._starts = [np.searchsorted(sets, np.arange(1 << count)) for _, sets in self._by]

    def least(self, total: np.ndarray, after: bool) -> tuple[np.ndarray, list[int]]:
        """For each set the least of `total` over the pairs that have it before, or after, and the first pair with
        that."""
        order, sets = self._by[after]
        ordered = total[order]
        least = np.minimum.reduceat(ordered, self._starts[after])
        hits = np.flatnonzero(ordered == least[sets])[::-1]
        first = np.empty(len(least), dtype=int)
        first[sets[hits]] = order[hits]  # where a set comes up twice, what is written last stays
        return least, first.tolist()


@lru_cache(maxsize=MOST_FREE + 1)
def pairs_of(count: int) -> Pairs:
    """The same `Pairs` for all who ask."""
    return Pairs(count)


class Holders:
    """Cheapest trees from `sources` to all of `targets` within `steps` steps of `network`, at any prices, exactly.

    `fits` says whether there are few enough ranks for it. After `price` comes what is asked of the trees at those
    prices.
    """

    def __init__(self, network: Network, steps: int, sources: Iterable[int], targets: Iterable[int]) -> None:
        self.network, self.steps = network, steps
        start = frozenset(sources)
        self.free = [n for n in range(network.ranks) if n not in start]
        place = {n: k for k, n in enumerate(self.free)}
        self.wanted = sum(1 << place[n] for n in set(targets) - start)
        count = len(self.free)
        self.arcs = [
            (i, count if r.src in start else place[r.src], place[r.dst])
            for i, r in enumerate(network.routes)
            if r.dst in place
        ]
        self.pairs = pairs_of(count)

    exact = True

    @staticmethod
    def fits(network: Network, sources: Iterable[int]) -> bool:
        """Whether there are few enough ranks."""
        return network.ranks - len(frozenset(sources)) <= MOST_FREE

    def price(self, prices: np.ndarray) -> float:
        """Take ``prices[route, step - 1]``; the cost of a cheapest tree (infinite where there is none)."""
        self.prices = prices
        count, steps, pairs = len(self.free), self.steps, self.pairs
        cost = np.full((steps, count + 1, count), np.inf)  # from each rank, the sources last, into each
        route = np.full((steps, count + 1, count), -1)
        for i, a, b in self.arcs:
            better = prices[i] < cost[:, a, b]
            cost[better, a, b] = prices[i][better]
            route[better, a, b] = i
        into = np.full((steps, 1 << count, count), np.inf)  # from any rank of a set, or from the sources
        through = np.full((steps, 1 << count, count), -1)
        for k in [*range(count), count]:
            low, here = (slice(1 << k), slice(1 << k, 2 << k)) if k < count else (slice(None), slice(None))
            better = cost[:, k : k + 1] < into[:, low]
            into[:, here] = np.where(better, cost[:, k : k + 1], into[:, low])
            through[:, here] = np.where(better, route[:, k : k + 1], through[:, low])
        self.ways_in = through.tolist()
        self.pay = np.zeros((steps, len(pairs.before)))
        for k, receiving in enumerate(pairs.receiving):
            self.pay[:, receiving] += into[:, pairs.before[receiving], k]
        self.rest = np.empty((steps + 1, 1 << count))
        self.next: list[list[int]] = [[]] * steps
        sets = np.arange(1 << count)
        self.rest[steps] = np.where(sets & self.wanted == self.wanted, 0.0, np.inf)
        for t in range(steps - 1, -1, -1):
            self.rest[t], self.next[t] = pairs.least(self.rest[t + 1, pairs.after] + self.pay[t], after=False)
        return float(self.rest[0, 0])

    def search(
        self, prices: np.ndarray, known: Sequence[Tree] = (), size: int = 0, rounds: int = 0
    ) -> list[tuple[float, Tree]]:
        """Cheap trees at ``prices[route, step - 1]``, a cheapest first, without repetition; empty where there is none
        at all.

        The arguments that `Grower.search` takes besides are of no use here.
        """
        del known, size, rounds
        return self.through() if self.price(np.maximum(prices, 0.0)) < np.inf else []

    def through(self) -> list[tuple[float, Tree]]:
        """For each rank and step the cheapest tree in which it receives then, with its cost; cheapest first, without
        repetition."""
        pairs = self.pairs
        reach = np.full(self.rest.shape, np.inf)  # the cost of getting to a set by a step, and the last pair on the way
        reach[0, 0] = 0.0
        last: list[list[int]] = []
        found: set[Tree] = set()
        for t in range(self.steps):
            so_far = reach[t, pairs.before] + self.pay[t]
            reach[t + 1], back = pairs.least(so_far, after=True)
            total = so_far + self.rest[t + 1, pairs.after]
            for receiving in pairs.receiving:
                code = int(receiving[total[receiving].argmin()])
                if total[code] < np.inf:
                    walk, held = [code], pairs.of_before[code]
                    for codes in reversed(last):
                        walk.append(codes[held])
                        held = pairs.of_before[codes[held]]
                    found.add(self._tree([*walk[::-1], *self._onwards(t + 1, pairs.of_after[code])]))
            last.append(back)
        prices = self.prices.tolist()
        return sorted((sum(prices[route][step - 1] for step, route in tree), tree) for tree in found)

    def onwards(self, t: int, held: int) -> Tree:
        """The cheapest tree on from a set of ranks that hold the chunk after step t, as bits: that of `free[k]` is ``1
        << k``.

        It costs ``rest[t, held]``, which is to be finite.
        """
        return self._tree(self._onwards(t, held), t)

    def _onwards(self, t: int, held: int) -> list[int]:
        """The pairs of steps t + 1, ... of a cheapest way on, from `held` after step t."""
        codes = []
        for following in self.next[t:]:
            codes.append(following[held])
            held = self.pairs.of_after[following[held]]
        return codes

    def _tree(self, codes: Sequence[int], start: int = 0) -> Tree:
        """The tree of one pair for each step after `start`."""
        sends = []
        for t, code in enumerate(codes, start):
            routes = self.ways_in[t][self.pairs.of_before[code]]
            sends += [(t + 1, routes[k]) for k in self.pairs.new[code]]
        return self._pruned(sends)

    def _pruned(self, sends: list[tuple[int, int]]) -> Tree:
        """Without relays that nothing hangs on."""
        if self.wanted + 1 == 1 << len(self.free):
            return tuple(sorted(sends))
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
    return (
        Holders(network, steps, sources, targets)
        if Holders.fits(network, sources)
        else Grower(network, steps, sources, targets, seed)
    )

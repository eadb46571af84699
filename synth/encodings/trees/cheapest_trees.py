"""Exact cheapest trees on few ranks: a Steiner-tree dynamic program over the sets of ranks that hold the chunk.

To hold a chunk costs nothing. So after step t the rest of a tree depends only on the set of holders, and the cheapest
tree is a shortest path over pairs (t, set of holders), as in the Steiner-tree program of Dreyfus and Wagner (Networks
1, 1971). A step from set A to A ∪ D costs, for each rank of D, the cheapest route into it from A. There are 3^f pairs
(A, D), where f is the number of ranks that do not hold the chunk at the start. All pairs are evaluated, in arrays.

Costs from the start and costs to go together give the cheapest tree in which a given rank receives in a given step, for
every rank and step: many different columns from one evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from synth.encodings.trees.time_expanded_trees import Tree, TreeSearch
from synth.model.topology import Network

# Maximum number of ranks without the chunk at the start: 3^9 = 19,683 pairs in each step.
MOST_FREE = 9


class HolderSetPairs:
    """All pairs (A, D) of disjoint sets of `count` ranks.

    Attributes:
        before: A of each pair, as a bit set.
        after: A ∪ D of each pair, as a bit set.
        new: the members of D of each pair.
        receiving: for each rank the pairs whose D contains it.
    """

    def __init__(self, count: int) -> None:
        codes = np.arange(3**count)
        digits = np.zeros((count, len(codes)), dtype=int)  # of rank k: 1 in A, 2 in D, 0 in neither
        for k in range(count):
            digits[k] = codes // 3**k % 3
        bits = 1 << np.arange(count)
        self.before = (bits[:, None] * (digits == 1)).sum(axis=0)
        self.after = (bits[:, None] * (digits > 0)).sum(axis=0)
        fresh = digits == 2
        self.receiving = [np.flatnonzero(row) for row in fresh]
        self.new = [tuple(np.flatnonzero(column).tolist()) for column in fresh.T]
        self.before_list, self.after_list = self.before.tolist(), self.after.tolist()  # faster to index one by one
        self._by_set: list[tuple[np.ndarray, np.ndarray]] = []
        for sets in (self.before, self.after):
            order = np.argsort(sets, kind="stable")
            self._by_set.append((order, sets[order]))
        self._starts = [np.searchsorted(sets, np.arange(1 << count)) for _, sets in self._by_set]

    def least(self, total: np.ndarray, after: bool) -> tuple[np.ndarray, list[int]]:
        """Return, indexed by bit set, the minimum of `total` over pairs, and the first pair that attains it.

        `total`: a value for each pair. Of a set the pairs are those with it as A or, if `after`, as A ∪ D.
        """
        order, sets = self._by_set[after]
        ordered = total[order]
        least = np.minimum.reduceat(ordered, self._starts[after])
        hits = np.flatnonzero(ordered == least[sets])[::-1]
        first = np.empty(len(least), dtype=int)
        first[sets[hits]] = order[
            hits
        ]  # hits are in reverse order: of several pairs of a set the first is written last
        return least, first.tolist()


@lru_cache(maxsize=MOST_FREE + 1)
def holder_set_pairs(count: int) -> HolderSetPairs:
    """Return the `HolderSetPairs` of `count` ranks, cached."""
    return HolderSetPairs(count)


class SteinerTreeDP:
    """Steiner-tree dynamic program: exact cheapest trees from `sources` to all of `targets` within `steps` steps.

    Only for networks that `fits` accepts. `price` evaluates the program; `optimal_sends` and `trees_by_receive` then
    read trees off it at those prices. Sets of ranks are bit sets over `free`, the ranks that are no sources.
    """

    def __init__(self, network: Network, steps: int, sources: Iterable[int], targets: Iterable[int]) -> None:
        self.network, self.steps = network, steps
        start = frozenset(sources)
        self.free = [n for n in range(network.ranks) if n not in start]
        place = {n: k for k, n in enumerate(self.free)}
        self.wanted = sum(1 << place[n] for n in set(targets) - start)
        count = len(self.free)
        self.arcs = [  # (route, source, destination), all sources as rank `count`
            (i, place.get(r.src, count), place[r.dst]) for i, r in enumerate(network.routes) if r.dst in place
        ]
        self.pairs = holder_set_pairs(count)

    exact = True

    @staticmethod
    def fits(network: Network, sources: Iterable[int]) -> bool:
        """Return True if few enough ranks are no sources: at most `MOST_FREE`."""
        return network.ranks - len(frozenset(sources)) <= MOST_FREE

    def price(self, prices: np.ndarray) -> float:
        """Evaluate the program at ``prices[route, step - 1]`` and return the cost of a cheapest tree, infinite if there
        is none.

        Sets ``cost_to_go[t, A]``, the cost to complete a tree whose holders after step t are A.
        """
        self.prices = prices
        count, steps, pairs = len(self.free), self.steps, self.pairs
        cost = np.full((steps, count + 1, count), np.inf)  # [t, a, b] from rank a, or the sources (last), into rank b
        route = np.full((steps, count + 1, count), -1)
        for i, a, b in self.arcs:
            better = prices[i] < cost[:, a, b]
            cost[better, a, b] = prices[i][better]
            route[better, a, b] = i
        into = np.full((steps, 1 << count, count), np.inf)  # [t, A, b] from the best rank of A, or the sources, into b
        through = np.full((steps, 1 << count, count), -1)
        # The sets that contain k follow from those without k and all greater ranks; the sources are in every set.
        for k in range(count + 1):
            low, high = (slice(1 << k), slice(1 << k, 2 << k)) if k < count else (slice(None), slice(None))
            better = cost[:, k : k + 1] < into[:, low]
            into[:, high] = np.where(better, cost[:, k : k + 1], into[:, low])
            through[:, high] = np.where(better, route[:, k : k + 1], through[:, low])
        self.cheapest_route = through.tolist()
        self.step_cost = np.zeros((steps, len(pairs.before)))
        for k, receiving in enumerate(pairs.receiving):
            self.step_cost[:, receiving] += into[:, pairs.before[receiving], k]
        self.cost_to_go = np.empty((steps + 1, 1 << count))
        self.next: list[list[int]] = [[]] * steps
        sets = np.arange(1 << count)
        self.cost_to_go[steps] = np.where(sets & self.wanted == self.wanted, 0.0, np.inf)
        for t in range(steps - 1, -1, -1):
            self.cost_to_go[t], self.next[t] = pairs.least(
                self.cost_to_go[t + 1, pairs.after] + self.step_cost[t], after=False
            )
        return float(self.cost_to_go[0, 0])

    def search(
        self, prices: np.ndarray, known: Sequence[Tree] = (), size: int = 0, turns: int = 0
    ) -> list[tuple[float, Tree]]:
        """Return cheap trees with their costs at ``prices[route, step - 1]``, a cheapest first, without repetition;
        empty if there is no tree.

        The other arguments are those of `TreeSearch.search` and have no effect.
        """
        del known, size, turns
        return self.trees_by_receive() if self.price(np.maximum(prices, 0.0)) < np.inf else []

    def trees_by_receive(self) -> list[tuple[float, Tree]]:
        """Return, after `price`, the cheapest tree in which each rank receives in each step, as (cost, tree) pairs.

        They are sorted, cheapest first, and without repetition.
        """
        pairs = self.pairs
        reach = np.full(self.cost_to_go.shape, np.inf)  # [t, A] the cost to have the holders A after step t
        reach[0, 0] = 0.0
        last: list[list[int]] = []  # the last pair on a cheapest path to each set, by step
        trees: set[Tree] = set()
        for t in range(self.steps):
            cost = reach[t, pairs.before] + self.step_cost[t]
            reach[t + 1], back = pairs.least(cost, after=True)
            total = cost + self.cost_to_go[t + 1, pairs.after]
            for receiving in pairs.receiving:
                code = int(receiving[total[receiving].argmin()])
                if total[code] < np.inf:
                    path, holders = [code], pairs.before_list[code]
                    for codes in reversed(last):
                        path.append(codes[holders])
                        holders = pairs.before_list[codes[holders]]
                    trees.add(self._tree([*path[::-1], *self._optimal_pairs(t + 1, pairs.after_list[code])]))
            last.append(back)
        prices = self.prices.tolist()

        def cost_of(tree: Tree) -> float:
            return sum(prices[route][step - 1] for step, route in tree)

        return sorted((cost_of(tree), tree) for tree in trees)

    def optimal_sends(self, t: int, holders: int) -> Tree:
        """Return the sends of a cheapest completion of a tree after step t, from the bit set `holders`, in which ``1 <<
        k`` stands for `free[k]`.

        They cost ``cost_to_go[t, holders]``, which has to be finite.
        """
        return self._tree(self._optimal_pairs(t, holders), t)

    def _optimal_pairs(self, t: int, holders: int) -> list[int]:
        """Return the pairs of steps t + 1, ... of a cheapest completion from `holders` after step t."""
        codes = []
        for following in self.next[t:]:
            codes.append(following[holders])
            holders = self.pairs.after_list[following[holders]]
        return codes

    def _tree(self, codes: Sequence[int], start: int = 0) -> Tree:
        """Return the tree that consists of one pair for each step after `start`."""
        sends = []
        for t, code in enumerate(codes, start):
            routes = self.cheapest_route[t][self.pairs.before_list[code]]
            sends += [(t + 1, routes[k]) for k in self.pairs.new[code]]
        return self._pruned(sends)

    def _pruned(self, sends: list[tuple[int, int]]) -> Tree:
        """Return the tree without relays that have no target below them."""
        if self.wanted + 1 == 1 << len(self.free):
            return tuple(sorted(sends))
        routes, used = self.network.routes, []
        needed = {n for k, n in enumerate(self.free) if self.wanted >> k & 1}
        for step, route in sorted(sends, reverse=True):
            if routes[route].dst in needed:
                needed.add(routes[route].src)
                used.append((step, route))
        return tuple(sorted(used))


def make_pricer(
    network: Network, steps: int, sources: Iterable[int], targets: Iterable[int], seed: int
) -> SteinerTreeDP | TreeSearch:
    """Return a pricer of trees from `sources` to `targets` in `steps` steps: exact on few ranks, else heuristic.

    `seed`: random seed of the heuristic one.
    """
    sources = tuple(sources)
    if SteinerTreeDP.fits(network, sources):
        return SteinerTreeDP(network, steps, sources, targets)
    return TreeSearch(network, steps, sources, targets, seed)

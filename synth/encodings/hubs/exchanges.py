"""Hub exchanges of an allreduce chunk: the sends between few ranks, the hubs, after which each of them holds the
chunk's total, and the cheapest trees through hubs at given prices.

A chunk of an allreduce is summed up along trees that end at its hubs, the hubs exchange their sums, and the total
spreads from them along other trees. One hub has nothing to exchange. Two or more hubs that are linked each to each send
each other all they have in one step. Four hubs in a ring do it in two steps, two and two, as in recursive doubling
(Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005). With one hub or
two that takes 2(N - 1) sends, the fewest possible; more hubs take more sends and fewer steps.

A tree down is a tree up reversed in time on the reversed network. So the cheapest path at any prices comes from two
dynamic programs over the sets of ranks that hold the data (`encodings.trees.cheapest_trees`): the cost to go
from a set of hubs after any step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from synth.encodings.trees.cheapest_trees import SteinerTreeDP
from synth.model.topology import Network

# Maximum number of hubs of one chunk.
MOST_HUBS = 4
Sends = tuple[tuple[int, int, str], ...]  # (step, route, kind), in the order of steps


class HubExchange(NamedTuple):
    """Sends between hubs after which each of them holds the sum of what all of them had.

    Attributes:
        hubs: the ranks, as a bit set.
        sends: (source, destination) pairs for each step.
        identical_bits: no hub adds more than two terms in a step, so all hubs end with the same bits in whichever
            order a program adds.
    """

    hubs: int
    sends: tuple[tuple[tuple[int, int], ...], ...]
    identical_bits: bool


class HubPath(NamedTuple):
    """A cheapest pair of trees through one exchange (index into `HubPathPricer.exchanges`), which begins after step
    `after`."""

    cost: float
    exchange: int
    after: int


def exchanges(network: Network, maximum: int = MOST_HUBS) -> list[HubExchange]:
    """Return the exchanges of up to `maximum` hubs that the links of a network allow."""
    linked = {(r.src, r.dst) for r in network.routes}
    both = {(a, b) for a, b in linked if a < b and (b, a) in linked}
    result = [HubExchange(1 << n, (), True) for n in range(network.ranks)]
    cliques: list[tuple[int, ...]] = [(n,) for n in range(network.ranks)]
    for count in range(2, maximum + 1):
        larger: list[tuple[int, ...]] = []
        for clique in cliques:
            for n in range(clique[-1] + 1, network.ranks):
                if all((a, n) in both for a in clique):
                    larger.append((*clique, n))
        cliques = larger
        result += [HubExchange(_bits(c), (tuple(permutations(c, 2)),), count == 2) for c in cliques]
    return result + list(_rings(network.ranks, both)) if maximum >= 4 else result


def _rings(ranks: int, both: set[tuple[int, int]]) -> Iterator[HubExchange]:
    """Yield the exchanges of four ranks in which two pairs swap, then two others."""
    for a, *others in combinations(range(ranks), 4):
        for b, c, d in permutations(others):
            first, second = ((a, b), (c, d)), ((a, c), (b, d))
            if all(tuple(sorted(pair)) in both for pair in (*first, *second)):
                yield HubExchange(_bits((a, b, c, d)), (_swaps(first), _swaps(second)), True)


def _swaps(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return the sends of a step in which the ranks of each pair swap."""
    sends: list[tuple[int, int]] = []
    for a, b in pairs:
        sends += [(a, b), (b, a)]
    return tuple(sends)


class HubPathPricer:
    """Pricer of chunks: the cheapest trees within `steps` steps through each exchange, for each step after which the
    exchange may begin. With `alike` only exchanges after which all ranks have the same bits."""

    def __init__(self, network: Network, steps: int, alike: bool = False, most_hubs: int = MOST_HUBS) -> None:
        self.network, self.steps = network, steps
        everyone = range(network.ranks)
        self.falling = SteinerTreeDP(network, steps, (), everyone)
        self.rising = SteinerTreeDP(network.reversed(), steps, (), everyone)
        allowed = [x for x in exchanges(network, most_hubs) if x.identical_bits or not alike]
        self.exchanges = [x for x in allowed if len(x.sends) <= steps]
        self.routes: dict[tuple[int, int], list[int]] = {}
        for i, r in enumerate(network.routes):
            self.routes.setdefault((r.src, r.dst), []).append(i)

    @staticmethod
    def fits(network: Network) -> bool:
        """Return True if the network has few enough ranks for the dynamic program."""
        return SteinerTreeDP.fits(network, ())

    def price(self, prices: np.ndarray) -> list[HubPath]:
        """Return the cheapest pair of trees of each exchange and step, at ``prices[route, step - 1]``, cheapest first.

        The next call overwrites the tables from which `sends` reads the sends of a path.
        """
        steps = self.steps
        self.falling.price(prices)
        self.rising.price(prices[:, ::-1])
        rise, fall = self.rising.cost_to_go, self.falling.cost_to_go
        self.prices = prices
        send_cost = {pair: prices[routes].min(axis=0) for pair, routes in self.routes.items()}
        paths = []
        for k, (hubs, swaps, _) in enumerate(self.exchanges):
            length = len(swaps)
            begins = np.arange(steps - length + 1)
            cost = rise[steps - begins, hubs] + fall[begins + length, hubs]
            for j, pairs in enumerate(swaps):
                for pair in pairs:
                    cost = cost + send_cost[pair][begins + j]
            paths += [HubPath(float(c), k, t) for t, c in enumerate(cost) if c < np.inf]
        return sorted(paths)

    def sends(self, path: HubPath) -> Sends:
        """Return the sends of a path: sums up to the hubs, sums between them, and copies down."""
        hubs, swaps, _ = self.exchanges[path.exchange]
        sends = [(self.steps + 1 - t, i, "reduce") for t, i in self.rising.optimal_sends(self.steps - path.after, hubs)]
        for step, pairs in enumerate(swaps, path.after + 1):
            for pair in pairs:
                route = min(self.routes[pair], key=lambda i: self.prices[i, step - 1])
                sends.append((step, route, "reduce"))
        sends += [(t, i, "copy") for t, i in self.falling.optimal_sends(path.after + len(swaps), hubs)]
        return tuple(sorted(sends))


def _bits(ranks: tuple[int, ...]) -> int:
    return sum(1 << n for n in ranks)

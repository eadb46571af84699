"""How few ranks, the hubs of a chunk, come to hold all of its sum: what they send each other, and what ways that gives
at any prices.

A chunk of an allreduce is summed up along trees that end at its hubs, the hubs exchange what they have, and it spreads
from them along other trees. One hub has nothing to exchange; two or more that are linked each to each send each other
all they have in one step; four in a ring do it two and two in two steps, as in recursive doubling (Thakur, Rabenseifner
and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005). With one hub or two that takes 2(N -
1) sends, the least there are; more hubs pay for fewer steps.

Up is down read backwards on the reversed network. So the cheapest way at any prices comes from two walks over the sets
of ranks that hold the data (`synth.bounds.trees.cheapest_trees`): what is left to pay from a set of hubs after any
step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from synth.bounds.trees.cheapest_trees import Holders
from synth.model.topology import Network

MOST_HUBS = 4
Sends = tuple[tuple[int, int, str], ...]  # (step, route, kind), in the order of steps


class Exchange(NamedTuple):
    """`hubs`, as a set of bits, all hold the sum of what they had after the steps of `sends`: pairs of ranks, step by
    step.

    `alike`: no hub adds more than two things in a step, so that all end with the same bits whatever a program does
    first.
    """

    hubs: int
    sends: tuple[tuple[tuple[int, int], ...], ...]
    alike: bool


class Way(NamedTuple):
    """A cheapest way of a chunk with this exchange, which begins after step `after`."""

    cost: float
    exchange: int
    after: int


def exchanges(network: Network, most: int = MOST_HUBS) -> list[Exchange]:
    """The exchanges of up to `most` hubs that the links of a network allow."""
    linked = {(r.src, r.dst) for r in network.routes}
    both = {(a, b) for a, b in linked if a < b and (b, a) in linked}
    made = [Exchange(1 << n, (), True) for n in range(network.ranks)]
    cliques: list[tuple[int, ...]] = [(n,) for n in range(network.ranks)]
    for count in range(2, most + 1):
        cliques = [(*c, n) for c in cliques for n in range(c[-1] + 1, network.ranks) if all((a, n) in both for a in c)]
        made += [Exchange(_bits(c), (tuple(permutations(c, 2)),), count == 2) for c in cliques]
    return made + list(_rings(network.ranks, both)) if most >= 4 else made


def _rings(ranks: int, both: set[tuple[int, int]]) -> Iterator[Exchange]:
    """Of four ranks two pairs swap, then two others."""
    for a, *others in combinations(range(ranks), 4):
        for b, c, d in permutations(others):
            first, second = ((a, b), (c, d)), ((a, c), (b, d))
            if all(tuple(sorted(pair)) in both for pair in (*first, *second)):
                swaps = tuple(tuple(sent for p, q in pairs for sent in ((p, q), (q, p))) for pairs in (first, second))
                yield Exchange(_bits((a, b, c, d)), swaps, True)


class Ways:
    """The cheapest ways of a chunk within `steps` steps, for each exchange and each step it may begin after."""

    def __init__(self, network: Network, steps: int, alike: bool = False) -> None:
        self.network, self.steps = network, steps
        everyone = range(network.ranks)
        self.falling, self.rising = (Holders(side, steps, (), everyone) for side in (network, network.reversed()))
        self.exchanges = [x for x in exchanges(network) if len(x.sends) <= steps and (x.alike or not alike)]
        self.routes: dict[tuple[int, int], list[int]] = {}
        for i, r in enumerate(network.routes):
            self.routes.setdefault((r.src, r.dst), []).append(i)

    @staticmethod
    def fits(network: Network) -> bool:
        """Whether there are few enough ranks."""
        return Holders.fits(network, ())

    def price(self, prices: np.ndarray) -> list[Way]:
        """All ways at ``prices[route, step - 1]``, a cheapest first; `sends` gives the sends of one until the next
        call."""
        steps = self.steps
        self.falling.price(prices)
        self.rising.price(prices[:, ::-1])
        rise, fall = self.rising.rest, self.falling.rest
        self.prices = prices
        paid = {pair: prices[routes].min(axis=0) for pair, routes in self.routes.items()}
        found = []
        for k, (hubs, swaps, _) in enumerate(self.exchanges):
            length = len(swaps)
            begins = np.arange(steps - length + 1)
            cost = rise[steps - begins, hubs] + fall[begins + length, hubs]
            for j, pairs in enumerate(swaps):
                for pair in pairs:
                    cost = cost + paid[pair][begins + j]
            found += [Way(float(c), k, t) for t, c in enumerate(cost) if c < np.inf]
        return sorted(found)

    def sends(self, way: Way) -> Sends:
        """The sends of a way: sums up to the hubs, between them, and copies down."""
        hubs, swaps, _ = self.exchanges[way.exchange]
        made = [(self.steps + 1 - t, i, "reduce") for t, i in self.rising.onwards(self.steps - way.after, hubs)]
        for step, pairs in enumerate(swaps, way.after + 1):
            made += [(step, min(self.routes[pair], key=lambda i: self.prices[i, step - 1]), "reduce") for pair in pairs]
        made += [(t, i, "copy") for t, i in self.falling.onwards(way.after + len(swaps), hubs)]
        return tuple(sorted(made))


def _bits(ranks: tuple[int, ...]) -> int:
    return sum(1 << n for n in ranks)

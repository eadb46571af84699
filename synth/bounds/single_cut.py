"""Cut-set bound: a quick lower bound on rounds per chunk where ranks want different sums, by the best single cut of a
few.

The certificate is of kind ``static-cuts``, with one cut. It prices every link into a set of ranks, or a limit that all
links into one of these ranks share. At least as many sends enter the set as there are linearly independent sums among
those wanted inside, restricted to contributions from outside (docs/proofs.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm

from synth.checker.certificates.cuts import check
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network

Prices = dict[tuple[str, int], tuple[int, Fraction]]  # by link or limit: its units, and its price if a send pays 1


def single_cut_bound(network: Network, collective: Collective) -> LowerBound | None:
    """Return the greatest bound by one of these cuts, for any number of steps; None for several units of data, or if
    no cut gives a bound."""
    if collective.units != 1 or not collective.combining:
        return None
    best: tuple[Fraction, frozenset[int], Prices] | None = None
    for inside in dict.fromkeys(_candidate_sets(network.ranks)):
        prices = _prices(network, inside)
        capacity = sum(units * price for units, price in prices.values())
        value = _independent_sums(collective, inside) / capacity if capacity else Fraction(0)
        if value and (best is None or value > best[0]):
            best = value, inside, prices
    if best is None:
        return None
    _, inside, prices = best
    weight = lcm(*(price.denominator for _, price in prices.values()))  # of the cut, so that all prices are integers
    rows, scale = [], 0
    for (kind, index), (units, price) in prices.items():
        integer_price = int(price * weight)
        name: list = ["limit", index]
        if kind == "link":
            route = network.routes[index]
            name = ["link", route.src, route.dst, *([list(route.via)] if route.via else [])]
        rows.append([*name, integer_price])
        scale += units * integer_price
    theta = [-1] * network.ranks
    for n in inside:
        theta[n] = 1
    certificate = {
        "kind": "static-cuts",
        "problem": problem_fingerprint(network, collective),
        "steps": None,
        "scale": scale,
        "prices": rows,
        "cuts": {"0": [[weight, *theta]]},
        "generators": [],
    }
    return LowerBound(check(certificate, network.document, collective.document), certificate)


def _candidate_sets(ranks: int) -> Iterator[frozenset[int]]:
    """Yield blocks of 1, 2, 4, ... consecutive ranks, and for each size the union of every other block."""
    for k in range(ranks.bit_length()):
        size = 1 << k
        blocks = [frozenset(range(at, min(at + size, ranks))) for at in range(0, ranks, size)]
        yield from (block for block in blocks if len(block) < ranks)
        if len(blocks) > 2:
            yield frozenset().union(*blocks[1::2])


def _prices(network: Network, inside: frozenset[int]) -> Prices:
    """Return the priced resources: for each rank of the set its links from outside, or a limit that all these links
    share if it lets less through than they do."""
    prices: Prices = {}
    for rank in inside:
        into = [r for r in network.into[rank] if network.routes[r].src not in inside]
        if not into:
            continue
        links: Prices = {("link", r): (network.routes[r].units, Fraction(1)) for r in into}
        shared = set.intersection(*map(set, [network.caps_of[r] for r in into]))
        least = Fraction(sum(units for units, _ in links.values()))
        for k in sorted(shared):  # a send counts at least `times` times against it
            times = min(network.caps_of[r].count(k) for r in into)
            through = Fraction(network.caps[k].units, times)
            if through < least:
                least, links = through, {("limit", k): (network.caps[k].units, Fraction(1, times))}
        for resource, (units, price) in links.items():  # a limit may serve several ranks: the greatest price pays all
            prices[resource] = units, max(price, prices.get(resource, (units, price))[1])
    return prices


def _independent_sums(collective: Collective, inside: frozenset[int]) -> int:
    """Return the rank modulo 2 of the sums wanted inside, restricted to contributions from outside."""
    pivots: dict[int, int] = {}
    for rank in sorted(inside & collective.post[0]):
        row = sum(1 << i for i in collective.wanted(0, rank) - inside)
        while row and row.bit_length() in pivots:
            row ^= pivots[row.bit_length()]
        if row:
            pivots[row.bit_length()] = row
    return len(pivots)

"""A quick lower bound on rounds per chunk where ranks want different sums: what enters one set of ranks, of a few that
are tried.

The certificate is a ``static-cuts`` one with a single cut: every link into the set is priced, or a limit that all links
into one of its ranks share. As many sends enter as the sums that are wanted inside are independent, without what is
inside (docs/proofs.md).
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

Prices = dict[tuple[str, int], tuple[int, Fraction]]  # units of a link or limit, and its price where a send pays 1


def fenced(network: Network, collective: Collective) -> LowerBound | None:
    """The greatest bound by one such set, for any number of steps; None where there are several units, or every set has
    what it wants."""
    if collective.units != 1 or not collective.combining:
        return None
    best: tuple[Fraction, frozenset[int], Prices] | None = None
    for inside in dict.fromkeys(_sets(network.ranks)):
        prices = _prices(network, inside)
        room = sum(units * price for units, price in prices.values())
        value = _independent(collective, inside) / room if room else Fraction(0)
        if value and (best is None or value > best[0]):
            best = value, inside, prices
    if best is None:
        return None
    _, inside, prices = best
    send = lcm(*(price.denominator for _, price in prices.values()))  # what each send pays, so that prices are whole
    rows, scale = [], 0
    for (kind, index), (units, price) in prices.items():
        route, whole = network.routes[index] if kind == "link" else None, int(price * send)
        rows.append(
            ["limit", index, whole]
            if route is None
            else ["link", route.src, route.dst, *([list(route.via)] if route.via else []), whole]
        )
        scale += units * whole
    certificate = {
        "kind": "static-cuts",
        "problem": problem_fingerprint(network, collective),
        "steps": None,
        "scale": scale,
        "prices": rows,
        "cuts": {"0": [[send, *(1 if n in inside else -1 for n in range(network.ranks))]]},
        "generators": [],
    }
    return LowerBound(check(certificate, network.to_json(), collective.to_json(1)), certificate)


def _sets(ranks: int) -> Iterator[frozenset[int]]:
    """Single ranks; blocks of neighbours in number, and every other such block."""
    for size in [1 << k for k in range(ranks.bit_length())]:
        blocks = [frozenset(range(at, min(at + size, ranks))) for at in range(0, ranks, size)]
        yield from (block for block in blocks if len(block) < ranks)
        if len(blocks) > 2:
            yield frozenset().union(*blocks[1::2])


def _prices(network: Network, inside: frozenset[int]) -> Prices:
    """What is priced: for each rank of the set the links from outside, or the limit on all of them that lets the least
    through."""
    found: Prices = {}
    for rank in inside:
        into = [r for r in network.into[rank] if network.routes[r].src not in inside]
        if not into:
            continue
        links: Prices = {("link", r): (network.routes[r].units, Fraction(1)) for r in into}
        shared = set.intersection(*(set(network.caps_of[r]) for r in into))
        least = Fraction(sum(units for units, _ in links.values()))
        for k in sorted(shared):  # a send counts at least `times` times against it
            times = min(network.caps_of[r].count(k) for r in into)
            through = Fraction(network.caps[k].units, times)
            if through < least:
                least, links = through, {("limit", k): (network.caps[k].units, Fraction(1, times))}
        for what, (units, price) in links.items():  # a limit may serve several ranks: the greater price pays for all
            found[what] = units, max(price, found.get(what, (units, price))[1])
    return found


def _independent(collective: Collective, inside: frozenset[int]) -> int:
    """How many of the sums wanted inside are independent, modulo 2, without what is inside."""
    pivots: dict[int, int] = {}
    for rank in sorted(inside & collective.post[0]):
        row = sum(1 << i for i in collective.wanted(0, rank) - inside)
        while row and row.bit_length() in pivots:
            row ^= pivots[row.bit_length()]
        if row:
            pivots[row.bit_length()] = row
    return len(pivots)

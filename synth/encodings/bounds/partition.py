"""Bound on allreduce by a partition of the ranks, for any number of chunks and steps: kind ``allreduce-partition``.

With m parts, 2 (m - 1) sends of each chunk are between parts (docs/proofs.md). Without limits and with equal links
both ways that is Nash-Williams' and Tutte's bound on tree packings.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.checker.certificates.cuts import check
from synth.encodings.bounds.single_cut import Prices, capacity, price_fields, route_prices
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network


def partition_bound(network: Network, collective: Collective, parts: Sequence[Sequence[int]]) -> LowerBound:
    """Return the bound on R/C of `collective`, one allreduce of one unit, by `parts`, which hold each rank once.

    Of three choices of prices, the one of least capacity serves: for all routes between the parts at once, for those
    that leave each part, and for those that enter each. Raises VerificationError where `parts` are no partition.
    """
    home: dict[int, int] = {}
    for k, part in enumerate(parts):
        home.update(dict.fromkeys(part, k))
    crossing: set[int] = set()
    leaving: list[set[int]] = [set() for _ in parts]
    entering: list[set[int]] = [set() for _ in parts]
    for i, route in enumerate(network.routes):
        if home[route.src] != home[route.dst]:
            crossing.add(i)
            leaving[home[route.src]].add(i)
            entering[home[route.dst]].add(i)
    options = [_prices(network, groups) for groups in ([crossing], leaving, entering)]
    weight, fields = price_fields(network, min(options, key=capacity))
    certificate = {
        "kind": "allreduce-partition",
        "problem": problem_fingerprint(network, collective),
        **fields,
        "parts": [sorted(part) for part in parts],
        "weight": weight,
        "generators": [],
    }
    return LowerBound(check(certificate, network, collective.document), certificate)


def _prices(network: Network, groups: Sequence[set[int]]) -> Prices:
    """Return prices by which a send over any route of the groups costs at least 1: those of each group together.

    Equal limits in and out tie in a group of all routes, and a mixture of both has more capacity than either.
    """
    prices: Prices = {}
    for group in groups:
        for name, (units, price) in route_prices(network, group).items():
            prices[name] = units, max(price, prices[name][1] if name in prices else price)
    return prices

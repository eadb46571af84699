"""Bound on allreduce by a partition of the ranks, for any number of chunks and steps: kind ``allreduce-partition``.

With m parts, 2 (m - 1) sends of each chunk are between parts (docs/proofs.md). Without limits and with equal links
both ways that is Nash-Williams' and Tutte's bound on tree packings.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.bounds.single_cut import price_fields, route_prices
from synth.checker.certificates.cuts import check
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network


def partition_bound(network: Network, collective: Collective, parts: Sequence[Sequence[int]]) -> LowerBound:
    """Return the bound on R/C of `collective`, one allreduce of one unit, by `parts`, which hold each rank once.

    Raises VerificationError where they do not.
    """
    home: dict[int, int] = {}
    for k, part in enumerate(parts):
        home.update(dict.fromkeys(part, k))
    crossing = {i for i, route in enumerate(network.routes) if home[route.src] != home[route.dst]}
    weight, fields = price_fields(network, route_prices(network, crossing))
    certificate = {
        "kind": "allreduce-partition",
        "problem": problem_fingerprint(network, collective),
        **fields,
        "parts": [sorted(part) for part in parts],
        "weight": weight,
        "generators": [],
    }
    return LowerBound(check(certificate, network, collective.document), certificate)

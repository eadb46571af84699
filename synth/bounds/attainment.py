"""Proof that a lower bound on R/C for every number of steps is attained by none.

Let a schedule of C chunks a unit have R/C equal to the bound of a packing of cuts with the same prices in every step.
By complementary slackness every link or limit with a price is full in each step, the first and the last too, and each
chunk enters each of its cuts exactly once. A chunk that is sent in the first step is sent by a rank that has it at the
start. A chunk that enters a cut in the last step reaches one rank of it and has not been in it before, so no other rank
of that cut wants it. If some link or limit with a price has no such chunk to carry in the first step, or in the last,
there is no such schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network

Cuts = list[frozenset[int]]


def is_never_attained(network: Network, collective: Collective, floor: LowerBound) -> bool:
    """Return True if it is proved that no schedule has R/C equal to `floor`; False proves nothing.

    `floor`: a bound for every number of steps. True needs a certificate of kind ``static-cuts`` for this very problem,
    which is taken to be valid, and a collective that does not combine. For one that combines, call it with the reversed
    network and collective and their bound.
    """
    certificate = floor.certificate or {}
    if certificate.get("kind") != "static-cuts" or certificate.get("count") or collective.combining or floor.value <= 0:
        return False
    if certificate.get("reversed") or certificate.get("problem") != problem_fingerprint(network, collective):
        return False
    cuts = _cuts(certificate)
    for links in _priced_links(network, certificate):
        if not any(_can_send_first(collective, cuts, u, v) for u, v in links):
            return True
        if not any(_can_send_last(collective, cuts, u, v) for u, v in links):
            return True
    return False


def _priced_links(network: Network, certificate: dict) -> Iterator[list[tuple[int, int]]]:
    """Yield the links, as (sender, receiver), of each link or limit that has a price."""
    for kind, *row in certificate["prices"]:
        if row[-1] <= 0:
            continue
        if kind == "link":
            yield [(row[0], row[1])]
        else:
            routes = network.caps[row[0]].routes if kind == "limit" else ()
            yield [(network.routes[i].src, network.routes[i].dst) for i in routes]


def _cuts(certificate: dict) -> dict[int, Cuts]:
    """Return the cuts of each unit as sets of ranks: those of representatives, and their images under the
    generators."""
    cuts: dict[int, Cuts] = {}
    for unit, rows in certificate["cuts"].items():
        mine = cuts[int(unit)] = []
        for weight, *thetas in rows:
            if weight > 0:
                mine.append(frozenset(n for n, theta in enumerate(thetas) if theta >= 0))
    queue = list(cuts)
    for unit in queue:
        for ranks, units, *_ in certificate["generators"]:  # with parallel links a permutation of links follows
            if units[unit] not in cuts:
                images = cuts[units[unit]] = []
                for inside in cuts[unit]:
                    images.append(frozenset(ranks[n] for n in inside))
                queue.append(units[unit])
    return cuts


def _can_send_first(collective: Collective, cuts: dict[int, Cuts], u: int, v: int) -> bool:
    """Return True if u has a chunk at the start that enters one of its cuts at v."""
    own = [mine for unit, mine in cuts.items() if u in collective.pre[unit]]
    return any(v in inside for mine in own for inside in mine)


def _can_send_last(collective: Collective, cuts: dict[int, Cuts], u: int, v: int) -> bool:
    """Return True if some chunk enters cuts from u to v in which no rank but v wants it."""
    for unit, mine in cuts.items():
        entered = [inside for inside in mine if v in inside and u not in inside]
        if entered and all(collective.post[unit] & inside <= {v} for inside in entered):
            return True
    return False

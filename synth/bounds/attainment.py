"""Whether the least R/C of all numbers of steps is attained by any of them.

Let a schedule of C chunks a unit have R/C equal to the bound of a packing of cuts that has the same prices in every
step. Then nothing is wasted: in each step, the first and the last too, every link or limit that has a price is used to
the full, and each chunk enters each of its cuts exactly once. What is sent in the first step is sent by a rank that has
it at the start. A chunk that enters a cut in the last step reaches one rank of it and has not been in it before, so no
other rank of that cut wants it. Where some link or limit with a price has no chunk to carry in its first step, or in
its last, there is no such schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network

Cuts = list[frozenset[int]]


def never_attained(network: Network, collective: Collective, floor: LowerBound) -> bool:
    """Whether `floor`, a bound for every number of steps by ``static-cuts``, is proved to be attained by none; False
    proves nothing.

    The problem copies, and the certificate speaks of this very problem (for one that combines: ask of its reversal,
    with a bound of that); it is taken to be valid.
    """
    certificate = floor.certificate or {}
    if certificate.get("kind") != "static-cuts" or certificate.get("count") or collective.combining or floor.value <= 0:
        return False
    if certificate.get("reversed") or certificate.get("problem") != problem_fingerprint(network, collective):
        return False
    cuts = _cuts(certificate)
    return any(
        not any(_first(collective, cuts, u, v) for u, v in links)
        or not any(_last(collective, cuts, u, v) for u, v in links)
        for links in _priced(network, certificate)
    )


def _priced(network: Network, certificate: dict) -> Iterator[list[tuple[int, int]]]:
    """The links, as (sender, receiver), of each link or limit that has a price."""
    for kind, *row in certificate["prices"]:
        if row[-1] > 0:
            routes = network.caps[row[0]].routes if kind == "limit" else ()
            yield (
                [(row[0], row[1])]
                if kind == "link"
                else [(network.routes[i].src, network.routes[i].dst) for i in routes]
            )


def _cuts(certificate: dict) -> dict[int, Cuts]:
    """The cuts of each unit as sets of ranks: those of representatives, carried to the others by the generators."""
    cuts = {
        int(unit): [
            frozenset(n for n, theta in enumerate(thetas) if theta >= 0) for weight, *thetas in rows if weight > 0
        ]
        for unit, rows in certificate["cuts"].items()
    }
    queue = list(cuts)
    for unit in queue:
        for ranks, units, *_ in certificate["generators"]:  # with parallel links a permutation of links follows
            if units[unit] not in cuts:
                cuts[units[unit]] = [frozenset(ranks[n] for n in inside) for inside in cuts[unit]]
                queue.append(units[unit])
    return cuts


def _first(collective: Collective, cuts: dict[int, Cuts], u: int, v: int) -> bool:
    """Whether u has a chunk at the start that enters a cut of its own at v."""
    return any(u in collective.pre[unit] and any(v in inside for inside in mine) for unit, mine in cuts.items())


def _last(collective: Collective, cuts: dict[int, Cuts], u: int, v: int) -> bool:
    """Whether some chunk enters cuts from u to v that nobody but v wants it in."""
    entered = ((unit, [inside for inside in mine if v in inside and u not in inside]) for unit, mine in cuts.items())
    return any(mine and all(collective.post[unit] & inside <= {v} for inside in mine) for unit, mine in entered)

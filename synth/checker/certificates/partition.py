"""The bound on allreduce by a partition of the ranks, added up in fractions: no solver, no numpy.

Let the ranks lie in m parts. Before the first rank has the sum of a byte, the contribution of every other part has left
it: m - 1 crossings between parts. From then on every other part must still be entered: m - 1 more. Each crossing leaves
the region of the part that it comes from, so a byte of the buffer uses 2 (m - 1) of what leaves all regions together;
and it enters the region of the part that it goes to, so the same is true of what enters all regions together.
(Without switches and with equal capacities both ways this is Nash-Williams' and Tutte's bound on tree packings. Where
directions are unequal the wide ones alone could pay for all crossings: then a single region, which every byte leaves at
least once, may say more. That is a `throughput-cut` of `allreduce`, see `synth.checker.certificates.throughput_cuts`.)
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from synth.checker.certificates.machine_digest import check_topology
from synth.checker.fields import need, numbers_below, of_kind, strict
from synth.model.documents.json_reader import items
from synth.model.topology import Topology

ENTERING = "entering"
KEYS = {"allreduce-parts": {"kind", "topology", "regions", "limits"}}


@strict
def check(certificate: dict, topology: Topology) -> Fraction:
    """Return the bound that the certificate proves: seconds per GB of the buffer, for every allreduce on the topology.

    Fields of the certificate: `regions` has the ranks and switches of each part, with each rank in exactly one.
    `limits` has for each region the limits whose bandwidth stands for that of the links they hold. With `entering`
    (true, or absent) the bandwidth into regions is added up, else that out of them. Raises VerificationError, with the
    place, for anything that proves no bound.
    """
    entering = ENTERING in certificate
    need(not entering or certificate[ENTERING] is True, "is true or left out", ENTERING)
    of_kind({key: value for key, value in certificate.items() if key != ENTERING}, KEYS)
    table = check_topology(certificate, topology)
    regions, limits = items(certificate["regions"], "regions"), items(certificate["limits"], "limits")
    enough = len(regions) == len(limits) and len(regions) >= 2
    need(enough, "there must be two regions or more, each with its limits", "regions")

    # each rank is in one region, and each region has one; switches may be in several
    inside: list[set[int]] = []
    homes: list[list[int]] = [[] for _ in range(table.nodes)]
    for p, region in enumerate(regions):
        nodes = numbers_below(region, table.nodes, f"regions[{p}]")
        need(any(n < topology.ranks for n in nodes), "holds no rank", f"regions[{p}]")
        for n in nodes:
            need(n >= topology.ranks or not homes[n], "shares a rank with another region", f"regions[{p}]")
            homes[n].append(p)
        inside.append(set(nodes))
    need(all(homes[: topology.ranks]), "leave a rank out", "regions")

    # what crosses the edge of each region: the limits that are named for it, and the links in none of them
    bandwidth = Fraction(0)
    paid: list[set[int]] = []
    for p, row in enumerate(limits):
        held: set[int] = set()
        for k in numbers_below(row, len(topology.limits), f"limits[{p}]"):
            held.update(topology.limits[k].links)
            bandwidth += topology.limits[k].bandwidth
        paid.append(held)
    inner, outer = (table.dst, table.src) if entering else (table.src, table.dst)
    crossings: Counter[Fraction] = Counter()  # by bandwidth
    for i, (near, far, width) in enumerate(zip(inner, outer, table.width, strict=True)):
        for p in homes[near]:
            if far not in inside[p] and i not in paid[p]:
                crossings[width] += 1
    for width, count in crossings.items():
        bandwidth += count * width
    way = "enters" if entering else "leaves"
    need(bandwidth > 0, f"nothing {way} any region: the allreduce is impossible, not slow", "regions")
    return Fraction(2 * (len(regions) - 1)) / bandwidth

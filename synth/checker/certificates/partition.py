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

from fractions import Fraction

from synth.checker.certificates.throughput_cuts import check_topology
from synth.checker.fields import need
from synth.errors import VerificationError, malformed
from synth.model.documents.json_reader import items
from synth.model.topology import Topology, bandwidths, columns

KEYS = {"kind", "topology", "regions", "limits"}
ENTERING = "entering"


def check(certificate: dict, topology: Topology) -> Fraction:
    """Return the bound that the certificate proves: seconds per GB of the buffer, for every allreduce on the topology.

    Fields of the certificate: `regions` has the ranks and switches of each part, with each rank in exactly one.
    `limits` has for each region the limits whose bandwidth stands for that of the links they hold. With `entering`
    (true, or absent) the bandwidth into regions is added up, else that out of them. Raises VerificationError, with the
    place, for anything that proves no bound.
    """
    try:
        return _check(certificate, topology)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise VerificationError(malformed(error, "certificate")) from None


def _check(certificate: dict, topology: Topology) -> Fraction:
    entering = ENTERING in certificate
    need(certificate.keys() - {ENTERING} == KEYS, f"expected the keys {', '.join(sorted(KEYS))}", "$")
    need(not entering or certificate[ENTERING] is True, "is true or left out", ENTERING)
    need(certificate["kind"] == "allreduce-parts", "is no allreduce-parts", "kind")
    check_topology(certificate, topology)
    regions = [items(row, "regions") for row in items(certificate["regions"], "regions")]
    limits = [items(row, "limits") for row in items(certificate["limits"], "limits")]
    nodes = topology.ranks + len(topology.switches)
    need(
        len(regions) == len(limits) and len(regions) >= 2,
        "there must be two regions or more, each with its limits",
        "regions",
    )
    home: dict[int, int] = {}
    inside: list[set[int]] = []
    for p, region in enumerate(regions):
        members = set(region)
        need(len(members) == len(region), "names a node twice", f"regions[{p}]")
        need(all(type(n) is int and 0 <= n < nodes for n in region), "names no node", f"regions[{p}]")
        ranks = [n for n in members if n < topology.ranks]
        need(bool(ranks), "holds no rank", f"regions[{p}]")
        need(not any(n in home for n in ranks), "shares a rank with another region", f"regions[{p}]")
        home.update(dict.fromkeys(ranks, p))
        inside.append(members)
    need(len(home) == topology.ranks, f"hold {len(home)} of {topology.ranks} ranks", "regions")
    held: list[list[int]] = [[] for _ in range(nodes)]
    for p, members in enumerate(inside):
        for n in members:
            held[n].append(p)
    paid: list[set[int]] = []
    bandwidth = Fraction(0)
    for p, row in enumerate(limits):
        good = all(type(k) is int and 0 <= k < len(topology.limits) for k in row) and len(set(row)) == len(row)
        need(good, "names no limit, or one twice", f"limits[{p}]")
        paid.append({i for k in set(row) for i in topology.limits[k].links})
        bandwidth += sum((topology.limits[k].bandwidth for k in set(row)), Fraction(0))
    src, dst, width = columns(topology.links)
    for i, (near, far, wide) in enumerate(zip(*((dst, src) if entering else (src, dst)), width, strict=True)):
        for p in held[near]:
            if far not in inside[p] and i not in paid[p]:
                bandwidth += wide
    need(
        all(wide >= 0 for wide in (*bandwidths(topology.links), *bandwidths(topology.limits))),
        "has a negative bandwidth",
        "topology",
    )
    need(
        bandwidth > 0,
        f"nothing {'enters' if entering else 'leaves'} any region: the allreduce is impossible, not slow",
        "regions",
    )
    return Fraction(2 * (len(regions) - 1)) / bandwidth

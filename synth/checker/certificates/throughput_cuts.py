"""Throughput certificates of any size: cuts of the topology itself, added up in fractions; no solver, no numpy.

``throughput-cut``: every shard that starts inside must leave the cut (for reductions: must enter it), as some rank is
outside. What crosses uses links of the cut, and a link's use also counts against each limit that holds it: so in one
second no more leaves than the bandwidth of the named limits, plus that of all crossing links in none of them. For
``allreduce`` a shard is the whole buffer, wherever the cut lies: a rank outside ends with sums that hold inputs from
inside, so each byte leaves.

``throughput-cuts``: the same for weighted cuts together. As much leaves a switch as enters it, so potentials of
switches add nothing to a sum over all that is sent: a byte over a link counts the weights of the cuts it leaves plus
the potential of its tail less that of its head, and costs at most the prices of its limits and, for the rest, of the
link itself.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from synth.checker.certificates.machine_digest import ANYWHERE, ROOTED, TURNED, check_collective, check_topology
from synth.checker.fields import need, of_kind, stretches, strict
from synth.model.documents.json_reader import items
from synth.model.rational import rational
from synth.model.topology import Topology

KEYS = {
    "throughput-cut": {"kind", "topology", "collective", "root", "inside", "limits"},
    "throughput-cuts": {"kind", "topology", "collective", "root", "cuts", "limits", "potentials"},
}
MOST_WORK = 40_000_000  # maximum of cuts times links of one certificate, which are added up in fractions


@strict
def check(certificate: dict, topology: Topology) -> Fraction:
    """Return the bound that the certificate proves: seconds per GB of one shard, for every schedule on the topology.

    Algorithmic bandwidth is at most shards / bound (one shard for broadcast, reduce and allreduce, else one for each
    rank). Raises VerificationError, with the place, for anything that proves no bound.
    """
    kind = of_kind(certificate, KEYS)
    table = check_topology(certificate, topology)
    collective, root = check_collective(certificate, topology.ranks)
    need(collective != "alltoall", "has no such bound", "collective")
    if kind == "throughput-cut":  # of weight 1, with limits of price 1
        rows = [("1", certificate["inside"], "inside")]
        limits = [(k, "1") for k in items(certificate["limits"], "limits")]
        potentials = []
    else:
        rows = []
        for i, (weight, inside) in enumerate(items(certificate["cuts"], "cuts")):
            rows.append((weight, inside, f"cuts[{i}]"))
        limits, potentials = items(certificate["limits"], "limits"), items(certificate["potentials"], "potentials")
    need(len(rows) * len(topology.links) <= MOST_WORK, "are too many to check", "cuts")
    counts: defaultdict[int, Fraction] = defaultdict(Fraction)  # by link, of a byte over it
    tails, heads = (table.dst, table.src) if collective in TURNED else (table.src, table.dst)

    # shards that must leave each cut: one, or that of each rank inside
    shards = Fraction(0)
    for text, spans, place in rows:
        weight = _weight(text, place)
        inside = stretches(spans, table.nodes, place)
        held = inside[: topology.ranks]
        need(not all(held), "leaves no rank out", place)
        need(any(held), "holds no rank", place)
        need(root is None or held[root], "does not hold the root", place)
        shards += weight * (1 if collective in (ANYWHERE, *ROOTED) else sum(held))
        for i, (tail, head) in enumerate(zip(tails, heads, strict=True)):
            if inside[tail] and not inside[head]:
                counts[i] += weight
    need(shards > 0, "have no weight: nothing is proved", "cuts")

    # potentials of switches, of any sign
    heights: dict[int, Fraction] = {}
    for i, (n, text) in enumerate(potentials):
        switch = type(n) is int and topology.ranks <= n < table.nodes
        need(switch and n not in heights, "is no switch, or one again", f"potentials[{i}]")
        heights[n] = _fraction(text, f"potentials[{i}]")
    for i, (tail, head) in enumerate(zip(tails, heads, strict=True) if heights else ()):
        if tail in heights or head in heights:
            counts[i] += heights.get(tail, 0) - heights.get(head, 0)

    # what all bandwidth costs: each limit its price, each link what a byte counts beyond the prices of its limits
    bandwidth = Fraction(0)
    prices: dict[int, Fraction] = {}
    for i, (k, text) in enumerate(limits):
        place = f"limits[{i}]"
        need(type(k) is int and 0 <= k < len(topology.limits), "is no limit", place)
        need(k not in prices, "is given a price again", place)
        prices[k] = _weight(text, place)
        bandwidth += prices[k] * topology.limits[k].bandwidth
        for link in set(topology.limits[k].links):
            counts[link] -= prices[k]
    for i, rest in counts.items():
        if rest > 0:
            bandwidth += rest * table.width[i]
    need(bandwidth > 0, "is never left: the collective is impossible, not slow", "$")
    return shards / bandwidth


def _fraction(text: str, place: str) -> Fraction:
    need(type(text) is str, "expected a fraction", place)
    return rational(text)


def _weight(text: str, place: str) -> Fraction:
    value = _fraction(text, place)
    need(value >= 0, "is negative", place)
    return value

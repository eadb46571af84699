"""Re-checks throughput certificates of any size: one cut of the topology itself, added up in fractions; no solver, no numpy.

Every shard that starts inside the cut must leave it (for reductions: every shard that is summed inside must enter it),
as some rank is outside. What crosses uses links of the cut, and a link's use also counts against each limit that holds
it: so in one second no more leaves than the bandwidth of the named limits, plus that of all crossing links in none of them.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

from synth.errors import VerificationError
from synth.topology import Topology

KEYS = {"kind", "topology", "collective", "root", "inside", "limits"}
TURNED, ROOTED = ("reduce-scatter", "reduce"), ("broadcast", "reduce")


def digest(topology: Topology) -> str:
    """SHA-256 of what a certificate speaks about: ranks, links and limits with exact bandwidths."""
    found = hashlib.sha256(f"{topology.ranks} {len(topology.switches)}\n".encode())
    words: dict[int, str] = {}
    for part in (topology.links, topology.limits):
        for item in part:
            if id(item.bandwidth) not in words:
                words[id(item.bandwidth)] = str(item.bandwidth)
    found.update("\n".join([f"{k.src} {k.dst} {words[id(k.bandwidth)]}" for k in topology.links]).encode())
    for limit in topology.limits:
        found.update(f"\n{words[id(limit.bandwidth)]} {limit.links}".encode())
    return found.hexdigest()


def check(certificate: dict, topology: Topology) -> Fraction:
    """The bound that the certificate proves: seconds per GB of one shard, for every schedule on the topology.

    Algorithmic bandwidth is at most shards / bound (one shard for broadcast and reduce, else one for each rank). Raises
    VerificationError, with the place, for anything that proves no bound.
    """
    try:
        return _check(certificate, topology)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise VerificationError(f"malformed certificate: {error!r}"[:200]) from None


def _need(truth: bool, message: str, place: str) -> None:
    if not truth:
        raise VerificationError(message, place)


def _check(certificate: dict, topology: Topology) -> Fraction:
    _need(certificate.keys() == KEYS, f"expected the keys {', '.join(sorted(KEYS))}", "$")
    _need(certificate["kind"] == "throughput-cut", "is no throughput-cut", "kind")
    _need(certificate["topology"] == digest(topology), "speaks about another topology", "topology")
    collective, root = certificate["collective"], certificate["root"]
    _need(collective in ("allgather", *TURNED, *ROOTED), "has no such bound", "collective")
    nodes = topology.ranks + len(topology.switches)
    inside = [False] * nodes
    for i, (first, last) in enumerate(certificate["inside"]):
        _need(type(first) is int and type(last) is int and 0 <= first <= last < nodes, "is no stretch of nodes", f"inside[{i}]")
        inside[first : last + 1] = [True] * (last + 1 - first)
    held = inside[: topology.ranks]
    _need(not all(held), "leaves no rank out", "inside")
    if collective in ROOTED:
        _need(type(root) is int and 0 <= root < topology.ranks and held[root], "must be a rank inside", "root")
        shards = 1
    else:
        _need(root is None, "is for rooted collectives", "root")
        shards = sum(held)
    _need(shards > 0, "holds no rank", "inside")
    paid: set[int] = set()
    bandwidth = Fraction(0)
    for i, k in enumerate(sorted(set(certificate["limits"]))):
        _need(type(k) is int and 0 <= k < len(topology.limits), "is no limit", f"limits[{i}]")
        paid.update(topology.limits[k].links)
        bandwidth += topology.limits[k].bandwidth
    turned = collective in TURNED
    for i, link in enumerate(topology.links):
        a, b = (link.dst, link.src) if turned else (link.src, link.dst)
        if inside[a] and not inside[b] and i not in paid:
            bandwidth += link.bandwidth
    _need(bandwidth > 0, "is never left: the collective is impossible, not slow", "inside")
    return Fraction(shards) / bandwidth

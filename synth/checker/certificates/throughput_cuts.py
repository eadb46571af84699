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

import hashlib
import sys
from array import array
from fractions import Fraction
from typing import Any

from synth.checker.fields import need
from synth.errors import VerificationError, malformed
from synth.model.documents.json_diff import size
from synth.model.documents.json_reader import items
from synth.model.rational import rational
from synth.model.topology import Topology, bandwidths, columns

KEYS = {
    "throughput-cut": {"kind", "topology", "collective", "root", "inside", "limits"},
    "throughput-cuts": {"kind", "topology", "collective", "root", "cuts", "limits", "potentials"},
}
MOST_WORK = 40_000_000  # maximum of cuts times links of one certificate, which are added up in fractions
TURNED, ROOTED = ("reduce-scatter", "reduce"), ("broadcast", "reduce")
ANYWHERE = "allreduce"  # every cut between ranks is left by the whole buffer
COLLECTIVES = ("allgather", "alltoall", ANYWHERE, *TURNED, *ROOTED)


def digest(topology: Topology) -> str:
    """Return the SHA-256 of ranks, links and limits with exact bandwidths, by which a certificate names `topology`."""
    sha256 = hashlib.sha256(
        f"{topology.ranks} {len(topology.switches)} {len(topology.links)} {len(topology.limits)}\n".encode()
    )
    numbers: dict[Fraction, int] = {}
    number: dict[int, int] = {}  # of each object: very many links share few
    for value in (*bandwidths(topology.links), *bandwidths(topology.limits)):
        number[id(value)] = numbers.setdefault(value, len(numbers))
    order = sorted(numbers)
    place = {n: order.index(value) for value, n in numbers.items()}
    number = {key: place[n] for key, n in number.items()}
    sha256.update(" ".join(map(str, order)).encode())
    table: Any = topology.links
    if hasattr(table, "sorts"):  # of very many links the arrays themselves, which hold the same numbers
        ranked = {value: i for i, value in enumerate(order)}
        wide = [ranked.get(sort.bandwidth, -1) for sort in table.sorts]  # one that no link has may be in none
        sha256.update(_words(table.src) + _words(table.dst) + _words(map(wide.__getitem__, table.sort.tolist())))
    else:
        src, dst, width = columns(table)
        for column in (src, dst, map(number.__getitem__, map(id, width))):
            sha256.update(_words(column))
    for limit in topology.limits:
        sha256.update(
            _words((number[id(limit.bandwidth)], len(limit.links))) + _words(getattr(limit.links, "array", limit.links))
        )
    return sha256.hexdigest()


def _words(numbers: Any) -> bytes:
    """Return whole numbers, of an array or one after another, in eight bytes each, the least significant first."""
    if hasattr(numbers, "astype"):
        return numbers.astype("<i8").tobytes()
    words = array("q", numbers)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def check(certificate: dict, topology: Topology) -> Fraction:
    """Return the bound that the certificate proves: seconds per GB of one shard, for every schedule on the topology.

    Algorithmic bandwidth is at most shards / bound (one shard for broadcast, reduce and allreduce, else one for each
    rank). Raises VerificationError, with the place, for anything that proves no bound.
    """
    try:
        return _check(certificate, topology)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise VerificationError(malformed(error, "certificate")) from None


def check_topology(certificate: dict, topology: Topology) -> None:
    """Raise VerificationError unless the certificate is about `topology`."""
    need(
        certificate["topology"] == digest(topology), f"speaks about another topology than {size(topology)}", "topology"
    )


def _check(certificate: dict, topology: Topology) -> Fraction:
    kind = certificate["kind"]
    need(kind in ("throughput-cut", "throughput-cuts"), "is no throughput-cut", "kind")
    need(certificate.keys() == KEYS[kind], f"expected the keys {', '.join(sorted(KEYS[kind]))}", "$")
    check_topology(certificate, topology)
    collective, root = certificate["collective"], certificate["root"]
    need(collective in COLLECTIVES and collective != "alltoall", "has no such bound", "collective")
    if collective in ROOTED:
        need(type(root) is int and 0 <= root < topology.ranks, "must be a rank", "root")
    else:
        need(root is None, "is for rooted collectives", "root")
    one = collective in (ANYWHERE, *ROOTED)
    if kind == "throughput-cut":
        inside, shards = _cut(certificate["inside"], root, one, topology, "inside")
        limits = dict.fromkeys(
            (_limit(k, topology, f"limits[{i}]") for i, k in enumerate(items(certificate["limits"], "limits"))), 1
        )
        return _ratio(shards, [(1, inside)], limits, {}, collective in TURNED, topology)
    total, cuts = Fraction(0), []
    for i, (weight, rows) in enumerate(items(certificate["cuts"], "cuts")):
        inside, shards = _cut(rows, root, one, topology, f"cuts[{i}]")
        cuts.append((_fraction(weight, f"cuts[{i}]"), inside))
        total += cuts[-1][0] * shards
    need(all(weight >= 0 for weight, _ in cuts), "have negative weights", "cuts")
    need(total > 0, "have no weight: nothing is proved", "cuts")
    need(len(cuts) * len(topology.links) <= MOST_WORK, "are too many to check", "cuts")
    prices: dict[int, Fraction] = {}
    for i, (k, price) in enumerate(items(certificate["limits"], "limits")):
        need(_limit(k, topology, f"limits[{i}]") not in prices, "is given a price again", f"limits[{i}]")
        prices[k] = _fraction(price, f"limits[{i}]")
    need(all(price >= 0 for price in prices.values()), "have negative prices", "limits")
    heights: dict[int, Fraction] = {}
    for i, (n, height) in enumerate(items(certificate["potentials"], "potentials")):
        switch = type(n) is int and topology.ranks <= n < topology.ranks + len(topology.switches)
        need(switch and n not in heights, "is no switch, or one again", f"potentials[{i}]")
        heights[n] = _fraction(height, f"potentials[{i}]")
    return _ratio(total, cuts, prices, heights, collective in TURNED, topology)


def _fraction(text: str, place: str) -> Fraction:
    need(type(text) is str, "expected a fraction", place)
    return rational(text)


def _limit(k: int, topology: Topology, place: str) -> int:
    need(type(k) is int and 0 <= k < len(topology.limits), "is no limit", place)
    return k


def _cut(rows: list, root: int | None, one: bool, topology: Topology, place: str) -> tuple[list[bool], int]:
    """Return which nodes are inside, and how many shards must leave: 1 where `one`, else that of each rank inside."""
    nodes = topology.ranks + len(topology.switches)
    inside = [False] * nodes
    for first, last in items(rows, place):
        need(type(first) is int and type(last) is int and 0 <= first <= last < nodes, "is no stretch of nodes", place)
        inside[first : last + 1] = [True] * (last + 1 - first)
    held = inside[: topology.ranks]
    need(not all(held), "leaves no rank out", place)
    need(any(held), "holds no rank", place)
    need(root is None or held[root], "does not hold the root", place)
    return inside, 1 if one else sum(held)


def _ratio(
    shards: Fraction | int,
    cuts: list[tuple],
    limits: dict,
    heights: dict[int, Fraction],
    turned: bool,
    topology: Topology,
) -> Fraction:
    """Return shards by the price of all bandwidth.

    A limit has its own price, a link what a byte on it counts beyond the prices of its limits.
    """
    paid: dict[int, Fraction | int] = {}
    for k, price in limits.items():
        for i in set(topology.limits[k].links):
            paid[i] = paid.get(i, 0) + price
    bandwidth = sum((price * topology.limits[k].bandwidth for k, price in limits.items()), Fraction(0))
    need(
        all(width >= 0 for width in (*bandwidths(topology.links), *bandwidths(topology.limits))),
        "has a negative bandwidth",
        "topology",
    )
    single = cuts[0][1] if len(cuts) == 1 and not heights else None
    src, dst, widths = columns(topology.links)
    tails, heads = (dst, src) if turned else (src, dst)
    for i, (a, b, width) in enumerate(zip(tails, heads, widths, strict=True)):
        if single is not None and (not single[a] or single[b]):
            continue
        counts = sum(weight for weight, inside in cuts if inside[a] and not inside[b])
        if heights:
            counts += heights.get(a, 0) - heights.get(b, 0)
        rest = counts - paid.get(i, 0)
        if rest > 0:
            bandwidth += rest * width
    need(bandwidth > 0, "is never left: the collective is impossible, not slow", "$")
    return Fraction(shards) / bandwidth

"""The bound on alltoall: lengths of links and limits, added up in whole numbers; no solver.

Give every link and every limit a length >= 0; a link's price is its length and those of the limits that hold it. A unit
from s to t pays at least the price of the cheapest path, and in one second no more can be paid than Σ bandwidth ·
length. So all pairs take at least Σ distances / Σ bandwidth · length. Distances are found from one rank of each orbit
under permutations that are checked to keep bandwidths and lengths. No sum can wrap: the greatest price and distance are
shown to be small first, lengths are added up as Python integers.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np

from synth.checker.exact_sums import MAX_SUM, check_fits, exact_sum
from synth.checker.fields import need
from synth.checker.orbit_labels import orbit_labels
from synth.errors import VerificationError, malformed
from synth.model.documents.json_diff import size
from synth.model.documents.json_reader import items
from synth.model.link_table import ends, members, widths
from synth.model.topology import Topology

KEYS = {"kind", "topology", "links", "limits", "generators"}
MAX_LENGTH = 1 << 40  # lengths in a certificate are smaller, so that sums over a million links fit 64 bits
# Maximum bytes of the distances, nodes times starts, that are computed together; and the minimum number of nodes whose
# j-th links are relaxed by one array operation.
TOGETHER, APART = 1 << 18, 8
# Short integers, and what stands there for no path: it and one length more do not wrap.
SHORT = ((np.int16, 1 << 14), (np.int32, 1 << 30))


def alltoall_digest(topology: Topology) -> str:
    """Return the SHA-256 of ranks, links and limits with exact bandwidths, by which a certificate names `topology`."""
    sha256 = hashlib.sha256(f"alltoall {topology.ranks} {len(topology.switches)}".encode())
    widths = _Widths(topology)
    sha256.update(repr(list(map(str, widths.names))).encode())
    for column in (widths.src, widths.dst, widths.link, widths.limit, widths.members, widths.counts):
        sha256.update(column.tobytes())
    return sha256.hexdigest()


class _Widths:
    """A topology as arrays; bandwidths are numbered."""

    def __init__(self, topology: Topology) -> None:
        links, limits = topology.links, topology.limits
        (wide, link), (narrow, limit) = widths(links), widths(limits)
        self.names = sorted({*wide, *narrow})
        number = {width: i for i, width in enumerate(self.names)}
        self.src, self.dst = ends(links)
        self.link = np.array([number[w] for w in wide], np.int64)[link]
        self.limit = np.array([number[w] for w in narrow], np.int64)[limit]
        self.counts = np.fromiter((len(m.links) for m in limits), np.int64, len(limits))
        self.members = np.concatenate([np.zeros(0, np.int64), *members(limits)])


def check(certificate: dict, topology: Topology) -> Fraction:
    """Return the bound that the certificate proves: seconds per GB of one pair, for every alltoall on the topology.

    Raises VerificationError, with the place, for anything that proves no bound.
    """
    try:
        return _check(certificate, topology)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise VerificationError(malformed(error, "certificate")) from None


def _lengths(runs: list, count: int, place: str) -> np.ndarray:
    parts: list[np.ndarray] = []
    count_so_far = 0
    for i, row in enumerate(items(runs, place)):
        need(
            isinstance(row, list) and len(row) == 2 and type(row[0]) is type(row[1]) is int,
            "expected [times, length]",
            f"{place}[{i}]",
        )
        times, length = row
        need(
            0 < times <= count - count_so_far and 0 <= length < MAX_LENGTH,
            "is no stretch of lengths >= 0",
            f"{place}[{i}]",
        )
        parts.append(np.full(times, length, np.int64))
        count_so_far += times
    need(count_so_far == count, f"gives {count_so_far} lengths for {count}", place)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _check(certificate: dict, topology: Topology) -> Fraction:
    need(certificate.keys() == KEYS, f"expected the keys {', '.join(sorted(KEYS))}", "$")
    need(certificate["kind"] == "alltoall-lengths", "is no alltoall-lengths", "kind")
    need(
        certificate["topology"] == alltoall_digest(topology),
        f"speaks about another topology than {size(topology)}",
        "topology",
    )
    widths = _Widths(topology)
    own = _lengths(certificate["links"], len(widths.src), "links")
    limit = _lengths(certificate["limits"], len(widths.limit), "limits")
    ranks, nodes = topology.ranks, topology.ranks + len(topology.switches)
    price = own.copy()
    holder = np.repeat(np.arange(len(limit)), widths.counts)
    both = holder * np.int64(len(price) or 1) + widths.members
    need(len(np.unique(both)) == len(both), "has a limit that lists a link twice", "topology")
    shared = int(np.bincount(widths.members, minlength=1).max(initial=0))  # limits that one link is in
    dearest = int(own.max(initial=0)) + shared * int(limit.max(initial=0))
    check_fits(nodes * dearest, "the lengths of a way", "links")
    np.add.at(price, widths.members, limit[holder])
    paid = sum((w * exact_sum(own[widths.link == i]) for i, w in enumerate(widths.names)), Fraction(0))
    paid += sum((w * exact_sum(limit[widths.limit == i]) for i, w in enumerate(widths.names)), Fraction(0))
    need(paid > 0, "proves nothing: every length is 0, or that of links that carry nothing", "links")
    need(ranks > 1, "proves nothing: one rank has no other to send to", "topology")
    label = _orbits(certificate["generators"], widths, own, limit, ranks, nodes)
    starts, times = np.unique(label, return_counts=True)
    far = sum(n * far for n, far in zip(times.tolist(), _distances(widths, price, starts, ranks, nodes), strict=True))
    need(far > 0, "proves nothing: no way has a length", "links")
    return Fraction(far) / paid


def _orbits(
    generators: list, widths: _Widths, own: np.ndarray, limit: np.ndarray, ranks: int, nodes: int
) -> np.ndarray:
    """Return the orbit of each rank under the generators.

    Each must keep links and limits, their bandwidths and lengths.
    """
    images: list[np.ndarray] = []
    keys = widths.src * nodes + widths.dst
    order = np.lexsort((own, widths.link, keys))
    rows = np.stack([keys[order], widths.link[order], own[order]])
    single = bool((np.diff(keys[order]) > 0).all())
    starts = np.cumsum(widths.counts) - widths.counts
    named = sorted(_limit_rows(widths.members, starts, widths, limit))
    for g, row in enumerate(items(generators, "generators")):
        place = f"generators[{g}]"
        need(isinstance(row, list) and all(type(n) is int and 0 <= n < nodes for n in row), "is no permutation", place)
        pi = np.array(row, np.int64)
        need(
            pi.shape == (nodes,) and (np.sort(pi) == np.arange(nodes)).all() and (pi[:ranks] < ranks).all(),
            "is no permutation",
            place,
        )
        moved = pi[widths.src] * nodes + pi[widths.dst]
        image_order = np.lexsort((own, widths.link, moved))
        image = np.stack([moved[image_order], widths.link[image_order], own[image_order]])
        need((image == rows).all(), "does not keep the links", place)
        need(single or not len(limit), "cannot be followed: two links join the same ends", place)
        if len(limit):
            target = np.empty(len(keys), np.int64)
            target[image_order] = order
            need(
                sorted(_limit_rows(target[widths.members], starts, widths, limit)) == named,
                "does not keep the limits",
                place,
            )
        images.append(pi[:ranks])
    return orbit_labels(ranks, images)


def _limit_rows(
    members: np.ndarray, starts: np.ndarray, widths: _Widths, limit: np.ndarray
) -> list[tuple[int, int, bytes]]:
    ends = starts + widths.counts
    return [
        (int(widths.limit[k]), int(limit[k]), np.sort(members[a:b]).tobytes())
        for k, (a, b) in enumerate(zip(starts, ends, strict=True))
    ]


def _distances(widths: _Widths, price: np.ndarray, starts: np.ndarray, ranks: int, nodes: int) -> list[int]:
    """Return for each start the sum of its distances to all ranks, by relaxation (Bellman and Ford).

    Many starts are relaxed at once. Distances are in the shortest integers that hold them, as this is bound by memory.
    """
    longest = nodes * int(price.max(initial=0))
    kind, beyond = next(((k, b) for k, b in SHORT if longest < b), (np.int64, MAX_SUM))
    price = price.astype(kind)
    entered = np.bincount(widths.dst, minlength=nodes)
    place = np.empty(
        nodes, np.int64
    )  # nodes anew by falling numbers of links into them: the j-th of those links lead to the first nodes
    place[np.argsort(-entered, kind="stable")] = np.arange(nodes)
    order = np.argsort(place[widths.dst], kind="stable")
    src, dst, price = place[widths.src[order]], place[widths.dst[order]], price[order][:, None]
    first = np.cumsum(np.sort(entered)[::-1]) - np.sort(entered)[::-1]
    turns = []
    while len(turns) < entered.max(initial=0) and (count := int((entered > len(turns)).sum())) >= APART:
        links = first[:count] + len(turns)
        turns.append((count, src[links], price[links]))
    rest = np.flatnonzero(np.arange(len(dst)) - first[dst] >= len(turns))
    src, dst, price = src[rest], dst[rest], price[rest]
    sums: list[int] = []
    together = max(1, TOGETHER // (nodes * np.dtype(kind).itemsize))
    for at in range(0, len(starts), together):
        some = starts[at : at + together]
        far = np.full((nodes, len(some)), beyond, kind)
        far[place[some], np.arange(len(some))] = 0
        for _ in range(nodes):
            fresh = far.copy()
            for count, tails, more in turns:
                np.minimum(fresh[:count], far[tails] + more, out=fresh[:count])
            if len(rest):
                np.minimum.at(fresh, dst, far[src] + price)
            if (fresh == far).all():
                break
            far = fresh
        reached = far[place[:ranks]].T
        lost = np.flatnonzero((reached >= beyond).any(axis=1))
        first_lost = int(some[lost[0]]) if len(lost) else None
        need(
            not len(lost),
            f"rank {first_lost} does not reach every rank: the alltoall is impossible, not slow",
            "topology",
        )
        if int(reached.max()) < MAX_SUM // ranks:
            sums += reached.sum(axis=1).tolist()
        else:
            sums += [sum(row) for row in reached.tolist()]
    return sums

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
from itertools import pairwise

import numpy as np

from synth.checker.certificates.machine_columns import MachineColumns
from synth.checker.exact_sums import MAX_SUM, check_fits, exact_sum
from synth.checker.fields import need, of_kind, permutation, strict
from synth.checker.orbit_labels import orbit_labels
from synth.model.documents.json_diff import size
from synth.model.documents.json_reader import items
from synth.model.topology import Topology

KEYS = {"alltoall-lengths": {"kind", "topology", "links", "limits", "generators"}}
MAX_LENGTH = 1 << 40  # lengths in a certificate are smaller, so that sums over a million links fit 64 bits
TOGETHER = 1 << 18  # maximum bytes of the ways, links times starts, that are extended together
# Short integers, and what stands there for no path: it and one length more do not wrap.
SHORT = ((np.int16, 1 << 14), (np.int32, 1 << 30))


def alltoall_digest(topology: Topology) -> str:
    """Return the SHA-256 of ranks, links and limits with exact bandwidths, by which a certificate names `topology`."""
    sha256 = hashlib.sha256(f"alltoall {topology.ranks} {len(topology.switches)}".encode())
    table = MachineColumns(topology)
    sha256.update(repr(list(map(str, table.names))).encode())
    for column in (table.src, table.dst, table.link, table.limit, table.members, table.counts):
        sha256.update(column.tobytes())
    return sha256.hexdigest()


@strict
def check(certificate: dict, topology: Topology) -> Fraction:
    """Return the bound that the certificate proves: seconds per GB of one pair, for every alltoall on the topology.

    Raises VerificationError, with the place, for anything that proves no bound.
    """
    of_kind(certificate, KEYS)
    same = certificate["topology"] == alltoall_digest(topology)
    need(same, f"speaks about another topology than {size(topology)}", "topology")
    need(topology.ranks > 1, "proves nothing: one rank has no other to send to", "topology")
    table = MachineColumns(topology)
    own = _lengths(certificate["links"], len(table.src), "links")
    limit = _lengths(certificate["limits"], len(table.limit), "limits")

    # a link's price: its length and those of its limits. No way through all nodes adds up to more than an int64
    holder = np.repeat(np.arange(len(limit)), table.counts)
    both = holder * np.int64(len(own) or 1) + table.members
    need(len(np.unique(both)) == len(both), "has a limit that lists a link twice", "topology")
    shared = int(np.bincount(table.members, minlength=1).max(initial=0))  # limits that one link is in
    dearest = int(own.max(initial=0)) + shared * int(limit.max(initial=0))
    check_fits(table.nodes * dearest, "the lengths of a way", "links")
    price = own.copy()
    np.add.at(price, table.members, limit[holder])

    # what all bandwidth can pay in one second
    paid = Fraction(0)
    for i, width in enumerate(table.names):
        paid += width * exact_sum(own[table.link == i])
        paid += width * exact_sum(limit[table.limit == i])
    need(paid > 0, "proves nothing: every length is 0, or that of links that carry nothing", "links")

    # what a unit of each pair has to pay, from one rank of each orbit
    label = _orbits(certificate["generators"], table, own, limit)
    starts, times = np.unique(label, return_counts=True)
    far = 0
    for count, distance in zip(times.tolist(), distance_sums(table, price, starts), strict=True):
        far += count * distance
    need(far > 0, "proves nothing: no way has a length", "links")
    return Fraction(far) / paid


def _lengths(runs: list, count: int, place: str) -> np.ndarray:
    """Return `count` lengths from stretches [times, length]."""
    parts = [np.zeros(0, np.int64)]
    left = count
    for i, row in enumerate(items(runs, place)):
        here = f"{place}[{i}]"
        times, length = items(row, here)
        need(type(times) is int and type(length) is int, "expected [times, length]", here)
        need(0 < times <= left and 0 <= length < MAX_LENGTH, "is no stretch of lengths >= 0", here)
        parts.append(np.full(times, length, np.int64))
        left -= times
    need(not left, f"gives {count - left} lengths for {count}", place)
    return np.concatenate(parts)


def _orbits(generators: list, table: MachineColumns, own: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return the orbit of each rank under the generators.

    Each must keep links and limits, their bandwidths and lengths.
    """
    nodes, ranks = table.nodes, table.ranks

    # links in the order of their ends, bandwidths and lengths: the same before and after
    keys = table.src * nodes + table.dst
    order = np.lexsort((own, table.link, keys))
    rows = np.stack([keys[order], table.link[order], own[order]])
    single = bool((np.diff(keys[order]) > 0).all())
    named = _limit_rows(table, limit, table.members)
    images: list[np.ndarray] = []
    for g, row in enumerate(items(generators, "generators")):
        place = f"generators[{g}]"
        pi = np.array(permutation(row, nodes, place), np.int64)
        need((pi[:ranks] < ranks).all(), "is no permutation", place)
        moved = pi[table.src] * nodes + pi[table.dst]
        image_order = np.lexsort((own, table.link, moved))
        image = np.stack([moved[image_order], table.link[image_order], own[image_order]])
        need((image == rows).all(), "does not keep the links", place)

        # limits hold links by number, which ends tell where no two links join the same ends
        if len(limit):
            need(single, "cannot be followed: two links join the same ends", place)
            target = np.empty(len(keys), np.int64)
            target[image_order] = order
            need(_limit_rows(table, limit, target[table.members]) == named, "does not keep the limits", place)
        images.append(pi[:ranks])
    return orbit_labels(ranks, images)


def _limit_rows(table: MachineColumns, limit: np.ndarray, members: np.ndarray) -> list[tuple[int, int, bytes]]:
    """Return bandwidth, length and links of each limit, in an order that tells no limit from an equal one."""
    rows = []
    bounds = np.cumsum([0, *table.counts]).tolist()
    for k, (first, end) in enumerate(pairwise(bounds)):
        links = np.sort(members[first:end]).tobytes()
        rows.append((int(table.limit[k]), int(limit[k]), links))
    return sorted(rows)


def distance_sums(table: MachineColumns, price: np.ndarray, starts: np.ndarray) -> list[int]:
    """Return for each start the sum of its distances to all ranks, by relaxation (Bellman and Ford).

    Many starts are relaxed at once. Distances are in the shortest integers that hold them, as this is bound by memory.
    """
    ranks, nodes = table.ranks, table.nodes
    longest = nodes * int(price.max(initial=0))
    kind, beyond = next(((k, b) for k, b in SHORT if longest < b), (np.int64, MAX_SUM))

    # links by their heads, so that all ways into a node lie together
    order = np.argsort(table.dst, kind="stable")
    src, dst = table.src[order], table.dst[order]
    lengths = price[order].astype(kind)[:, None]
    first = np.flatnonzero(np.diff(dst, prepend=-1))
    heads = dst[first]

    sums: list[int] = []
    together = max(1, TOGETHER // (max(nodes, len(src)) * np.dtype(kind).itemsize))
    for at in range(0, len(starts), together):
        some = starts[at : at + together]
        far = np.full((nodes, len(some)), beyond, kind)
        far[some, np.arange(len(some))] = 0
        for _ in range(nodes if len(src) else 0):
            near = np.minimum.reduceat(far[src] + lengths, first, axis=0)
            if (near >= far[heads]).all():
                break
            far[heads] = np.minimum(far[heads], near)
        lost = np.flatnonzero((far[:ranks] >= beyond).any(axis=0))
        if len(lost):
            fault = f"rank {some[lost[0]]} does not reach every rank: the alltoall is impossible, not slow"
            need(False, fault, "topology")
        sums += [sum(row) for row in far[:ranks].T.tolist()]
    return sums

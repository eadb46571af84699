"""The machine of a certificate of any size: its digest, by which a certificate names it, and its links. No numpy."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from synth.checker.fields import need
from synth.model.documents.json_diff import size
from synth.model.topology import Topology, bandwidths, columns

TURNED, ROOTED = ("reduce-scatter", "reduce"), ("broadcast", "reduce")
ANYWHERE = "allreduce"  # every cut between ranks is left by the whole buffer
COLLECTIVES = ("allgather", "alltoall", ANYWHERE, *TURNED, *ROOTED)


class MachineLinks(NamedTuple):
    """The number of nodes, ranks and switches, and source, destination and bandwidth of each link."""

    nodes: int
    src: Sequence[int]
    dst: Sequence[int]
    width: Sequence[Fraction]


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


def check_topology(certificate: dict, topology: Topology) -> MachineLinks:
    """Return the links of `topology`. Raises VerificationError unless the certificate is about it."""
    same = certificate["topology"] == digest(topology)
    need(same, f"speaks about another topology than {size(topology)}", "topology")
    every = (*bandwidths(topology.links), *bandwidths(topology.limits))
    need(all(width >= 0 for width in every), "has a negative bandwidth", "topology")
    src, dst, width = columns(topology.links)
    return MachineLinks(topology.ranks + len(topology.switches), src, dst, list(width))


def check_collective(certificate: dict[str, Any], ranks: int) -> tuple[str, int | None]:
    """Return the collective of a certificate, and its root, None where it has none. Raises VerificationError."""
    collective, root = certificate["collective"], certificate["root"]
    need(collective in COLLECTIVES, "has no such proof", "collective")
    if collective in ROOTED:
        need(type(root) is int and 0 <= root < ranks, "must be a rank", "root")
    else:
        need(root is None, "is for rooted collectives", "root")
    return collective, root

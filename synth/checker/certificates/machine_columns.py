"""A machine of any size as arrays, and the digest by which certificates name it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from synth.checker.fields import need
from synth.model.documents.json_diff import size
from synth.model.link_table import ends, members, widths
from synth.model.topology import Topology

TURNED, ROOTED = ("reduce-scatter", "reduce"), ("broadcast", "reduce")
ANYWHERE = "allreduce"  # every cut between ranks is left by the whole buffer
COLLECTIVES = ("allgather", "alltoall", ANYWHERE, *TURNED, *ROOTED)


class MachineColumns:
    """Ends of links, numbers of the bandwidths of links and limits, members of limits."""

    def __init__(self, topology: Topology) -> None:
        (wide, link), (narrow, limit) = widths(topology.links), widths(topology.limits)
        self.names = sorted({*wide, *narrow})
        number = {width: i for i, width in enumerate(self.names)}
        self.ranks, self.nodes = topology.ranks, topology.ranks + len(topology.switches)
        self.src, self.dst = ends(topology.links)
        self.link = np.array([number[w] for w in wide], np.int64)[link]
        self.limit = np.array([number[w] for w in narrow], np.int64)[limit]
        self.counts = np.fromiter((len(m.links) for m in topology.limits), np.int64, len(topology.limits))
        self.members = np.concatenate([np.zeros(0, np.int64), *members(topology.limits)])


def digest(topology: Topology) -> str:
    """Return the SHA-256 of ranks, links and limits with exact bandwidths, by which a certificate names `topology`."""
    table = MachineColumns(topology)
    sizes = topology.ranks, len(topology.switches), len(topology.links), len(topology.limits)
    counts, names = " ".join(map(str, sizes)), " ".join(map(str, table.names))
    sha256 = hashlib.sha256(f"{counts}\n{names}".encode())
    for column in (table.src, table.dst, table.link):
        sha256.update(column.astype("<i8").tobytes())
    for width, links in zip(table.limit.tolist(), members(topology.limits), strict=True):
        sha256.update(np.array([width, len(links)], "<i8").tobytes() + links.astype("<i8").tobytes())
    return sha256.hexdigest()


def check_topology(certificate: dict, topology: Topology) -> MachineColumns:
    """Return the arrays of `topology`. Raises VerificationError unless the certificate is about it."""
    same = certificate["topology"] == digest(topology)
    need(same, f"speaks about another topology than {size(topology)}", "topology")
    table = MachineColumns(topology)
    need(not table.names or table.names[0] >= 0, "has a negative bandwidth", "topology")
    return table


def check_collective(certificate: dict[str, Any], ranks: int) -> tuple[str, int | None]:
    """Return the collective of a certificate, and its root, None where it has none. Raises VerificationError."""
    collective, root = certificate["collective"], certificate["root"]
    need(collective in COLLECTIVES, "has no such proof", "collective")
    if collective in ROOTED:
        need(type(root) is int and 0 <= root < ranks, "must be a rank", "root")
    else:
        need(root is None, "is for rooted collectives", "root")
    return collective, root

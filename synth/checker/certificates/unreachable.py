"""The proof that data cannot reach a rank of a machine of any size: a set that no link leaves; no solver, no numpy.

``unreachable``: `closed` holds the rank that the data start from and not the rank that must have them, and every link
that starts inside ends inside. So no schedule, of whatever steps and chunks, takes them there.
"""

from __future__ import annotations

from synth.checker.certificates.machine_digest import ROOTED, check_collective, check_topology
from synth.checker.fields import need, numbers_below, of_kind, stretches, strict
from synth.model.topology import Topology

KEYS = {"unreachable": {"kind", "topology", "collective", "root", "pair", "closed"}}


@strict
def check(certificate: dict, topology: Topology) -> tuple[int, int]:
    """Check the certificate; return (start, end), the rank whose data are wanted and the rank that they cannot reach.

    Raises VerificationError, with the place, for anything that is no proof.
    """
    of_kind(certificate, KEYS)
    table = check_topology(certificate, topology)
    start, end = numbers_below(certificate["pair"], topology.ranks, "pair")
    collective, root = check_collective(certificate, topology.ranks)
    if collective in ROOTED:
        asked = start if collective == "broadcast" else end
        need(asked == root, f"is not what a {collective} with root {root} asks", "pair")
    closed = stretches(certificate["closed"], table.nodes, "closed")
    need(closed[start], "leaves the source out", "closed")
    need(not closed[end], "holds the destination", "closed")
    left = any(closed[tail] and not closed[head] for tail, head in zip(table.src, table.dst, strict=True))
    need(not left, "is left by a link", "closed")
    return start, end

"""The proof that data cannot reach a rank of a machine of any size: a set that no link leaves; no solver, no numpy.

``unreachable``: `closed` holds the rank that the data start from and not the rank that must have them, and every link
that starts inside ends inside. So no schedule, of whatever steps and chunks, takes them there.
"""

from __future__ import annotations

from synth.checker.certificates.throughput_cuts import COLLECTIVES, ROOTED, check_topology
from synth.checker.fields import need
from synth.errors import VerificationError, malformed
from synth.model.documents.json_reader import items
from synth.model.topology import Topology, columns

KEYS = {"kind", "topology", "collective", "root", "pair", "closed"}


def check(certificate: dict, topology: Topology) -> tuple[int, int]:
    """Check the certificate; return (start, end), the rank whose data are wanted and the rank that they cannot reach.

    Raises VerificationError, with the place, for anything that is no proof.
    """
    try:
        return _check(certificate, topology)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise VerificationError(malformed(error, "certificate")) from None


def _check(certificate: dict, topology: Topology) -> tuple[int, int]:
    need(certificate["kind"] == "unreachable", "is no proof that a rank cannot be reached", "kind")
    need(certificate.keys() == KEYS, f"expected the keys {', '.join(sorted(KEYS))}", "$")
    check_topology(certificate, topology)
    nodes = topology.ranks + len(topology.switches)
    start, end = certificate["pair"]
    need(
        all(type(n) is int and 0 <= n < topology.ranks for n in (start, end)) and start != end,
        "names no two ranks",
        "pair",
    )
    collective, root = certificate["collective"], certificate["root"]
    need(collective in COLLECTIVES, "has no such proof", "collective")
    if collective in ROOTED:
        need(type(root) is int, "must be a rank", "root")
        need(
            (start if collective == "broadcast" else end) == root,
            f"is not what a {collective} with root {root} asks",
            "pair",
        )
    else:
        need(root is None, "is for rooted collectives", "root")
    closed: set[int] = set()
    for first, last in items(certificate["closed"], "closed"):
        need(type(first) is int and type(last) is int and 0 <= first <= last < nodes, "names no node", "closed")
        closed.update(range(first, last + 1))
    need(start in closed, "leaves the source out", "closed")
    need(end not in closed, "holds the destination", "closed")
    src, dst, _ = columns(topology.links)
    need(all(b in closed for a, b in zip(src, dst, strict=True) if a in closed), "is left by a link", "closed")
    return start, end

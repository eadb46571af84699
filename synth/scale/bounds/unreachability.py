"""Proof, for a topology of any size, that no schedule of a collective exists: a set of nodes without links out of it,
and a rank outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from synth.checker.certificates.machine_digest import digest
from synth.errors import InfeasibleError, UsageError
from synth.model.documents.int_ranges import runs
from synth.model.topology import Topology, columns
from synth.scale.fabric.graphs import distances


def certificate(topology: Topology, collective: str, root: int = 0) -> dict | None:
    """Return a certificate that `collective` has no schedule, of kind ``unreachable``, or None.

    `topology` must be live, that is without links of bandwidth 0. It is None where every rank that needs data
    of another can be reached from it. `synth.checker.certificates.unreachable` checks it.
    """
    src, dst, _ = columns(topology.links)
    rooted = {"broadcast": (True,), "reduce": (False,)}.get(collective)
    for forward in rooted or (True, False):
        start = root if rooted else 0
        nodes = topology.ranks + len(topology.switches)
        far = distances(nodes, *((src, dst) if forward else (dst, src)), start)
        reached = set(np.flatnonzero(far >= 0).tolist())
        lost = next((n for n in range(topology.ranks) if n not in reached), None)
        if lost is None:
            continue
        # Backwards, `reached` are the nodes that reach the start. No link leads from the other nodes to these.
        closed = reached if forward else set(range(nodes)) - reached
        return {
            "kind": "unreachable",
            "topology": digest(topology),
            "collective": collective,
            "root": root if rooted else None,
            "pair": [start, lost] if forward else [lost, start],
            "closed": runs(sorted(closed)),
        }
    return None


def check(topology: Topology, collective: str) -> None:
    """Raise InfeasibleError with the certificate where data of one rank cannot reach another."""
    proof = certificate(topology, collective)
    if proof is not None:
        start, lost = proof["pair"]
        raise InfeasibleError(f"{topology.name}: no link leads to rank {lost} from where rank {start} is", proof)


@contextmanager
def with_certificate(topology: Topology, collective: str, root: int) -> Iterator[None]:
    """Attach a certificate to each InfeasibleError raised in the context.

    Raises InfeasibleError for a topology without links, UsageError for a single rank.
    """
    if topology.ranks < 2:
        raise UsageError(f"{topology.name} has a single rank, which needs no data: use --engine exact")
    try:
        if not topology.links:
            raise InfeasibleError(f"{topology.name} has no links between its {topology.ranks} ranks")
        yield
    except InfeasibleError as error:
        raise InfeasibleError(str(error), certificate(topology, collective, root) or error.certificate) from error

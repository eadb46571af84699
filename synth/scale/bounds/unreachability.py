"""The proof, for a machine of any size, that no schedule of a collective exists: ranks that no link leaves, and one
outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from synth.checker.certificates.throughput_cuts import digest
from synth.errors import InfeasibleError, UsageError
from synth.model.documents.int_ranges import runs
from synth.model.topology import Topology, columns


def certificate(topology: Topology, collective: str, root: int = 0) -> dict | None:
    """Kind ``unreachable`` (see `synth.checker.certificates.unreachable`), None where the links of the live `topology`
    join what they must."""
    src, dst, _ = columns(topology.links)
    rooted = {"broadcast": (True,), "reduce": (False,)}.get(collective)
    for forward in rooted or (True, False):
        start = root if rooted else 0
        seen = _seen(topology, *((src, dst) if forward else (dst, src)), start)
        lost = next((n for n in range(topology.ranks) if n not in seen), None)
        if lost is None:
            continue
        nodes = topology.ranks + len(topology.switches)
        closed = (
            seen if forward else set(range(nodes)) - seen
        )  # what cannot reach the start: no link leads from it to the others
        return {
            "kind": "unreachable",
            "topology": digest(topology),
            "collective": collective,
            "root": root if rooted else None,
            "pair": [start, lost] if forward else [lost, start],
            "closed": runs(sorted(closed)),
        }
    return None


@contextmanager
def proved(topology: Topology, collective: str, root: int) -> Iterator[None]:
    """An InfeasibleError on its way out gets its certificate. Raises one for ranks without links, UsageError for a rank
    alone."""
    if topology.ranks < 2:
        raise UsageError(f"{topology.name} has one rank, which has all there is: use --engine exact")
    try:
        if not topology.links:
            raise InfeasibleError(f"{topology.name} has no links between its {topology.ranks} ranks")
        yield
    except InfeasibleError as error:
        raise InfeasibleError(str(error), certificate(topology, collective, root) or error.certificate) from error


def _seen(topology: Topology, src: Sequence[int], dst: Sequence[int], start: int) -> set[int]:
    out: list[list[int]] = [[] for _ in range(topology.ranks + len(topology.switches))]
    for a, b in zip(src, dst, strict=True):
        out[a].append(b)
    seen, queue = {start}, [start]
    for u in queue:
        for v in out[u]:
            if v not in seen:
                seen.add(v)
                queue.append(v)
    return seen

"""Progress events of a search, and what ends it early, in the machine's own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.documents.int_ranges import runs
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.rational import show
from synth.model.topology import Network, Topology, columns


@dataclass(frozen=True)
class Event:
    """One line of progress. `kind`: "bound", "query", "answer", "point", "open", "resumed" or "done"."""

    kind: str
    text: str
    steps: int | None = None
    bound: Fraction | None = None
    point: Point | None = None


Listener = Callable[[Event], None]


def too_few_allowed(network: Network, collective: Collective, least: LowerBound, most: int) -> InfeasibleError:
    """Return the error that `most` steps were allowed but the bound `least` needs more, with the proof."""
    allowed = f"at most {most} {'was' if most == 1 else 'were'} allowed"
    return InfeasibleError(
        f"{collective.name} on {network.name} needs at least {show(least.value)} steps, {allowed}", least.certificate
    )


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep: `frontier` holds the points so far, `log` the file that the next run continues from."""

    def __init__(self, frontier: Frontier, log: Path | None) -> None:
        super().__init__("interrupted")
        self.frontier, self.log = frontier, log


def with_machine_names(error: InfeasibleError, topology: Topology) -> InfeasibleError:
    """Return the error with boxes that no link leaves or enters, and the machine's own numbers of renumbered ranks.

    Only an error whose certificate names a rank that cannot be reached is changed.
    """
    certificate = error.certificate or {}
    if not certificate.get("pair"):
        return error
    labels, names = topology.labels, _separate_boxes(topology.live(), certificate)
    for rank in dict.fromkeys(map(int, re.findall(r"\brank (\d+)", str(error)))):
        if rank < len(labels) and labels[rank] != rank:
            names.append(f"rank {rank} here is the machine's {labels[rank]}")
    return InfeasibleError("; ".join([str(error), ", ".join(names)]), error.certificate) if names else error


def _separate_boxes(topology: Topology, certificate: dict) -> list[str]:
    """Return clauses that name a box that no path leaves, and one that none enters, of an ``unreachable`` certificate.

    The one has a rank that the data are at, the other the rank that they cannot reach. Of a ``distance`` there are
    none: its ranks are joined, by more steps.
    """
    nodes = topology.nodes
    if len(set(nodes)) < 2 or certificate["kind"] != "unreachable":
        return []
    first, end = certificate["pair"]
    # of exact synthesis the pair is a unit and a rank, and `closed` are the ranks that the unit can reach
    held = certificate["closed"] if "problem" in certificate else [first]
    src, dst, _ = columns(topology.links)
    leaves = {}
    for box in dict.fromkeys(nodes[rank] for rank in held):
        ranks = {rank for rank, of_rank in enumerate(nodes) if of_rank == box}
        if _reached(topology, src, dst, ranks) <= ranks:
            leaves[box] = ranks
            break
    ranks = {rank for rank, of_rank in enumerate(nodes) if of_rank == nodes[end]}
    enters = {nodes[end]: ranks} if _reached(topology, dst, src, ranks) <= ranks else {}
    for box, ranks in (leaves | enters).items():
        if _reached(topology, src, dst, ranks) | _reached(topology, dst, src, ranks) <= ranks:
            return [f"no link joins {_box(box, ranks)} to other boxes"]
    clauses = [f"no link leaves {_box(box, ranks)}" for box, ranks in leaves.items()]
    return clauses + [f"no link enters {_box(box, ranks)}" for box, ranks in enters.items()]


def _box(box: int, ranks: set[int]) -> str:
    listed = ", ".join(f"{first}-{last}" for first, last in runs(sorted(ranks)))
    return f"box {box} (ranks {listed})"


def _reached(topology: Topology, src: Sequence[int], dst: Sequence[int], ranks: set[int]) -> set[int]:
    """Return the ranks that paths over the links lead to from `ranks`."""
    from synth.scale.fabric.graphs import distances

    nodes = topology.ranks + len(topology.switches)
    starts = sorted(ranks)  # a further node has links to all of them
    far = distances(nodes + 1, [*src, *[nodes] * len(starts)], [*dst, *starts], nodes)
    return {rank for rank in range(topology.ranks) if far[rank] >= 0}

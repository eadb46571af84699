"""Which known machine a topology is, up to the numbering of its ranks, and how the two numberings correspond.

A schedule for the known machine runs on the other one only through this map: with equal labels it would use links that
do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from synth.model import symmetry
from synth.model.rational import show
from synth.model.topology import Network, Topology
from synth.topologies.machines import MACHINES
from synth.topologies.modify import relinked
from synth.topologies.name_grammar import topology as named


@dataclass(frozen=True)
class Match:
    """`ranks[r]` is the topology's rank that plays rank r of `machine`; `labels` are the topology's own names of these.

    `scale`: how many times as fast the topology's links are. `same`: other machines that are equal.
    `fast_only`: agrees in NVLink and xGMI, not in PCIe.
    """

    machine: str
    ranks: tuple[int, ...]
    labels: tuple[int, ...]
    scale: Fraction = Fraction(1)
    same: tuple[str, ...] = ()
    fast_only: bool = False

    def describe(self) -> str:
        """One line: the machine, what differs, and the map."""
        parts = [self.machine]
        if self.same:
            parts.append(f"(or {', '.join(self.same)})")
        if self.scale != 1 and _is_machine(self.machine):
            parts.append(f"with links {show(self.scale)} times as fast")
        if self.fast_only:
            parts.append("in NVLink and xGMI, with other PCIe")
        return " ".join(parts) + f"; its ranks 0 to {len(self.labels) - 1} are here {','.join(map(str, self.labels))}"


def match(topology: Topology, candidates: Sequence[str] | None = None) -> Match | None:
    """The known machine that `topology` is, None if it is none of `candidates` (by default all machines and plain
    families).

    Preferred in this order: equal, equal but for the speed of all links, equal in NVLink and xGMI (PCIe is assumed, not
    measured, in most dumps). The map is the lexicographically least one.
    """
    names = _names(topology.ranks) if candidates is None else candidates
    known = [machine for machine in map(named, names) if machine.ranks == topology.ranks]
    found = _best(topology, topology.network(), [(machine, machine.network()) for machine in known])
    if found is None and any(link.kind == "pcie" for link in topology.links):
        fast = _fast(topology)
        if fast.routes:
            found = _best(topology, fast, [(machine, _fast(machine)) for machine in known])
            found = replace(found, fast_only=True) if found else None
    return found


def _names(ranks: int) -> Iterator[str]:
    """Machines with that many ranks, clusters of them, then families, the most specific first."""
    for name, entry in MACHINES.items():
        box = entry.build((), {}).ranks
        if ranks == box:
            yield name
        elif ranks % box == 0 and ranks // box <= 4:
            yield f"{name}*{ranks // box}"
    if ranks > 2:
        yield f"ring:{ranks}"
    if ranks & (ranks - 1) == 0:
        yield f"hypercube:{ranks}"
    yield f"fully-connected:{ranks}"
    yield f"switch:{ranks}"
    for a in range(2, int(ranks**0.5) + 1):
        if ranks % a == 0:
            yield f"torus:{a}x{ranks // a}"
            yield f"mesh:{a}x{ranks // a}"
    yield f"line:{ranks}"
    yield f"star:{ranks}"


def _best(topology: Topology, net: Network, known: Sequence[tuple[Topology, Network]]) -> Match | None:
    """The first isomorphic candidate of equal speed, else the machine nearest in speed, else the first family."""
    found: list[Match] = []
    for machine, other in known:
        ranks = symmetry.isomorphism(other, net)
        if ranks is not None:
            scale = _total(net) / _total(other) if other.routes else Fraction(1)
            found.append(Match(machine.name, ranks, _labels(topology, ranks), scale))
    if not found:
        return None
    equal = [m for m in found if m.scale == 1]
    if not equal:
        machines = [m for m in found if _is_machine(m.machine)]
        return min(machines, key=lambda m: max(m.scale, 1 / m.scale), default=found[0])
    machines = tuple(m.machine for m in equal[1:] if m.machine in MACHINES)
    return replace(equal[0], same=machines)


def _fast(topology: Topology) -> Network:
    """The network without PCIe."""
    return relinked(topology, lambda link: None if link.kind == "pcie" else link).network()


def _total(net: Network) -> Fraction:
    return net.unit * sum(r.units for r in net.routes)


def _is_machine(name: str) -> bool:
    return name.partition("*")[0] in MACHINES


def _labels(topology: Topology, ranks: Sequence[int]) -> tuple[int, ...]:
    labels = topology.labels or range(topology.ranks)
    return tuple(labels[rank] for rank in ranks)

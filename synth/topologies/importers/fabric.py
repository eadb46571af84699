"""From what dumps say to a topology: direct links, a switch, and PCIe where these leave parts unconnected.

    DumpFabric   ranks, pairs of directly linked GPUs with their numbers of links, links of each GPU into a switch
    Pcie         groups of GPUs behind one PCIe port, and bridges between sockets, each with a bandwidth both ways

PCIe links are made only between GPUs that NVLink or xGMI does not connect, however far: nothing routes through the host
what the links can carry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from synth.model.rational import show
from synth.model.topology import MULTICAST_NOTE, Limit, Link, Multicast, Topology
from synth.topologies.machines import NVLINK_US, PCIE_US

# NCCL's figures (src/graph/topo.h): PCIe 3.0 x16, and what crosses between two sockets of Intel's since Skylake.
PCIE3_GBPS = Fraction(12)
SOCKET_GBPS = Fraction(10)


@dataclass
class Pcie:
    """`groups`: (name, GPUs behind a port, GB/s each way). `bridges`: (name, GPUs on one side, on the other, GB/s each
    way)."""

    groups: list[tuple[str, frozenset[int], Fraction]] = field(default_factory=list)
    bridges: list[tuple[str, frozenset[int], frozenset[int], Fraction]] = field(default_factory=list)

    def crossed(self, src: int, dst: int) -> list[tuple[str, Fraction]]:
        """Return (name, GB/s) of each PCIe port and bridge on the path from `src` to `dst`."""
        found = []
        for name, members, gbps in self.groups:
            if (src in members) != (dst in members):
                found.append((f"{name} {'out' if src in members else 'in'}", gbps))
        for name, one, other, gbps in self.bridges:
            if (src in one and dst in other) or (src in other and dst in one):
                found.append((f"{name} {'out' if src in one else 'in'}", gbps))
        return found


@dataclass
class DumpFabric:
    """`pairs[u, v]` with u < v: number of links; `ports[u]`: links of u into the switch; `gbps` of one link each
    way, `latency` in µs; `multicast`: the switch multicasts and reduces."""

    name: str
    ranks: int
    kind: str
    gbps: Fraction
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)
    labels: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    multicast: bool = False
    latency: Fraction = NVLINK_US
    notes: list[str] = field(default_factory=list)

    def parts(self) -> list[int]:
        """Return the component of each GPU under links and the switch, as the component's least GPU."""
        part = list(range(self.ranks))
        joined = [*self.pairs, *pairwise(sorted(self.ports))]
        for u, v in joined:
            old, new = max(part[u], part[v]), min(part[u], part[v])
            for rank, p in enumerate(part):
                part[rank] = new if p == old else p
        return part


def topology(fabric: DumpFabric, pcie: Pcie) -> Topology:
    """Return the topology, with PCIe between the parts that `fabric` does not connect."""
    pairs = {(u, v): fabric.gbps * n for (u, v), n in fabric.pairs.items()}
    links = [
        Link(u, v, gbps, fabric.latency, fabric.kind) for a, gbps in sorted(pairs.items()) for u, v in (a, a[::-1])
    ]
    limits = _switch(fabric, links)
    part = fabric.parts()
    nodes = fabric.nodes or (0,) * fabric.ranks
    apart = [
        (u, v) for u in range(fabric.ranks) for v in range(fabric.ranks) if part[u] != part[v] and nodes[u] == nodes[v]
    ]
    notes = list(fabric.notes)
    if apart:
        limits += _host(apart, pcie, links)
        speeds = sorted({k.bandwidth for k in links if k.kind == "pcie"})
        what = (
            "all GPUs communicate"
            if len(set(part)) == fabric.ranks
            else f"GPUs that {fabric.kind} does not connect communicate"
        )
        notes.append(
            f"{what} by PCIe, counted at {' or '.join(map(show, speeds))} GB/s a pair and limited at ports and sockets"
        )
    unit = None if apart else fabric.gbps
    labels = () if fabric.labels == tuple(range(fabric.ranks)) else fabric.labels
    multicast = ()
    if fabric.multicast:
        notes.append(MULTICAST_NOTE)
        multicast = (Multicast("nvswitch", tuple(sorted(fabric.ports))),)
    return Topology(
        fabric.name, fabric.ranks, tuple(links), tuple(limits), (), nodes, unit, (), labels, tuple(notes), multicast
    )


def _switch(fabric: DumpFabric, links: list[Link]) -> list[Limit]:
    """Appends a link for every pair on the switch; returns the limits of the GPUs' ports."""
    start, limits = len(links), []
    for u in sorted(fabric.ports):
        for v in sorted(fabric.ports):
            if u != v:
                width = fabric.gbps * min(fabric.ports[u], fabric.ports[v])
                links.append(Link(u, v, width, fabric.latency, fabric.kind))
    for u, count in sorted(fabric.ports.items()):
        for way, members in (
            ("out", [i for i in range(start, len(links)) if links[i].src == u]),
            ("in", [i for i in range(start, len(links)) if links[i].dst == u]),
        ):
            if len(members) > 1:
                limits.append(Limit(f"switch port {u} {way}", tuple(members), fabric.gbps * count))
    return limits


def _host(apart: list[tuple[int, int]], pcie: Pcie, links: list[Link]) -> list[Limit]:
    """Appends the PCIe links; returns their limits, one for each set of links, without those that cannot bind."""
    users: dict[str, list[int]] = {}
    capacity: dict[str, Fraction] = {}
    for u, v in apart:
        ways = pcie.crossed(u, v)
        for name, gbps in ways:
            users.setdefault(name, []).append(len(links))
            capacity[name] = gbps
        links.append(Link(u, v, min((gbps for _, gbps in ways), default=PCIE3_GBPS), PCIE_US, "pcie"))
    tightest: dict[tuple[int, ...], tuple[Fraction, str]] = {}
    for name, members in users.items():
        offer = (capacity[name], name)
        tightest[tuple(members)] = min(offer, tightest.get(tuple(members), offer))
    limits = []
    for members, (gbps, name) in tightest.items():
        if sum(links[i].bandwidth for i in members) > gbps:
            limits.append(Limit(name, members, gbps))
    return limits

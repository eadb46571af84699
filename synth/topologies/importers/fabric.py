"""From what dumps say to a topology: direct links, a switch, and PCIe where these leave parts unconnected.

    DumpFabric   ranks, pairs of directly linked GPUs with their numbers of links, links of each GPU into a switch
    Pcie         groups of GPUs behind one PCIe port, and bridges between sockets, each with a bandwidth both ways

PCIe links are made only between GPUs that NVLink or xGMI does not connect, however far: nothing routes through the host
what the links can carry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, permutations

from synth.model.graphs import components
from synth.model.rational import show
from synth.model.topology import MULTICAST_NOTE, Limit, Link, Multicast, Topology
from synth.topologies.machines import NVLINK_US, PCIE_US

# NCCL's figures (src/graph/topo.h): PCIe 3.0 x16, and what crosses between two sockets of Intel's since Skylake.
PCIE3_GBPS = Fraction(12)
SOCKET_GBPS = Fraction(10)
# GB/s of one xGMI link each way, as in the machines that ship; and the most xGMI links that a GPU (GCD) of them has.
XGMI = {
    "gfx906": Fraction(24),
    "gfx908": Fraction(24),
    "gfx90a": Fraction(50),
    "gfx940": Fraction(64),
    "gfx941": Fraction(64),
    "gfx942": Fraction(64),
    "gfx950": Fraction(384, 5),
}
XGMI_LINKS = {"gfx906": 2, "gfx908": 6, "gfx90a": 8, "gfx940": 8, "gfx941": 8, "gfx942": 8, "gfx950": 8}
INSTINCT = {
    "MI50|MI60": "gfx906",
    "MI100": "gfx908",
    "MI210|MI250X?": "gfx90a",
    "MI300[AX]|MI325X": "gfx942",
    "MI350X|MI355X": "gfx950",
}


def amd_gpu(text: str) -> str:
    """The architectures (gfx942) of the AMD GPUs that a text names, by it or by MI300X; "" where it names none."""
    names = set(re.findall(r"\bgfx\d[0-9a-f]{2,3}\b", text))
    for pattern, architecture in INSTINCT.items():
        if not names and re.search(rf"\b(?:{pattern})\b", text):
            return architecture
    return ", ".join(sorted(names))


@dataclass
class Pcie:
    """`groups`: (name, GPUs behind a port, GB/s each way). `bridges`: (name, GPUs on one side, on the other, GB/s each
    way). `notes`: what is assumed, said where PCIe is used."""

    groups: list[tuple[str, frozenset[int], Fraction]] = field(default_factory=list)
    bridges: list[tuple[str, frozenset[int], frozenset[int], Fraction]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def crossed(self, src: int, dst: int) -> list[tuple[int, str, Fraction]]:
        """Return (number, name, GB/s) of each PCIe port and bridge on the path from `src` to `dst`.

        Hosts may use the same names, never the same numbers.
        """
        found = []
        for i, (name, members, gbps) in enumerate(self.groups):
            if (src in members) != (dst in members):
                found.append((i, f"{name} {'out' if src in members else 'in'}", gbps))
        for i, (name, one, other, gbps) in enumerate(self.bridges, len(self.groups)):
            if (src in one and dst in other) or (src in other and dst in one):
                found.append((i, f"{name} {'out' if src in one else 'in'}", gbps))
        return found


@dataclass
class DumpFabric:
    """`pairs[u, v]` with u < v: number of links; `ports[u]`: links of u into its switch, `switch[u]` (0 unless stated);
    `gbps` of one link each way, `latency` in µs; `multicast`: the switches multicast and reduce."""

    name: str
    ranks: int
    kind: str
    gbps: Fraction
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)
    switch: dict[int, int] = field(default_factory=dict)
    labels: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    multicast: bool = False
    latency: Fraction = NVLINK_US
    notes: list[str] = field(default_factory=list)

    def switches(self) -> list[list[int]]:
        """Return the GPUs of each switch."""
        members: dict[int, list[int]] = {}
        for u in sorted(self.ports):
            members.setdefault(self.switch.get(u, 0), []).append(u)
        return list(members.values())


def topology(fabric: DumpFabric, pcie: Pcie) -> Topology:
    """Return the topology, with PCIe between the parts that `fabric` does not connect."""
    pairs = {(u, v): fabric.gbps * n for (u, v), n in fabric.pairs.items()}
    links = [
        Link(u, v, gbps, fabric.latency, fabric.kind) for a, gbps in sorted(pairs.items()) for u, v in (a, a[::-1])
    ]
    # A link for every pair on a switch, and the limits of the GPUs' ports.
    start, limits = len(links), []
    for members in fabric.switches():
        for u, v in permutations(members, 2):
            width = fabric.gbps * min(fabric.ports[u], fabric.ports[v])
            links.append(Link(u, v, width, fabric.latency, fabric.kind))
    into_switches = range(start, len(links))
    for u, count in sorted(fabric.ports.items()):
        for way in ("src", "dst"):
            members = [i for i in into_switches if getattr(links[i], way) == u]
            if len(members) > 1:
                name = f"switch port {u} {'out' if way == 'src' else 'in'}"
                limits.append(Limit(name, tuple(members), fabric.gbps * count))
    # The component of each GPU under links and the switch.
    joined = [*fabric.pairs, *(pair for members in fabric.switches() for pair in pairwise(members))]
    part = list(components(range(fabric.ranks), joined).values())
    nodes = fabric.nodes or (0,) * fabric.ranks
    apart = [(u, v) for u, v in permutations(range(fabric.ranks), 2) if part[u] != part[v] and nodes[u] == nodes[v]]
    notes = list(fabric.notes)
    if apart:
        # The PCIe links, and a limit for each set of them, without those that cannot bind.
        users: dict[tuple[int, str, Fraction], list[int]] = {}
        for u, v in apart:
            ways = pcie.crossed(u, v)
            for way in ways:
                users.setdefault(way, []).append(len(links))
            links.append(Link(u, v, min((gbps for _, _, gbps in ways), default=PCIE3_GBPS), PCIE_US, "pcie"))
        tightest: dict[tuple[int, ...], tuple[Fraction, str]] = {}
        for (_, name, gbps), members in users.items():
            offer = (gbps, name)
            tightest[tuple(members)] = min(offer, tightest.get(tuple(members), offer))
        for members, (gbps, name) in tightest.items():
            if sum(links[i].bandwidth for i in members) > gbps:
                limits.append(Limit(name, members, gbps))
        speeds = sorted({k.bandwidth for k in links if k.kind == "pcie"})
        rates = " or ".join(map(show, speeds))
        who = "all GPUs" if len(set(part)) == fabric.ranks else f"GPUs that {fabric.kind} does not connect"
        notes.append(f"{who} communicate by PCIe, counted at {rates} GB/s a pair and limited at ports and sockets")
        notes += pcie.notes
    labels = () if fabric.labels == tuple(range(fabric.ranks)) else fabric.labels
    multicast: tuple[Multicast, ...] = ()
    if fabric.multicast:
        notes.append(MULTICAST_NOTE)
        switches = fabric.switches()
        for i, members in enumerate(switches):
            name = "nvswitch" if len(switches) == 1 else f"nvswitch {i}"
            multicast += (Multicast(name, tuple(members)),)
    connection = None if apart else fabric.gbps
    return Topology(
        fabric.name, fabric.ranks, tuple(links), limits, (), nodes, connection, (), labels, notes, multicast
    )  # fmt: skip

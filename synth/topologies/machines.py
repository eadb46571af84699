"""The machines that ship: GPU links of one box, from vendors' documents and the papers that measured them.

Latencies: DGX-1 V100 and DGX-2 from TE-CCL (arXiv 2305.13479), 0.7 µs for an NVLink and for two hops of 0.35 µs through
a switch; their boxes are 2.6 µs apart, two hops of TE-CCL's 1.3 µs and what TACCL measured (microsoft/taccl,
topo-ndv2-1KB.json and topo-dgx2-1KB.json). All others are NCCL's defaults for a ring with the LL protocol
(src/graph/tuning.cc): NVLink (and xGMI) 0.6 µs, PCIe 1 µs, network 2.7 µs. That includes EFA, of which AWS publishes no
latency of a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from synth.errors import UsageError
from synth.model.permutations import symmetric_group
from synth.model.rational import rational
from synth.model.topology import MULTICAST_NOTE, Link, Multicast, Topology
from synth.topologies.builders import (
    Nic,
    TopologyBuilder,
    crossbar,
    duplex,
    port_limits,
    with_generators,
)

NVLINK_US = Fraction(3, 5)
PCIE_US = Fraction(1)
NET_US = Fraction(27, 10)
# V100 boxes: TE-CCL and TACCL.
V100_US = Fraction(7, 10)
IB_US = Fraction(13, 5)
# More from one socket to the other than within one, P2P writes of 8 RTX PRO 6000 on two EPYC 9005: 0.44 and 0.36 µs
# (voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md).
SOCKET_US = Fraction(2, 25)
# RCCL's figures (src/graph/topo.h) for one xGMI link of MI50 and MI100, and for PCIe 4.0 x16.
VEGA_GBPS = Fraction(24)

DGX1_V100 = ("02112000", "20120100", "11020020", "12200001", "20000211", "01002012", "00201102", "00011220")
MI250 = (
    "0-1:4 0-4:2 0-8:1 1-5:1 1-9:1 1-10:1 2-3:4 2-6:1 2-9:1 2-10:1 3-7:2 3-11:1 4-5:4 4-6:1 5-6:1 5-7:1 6-7:4 8-9:4 "
    "8-12:2 "
    "9-13:1 10-11:4 10-14:1 11-15:2 12-13:4 12-14:1 13-14:1 13-15:1 14-15:4"
)
HIVES = [(a, b) for hive in (0, 4) for a in range(hive, hive + 4) for b in range(a + 1, hive + 4)]


def dgx1_v100() -> Topology:
    """DGX-1 with V100: a hybrid cube mesh of 25 GB/s NVLinks, one or two a pair, ranks labelled as in SCCL (arXiv
    2008.08708)."""
    unit = Fraction(25)
    links = tuple(
        Link(u, v, unit * int(n), V100_US, "nvlink")
        for u, row in enumerate(DGX1_V100)
        for v, n in enumerate(row)
        if n != "0"
    )
    flips = [(2, 3, 0, 1, 6, 7, 4, 5), (4, 5, 6, 7, 0, 1, 2, 3)]
    return with_generators(Topology("dgx1-v100", 8, links, nodes=(0,) * 8, connection=unit), flips)


def dgx1_p100() -> Topology:
    """DGX-1 with P100: two complete quads and a link between equal positions, 20 GB/s each."""
    unit = Fraction(20)
    across = [(i, i + 4) for i in range(4)]
    links = duplex([*HIVES, *across], unit, NVLINK_US, "nvlink")
    both = []  # permutations of a quad, on both quads at once
    for quad in ((1, 2, 3, 0), (1, 0, 2, 3)):
        both.append((*quad, *(4 + position for position in quad)))
    return with_generators(Topology("dgx1-p100", 8, links, nodes=(0,) * 8), [*both, (4, 5, 6, 7, 0, 1, 2, 3)])


def nvswitch(
    name: str, ranks: int, links: int, unit: Fraction, latency: Fraction = NVLINK_US, multicast: bool = False
) -> Topology:
    """GPUs with `links` NVLinks each into NVSwitches: every pair is a link of all units, under a limit out of and into
    each GPU. With `multicast` the switches multicast and reduce (NVLS).

    Exact also where the links are spread over several switches, as 5/5/4/4 on a DGX H100: what the GPUs send in r
    rounds is a bipartite multigraph of degree at most r times the links of a GPU; by König's edge colouring theorem it
    is a union of that many matchings, and each matching can be given to any switch that has a link to every GPU.
    """
    wires, limits = crossbar(ranks, unit * links, latency, "nvlink")
    machine = Topology(name, ranks, wires, limits, nodes=(0,) * ranks, connection=unit)
    if multicast:
        machine = replace(machine, notes=(MULTICAST_NOTE,), multicast=(Multicast("nvswitch", tuple(range(ranks))),))
    return with_generators(machine, symmetric_group(range(ranks), ranks))


def mi50_z52() -> Topology:
    """Gigabyte Z52 with eight MI50: a bidirectional ring, as SCCL models it, along 0-1-3-2 of one hive and 6-7-5-4 of
    the other."""
    ring = (0, 1, 3, 2, 6, 7, 5, 4)
    near = {frozenset((2, 6)), frozenset((0, 4))}
    links = []
    for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
        latency, kind = (PCIE_US, "pcie") if {a, b} in near else (NVLINK_US, "xgmi")
        links += duplex([(a, b)], VEGA_GBPS, latency, kind)
    turn, flip = [0] * 8, [0] * 8
    for i, rank in enumerate(ring):
        turn[rank], flip[rank] = ring[(i + 1) % 8], ring[-i % 8]
    note = (
        "the hives are joined by PCIe 4.0 x16 (0-4 and 2-6), counted at 24 GB/s, which is also RCCL's figure for "
        "one xGMI link"
    )
    return with_generators(Topology("mi50-z52", 8, tuple(links), nodes=(0,) * 8, notes=(note,)), [turn, flip])


def mi100_4p3l() -> Topology:
    """Eight MI100 in two complete quads of xGMI; pairs across go by PCIe, each GPU limited by its slot."""
    links = list(duplex(HIVES, VEGA_GBPS, NVLINK_US, "xgmi"))
    inside = len(links)
    links += duplex([(a, b) for a in range(4) for b in range(4, 8)], VEGA_GBPS, PCIE_US, "pcie")
    limits = port_limits(links, [(n,) for n in range(8)], VEGA_GBPS, "PCIe slot", inside)
    note = (
        "the two hives are joined by PCIe 4.0 x16: 24 GB/s in and out of each GPU; an xGMI link counts 24 GB/s, "
        "as in RCCL"
    )
    machine = Topology("mi100-4p3l", 8, tuple(links), tuple(limits), nodes=(0,) * 8, notes=(note,))
    return with_generators(machine, [*symmetric_group(range(4), 8), (4, 5, 6, 7, 0, 1, 2, 3)])


def mi250() -> Topology:
    """Eight MI250, sixteen dies (ranks), 50 GB/s Infinity Fabric links, one to four a pair."""
    unit = Fraction(50)
    links: list[Link] = []
    for item in MI250.split():
        ends, count = item.split(":")
        a, b = map(int, ends.split("-"))
        links += duplex([(a, b)], unit * int(count), NVLINK_US, "xgmi")
    flips = []
    for mask in (3, 8):
        flips.append(tuple(i ^ mask for i in range(16)))
    return with_generators(Topology("mi250", 16, tuple(links), nodes=(0,) * 16, connection=unit), flips)


def xgmi_pairs(name: str, unit: Fraction) -> Topology:
    """Eight GPUs, every pair joined by one Infinity Fabric link of `unit` GB/s each way."""
    links = duplex([(a, b) for a in range(8) for b in range(a + 1, 8)], unit, NVLINK_US, "xgmi")
    return with_generators(Topology(name, 8, links, nodes=(0,) * 8), symmetric_group(range(8), 8))


def pcie_halves(name: str, port: Fraction, between: Fraction, bridge: Fraction = Fraction(0)) -> Topology:
    """Eight GPUs on PCIe in two halves, of a switch or a socket each; `bridge` GB/s of NVLink join neighbours 2i, 2i+1.

    A GPU drives one stream of `port` GB/s out and one in well, and no more with several peers (flashinfer pull request
    4393): that is its link to its half. All traffic between the halves shares `between` GB/s each way. NCCL's figures
    (src/graph/topo.h): 12 GB/s for PCIe 3.0 x16, doubled by each generation; between sockets 24 GB/s for Zen 3 and 4,
    32 for Zen 5.
    """
    halves = [(i, 8 + i // 4) for i in range(8)]
    links = duplex(halves, port, PCIE_US / 2, "pcie") + duplex([(8, 9)], between, SOCKET_US, "pcie")
    if bridge:
        links += duplex([(i, i + 1) for i in range(0, 8, 2)], bridge, NVLINK_US, "nvlink")
    swaps = [(1, 0, *range(2, 8)), (2, 3, 0, 1, *range(4, 8))] if bridge else symmetric_group(range(4), 8)
    machine = Topology(name, 8, links, switches=("half0", "half1"), nodes=(0,) * 8)
    return with_generators(machine, [*swaps, (4, 5, 6, 7, 0, 1, 2, 3)])


def _machine(
    summary: str, build: Callable[[], Topology], gbps: str, count: int = 0, latency: Fraction = NET_US
) -> TopologyBuilder:
    def make(sizes: tuple[int, ...], options: dict[str, str]) -> Topology:
        if sizes or options:
            extra = "x".join(map(str, sizes)) or next(iter(options))
            raise UsageError(
                f"a machine has a fixed size and no options: remove {extra!r} (`*2` makes a cluster, which has some)"
            )
        return build()

    return TopologyBuilder(summary, make, Nic(rational(gbps), latency, count))


_U25, _PCIE4 = Fraction(25), Fraction(24)

# NICs: DGX-1 as in Azure NDv2 and TE-CCL (one of 100 Gbit/s a box); DGX-2: eight of 100 Gbit/s, one per two GPUs; A100
# and MI250 as in ForestColl; H100 and later, GB200, MI300X and MI355X: 400 Gbit/s a GPU; MI50, MI100 and PCIe: one of
# 200 Gbit/s a box; p4d: four EFA of 100 Gbit/s, one per two GPUs (the 32 of p5 are 400 Gbit/s a GPU, as on a DGX H100).
MACHINES: dict[str, TopologyBuilder] = {
    "dgx1-v100": _machine("8 V100, hybrid cube mesh of 25 GB/s NVLinks", dgx1_v100, "12.5", 1, IB_US),
    "dgx1-p100": _machine("8 P100, two quads and their matching, 20 GB/s NVLinks", dgx1_p100, "12.5", 1, IB_US),
    "dgx2": _machine(
        "16 V100 on one NVSwitch fabric, 150 GB/s each",
        lambda: nvswitch("dgx2", 16, 6, _U25, V100_US),
        "12.5",
        8,
        IB_US,
    ),
    "dgx-a100": _machine("8 A100 on NVSwitches, 300 GB/s each", lambda: nvswitch("dgx-a100", 8, 12, _U25), "25"),
    "p4d": _machine("8 A100 on NVSwitches, 4 EFA of 100 Gbit/s", lambda: nvswitch("p4d", 8, 12, _U25), "12.5", 4),
    "dgx-h100": _machine(
        "8 H100 on NVSwitches, 450 GB/s each", lambda: nvswitch("dgx-h100", 8, 18, _U25, multicast=True), "50"
    ),
    "dgx-h200": _machine(
        "8 H200 on NVSwitches, 450 GB/s each", lambda: nvswitch("dgx-h200", 8, 18, _U25, multicast=True), "50"
    ),
    "dgx-b200": _machine(
        "8 B200 on NVSwitches, 900 GB/s each", lambda: nvswitch("dgx-b200", 8, 18, 2 * _U25, multicast=True), "50"
    ),
    "gb200-nvl72": _machine(
        "72 B200 on NVSwitches, 900 GB/s each", lambda: nvswitch("gb200-nvl72", 72, 18, 2 * _U25, multicast=True), "50"
    ),
    "mi50-z52": _machine("8 MI50, a ring through two hives and PCIe", mi50_z52, "25", 1),
    "mi100-4p3l": _machine("8 MI100, two quads of xGMI joined by PCIe", mi100_4p3l, "25", 1),
    "mi250": _machine("8 MI250 = 16 dies, 50 GB/s Infinity Fabric links", mi250, "16"),
    "mi300x": _machine("8 MI300X, one 64 GB/s link a pair", lambda: xgmi_pairs("mi300x", Fraction(64)), "50"),
    # AMD gives a link as 153.6 GB/s, both ways together.
    "mi355x": _machine("8 MI355X, one 76.8 GB/s link a pair", lambda: xgmi_pairs("mi355x", Fraction(384, 5)), "50"),
    # As the A800 box of vllm pull request 50941: the four uplinks of an island are one x16.
    "pcie-2x4": _machine(
        "8 GPUs, PCIe 4.0, 4 behind each of 2 switches", lambda: pcie_halves("pcie-2x4", _PCIE4, _PCIE4), "25", 1
    ),
    # A100 PCIe: three NVLink bridges of 100 GB/s each way join a pair; two sockets of Zen 3 or 4.
    "pcie-4x2": _machine(
        "8 GPUs, PCIe 4.0, 4 pairs with NVLink bridges",
        lambda: pcie_halves("pcie-4x2", _PCIE4, _PCIE4, Fraction(300)),
        "25",
        1,
    ),
    "pcie-8": _machine(
        "8 GPUs, PCIe 5.0, over 2 sockets", lambda: pcie_halves("pcie-8", 2 * _PCIE4, Fraction(32)), "25", 1
    ),
}

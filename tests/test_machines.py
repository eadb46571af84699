"""Machines that people rent or build: ranks, ports, latencies of each link class, and bounds derived by hand."""

from fractions import Fraction
from pathlib import Path

import pytest

from synth.model.permutations import orbits
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.fabric import fabric
from synth.scale.search import bound
from synth.topologies import MACHINES, topology, topology_files

TECCL = Path(__file__).parent.parent / "examples" / "teccl"

# Bound of allgather in GB/s: ranks x width into a set of ranks / ranks outside of the set. The comment names the set.
ALLGATHER = [
    ("ndv4*2", 16, Fraction(16 * 325, 15)),  # one GPU: 300 + 25
    ("ndv5*2", 16, Fraction(16 * 500, 15)),  # one GPU: 450 + 50
    ("p4d", 8, Fraction(8 * 300, 7)),  # one GPU
    ("p4d*2", 16, Fraction(16 * 50, 8)),  # a box: 4 x 12.5
    ("p5*4", 32, Fraction(32 * 500, 31)),  # one GPU: 450 + 50
    ("p5*16", 128, Fraction(128 * 400, 120)),  # a box: 8 x 50
    ("dgx-b200", 8, Fraction(8 * 900, 7)),  # one GPU
    ("gb200-nvl72*2", 144, Fraction(144 * 950, 143)),  # one GPU: 900 + 50
    ("mi300x*2", 16, Fraction(16 * 498, 15)),  # one GPU: 7 x 64 + 50
    ("mi300x*16", 128, Fraction(128 * 400, 120)),  # a box: 8 x 50
    ("mi355x", 8, Fraction(8 * 7) * Fraction(384, 5) / 7),  # one GPU: 7 x 76.8
    ("mi250*16", 256, Fraction(256 * 256, 240)),  # a box: 16 x 16
    ("pcie-2x4", 8, Fraction(8 * 24, 7)),  # one GPU
    ("pcie-4x2", 8, Fraction(8 * 24, 4)),  # the four GPUs of a socket
    ("pcie-8", 8, Fraction(8 * 48, 7)),  # one GPU
    ("pcie-2x4*2", 16, Fraction(16 * 25, 8)),  # a box: one NIC of 25
    # Two boxes below a leaf: 32 ranks, 16 beyond the uplink of 2 x 8 x 25 / 4 = 100.
    ("dgx-a100*4:pod=2,over=4", 32, Fraction(32 * 100, 16)),
    # The same without oversubscription: a box, 8 x 25.
    ("dgx-a100*4:pod=2", 32, Fraction(32 * 200, 24)),
    # Leaves of 4 boxes with 4 x 8 x 50 / 2 = 800 up; spines of 2 leaves with 2 x 800 / 8 = 200 up, 192 ranks beyond.
    ("dgx-h100*32:pod=4x2,over=2x8", 256, Fraction(256 * 200, 192)),
    # A NIC of 12.5 a box; leaves of 2 boxes with 25 / 4 up, 16 ranks beyond.
    ("ndv2*4:pod=2,over=4", 32, Fraction(32 * 25, 4 * 16)),
]


@pytest.mark.parametrize(("name", "ranks", "gbps"), ALLGATHER, ids=[row[0] for row in ALLGATHER])
def test_the_bound_of_allgather_is_the_one_derived_by_hand(name, ranks, gbps):
    machine = topology(name)
    assert machine.ranks == ranks
    assert throughput(fabric(machine), "allgather").bandwidth == gbps


@pytest.mark.parametrize(("file", "collective", "gbps"), [
    ("ndv2-x2", "allgather", Fraction(25)), ("ndv2-x4", "allgather", Fraction(50, 3)),
    ("dgx2-x2", "allgather", Fraction(32 * 125, 31)), ("dgx2-x2", "alltoall", Fraction(25, 2)),
])  # fmt: skip
def test_the_machines_of_teccl_have_its_optima(file, collective, gbps):
    assert bound(topology_files.load(TECCL / f"{file}.yaml"), collective).bound_gbps == gbps


@pytest.mark.parametrize("name", MACHINES)
def test_each_class_of_links_has_a_latency_of_its_own(name):
    classes: dict[bool, set[Fraction]] = {False: set(), True: set()}
    machine = topology(f"{name}*2")
    for route in machine.network().routes:
        classes[machine.nodes[route.src] != machine.nodes[route.dst]].add(route.latency)
    assert all(Fraction(3, 5) <= late <= Fraction(13, 10) for late in classes[False])
    assert all(Fraction(13, 5) <= late <= 5 for late in classes[True])


def test_pcie_boxes_have_one_stream_a_gpu_and_share_what_joins_their_halves():
    machine = topology("pcie-4x2").network()
    routes = {(r.src, r.dst, bool(r.via)): (r.units * machine.unit, r.latency) for r in machine.routes}
    assert routes[0, 1, False] == (300, Fraction(3, 5))
    assert routes[0, 2, True] == (24, Fraction(1))
    assert routes[0, 4, True] == (24, Fraction(27, 25))
    shared = {(a, b): units * machine.unit for a, b, units in machine.wires}
    assert shared[0, "half0"] == shared["half0", 0] == shared["half0", "half1"] == 24
    # Each GPU of eight must receive 7/8 of the result and send as much of its own: 7n/4 bytes, as in vllm 50941's
    # two-shot kernel, over one stream of 24 GB/s.
    assert bound(topology("pcie-2x4"), "allreduce").bound_gbps == Fraction(4 * 24, 7)


def test_the_uplinks_of_leaf_switches_bound_alltoall():
    # Each of 32 ranks sends a 64th of its data to each of 32 ranks beyond the uplink of 4 x 8 x 50 / 2 = 800.
    assert bound(topology("dgx-h100*8:pod=4,over=2"), "alltoall").bound_gbps == Fraction(64 * 800, 32 * 32)


@pytest.mark.parametrize("name", ["pcie-2x4", "pcie-4x2", "pcie-8", "mi355x", "dgx-a100*8:pod=2x2,over=2x4"])
def test_their_symmetries_move_every_rank_to_every_other(name):
    machine = topology(name)
    least = orbits(len(machine.generators[0]), machine.generators)
    assert [i for i, first in enumerate(least) if first == 0] == list(range(machine.ranks))

"""Trees packed on any fabric: at the bound where switches let out what comes in, and honest about the gap elsewhere."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from synth.errors import SynthError, UndecidedError, UsageError
from synth.flows.balance import balanced
from synth.flows.cuts import COLLECTIVES, throughput
from synth.flows.fabric import fabric
from synth.flows.forests import build
from synth.flows.packing import pack
from synth.flows.splitting import split
from synth.flows.trees import finished
from synth.forest import Forest
from synth.forestcheck import verify
from synth.topologies import topology
from synth.topology import Link, Topology

KNOWN = {
    "dgx1": 171.43, "dgx-a100": 342.86, "dgx-a100*2:net=odd-even": 346.67, "dgx-a100*4:net=odd-even": 266.67, "mi250": 342.86,
    "mi250*2": 354.13, "ndv2*4": 16.67, "rail:2x8": 10.67, "fat-tree:16": 1.07, "fat-tree:16:levels=3": 1.07, "torus:3x4": 4.36,
}  # fmt: skip


def packed(machine: Topology, collective: str = "allgather", root: int = 0) -> Forest:
    bound = throughput(fabric(machine), collective, root)
    grown = pack(bound.fabric, bound.time, bound.shards)
    assert grown is not None
    return finished(bound.fabric, bound, grown, (), "packing")


@pytest.mark.parametrize("name", KNOWN)
def test_published_bandwidths_are_reached(name: str) -> None:
    forest = packed(topology(name))
    found = verify(forest)
    assert found.time == forest.time and round(float(found.bandwidth), 2) == KNOWN[name]
    assert found.depth == forest.depth


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", ["dgx1", "line:5", "star:5", "dgx-a100*2", "fat-tree:8", "random-regular:10:degree=3"])
def test_all_collectives(name: str, collective: str) -> None:
    machine = topology(name)
    found = verify(packed(machine, collective, 2))
    bound = throughput(fabric(machine), collective, 2)
    assert found.time == bound.time / bound.fabric.unit


def drawn(seed: int, even: bool) -> Topology:
    """Up to six ranks and three switches, joined at random; `even`: the same bandwidth both ways."""
    draw = random.Random(seed)
    ranks, switches = draw.randint(2, 6), draw.randint(0, 3)
    nodes = list(range(ranks + switches))
    draw.shuffle(nodes)
    pairs = {(nodes[draw.randrange(i)], nodes[i]) for i in range(1, len(nodes))}
    pairs |= {tuple(draw.sample(nodes, 2)) for _ in range(draw.randint(0, 6))}  # type: ignore[misc]
    links = []
    for a, b in sorted({(min(p), max(p)) for p in pairs}):
        width = Fraction(draw.randint(1, 6), draw.choice((1, 2, 3)))
        links += [Link(a, b, width), Link(b, a, width if even else Fraction(draw.randint(1, 6)))]
    return Topology(f"drawn {seed}", ranks, tuple(links), (), tuple(f"s{i}" for i in range(switches)))


@pytest.mark.parametrize("seed", range(24))
def test_random_fabrics_reach_the_bound(seed: int) -> None:
    machine = drawn(seed, True)
    for collective in ("allgather", "reduce-scatter"):
        built = build(fabric(machine), collective, methods=("packing",))
        assert verify(built.forest).time == built.forest.time == built.bound.time / built.bound.fabric.unit
        assert built.gap == 0


@pytest.mark.parametrize("seed", range(12))
def test_unequal_directions_are_never_better_than_the_bound(seed: int) -> None:
    built = build(fabric(drawn(seed, False)), "allgather")
    found = verify(built.forest)
    assert found.time <= built.forest.time and built.gap >= 0
    if not built.forest.topology.switches:
        assert built.gap == 0


def test_a_nic_for_two() -> None:
    """Two GPUs of a DGX-2 share a NIC: the cut around one of them alone says too little, 62/25 is what the pair can have."""
    built = build(fabric(topology("dgx2*2")))
    assert verify(built.forest).time * built.bound.fabric.unit == Fraction(62, 25)
    assert (built.bound.time, built.gap) == (Fraction(31, 13), Fraction(1, 25))


def test_methods_and_what_is_said() -> None:
    said: list[str] = []
    built = build(fabric(topology("mi250")), progress=said.append)
    assert built.forest.method == "packing" and built.gap == 0
    assert said == ["no schedule is faster than 342.857 GB/s", "symmetric finds no forest at 342.857 GB/s"]
    assert build(fabric(topology("dgx-a100*2"))).forest.method == "symmetric"
    with pytest.raises(UsageError):
        build(fabric(topology("mi250")), "alltoall")
    with pytest.raises(UndecidedError, match="proves nothing"):
        build(fabric(topology("random-regular:8")), methods=("symmetric",))


def test_below_the_bound() -> None:
    machine = fabric(topology("torus:3x3"))
    bound = throughput(machine)
    with pytest.raises(SynthError, match="below the bound"):
        pack(machine, bound.time * Fraction(9, 10), bound.shards)
    behind = fabric(topology("fat-tree:8"))
    assert pack(behind, throughput(behind).time * Fraction(9, 10), np.ones(8, np.int64)) is None


def test_splitting_leaves_ranks_only() -> None:
    made = fabric(topology("dgx-a100*2:net=odd-even"))
    logical = split(made, 15, np.full(16, 13))
    assert logical is not None
    assert all(a < 16 and b < 16 and a != b for a, b in logical.capacity)
    # No path leads through the network back into its own box.
    assert all(made.links_of(path) is not None for parts in logical.pieces.values() for _, path in parts)
    uses = np.zeros(len(made.src), np.int64)
    for parts in logical.pieces.values():
        for units, path in parts:
            uses[list(path)] += units
    assert (uses <= made.cap * 15).all()


def test_balancing() -> None:
    plain = fabric(topology("fat-tree:8"))
    assert balanced(plain) is plain
    even = balanced(fabric(topology("dgx2*2")))
    assert even is not None
    into, out = (np.bincount(ends, even.cap, even.nodes)[even.ranks :] for ends in (even.dst, even.src))
    assert (into == out).all()

"""The bound on allreduce by partitions: the partition of the algorithm against all partitions, listed."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from random import Random

import numpy as np
import pytest

from synth.checker.certificates import partition
from synth.errors import InfeasibleError, VerificationError
from synth.model.topology import Limit, Link, Topology
from synth.scale import search
from synth.scale.bounds import allreduce_partition, graph_strength
from synth.scale.fabric.automorphisms import symmetries
from synth.scale.fabric.fabric import fabric
from synth.solvers.deadline import Deadline, time_limited
from synth.topologies import topology


def listed(size: int) -> Iterator[list[int]]:
    """All partitions: the part of each of the ranks."""
    rows = [[0]]
    for _ in range(size - 1):
        rows = [[*row, part] for row in rows for part in range(max(row) + 2)]
    return (row for row in rows if max(row))


def leaving(machine: Topology, part: set[int], turned: bool) -> Fraction:
    """The least that leaves (turned: enters) a region of these ranks and any switches."""
    switches = range(machine.ranks, machine.ranks + len(machine.switches))
    totals = []
    for count in range(len(switches) + 1):
        for more in combinations(switches, count):
            inside = part | set(more)
            ends = (
                (link.dst, link.src, link.bandwidth) if turned else (link.src, link.dst, link.bandwidth)
                for link in machine.links
            )
            totals.append(sum((width for a, b, width in ends if a in inside and b not in inside), Fraction(0)))
    return min(totals)


def best(machine: Topology) -> Fraction:
    """The greatest bound, in seconds per GB, over all partitions and both directions."""
    found = []
    for turned in (False, True):
        known: dict[frozenset[int], Fraction] = {}
        for label in listed(machine.ranks):
            sets = [frozenset(r for r, p in enumerate(label) if p == part) for part in set(label)]
            for part in sets:
                if part not in known:
                    known[part] = leaving(machine, set(part), turned)
            if total := sum(known[part] for part in sets):
                found.append(Fraction(2 * (len(sets) - 1)) / total)
    return max(found)


def drawn(seed: int, ranks: int = 6) -> Topology:
    """Links of unequal directions between ranks, and up to two switches."""
    random = Random(seed)
    switches = seed % 3
    nodes = ranks + switches
    rows = [(a, (a + 1) % nodes) for a in range(nodes)] + [
        (a, b) for a in range(nodes) for b in range(nodes) if a != b and random.random() < 0.4
    ]
    links = tuple(Link(a, b, Fraction(random.choice((1, 1, 2, 3, 5, 8)))) for a, b in dict.fromkeys(rows))
    return Topology(f"drawn {seed}", ranks, links, switches=tuple(f"s{i}" for i in range(switches)))


@pytest.mark.parametrize("seed", range(24))
def test_no_partition_says_more(seed):
    machine = drawn(seed)
    graph = fabric(machine)
    value, certificate, short = allreduce_partition.partition(graph)
    assert not short
    assert partition.check(certificate, machine) == best(machine) == value / graph.unit


def chain(boxes: int, size: int, named: bool = False) -> Topology:
    """Rings of `size` ranks, joined to a ring by slower links."""
    pairs = [(size * b + i, size * b + (i + 1) % size, 25) for b in range(boxes) for i in range(size)]
    pairs += [(size * b, (size * (b + 1) + size // 2) % (size * boxes), 10) for b in range(boxes)]
    links = [Link(x, y, Fraction(width)) for a, b, width in pairs for x, y in ((a, b), (b, a))]
    return Topology(
        "chain", boxes * size, tuple(links), nodes=tuple(r // size for r in range(boxes * size)) if named else ()
    )


def test_boxes_need_not_be_declared():
    found = search.bound(chain(12, 6), "allreduce")
    assert found.bound_gbps == search.bound(chain(12, 6, named=True), "allreduce").bound_gbps == Fraction(10 * 12, 11)
    assert sorted(map(len, found.certificate["regions"])) == [6] * 12


@pytest.mark.parametrize("name", [
    "dgx1*2:cross=0+2+5+7", "mi250*2", "ndv2*4", "mesh:4x4", "torus:4x4", "fat-tree:16", "dragonfly:4x4", "dgx-a100*4",
])  # fmt: skip
def test_symmetries_change_nothing_but_the_work(name):
    graph = fabric(topology(name))
    moves = symmetries(graph)
    assert moves
    most = Fraction(int(graph.cap.sum()))
    *_, quick = graph_strength.partitions(graph, most, moves)
    *_, plain = graph_strength.partitions(graph, most)
    assert quick[0] == plain[0]
    kept = quick[1]
    for pi in moves:  # the partition found is kept by every symmetry
        image = np.empty_like(kept)
        image[pi[: graph.ranks]] = kept
        assert len(set(zip(kept.tolist(), image.tolist(), strict=True))) == kept.max() + 1


def test_what_enters_may_say_more_than_what_leaves():
    links = [(r, 4, 10) for r in range(4)] + [(4, r, 5) for r in range(4)]
    machine = Topology("switch", 4, tuple(Link(a, b, Fraction(w)) for a, b, w in links), switches=("s",))
    found = search.bound(machine, "allreduce")
    assert found.certificate["entering"] is True
    assert found.bound_gbps == Fraction(4 * 5, 2 * 3)
    assert partition.check({k: v for k, v in found.certificate.items() if k != "entering"}, machine) < partition.check(
        found.certificate, machine
    )
    with pytest.raises(VerificationError, match="entering"):
        partition.check({**found.certificate, "entering": 1}, machine)


def test_limits_on_what_enters_count_once():
    """Four ranks all joined, 10 each way, no rank taking in more than 12 of 30: not more than 4 * 12 / 6."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    links = tuple(Link(a, b, Fraction(10)) for a, b in pairs)
    limits = tuple(
        Limit(f"into {rank}", tuple(i for i, (_, b) in enumerate(pairs) if b == rank), Fraction(12))
        for rank in range(4)
    )
    machine = Topology("ports", 4, links, limits=limits)
    found = search.bound(machine, "allreduce")
    assert found.bound_gbps == 8
    assert partition.check(found.certificate, machine) == Fraction(1, 8)


def test_one_way_is_no_way():
    pairs = ((0, 1), (1, 0), (1, 2), (2, 3), (3, 2))
    machine = Topology("one way", 4, tuple(Link(a, b, Fraction(1)) for a, b in pairs))
    with pytest.raises(InfeasibleError, match="no link leads"):
        search.bound(machine, "allreduce")


def test_a_time_limit_or_very_large_capacities_leave_a_bound():
    machine = chain(12, 6, named=True)
    with time_limited(Deadline.after(0)):
        value, certificate, short = allreduce_partition.bound(fabric(machine))
    assert "time limit" in short
    graph = fabric(machine)
    assert partition.check(certificate, machine) * graph.unit == value > 0
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    wide = Topology("wide", 4, tuple(Link(a, b, Fraction((1 << 56) + i)) for i, (a, b) in enumerate(pairs)))
    graph = fabric(wide)
    value, certificate, short = allreduce_partition.bound(graph)
    assert "digits" in short and partition.check(certificate, wide) * graph.unit == value > 0

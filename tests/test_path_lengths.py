"""Distances under an alltoall certificate: those of many ranks at once are those of each alone, whatever the machine's
shape."""

import heapq
import random
from fractions import Fraction

import numpy as np
import pytest

from synth.checker.certificates import path_lengths
from synth.checker.certificates.machine_columns import MachineColumns
from synth.errors import InfeasibleError, VerificationError
from synth.model.topology import Link, Topology
from synth.scale import search


def slow(machine: Topology, price: list[int], start: int) -> list[int | None]:
    """Dijkstra's distances, the obvious way."""
    far: dict[int, int] = {}
    heap = [(0, start)]
    while heap:
        d, u = heapq.heappop(heap)
        if u in far:
            continue
        far[u] = d
        for link, p in zip(machine.links, price, strict=True):
            if link.src == u and link.dst not in far:
                heapq.heappush(heap, (d + p, link.dst))
    return [far.get(n) for n in range(machine.ranks)]


def shapes():
    some = random.Random(4)
    for ranks, extra in ((5, 0), (30, 40), (30, 400)):
        ring = [(i, (i + 1) % ranks) for i in range(ranks)]
        yield (
            ranks,
            ring
            + [(a, b) for a, b in ((some.randrange(ranks), some.randrange(ranks)) for _ in range(extra)) if a != b],
        )
    yield 20, [pair for i in range(1, 20) for pair in ((0, i), (i, 0))]  # a hub
    yield 12, [pair for i in range(12) for pair in ((12, i), (i, 12))]  # a switch


@pytest.mark.parametrize("each", [1, 300, 1 << 12, 1 << 25, 1 << 35])
@pytest.mark.parametrize("together", [1, 1000, 1 << 18])
def test_distances_are_those_of_dijkstra(together, each, monkeypatch):
    """Whatever integers they are found in."""
    monkeypatch.setattr(path_lengths, "TOGETHER", together)
    some = random.Random(7)
    for ranks, pairs in shapes():
        nodes = max(max(pair) for pair in pairs) + 1
        switches = tuple(f"s{i}" for i in range(nodes - ranks))
        machine = Topology("shape", ranks, tuple(Link(a, b, Fraction(1)) for a, b in pairs), (), switches)
        price = [each * some.randrange(5) for _ in pairs]
        found = path_lengths.distance_sums(MachineColumns(machine), np.array(price), np.arange(ranks))
        assert found == [sum(d or 0 for d in slow(machine, price, s)) for s in range(ranks)]


@pytest.mark.parametrize("price", [(1 << 14) // 6, (1 << 14) // 6 + 1, (1 << 30) // 6, (1 << 30) // 6 + 1])
def test_a_rank_that_is_not_reached_is_reported_whatever_the_integers(price):
    machine = Topology("apart", 6, tuple(Link(i, i + 1, Fraction(1)) for i in range(5)))
    widths = MachineColumns(machine)
    assert path_lengths.distance_sums(widths, np.full(5, price), np.arange(1)) == [15 * price]
    with pytest.raises(VerificationError, match="rank 1 does not reach every rank"):
        path_lengths.distance_sums(widths, np.full(5, price), np.arange(1, 2))


def test_a_rank_that_is_not_reached_is_no_slow_one():
    machine = Topology("in", 3, (Link(1, 0, Fraction(1)), Link(2, 0, Fraction(1)), Link(1, 2, Fraction(1))))
    with pytest.raises(VerificationError, match="does not reach every rank"):
        path_lengths.distance_sums(MachineColumns(machine), np.ones(3, np.int64), np.arange(3))
    with pytest.raises(VerificationError, match="does not reach every rank"):
        path_lengths.distance_sums(MachineColumns(Topology("none", 2, ())), np.ones(0, np.int64), np.arange(2))


@pytest.mark.parametrize(("links", "pair"), [(((0, 1), (1, 2), (2, 1)), [1, 0]), (((1, 0), (0, 1), (2, 1)), [0, 2])])
def test_a_pair_apart_is_found_either_way(links, pair):
    machine = Topology("three", 3, tuple(Link(a, b, Fraction(1)) for a, b in links))
    with pytest.raises(InfeasibleError) as error:
        search.bound(machine, "alltoall")
    assert error.value.certificate["pair"] == pair

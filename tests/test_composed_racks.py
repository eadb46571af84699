"""Schedules composed over racks of boxes: data enter each rack once."""

from __future__ import annotations

from fractions import Fraction

import pytest

from synth.model.topology import Limit, Link, Topology
from synth.scale import search
from synth.scale.composition.boxes import boxes_of
from synth.scale.composition.loads import PathIndex
from synth.topologies import topology
from tests.test_composition import points, replayed


def tree(machine, start):
    boxes = boxes_of(PathIndex(machine))
    levels = boxes.tree_over_racks([box[0] for box in boxes.boxes], start)
    return levels and [sorted(level) for level in levels]


def nested_limits():
    """Four boxes of one rank, of which two share an uplink: a machine without switches, as a file may have it."""
    links = [Link(a, b, Fraction(2)) for a in range(4) for b in range(4) if a != b]
    limits = []
    for rack in ((0, 1), (2, 3)):
        out = tuple(i for i, link in enumerate(links) if link.src in rack and link.dst not in rack)
        limits.append(Limit(f"uplink of {rack}", out, Fraction(1)))
    return Topology("nested", 4, tuple(links), tuple(limits), nodes=(0, 1, 2, 3))


def test_a_tree_enters_each_rack_once():
    assert tree(topology("fully-connected:2*4:pod=2"), 1) == [[(2, 0), (2, 6)], [(6, 4)]]
    assert tree(topology("fully-connected:2*6:pod=3"), 4) == [[(8, 2), (8, 6), (8, 10)], [(2, 0), (2, 4)]]
    assert tree(nested_limits(), 3) == [[(3, 1), (3, 2)], [(1, 0)]]


def test_a_tree_over_rows_of_racks_enters_each_row_once():
    levels = tree(topology("fully-connected:2*8:pod=2x2"), 0)
    assert levels == [[(0, 2), (0, 4), (0, 8)], [(4, 6), (8, 10), (8, 12)], [(12, 14)]]


def test_machines_without_racks_have_no_such_tree():
    assert tree(topology("fully-connected:2*4"), 0) is None
    assert tree(topology("fully-connected:2*4:net=rail"), 0) is None
    assert tree(topology("fully-connected:2*2:pod=1"), 0) is None


@pytest.mark.parametrize(
    ("collective", "gap"),
    [("allgather", "0.18"), ("reduce-scatter", "0.18"), ("allreduce", "0.25"), ("broadcast", "0.3")],
)
def test_oversubscribed_spines_carry_each_chunk_once_a_rack(collective, gap):
    """Over rails alone twice the bound is the least: each box of a rack is sent a copy of its own over the spine."""
    machine = topology("fully-connected:2*4:pod=2,over=4")
    bound = search.bound(machine, collective).bound
    found = [point for point in points(machine, collective, most_sends=4_000, most=7) if point.steps <= 8]
    assert found[-1].rounds_per_chunk <= bound * (1 + Fraction(gap))
    alone = points(machine, collective, most_sends=4_000, most=7, priced=False)
    assert any("rack" in point.construction or "three-level" in point.construction for point in alone)
    replayed(found[-1])

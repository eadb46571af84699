"""Schedules of all methods take links and the shortest ways through switches, so that none lies below a complete exact frontier."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from bench import agreement
from synth.flows import expand, large
from synth.flows.fabric import fabric
from synth.flows.forests import build
from synth.flows.shortest import Shortest
from synth.forestcheck import verify
from synth.frontier import Frontier
from synth.topologies import topology


@pytest.mark.parametrize("index", [0, 5, 342, 378])  # machines on which trees and flows of all ways take longer ones
def test_both_engines_answer_alike_where_longer_ways_exist(index):
    case = agreement.Case.drawn(1 if index == 0 else 0, index)
    points, bounds, exact = case.compare_exact()
    found, proved = case.compare_flow()
    assert not case.wrong and found and proved
    for steps, value in ((p[1], p[2]) for p in found):
        assert all(value >= bound for _, at, bound in bounds if at in (None, steps))
    assert isinstance(exact, Frontier) and min(p[2] for p in found) >= min(p[2] for p in points)


@pytest.mark.parametrize("name", ["fat-tree:8", "fat-tree:16", "fat-tree:16:levels=3", "fat-tree:16:leaf=2"])
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_trees_in_a_fat_tree_reach_the_bound_over_shortest_ways(name, collective):
    machine = topology(name)
    for root in (0, 3):
        built = build(fabric(machine), collective, root)
        assert verify(built.forest).time == built.forest.time and built.gap == 0
        expand.schedule(large.frontier(machine, collective, root).points[-1].make())  # refuses other ways


@pytest.mark.parametrize("index", range(0, 60, 4))
def test_a_way_is_allowed_just_where_the_exact_model_has_it(index):
    case = agreement.Case.drawn(3, index)
    machine, ways = case.topology, Shortest(case.topology)
    listed = Counter((r.src, r.dst, len(r.via) + 1) for r in machine.network().routes)
    nodes = machine.ranks + len(machine.switches)
    for a, b, links in product(range(machine.ranks), range(machine.ranks), range(1, nodes + 1)):
        if a != b and (links > 1 or listed[a, b, 1]):
            assert ways.allows(a, b, links) == bool(listed[a, b, links])
    parts = set()  # of listed ways: what they begin with, and end with
    place = {name: machine.ranks + i for i, name in enumerate(machine.switches)}
    for route in machine.network().routes:
        stops = [route.src, *(place[s] for s in route.via), route.dst]
        parts |= {(stops[i], stops[j], j - i) for i, j in product(range(len(stops)), repeat=2) if i < j and len(stops) > 2}
    for a, b, links in product(range(nodes), range(nodes), range(1, nodes + 1)):
        if a != b and max(a, b) >= machine.ranks:
            assert ways.allows(a, b, links) >= ((a, b, links) in parts)

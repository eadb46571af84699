"""Schedules of all methods take links and the shortest ways through switches, so that none lies below a complete exact
frontier."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest

from bench import agreement, small
from bench.spanning_forest_check import verify
from synth.model.frontier import Frontier
from synth.scale import search
from synth.scale.fabric.fabric import fabric
from synth.scale.fabric.shortest_paths import ShortestPaths
from synth.scale.forests.build import build
from synth.topologies import topology


def test_both_engines_answer_alike_where_longer_ways_exist(monkeypatch):
    monkeypatch.setattr(agreement, "SECONDS", None)
    case = agreement.Case.drawn(1, 0)  # a broadcast: 1/3 over shortest ways, 1/4 over all
    points, _, exact = case.compare_exact()
    found, _ = case.compare_flow()
    assert isinstance(exact, Frontier) and exact.complete and not case.wrong
    assert min(p[2] for p in found) >= min(p[2] for p in points) == Fraction(1, 3)


@pytest.mark.parametrize("index", [5, 342, 378])
def test_schedules_stay_on_shortest_ways_where_longer_ones_are_faster(monkeypatch, index):
    monkeypatch.setattr(agreement, "SECONDS", None)
    case = agreement.Case.drawn(0, index)
    least, bound = (small.infimum(case.truth, case.name, case.root, every=every) for every in (False, True))
    assert least is not None and bound is not None and least > bound + 0.1
    found, proved = case.compare_flow()  # replayed, and held against both
    assert not case.wrong and found and float(proved[0][2]) <= bound + 1e-9


@pytest.mark.parametrize("name", ["fat-tree:8", "fat-tree:16", "fat-tree:16:levels=3", "fat-tree:16:leaf=2"])
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_trees_in_a_fat_tree_reach_the_bound_over_shortest_ways(name, collective):
    machine = topology(name)
    for root in (0, 3):
        built = build(fabric(machine), collective, root)
        assert verify(built.forest).time == built.forest.time and built.gap == 0
        search.frontier(machine, collective, root).points[-1].schedule.written_out()  # refuses other ways


@pytest.mark.parametrize("index", range(0, 60, 4))
def test_a_way_is_allowed_just_where_the_exact_model_has_it(index):
    case = agreement.Case.drawn(3, index)
    machine, ways = case.topology, ShortestPaths(case.topology)
    listed = Counter((r.src, r.dst, len(r.via) + 1) for r in machine.network().routes)
    nodes = machine.ranks + len(machine.switches)
    for a, b, links in product(range(machine.ranks), range(machine.ranks), range(1, nodes + 1)):
        if a != b and (links > 1 or listed[a, b, 1]):
            assert ways.allows(a, b, links) == bool(listed[a, b, links])
    parts = set()  # of listed ways: what they begin with, and end with
    place = {name: machine.ranks + i for i, name in enumerate(machine.switches)}
    for route in machine.network().routes:
        stops = [route.src, *(place[s] for s in route.via), route.dst]
        parts |= {
            (stops[i], stops[j], j - i) for i, j in product(range(len(stops)), repeat=2) if i < j and len(stops) > 2
        }
    for a, b, links in product(range(nodes), range(nodes), range(1, nodes + 1)):
        if a != b and max(a, b) >= machine.ranks:
            assert ways.allows(a, b, links) >= ((a, b, links) in parts)

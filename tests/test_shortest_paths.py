"""Schedules of all methods take links and the shortest ways through switches, so that none lies below a complete exact
frontier."""

import json
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product
from random import Random

import pytest
from spanning_forest_check import verify

from synth.commands import api
from synth.model.documents.file_reader import parse_json
from synth.model.topology import Topology
from synth.scale import search
from synth.scale.fabric.fabric import fabric
from synth.scale.fabric.shortest_paths import ShortestPaths
from synth.scale.forests.build import build
from synth.topologies import topology
from synth.topologies.topology_files import from_document

# Links "a b width", both ways if it ends in "=", and limits ("a>b ...", width) of machines on which ways longer than
# the shortest would be faster; with the least rounds per chunk of a collective over the shortest ways, and over all.
DETOURS = [
    (
        ["0 s0 4=", "1 s0 1=", "s0 s1 1=", "s1 s2 4=", "1 s1 2", "0 1 2", "s1 1 2"],
        [("1>s1 s0>1 s2>s1 s1>s0", 3)],
        ("broadcast", Fraction(1, 3), Fraction(1, 4)),
    ),
    (
        ["0 s0 4=", "1 s0 4=", "2 s0 2=", "3 s0 1=", "s0 s1 1=", "1 2 3", "3 s1 3"],
        [],
        ("reduce-scatter", Fraction(3), Fraction(3, 2)),
    ),
    (
        ["0 s0 4=", "1 2 4=", "2 s0 2=", "3 s0 1=", "s0 s1 2=", "s1 3 3="],
        [("2>s0 s0>s1 s0>3", 4)],
        ("reduce", Fraction(1), Fraction(1, 2)),
    ),
    (
        ["0 s1 2=", "1 s0 1=", "2 s1 1=", "s0 s1 3=", "s0 2 4=", "2 1 2"],
        [("s0>1 2>s0 2>s1", 2)],
        ("allgather", Fraction(4, 3), Fraction(1)),
    ),
]


def end(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def read(doc: dict) -> Topology:
    return from_document(parse_json(json.dumps(doc), "random"), "random")


@pytest.mark.parametrize(("links", "limits", "known"), DETOURS, ids=[row[2][0] for row in DETOURS])
def test_schedules_stay_on_shortest_ways_where_longer_ones_are_faster(links, limits, known):
    """The complete exact frontier ends at the optimum over the shortest ways; the bound of flows, which holds for all
    ways, is below it, and no schedule of theirs is."""
    rows = []
    for text in links:
        a, b, width = text.split()
        rows.append({"src": end(a), "dst": end(b), "bandwidth": int(width.rstrip("=")), "both": width.endswith("=")})
    names = sorted({word for text in links for word in text.split()[:2] if not word.isdigit()})
    shared = []
    for k, (pairs, width) in enumerate(limits):
        ends = [[end(word) for word in pair.split(">")] for pair in pairs.split()]
        shared.append({"name": f"limit {k}", "links": ends, "bandwidth": width})
    ranks = len({word for text in links for word in text.split()[:2] if word.isdigit()})
    machine = read({"name": "m", "ranks": ranks, "switches": names, "links": rows, "limits": shared})
    name, least, over_all = known
    roots = (0,) if name in ("broadcast", "reduce") else ()
    found = api.frontier(machine, name, roots=roots, engine="flow", time_limit=20, jobs=1)
    assert found.bound <= over_all
    assert min(point.rounds_per_chunk for point in found.points) >= least
    exact = api.frontier(machine, name, roots=roots, engine="exact", time_limit=20, jobs=1)
    assert exact.points[-1].rounds_per_chunk == least and exact.complete


@pytest.mark.parametrize("name", ["fat-tree:8", "fat-tree:16", "fat-tree:16:leaf=2"])
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_trees_in_a_fat_tree_reach_the_bound_over_shortest_ways(name, collective):
    machine = topology(name)
    for root in (0, 3):
        built = build(fabric(machine), collective, root)
        assert verify(built.forest).time == built.forest.time and built.gap == 0
        search.frontier(machine, collective, root).points[-1].schedule.written_out()  # refuses other ways


def random_machine(rng: Random) -> Topology:
    """Return a machine whose ranks hang on switches or form a ring, with a few more links."""
    ranks, count = rng.choice((2, 3, 3, 4, 4, 5)), rng.choice((0, 1, 1, 1, 2, 2, 3))
    switches = [f"s{i}" for i in range(count)]
    pairs: list[tuple[int | str, int | str, bool]] = []
    for rank in range(ranks):
        if switches and rng.random() < 0.85:
            pairs.append((rank, rng.choice(switches), rng.random() < 0.9))
        else:
            pairs.append((rank, (rank + 1) % ranks, rng.random() < 0.8))
    pairs += [(a, b, rng.random() < 0.9) for a, b in pairwise(switches)]
    for _ in range(rng.randint(0, 3)):
        a, b = rng.sample([*range(ranks), *switches], 2)
        pairs.append((a, b, rng.random() < 0.4))
    links = [{"src": a, "dst": b, "bandwidth": rng.randint(1, 4), "both": both} for a, b, both in pairs]
    return read({"name": "random", "ranks": ranks, "switches": switches, "links": links})


@pytest.mark.parametrize("index", range(0, 60, 4))
def test_a_way_is_allowed_just_where_the_exact_model_has_it(index):
    machine = random_machine(Random(f"3 {index}"))
    ways = ShortestPaths(machine)
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

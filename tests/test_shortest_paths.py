"""Schedules of all methods take links and the shortest ways through switches, so that none lies below a complete exact
frontier."""

import functools
import itertools
import json
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product
from random import Random

import pytest
from spanning_forest_check import verify

from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings import bounds
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.documents.file_reader import parse_json
from synth.model.frontier import Frontier
from synth.model.outcome import Sat
from synth.model.topology import Link, Topology
from synth.runtime.link_schedule import LinkSchedule
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


# ---------------------------------------------------------------- links beside switches: exact synthesis uses both


SWITCH, ROOT = 4, 6


def both_ways(a: int, b: int, width: int) -> list[Link]:
    return [Link(a, b, Fraction(width), Fraction(1)), Link(b, a, Fraction(width), Fraction(1))]


def hybrid() -> Topology:
    """Four GPUs in a ring of 48 GB/s links; two by two on PCIe switches of 12 GB/s, which hang on one root."""
    ring = [both_ways(i, (i + 1) % 4, 48) for i in range(4)]
    pcie = [both_ways(i, SWITCH + i // 2, 12) for i in range(4)] + [both_ways(SWITCH + s, ROOT, 12) for s in range(2)]
    return Topology("hybrid", 4, tuple(itertools.chain(*ring, *pcie)), (), ("plx0", "plx1", "root"))


MACHINE = hybrid()
NETWORK = MACHINE.network()


@functools.cache
def frontier() -> Frontier:
    return api.frontier(MACHINE, "allgather", engine="exact", max_steps=2, jobs=1)


def test_a_way_through_switches_stands_beside_a_link():
    ways = {(r.src, r.dst): {q.via for q in NETWORK.routes if (q.src, q.dst) == (r.src, r.dst)} for r in NETWORK.routes}
    assert ways[0, 1] == {(), ("plx0",)}
    assert ways[1, 2] == {(), ("plx0", "root", "plx1")}
    assert ways[0, 2] == {("plx0", "root", "plx1")}  # no link; and no longer way than that


def test_the_bounds_of_exact_synthesis_and_of_flows_agree():
    exact = bounds.flow(NETWORK, collective("allgather", 4), None)
    assert exact.value == search.frontier(MACHINE, "allgather", 0).bound == Fraction(1, 3)


def test_exact_synthesis_uses_links_and_switches_and_its_frontier_verifies():
    found = frontier()
    best = found.points[-1]
    assert best.status == "optimal"
    assert best.rounds_per_chunk < Fraction(6, 17)  # the least with links alone where there are links
    used = {(s.src, s.dst, s.via) for step in best.schedule.steps for s in step.sends}
    assert any(via and (src, dst, ()) in used for src, dst, via in used)
    api.verify(found)


def test_the_same_message_through_the_narrow_switch_is_too_much_for_it():
    document = frontier().points[-1].schedule.to_json()
    replay.schedule(document)
    for step in document["steps"]:
        step["sends"] = [[*row, ["plx0"]] if row[1:3] == [0, 1] and len(row) == 4 else row for row in step["sends"]]
    with pytest.raises(VerificationError, match=r"carries \d+ chunks"):
        replay.schedule(document)


def test_a_program_keeps_to_the_way_of_each_send():
    links = LinkSchedule(NETWORK)
    for channel in range(3):
        assert links.keys[links.route(0, 1, channel)] == (0, 1, ())  # what names no switch goes straight
        assert links.keys[links.route(0, 1, channel, ("plx0",))] == (0, 1, ("plx0",))


def test_ranks_that_all_have_links_have_the_switch_beside():
    pair = Topology("pair", 2, tuple(both_ways(0, 1, 1) + both_ways(0, 2, 1) + both_ways(1, 2, 1)), (), ("s",))
    assert {r.via for r in pair.network().routes} == {(), ("s",)}
    assert isinstance(api.solve(pair, "allgather", 2, 1, 1, jobs=1), Sat)


def test_what_flow_methods_find_there_is_an_ordinary_schedule():
    point = search.frontier(MACHINE, "allgather", 0).points[2]
    assert replay.schedule(point.schedule.written_out()).rounds_per_chunk == point.rounds_per_chunk

"""Machines, families and clusters: known sizes, degrees, distances, capacities, units, symmetries; the grammar of
names."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.commands import api
from synth.errors import UsageError
from synth.model.symmetry.permutations import orbits
from synth.model.topology import Cap, Limit, Link, Network, Topology
from synth.topologies import ALIASES, FAMILIES, MACHINES, summaries, topology
from synth.topologies.builders import preserves
from tests.automorphisms import route_permutation


def capacity(network: Network, rank: int, into: bool) -> int:
    """Units that can enter (or leave) a rank: the caps that lie wholly on its routes, and the routes under none of
    them."""
    routes = set(network.into[rank] if into else network.out[rank])
    total = 0
    for cap in network.caps:
        if set(cap.routes) <= routes:
            total += cap.units
            routes -= set(cap.routes)
    return total + sum(network.routes[i].units for i in routes)


# name, ranks, rank-to-rank routes, units into each rank, diameter, GB/s of a unit
KNOWN = [
    ("dgx1", 8, 32, {6}, 2, 25),
    ("dgx1-p100", 8, 32, {4}, 2, 20),
    ("dgx2", 16, 240, {1}, 1, 150),
    ("dgx-a100", 8, 56, {1}, 1, 300),
    ("dgx-h100", 8, 56, {1}, 1, 450),
    ("dgx-h200", 8, 56, {1}, 1, 450),
    ("gb200-nvl72", 72, 5112, {1}, 1, 900),
    ("mi50-z52", 8, 16, {2}, 4, 24),
    ("mi100-4p3l", 8, 56, {4}, 1, 24),
    ("mi250", 16, 56, {7}, 5, 50),
    ("mi300x", 8, 56, {7}, 1, 64),
    ("ring:8", 8, 16, {2}, 4, 1),
    ("ring:2", 2, 2, {1}, 1, 1),
    ("line:5", 5, 8, {1, 2}, 4, 1),
    ("star:6", 6, 10, {1, 5}, 2, 1),
    ("fully-connected:8", 8, 56, {7}, 1, 1),
    ("switch:8:units=12", 8, 56, {1}, 1, 12),
    ("hypercube:16", 16, 64, {4}, 4, 1),
    ("mesh:8x8", 64, 224, {2, 3, 4}, 14, 1),
    ("torus:4x4", 16, 64, {4}, 4, 1),
    ("torus:2x4", 8, 24, {3}, 3, 1),
    ("torus:3x3x3", 27, 162, {6}, 3, 1),
    ("circulant:16:offsets=1+3", 16, 64, {4}, 4, 1),
    ("circulant:8:offsets=1+4", 8, 24, {3}, 2, 1),
    ("random-regular:16:degree=3,seed=7", 16, 48, {3}, None, 1),
    ("dragonfly:9x4", 36, 180, {5}, 3, 1),
    ("rail:2x4", 8, 32, {10}, 2, 1),
    ("rail:4x2", 8, 32, {10}, 2, 1),
    ("dgx1*2:cross=0+2+5+7", 16, 72, {6, 7}, 3, 25),
    ("dgx1*3:cross=0", 24, 102, {6, 8}, 5, 25),
    ("dgx-a100*2", 16, 240, {13}, 1, 25),
    ("dgx-a100*4:net=odd-even", 32, 608, {13}, 2, 25),
    ("dgx-h100*2:net=rail", 16, 128, {10}, 2, 50),
    ("ring:4*2", 8, 48, {3}, 2, 1),
    ("ring:8:units=3/2,latency=5", 8, 16, {2}, 4, Fraction(3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ranks", "routes", "units", "diameter", "unit"), KNOWN, ids=[row[0] for row in KNOWN])
def test_known_machines(name, ranks, routes, units, diameter, unit):
    network = topology(name).network()
    assert (network.ranks, len(network.routes), network.unit) == (ranks, routes, unit)
    assert {capacity(network, r, True) for r in range(ranks)} == units
    assert {capacity(network, r, False) for r in range(ranks)} == units
    far = {d for row in network.distances for d in row}
    assert None not in far
    if diameter is not None:
        assert max(d for d in far if d is not None) == diameter


def test_every_name_is_listed_once_with_a_summary():
    names = [name for name, _ in summaries()]
    assert len(set(names)) == len(names) == len(MACHINES) + len(FAMILIES)
    assert set(ALIASES.values()) <= set(names)
    assert not set(ALIASES) & set(names)


def test_the_published_links_of_two_machines():
    dgx1 = {(k.src, k.dst): int(k.bandwidth / 25) for k in topology("dgx1").links}
    assert (dgx1[0, 1], dgx1[0, 2], dgx1[0, 4], dgx1[6, 7]) == (2, 1, 2, 2)
    assert (0, 5) not in dgx1
    assert all(dgx1[b, a] == n for (a, b), n in dgx1.items())
    mi250 = {(k.src, k.dst): int(k.bandwidth / 50) for k in topology("mi250").links}
    assert (mi250[0, 1], mi250[4, 0], mi250[14, 15], mi250[9, 2]) == (4, 2, 4, 1)


def test_z52_is_a_ring_of_eight_along_the_links_of_its_hives():
    machine = topology("mi50-z52")
    inside = {frozenset((k.src, k.dst)) for k in machine.links if k.kind == "xgmi"}
    assert inside == {frozenset(e) for e in ((0, 1), (1, 3), (3, 2), (6, 7), (7, 5), (5, 4))}
    across = {frozenset((k.src, k.dst)) for k in machine.links if k.kind == "pcie"}
    assert across == {frozenset((2, 6)), frozenset((0, 4))}


@pytest.mark.parametrize(
    ("name", "word"), [("h100", "NVLS"), ("h200", "NVLS"), ("nvl72", "NVLS"), ("mi100", "24 GB/s"), ("z52", "24 GB/s")]
)
def test_what_lies_outside_the_model_is_noted(name, word):
    assert any(word in note for note in topology(name).notes)
    assert topology(f"{name}*2").notes == topology(name).notes


# Machines whose symmetries move every rank to every other, and others.
TRANSITIVE = """
dgx1-p100 dgx2 mi50-z52 mi300x ring:9 hypercube:32 torus:4x6 torus:2x2x3 circulant:10:offsets=2+5
fat-tree:16 rail:3x4 dgx-a100*4 dgx-a100*3:net=rail dgx-a100*2:net=odd-even
"""
OTHERS = """
dgx1 dgx-h100 mi100-4p3l mi250 line:5 star:5 mesh:3x3x2 fully-connected:5 switch:6 torus:2x3x3
circulant:12:offsets=1+3 dragonfly:9x4 dragonfly:5x2 fat-tree:8:leaf=4,spines=1
dgx1*2:cross=0+2+5+7 dgx1*3:cross=0+1 dgx1*2 mi250*2 ring:4*3
"""


@pytest.mark.parametrize("name", f"{TRANSITIVE} {OTHERS}".split())
def test_declared_symmetries_are_automorphisms(name):
    machine = topology(name)
    network = machine.network()
    assert machine.generators
    for pi in machine.generators:
        assert sorted(pi) == list(range(machine.ranks))
        assert pi != tuple(range(machine.ranks))
        if machine.switches:
            assert route_permutation(network, pi) is not None
            continue
        units = {(r.src, r.dst): r.units for r in network.routes}
        assert {(pi[a], pi[b]): n for (a, b), n in units.items()} == units
        ends = [(route.src, route.dst) for route in network.routes]
        caps = {(frozenset(map(ends.__getitem__, cap.routes)), cap.units) for cap in network.caps}
        assert {(frozenset((pi[a], pi[b]) for a, b in c), n) for c, n in caps} == caps
    if name in TRANSITIVE.split():
        assert orbits(machine.ranks, machine.generators) == [0] * machine.ranks


@given(st.permutations(range(8)))
@settings(max_examples=150, deadline=None)
def test_only_automorphisms_of_dgx1_are_accepted(pi):
    units = {(k.src, k.dst): k.bandwidth for k in topology("dgx1").links}
    assert preserves(topology("dgx1"), pi) == ({(pi[a], pi[b]): n for (a, b), n in units.items()} == units)


def test_limits_and_switches_follow_the_ranks():
    for name, kept, others in (
        ("ring:4*2:nics=2", ["23014567"], ["12304567", "00123456", "012"]),
        ("fat-tree:8:leaf=2,spines=2", ["23014567", "10234567"], ["21034567"]),
    ):
        for digits in (*kept, *others):
            assert preserves(topology(name), [int(digit) for digit in digits]) == (digits in kept)


def test_hypercube_and_torus_links():
    for k in topology("hypercube:32").links:
        assert (k.src ^ k.dst).bit_count() == 1
    for k in topology("torus:4x5").links:
        rows, columns = (k.src // 5 - k.dst // 5) % 4, (k.src % 5 - k.dst % 5) % 5
        assert (rows in (1, 3) and columns == 0) or (rows == 0 and columns in (1, 4))


def test_star_has_rank_0_in_the_centre_and_the_hub_is_no_rank():
    assert all(0 in (k.src, k.dst) for k in topology("star:5").links)
    hub = topology("hub-and-spoke:5")
    assert max(d for row in hub.network().distances for d in row if d is not None) == 1
    assert {m.bandwidth for m in hub.limits} == {1}


@given(st.integers(4, 24), st.integers(2, 5), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_random_regular_graphs_are_regular_connected_and_repeatable(n, degree, seed):
    if degree >= n or n * degree % 2:
        with pytest.raises(UsageError):
            topology(f"random-regular:{n}:degree={degree},seed={seed}")
        return
    name = f"random-regular:{n}:degree={degree},seed={seed}"
    network = topology(name).network()
    assert all(len(out) == degree for out in network.out)
    assert all(d is not None for row in network.distances for d in row)
    assert topology(name) == topology(name)


def test_random_regular_is_the_same_on_every_platform():
    edges = sorted((k.src, k.dst) for k in topology("random-regular:6:degree=3,seed=1").links if k.src < k.dst)
    assert edges == [(0, 1), (0, 2), (0, 5), (1, 3), (1, 5), (2, 3), (2, 4), (3, 4), (4, 5)]


@pytest.mark.parametrize(("groups", "size"), [(2, 1), (3, 2), (5, 2), (9, 4), (4, 4), (7, 3)])
def test_every_two_groups_of_a_dragonfly_share_one_link(groups, size):
    machine = topology(f"dragonfly:{groups}x{size}")
    across = [(k.src // size, k.dst // size) for k in machine.links if k.src // size != k.dst // size]
    assert sorted(across) == [(a, b) for a in range(groups) for b in range(groups) if a != b]


def test_a_fat_tree_has_its_switches():
    two = topology("fat-tree:16")
    assert two.switches == ("leaf0", "leaf1", "leaf2", "leaf3", "spine0", "spine1", "spine2", "spine3")
    network = two.network()
    between = [r for r in network.routes if (r.src, r.dst) == (0, 15)]
    assert {r.via for r in between} == {("leaf0", f"spine{s}", "leaf3") for s in range(4)}
    assert [r.via for r in network.routes if (r.src, r.dst) == (0, 1)] == [("leaf0",)]


# name, GB/s of a unit, units of a link inside a box, units of a NIC
UNITS = [
    ("dgx1*2", Fraction(25, 2), {2, 4}, 1),
    ("dgx1*2:nic=25", 25, {1, 2}, 1),
    ("dgx1*2:nic=10", 5, {5, 10}, 2),
    ("dgx-a100*2", 25, {12}, 1),
    ("dgx-h100*2", 50, {9}, 1),
    ("mi250*2", 2, {25, 50, 100}, 8),
    ("dgx2*2", Fraction(25, 2), {12}, 1),
]


@pytest.mark.parametrize(("name", "unit", "inside", "nic"), UNITS, ids=[row[0] for row in UNITS])
def test_the_unit_is_the_greatest_common_divisor_of_all_bandwidths(name, unit, inside, nic):
    machine = topology(name)
    network = machine.network()
    assert network.unit == unit
    kinds = {(k.src, k.dst): k.kind for k in machine.links}
    assert {r.units for r in network.routes if kinds[r.src, r.dst] != "net"} == inside
    assert {r.units for r in network.routes if kinds[r.src, r.dst] == "net"} == {nic}


# Limits of NICs: how many of how many links and GB/s. Two boxes on rails: one link per NIC, which needs no limit.
NICS = [
    ("dgx1*2:nic=13", 4, 64, 13),
    ("dgx1*3:nic=13", 6, 128, 13),
    ("dgx-a100*2", 32, 8, 25),
    ("dgx-a100*4:net=rail", 64, 3, 25),
    ("dgx-a100*2:net=rail", 0, 1, 25),
    ("dgx-a100*2:net=odd-even", 32, 4, 25),
    ("dgx1*2:nic=25,nics=4", 16, 16, 25),
]


@pytest.mark.parametrize(("name", "count", "links", "bandwidth"), NICS)
def test_nics_are_shared_as_the_machine_shares_them(name, count, links, bandwidth):
    found = [(len(m.links), m.bandwidth) for m in topology(name).limits if m.name.startswith("NIC")]
    assert found == [(links, bandwidth)] * count


def test_nets_and_cross_wires_join_the_pairs_they_say():
    def across(name: str) -> set[tuple[int, int]]:
        return {(k.src, k.dst) for k in topology(name).links if k.src // 8 != k.dst // 8}

    pairs = {(a, b) for a in range(16) for b in range(16) if a // 8 != b // 8}
    assert across("dgx-a100*2") == pairs
    assert across("dgx-a100*2:net=rail") == {(a, b) for a, b in pairs if a % 8 == b % 8}
    assert across("dgx-a100*2:net=odd-even") == {(a, b) for a, b in pairs if a % 2 == b % 2}
    assert across("dgx1*2:cross=0+5") == {(0, 8), (8, 0), (5, 13), (13, 5)}
    assert across("dgx1*4:cross=3") == {(b * 8 + 3, (b + d) % 4 * 8 + 3) for b in range(4) for d in (1, 3)}
    assert {k.kind for k in topology("dgx-a100*2").links if k.src // 8 != k.dst // 8} == {"net"}
    joined = topology("dgx1*2:cross=0+2+5+7")
    assert not joined.limits and joined.nodes == (0,) * 8 + (1,) * 8


SAME = [
    ("DGX1", "dgx1-v100"),
    ("ndv2", "dgx1-v100"),
    ("Dgx_A100*2", "dgx-a100*2"),
    ("Fully_Connected:4", "fully-connected:4"),
    ("complete:4", "fully-connected:4"),
    (" torus:4X4 ", "torus:4x4"),
    ("torus:04x4", "torus:4x4"),
    ("dgx1*2:cross=0+2", "dgx1-v100*2:cross=0+2"),
    ("dgx1*1", "dgx1-v100"),
    ("dgx-h100x2", "dgx-h100*2"),
    ("DGX1x2:cross=0+2", "dgx1*2:cross=0+2"),
    ("pcie-4x2x3", "pcie-4x2*3"),
    ("pcie-8x2", "pcie-8*2"),
    ("mi300xX2", "mi300x*2"),
    (" ring:4 * 2:nic=25 ", "ring:4*2:nic=25"),
]


@pytest.mark.parametrize(("written", "meant"), SAME)
def test_spellings(written, meant):
    one, other = topology(written), topology(meant)
    assert one.network().routes == other.network().routes
    if "*1" not in written:
        assert one == other


def test_a_number_of_boxes_after_an_x_hides_no_name():
    from synth.topologies.name_grammar import ALIASES, FAMILIES, MACHINES

    names = {*MACHINES, *FAMILIES, *ALIASES}
    assert "pcie-4x2" in names and topology("pcie-4x2").ranks == 8
    for name in names:
        stem, _, boxes = name.rpartition("x")
        assert not (boxes.isdecimal() and stem in names), f"{name} is a name and a number of boxes of {stem}"


BAD = [
    ("dgx-h100x0", "number of boxes"),
    ("dgx-h100x2*2", "unknown topology"),
    ("nonex2", "unknown topology"),
    ("dgx3", "did you mean"),
    ("tours:4x4", "did you mean torus"),
    ("zzz", "synth list topologies"),
    ("", "not of the form"),
    ("a:b:c:d", "not of the form"),
    ("ring:8:units", "not of the form"),
    ("ring", "needs a size"),
    ("ring:4x4", "needs a size"),
    ("ring:x", "numbers of ranks"),
    ("ring:-4", "numbers of ranks"),
    ("ring:1", "between 2 and"),
    ("ring:99999", "between 2 and"),
    ("torus:0x4", "between 2 and"),
    ("dgx1:8", "fixed size"),
    ("dgx1:units=2", "fixed size"),
    ("dgx1*0", "number of boxes"),
    ("dgx1*x", "number of boxes"),
    ("dgx1*99999", "in all are supported"),
    ("dgx1:cross=0", "clusters"),
    ("dgx1*2:cross=0+9", "distinct ranks"),
    ("dgx1*2:cross=0+0", "distinct ranks"),
    ("dgx1*2:cross=0,net=rail", "remove net="),
    ("dgx1*2:net=foo", "none of all"),
    ("dgx1*2:nick=25", "a cluster has no option 'nick'; it has cross, net, net-latency, nic, nics, over, pod"),
    ("dgx1*2:nic=-1", "positive"),
    ("dgx1*2:nic=nan", "not a number"),
    ("dgx1*2:nics=3", "divide"),
    ("ring:8:foo=1", "no option 'foo'"),
    ("ring:8:units=2,units=3", "given twice"),
    ("ring:8:units=0", "positive"),
    ("ring:8:units=1/0", "divides by zero"),
    ("ring:8:latency=-1", "must not be negative"),
    ("hypercube:12", "power of two"),
    ("fully-connected:2000", "at most"),
    ("switch:2000", "at most"),
    ("circulant:8:offsets=9", "from 1 to 7"),
    ("random-regular:5:degree=3", "no connected graph"),
    ("dragonfly:9", "groups x ranks"),
    ("rail:8", "boxes x ranks"),
    ("fat-tree:16:leaf=5", "does not divide"),
]


@pytest.mark.parametrize(("name", "words"), BAD, ids=[row[0] for row in BAD])
def test_a_bad_name_gets_one_line_that_says_what_is_wrong(name, words):
    with pytest.raises(UsageError) as caught:
        topology(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plug_in_adds_a_name(monkeypatch):
    from synth.model import registry

    monkeypatch.setattr(registry, "plugins", lambda kind: {"two": "somewhere:two"})
    monkeypatch.setattr(
        registry, "load", lambda target: lambda size=2, units="1": topology(f"ring:{size}:units={units}")
    )
    assert topology("two:5:units=3").links == topology("ring:5:units=3").links
    assert topology("two*2").ranks == 4
    with pytest.raises(UsageError, match="plug-in"):
        topology("two:color=red")


def test_generators_of_large_clusters_are_those_of_small_ones(monkeypatch):
    from synth.topologies import builders, clusters

    for name in ("dgx-a100*4", "mi250*3", "dgx-a100*4:net=odd-even", "torus:4x6"):
        slow = topology(name)
        monkeypatch.setattr(builders, "LARGE", 1)
        monkeypatch.setattr(clusters, "LARGE", 1)
        assert topology(name) == slow and slow.generators
        monkeypatch.undo()


def test_a_switch_that_joins_no_two_ranks_is_on_no_route():
    ends = [(0, 1), (1, 0), (0, 2), (2, 0)]  # rank 2 would be the third: here it is the switch
    made = Topology("pair and switch", 2, tuple(Link(a, b, Fraction(1)) for a, b in ends), (), ("s",))
    assert made.network().wires == ()
    assert api.solve(made, "allgather", 1, 1, 1, jobs=1).schedule.network == made.network()


def test_a_route_through_switches_is_as_narrow_and_as_late_as_its_links():
    """Of every route of a fat tree whose links are all unlike, and of the links that several routes cross."""
    tree, draws = topology("fat-tree:12:spines=2"), random.Random(3)
    links = []
    for link in tree.links:
        links.append(Link(link.src, link.dst, draws.randint(2, 9), Fraction(draws.randint(1, 9), draws.randint(2, 5))))
    network = replace(tree, links=tuple(links), generators=()).network()
    numbers = {name: tree.ranks + i for i, name in enumerate(tree.switches)}
    by_ends = {(link.src, link.dst): link for link in links}
    crossing: dict[tuple[int, int], list[int]] = {}
    for i, route in enumerate(network.routes):
        ways = list(pairwise([route.src, *map(numbers.__getitem__, route.via), route.dst]))
        assert route.units * network.unit == min(by_ends[way].bandwidth for way in ways)
        assert route.latency == sum(by_ends[way].latency for way in ways)
        for way in ways:
            crossing.setdefault(way, []).append(i)
    assert len(network.routes) == 12 * 2 + 12 * 9 * 2  # three ranks a leaf
    expected = []
    for ends, link in by_ends.items():
        expected.append(Cap(tuple(crossing[ends]), int(link.bandwidth / network.unit)))
    assert sorted(network.caps, key=str) == sorted(expected, key=str)


def test_a_document_of_a_network_is_the_readers_own():
    network = topology("fat-tree:8").network()
    doc, before = network.to_json(), json.dumps(network.document)
    row = next(row for row in doc["limits"][0]["links"])
    shared = [limit["links"] for limit in doc["limits"] if row in limit["links"]]
    assert len(shared) > 1
    row[0] = 99
    assert sum(row in rows for rows in shared) == 1
    assert json.dumps(network.document) == before
    assert Network.from_json(network.to_json()) == replace(network, generators=())


def test_a_limit_that_no_route_passes_limits_nothing():
    pairs = [(0, 2), (2, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    links = tuple(Link(a, b, Fraction(2)) for a, b in pairs)
    limits = (Limit("out", (0, 4), Fraction(3)), Limit("up", (4, 5), Fraction(1)))
    machine = Topology("leaf", 2, links, limits, switches=("leaf", "spine"))
    assert machine.network().caps == (Cap((0,), 3),)
    assert [(p.steps, p.rounds_per_chunk) for p in api.frontier(machine, "allreduce").points] == [(1, Fraction(1, 2))]


def test_a_topology_makes_its_network_once_and_sends_processes_none():
    """Schedules of one machine were written out on a network each, of 100,000 routes."""
    machine = topology("fat-tree:8")
    network = machine.network()
    assert machine.network() is network
    sent = pickle.loads(pickle.dumps(machine))
    assert "_network" not in vars(sent)
    assert sent == machine and sent.network() == network
    assert replace(machine, links=machine.links[:-1]).network() != network

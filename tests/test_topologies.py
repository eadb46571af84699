"""Machines, families and clusters: known sizes, degrees, distances, capacities, units, symmetries; the grammar of
names."""

import hashlib
import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.commands import api
from synth.errors import SynthError, UsageError
from synth.model.permutations import orbits
from synth.model.topology import Cap, Limit, Link, Network, Topology
from synth.topologies import ALIASES, FAMILIES, MACHINES, summaries, topology
from synth.topologies.builders import preserves
from tests.automorphisms import route_permutation
from tests.command_line import synth


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
    ("dgx2", 16, 240, {1}, 1, 150),
    ("mi50-z52", 8, 16, {2}, 4, 24),
    ("mi100-4p3l", 8, 56, {4}, 1, 24),
    ("line:5", 5, 8, {1, 2}, 4, 1),
    ("star:6", 6, 10, {1, 5}, 2, 1),
    ("switch:8:units=12", 8, 56, {1}, 1, 12),
    ("torus:2x4", 8, 24, {3}, 3, 1),
    ("dragonfly:9x4", 36, 180, {5}, 3, 1),
    ("rail:4x2", 8, 32, {10}, 2, 1),
    ("dgx1*2:cross=0+2+5+7", 16, 72, {6, 7}, 3, 25),
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
    assert max(d for d in far if d is not None) == diameter


# Machines and families; what they are stands in tests/golden/machines.txt, as `synth topo show` prints it.
SHOWN = """
dgx1 dgx1-p100 dgx2 dgx-a100 p4d dgx-h100 mi50-z52 mi100-4p3l mi250 mi300x mi355x pcie-2x4 pcie-4x2 pcie-8
ring:5 ring:2 line:5 star:6 hub-and-spoke:5 fully-connected:6 switch:4:units=12,multicast=local hypercube:8 mesh:3x4
torus:4x4 torus:2x4 torus:2x2x3 circulant:8:offsets=1+4 random-regular:6:degree=3,seed=1 dragonfly:5x2 dragonfly:4x4
fat-tree:16 fat-tree:8:leaf=4,spines=1 rail:2x4 ring:4*3:nics=2 dgx1*2 dgx1*2:nic=10 dgx1*2:nic=25,nics=4
dgx1*2:cross=0+2+5+7 dgx-a100*2:net=rail dgx-a100*2:net=odd-even ring:2*8:pod=2x2,over=2x4 p4d*2:pod=1,net-latency=75
examples/teccl/ndv2-x2.yaml
"""
# Of larger ones a digest alone.
DIGESTED = """
dgx-h200 dgx-b200 gb200-nvl72 dgx1*4:cross=3 dgx-a100*8:pod=2x2,over=2x4 dgx-a100*4:net=odd-even mi250*16 dgx-a100*16
dgx-h100*32:pod=4x2,over=2x8 torus:3x3x3 examples/teccl/ndv2-x4.yaml examples/teccl/dgx2-x2.yaml
"""


# Changed ones: allocations, slow and broken links and switches, whatever their order.
CHANGED = """
dgx1 --ranks 0,1,2,5,7
dgx1 --ranks 6,0-2
dgx2 --ranks 3,8,9
dgx2 --ranks 3,8
dgx1*3 --ranks 8-9,17
fat-tree:16 --ranks 0,5,15
dgx1 --without 0-1
dgx1 --without 0-4
dgx1 --degrade 0-3:1/2 --degrade 0-1:0.75
dgx1 --ranks 1,2,5,6 --without 5-6 --degrade 1-5:1/2
fat-tree:8:leaf=4,spines=2 --without leaf0-spine1 --without 0-leaf0
ring:6 --without 0-1
torus:4x4 --ranks 0-7
dgx-h100 --degrade 0:17/18
"""


def test_what_machines_and_families_are(golden, monkeypatch):
    """Links, limits, latencies and symmetries, as the command line prints them, and a digest of all fields."""
    monkeypatch.chdir(Path(__file__).parent.parent)
    texts = []
    for words in [*SHOWN.split(), *CHANGED.strip().splitlines(), *DIGESTED.split()]:
        document = synth(f"topo show {words} --format json").stdout
        shown = "" if words in DIGESTED.split() else synth(f"topo show {words}").stdout
        texts.append(f"# {words}: {hashlib.sha256(document.encode()).hexdigest()[:12]}\n{shown}")
    golden("machines.txt", "\n".join(texts))


def test_every_name_is_listed_once_with_a_summary():
    names = [name for name, _ in summaries()]
    assert len(set(names)) == len(names) == len(MACHINES) + len(FAMILIES)
    assert set(ALIASES.values()) <= set(names)
    assert not set(ALIASES) & set(names)


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
        assert route_permutation(network, pi) is not None
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


SAME = [
    ("DGX1", "dgx1-v100"), ("ndv2", "dgx1-v100"), ("Dgx_A100*2", "dgx-a100*2"),
    ("Fully_Connected:4", "fully-connected:4"), ("complete:4", "fully-connected:4"), (" torus:4X4 ", "torus:4x4"),
    ("torus:04x4", "torus:4x4"), ("dgx1*2:cross=0+2", "dgx1-v100*2:cross=0+2"), ("dgx1*1", "dgx1-v100"),
    ("dgx-h100x2", "dgx-h100*2"), ("DGX1x2:cross=0+2", "dgx1*2:cross=0+2"), ("pcie-4x2x3", "pcie-4x2*3"),
    ("pcie-8x2", "pcie-8*2"), ("mi300xX2", "mi300x*2"), (" ring:4 * 2:nic=25 ", "ring:4*2:nic=25"),
]  # fmt: skip


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
    ("switch:3:multicast=no", "own is 'no'"),
    ("circulant:8:offsets=9", "from 1 to 7"),
    ("random-regular:5:degree=3", "no connected graph"),
    ("dragonfly:9", "groups x ranks"),
    ("rail:8", "boxes x ranks"),
    ("fat-tree:16:leaf=5", "does not divide"),
    ("dgx-a100*4:pod=2,over=0", "at least 1"),
    ("dgx-a100*4:pod=2,over=-2", "at least 1"),
    ("dgx-a100*4:pod=2,over=2x2", "2 numbers instead of 1"),
    ("dgx-a100*4:pod=2,over=x", "over: "),
    ("dgx-a100*4:over=2", "say pod="),
    ("dgx-a100*4:pod=0", "divides the 4 boxes"),
    ("dgx-a100*4:pod=3", "divides the 4 boxes"),
    ("dgx-a100*4:pod=4", "divides the 4 boxes"),
    ("dgx-a100*8:pod=2x2x2", "one or two numbers"),
    ("dgx-a100*4:pod=2,net=rail", "remove net="),
    ("dgx1*2:cross=0,pod=2", "remove pod="),
    ("dgx-a100*2:net-latency=-1", "must not be negative"),
    ("dgx-a100*2:net-latency=nan", "net-latency: "),
    ("dgx-a100*2:net-latency=", "not of the form key=value"),
    ("dgx-a100*0:pod=2", "number of boxes"),
    ("p4d:4", "fixed size"),
    ("pcie-2x4:pod=2", "clusters"),
    ("pcie-3x3", "did you mean"),
]


@pytest.mark.parametrize(("name", "words"), BAD, ids=[row[0] for row in BAD])
def test_a_bad_name_gets_one_line_that_says_what_is_wrong(name, words):
    with pytest.raises(SynthError) as caught:
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

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.model.collective import collective
from synth.model.symmetry import closure, compose, generators, inverse, isomorphism, orbits, subgroups
from synth.model.topology import Cap, Link, Network, Route, Topology
from synth.topologies import topology
from tests.automorphisms import route_permutation


def network(ranks, units, caps=()):
    """From {(src, dst): units} and caps given by lists of pairs."""
    routes = tuple(Route(u, v, n) for (u, v), n in sorted(units.items()))
    index = {(r.src, r.dst): i for i, r in enumerate(routes)}
    return Network("test", ranks, routes, tuple(Cap(tuple(index[p] for p in pairs), n) for pairs, n in caps))


def both(ranks, edges, n=1):
    return network(ranks, {p: n for a, b in edges for p in ((a, b), (b, a))})


def known(name):
    """The machine of a name, without the symmetries that it declares."""
    return replace(topology(name).network(), generators=())


def wider(net, factor):
    routes = tuple(route._replace(units=factor * route.units) for route in net.routes)
    return replace(net, routes=routes, caps=tuple(Cap(cap.routes, factor * cap.units) for cap in net.caps))


def is_automorphism(net, g):
    """Checked from scratch: routes go where their ends go, with equal units; caps go onto caps."""
    if sorted(g.ranks) != list(range(net.ranks)) or sorted(g.routes) != list(range(len(net.routes))):
        return False
    for i, r in enumerate(net.routes):
        to = net.routes[g.routes[i]]
        if (to.src, to.dst, to.units) != (g.ranks[r.src], g.ranks[r.dst], r.units):
            return False
    before = Counter((tuple(sorted(c.routes)), c.units) for c in net.caps)
    return before == Counter((tuple(sorted(g.routes[i] for i in c.routes)), c.units) for c in net.caps)


def keeps(coll, g):
    return all(
        coll.pre[g.units[u]] == {g.ranks[r] for r in coll.pre[u]}
        and coll.post[g.units[u]] == {g.ranks[r] for r in coll.post[u]}
        for u in range(coll.units)
    )


def relabelled(net, pi, order=None):
    routes = [Route(pi[r.src], pi[r.dst], r.units, r.via, r.latency) for r in net.routes]
    order = order or list(range(len(routes)))
    place = {old: new for new, old in enumerate(order)}
    caps = tuple(Cap(tuple(place[i] for i in c.routes), c.units) for c in net.caps)
    return replace(net, routes=tuple(routes[i] for i in order), caps=caps, generators=())


# Machines, and the order of the group of each.
GROUPS = [
    *((known(name), order) for name, order in (("dgx1", 4), ("ring:8", 16), ("hypercube:8", 48), ("line:4", 2))),
    *((known(name), order) for name, order in (("torus:4x4", 384), ("torus:3x5", 60), ("switch:5", 120))),
    (known("hypercube:16"), 384),
    (network(6, {(i, (i + 1) % 6): 1 for i in range(6)}), 6),  # one way
    (network(4, {(i, (i + 1) % 4): 1 + (i == 0) for i in range(4)}), 1),  # one link is wide
]


@pytest.mark.parametrize(("net", "order"), GROUPS)
def test_the_search_finds_the_whole_group(net, order):
    found = generators(net)
    assert all(is_automorphism(net, g) for g in found)
    assert len(closure([g.ranks for g in found], 1000) or [()]) == order
    assert net.name != "switch:5" or len(found) == 2  # a symmetric group comes with few generators


def test_declared_generators_are_checked():
    net = replace(known("ring:6"), generators=((1, 2, 3, 4, 5, 0), (1, 0, 2, 3, 4, 5), (0, 0, 1, 2, 3, 4), (1, 2)))
    found = [g.ranks for g in generators(net)]
    assert (1, 2, 3, 4, 5, 0) in found
    assert len(closure(found, 100)) == 12


@pytest.mark.parametrize(
    ("name", "options", "order"),
    [
        *((name, {}, 384) for name in ("allgather", "alltoall", "reduce-scatter", "allreduce")),
        ("broadcast", {"roots": [3]}, 24), ("gather", {"roots": [0]}, 24), ("scan", {}, 1), ("alltonext", {}, 1),
        ("multi-broadcast", {"roots": [0, 15]}, 48), ("allgatherv", {"sizes": [2] + [1] * 15}, 24),
    ],
)  # fmt: skip
def test_collectives_keep_the_stabiliser(name, options, order):
    net, coll = known("hypercube:16"), collective(name, 16, **options)
    found = generators(net, coll)
    assert all(is_automorphism(net, g) and keeps(coll, g) for g in found)
    assert len(closure([g.ranks for g in found], 1000) or [()]) == order


def test_routes_through_switches_follow_the_switches():
    # Two switches, each rank wired to both; the wires of switch 1 are twice as wide.
    wires = [(r, s, width) for r in range(4) for s, width in ((4, 1), (5, 2))]
    links = tuple(Link(*ends, Fraction(width)) for r, s, width in wires for ends in ((r, s), (s, r)))
    net = Topology("two planes", 4, links, switches=("thin", "wide")).network()
    found = generators(net)
    assert all(is_automorphism(net, g) for g in found)
    assert len(closure([g.ranks for g in found], 100)) == 24
    assert all(net.routes[image].via == net.routes[i].via for g in found for i, image in enumerate(g.routes))


def test_switches_that_must_move_with_their_ranks():
    # Two leaves with two ranks each under one spine: exchanging the leaves exchanges the ranks.
    up = [(0, 4), (1, 4), (2, 5), (3, 5), (4, 6), (5, 6)]
    links = tuple(Link(u, v, Fraction(1)) for a, b in up for u, v in ((a, b), (b, a)))
    net = Topology("tree", 4, links, switches=("left", "right", "spine")).network()
    found = generators(net)
    assert len(closure([g.ranks for g in found], 100)) == 8
    assert all(is_automorphism(net, g) for g in found)


@pytest.mark.parametrize(
    ("name", "translations"),
    [("torus:4x4", 16), ("hypercube:16", 16), ("ring:16", 16), ("torus:3x5", 15), ("dgx1", 4), ("switch:8", 8)],
)
def test_subgroups_hold_the_semiregular_ones(name, translations):
    net = known(name)
    coll = collective("allgather", net.ranks)
    chain = subgroups(net, coll)
    assert chain[-1] == ()
    assert 2 <= len(chain) <= 8
    orders = []
    for group in chain:
        assert all(is_automorphism(net, g) and keeps(coll, g) for g in group)
        elements = closure([g.ranks for g in group], 1000) if group else [tuple(range(net.ranks))]
        if elements and all(all(pi[i] != i for i in range(net.ranks)) for pi in elements[1:]):
            orders.append(len(elements))
    assert max(orders) == translations
    partitions = [tuple(orbits(len(net.routes), [g.routes for g in group])) for group in chain]
    assert len(set(partitions)) == len(partitions)


def test_rooted_collectives_have_subgroups_too_and_machines_without_symmetry_the_trivial_one():
    chain = subgroups(known("torus:4x4"), collective("broadcast", 16))
    assert len(chain) >= 3
    assert all(g.ranks[0] == 0 for group in chain for g in group)
    assert subgroups(network(3, {(0, 1): 1, (1, 2): 2, (2, 0): 3})) == ((),)


def test_isomorphism_tells_near_misses():
    net = known("dgx1")
    assert isomorphism(net, known("ring:8")) is None
    cut = replace(net, routes=net.routes[1:])
    assert isomorphism(net, cut) is None
    # Two triangles and a hexagon have the same degrees.
    assert isomorphism(known("ring:6"), both(6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])) is None
    switch = known("switch:8")
    assert isomorphism(switch, wider(switch, 4)) == tuple(range(8))
    assert isomorphism(switch, known("fully-connected:8")) is None


@st.composite
def networks(draw):
    n = draw(st.integers(2, 5))
    pairs = [(u, v) for u in range(n) for v in range(n) if u != v]
    units = {p: draw(st.integers(1, 2)) for p in pairs if draw(st.booleans())}
    caps = []
    if units and draw(st.booleans()):
        some = st.lists(st.sampled_from(sorted(units)), min_size=1, max_size=3)
        caps = draw(st.lists(st.tuples(some, st.integers(1, 2)), max_size=3))
    return network(n, units, caps)


def brute(net):
    """Every automorphism, by trying all permutations."""
    found = []
    index = {(r.src, r.dst): i for i, r in enumerate(net.routes)}
    for pi in permutations(range(net.ranks)):
        image = [index.get((pi[r.src], pi[r.dst])) for r in net.routes]
        if None in image or any(net.routes[image[i]].units != r.units for i, r in enumerate(net.routes)):
            continue
        caps = Counter((tuple(sorted(image[i] for i in c.routes)), c.units) for c in net.caps)
        if caps == Counter((tuple(sorted(c.routes)), c.units) for c in net.caps):
            found.append(pi)
    return found


@settings(max_examples=150, deadline=None)
@given(networks(), st.data())
def test_against_brute_force(net, data):
    every = brute(net)
    found = generators(net)
    assert all(is_automorphism(net, g) for g in found)
    assert sorted(closure([g.ranks for g in found], 200) or [tuple(range(net.ranks))]) == sorted(every)
    root = data.draw(st.integers(0, net.ranks - 1))
    rooted = generators(net, collective("broadcast", net.ranks, roots=[root]))
    assert len(closure([g.ranks for g in rooted], 200) or [()]) == sum(pi[root] == root for pi in every)
    rep = orbits(net.ranks, [g.ranks for g in found])
    assert rep == [min(pi[r] for pi in every) for r in range(net.ranks)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_relabellings_are_found(data):
    net = known(data.draw(st.sampled_from(["dgx1", "hypercube:8", "torus:3x4", "switch:6", "ring:9"])))
    pi = data.draw(st.permutations(range(net.ranks)))
    order = data.draw(st.permutations(range(len(net.routes))))
    found = isomorphism(net, relabelled(net, pi, list(order)))
    assert found is not None
    assert route_permutation(net, compose(found, inverse(pi))) is not None


@settings(max_examples=60, deadline=None)
@given(networks(), networks(), st.data())
def test_isomorphism_against_brute_force(a, b, data):
    if data.draw(st.booleans()):
        b = relabelled(a, data.draw(st.permutations(range(a.ranks))))
    maps = []
    if a.ranks == b.ranks and len(a.routes) == len(b.routes) and len(a.caps) == len(b.caps):
        wanted = Counter(_described(b, range(b.ranks)))
        maps = [pi for pi in permutations(range(a.ranks)) if Counter(_described(a, pi)) == wanted]
    found = isomorphism(a, b)
    if found is None:
        assert not maps
    else:
        scaled = [_ratio(a), _ratio(b)]
        assert scaled[0] != scaled[1] or found == min(maps)


def _ratio(net):
    from math import gcd

    values = [r.units for r in net.routes] + [c.units for c in net.caps]
    return gcd(*values) if values else 1


def _described(net, pi):
    ends = [(pi[r.src], pi[r.dst]) for r in net.routes]
    rows = [(*ends[i], r.units) for i, r in enumerate(net.routes)]
    return rows + [(tuple(sorted(ends[i] for i in c.routes)), c.units) for c in net.caps]

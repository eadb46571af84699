"""Spanning-tree packings: the rate τ, the partition that proves it, and the trees that attain it."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.encodings import spanning_tree_packing
from synth.errors import SynthError
from synth.model.topology import Link, Network, Route, Topology
from synth.topologies import topology


def undirected(ranks, pairs):
    return Network("made", ranks, tuple(Route(*ends, units) for a, b, units in pairs for ends in ((a, b), (b, a))))


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("dgx1", "24/7"),
        ("ring:8", "8/7"),
        ("hypercube:8", "12/7"),
        ("fully-connected:8", "4"),
        ("line:5", "1"),
        ("star:6", "1"),
    ],
)
def test_known_rates(name, rate):
    network = topology(name).network()
    made = spanning_tree_packing.forest(network)
    assert str(made.rate) == rate
    assert spanning_tree_packing.partition_rate(network, made.partition) == made.rate


def test_a_weak_pair_decides():
    made = spanning_tree_packing.forest(undirected(4, [(0, 1, 2), (1, 2, 1), (0, 2, 1), (2, 3, 1)]))
    assert made.rate == 1
    assert made.partition[3] not in made.partition[:3]


@st.composite
def networks(draw):
    ranks = draw(st.integers(2, 6))
    order = draw(st.permutations(range(ranks)))
    pairs = {tuple(sorted(pair)) for pair in pairwise(order)}
    pairs |= {(a, b) for a in range(ranks) for b in range(a + 1, ranks) if draw(st.booleans())}
    return undirected(ranks, [(a, b, draw(st.integers(1, 3))) for a, b in sorted(pairs)])


def partitions(ranks):
    """All ways to put ranks into parts, as tuples of part names."""
    made = [(0,)]
    for _ in range(1, ranks):
        made = [(*p, k) for p in made for k in range(max(p) + 2)]
    return [p for p in made if max(p)]


def check_trees(made):
    """Each tree spans the ranks, and all together take no pair more often than its units times the denominator."""
    network = made.network
    used = Counter()
    for tree in made.trees:
        assert all(tree.depth(rank) < network.ranks for rank in range(network.ranks))
        used.update(tuple(sorted((n, tree.parents[n]))) for n in range(network.ranks) if n != tree.root)
    units = Counter()
    for route in network.routes:
        units[route.src, route.dst] += route.units
    assert all(count <= units[pair] * made.rate.denominator for pair, count in used.items())
    assert len(made.trees) == made.rate.numerator


@settings(max_examples=40, deadline=None)
@given(networks())
def test_the_rate_is_the_least_over_all_partitions_and_is_attained(network):
    made = spanning_tree_packing.forest(network)
    assert made.rate == min(spanning_tree_packing.partition_rate(network, p) for p in partitions(network.ranks))
    check_trees(made)


def test_one_way_links_are_refused():
    network = Network("one way", 3, (Route(0, 1, 1), Route(1, 2, 1), Route(2, 0, 1)))
    with pytest.raises(SynthError, match="same units both ways"):
        spanning_tree_packing.forest(network)


def test_a_partition_has_two_parts():
    with pytest.raises(SynthError, match="two parts"):
        spanning_tree_packing.partition_rate(undirected(2, [(0, 1, 1)]), (0, 0))


def test_pairs_that_are_joined_through_several_switches_have_the_units_of_all():
    pairs = [(0, 3, 1), (3, 2, 1), (0, 4, 1), (4, 1, 1), (0, 5, 1), (5, 1, 1), (1, 2, 2)]
    links = [Link(*ends, Fraction(n)) for a, b, n in pairs for ends in ((a, b), (b, a))]
    made = spanning_tree_packing.forest(Topology("made", 3, links, switches=("s0", "s1", "s2")).network())
    assert made.rate == Fraction(5, 2)
    check_trees(made)


def test_a_line_of_unlike_links_is_packed_by_its_weakest():
    """No more trees than the weak links let through; a tree for each unit of all links would take minutes."""
    widths = (Fraction(127, 10), Fraction(7, 3), Fraction(11, 10), Fraction(3))
    links = [Link(*ends, width) for a, width in enumerate(widths) for ends in ((a, a + 1), (a + 1, a))]
    made = spanning_tree_packing.forest(Topology("line", 5, tuple(links)).network())
    assert (made.rate, len(made.trees)) == (33, 33)

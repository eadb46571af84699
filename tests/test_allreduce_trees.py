"""Spanning-tree packings: the rate τ, the partition that proves it, and pipelined schedules."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.schedule import replay
from synth.encodings import spanning_tree_packing
from synth.errors import SynthError
from synth.model.collective import collective
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import Link, Network, Route, Topology
from synth.topologies import topology


def undirected(ranks, pairs):
    return Network("made", ranks, tuple(Route(*ends, units) for a, b, units in pairs for ends in ((a, b), (b, a))))


@pytest.mark.parametrize(("name", "rate"), [
    ("dgx1", "24/7"), ("ring:8", "8/7"), ("hypercube:8", "12/7"), ("fully-connected:8", "4"), ("line:5", "1"),
    ("star:6", "1"),
])  # fmt: skip
def test_known_rates(name, rate):
    network = topology(name).network()
    made = spanning_tree_packing.forest(network)
    assert str(made.rate) == rate
    assert spanning_tree_packing.partition_rate(network, made.partition) == made.rate


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


@settings(max_examples=40, deadline=None)
@given(networks(), st.integers(1, 3))
def test_the_rate_is_the_least_over_all_partitions_and_is_attained(network, pipeline):
    made = spanning_tree_packing.forest(network)
    assert made.rate == min(spanning_tree_packing.partition_rate(network, p) for p in partitions(network.ranks))
    chunks = made.rate.numerator * pipeline
    schedule = spanning_tree_packing.schedule(made, collective("allreduce", network.ranks), chunks)
    found = replay.schedule(schedule)
    assert found.steps == 2 * made.height + pipeline - 1
    assert found.chunks == chunks
    assert found.rounds_per_chunk <= Fraction(found.steps, pipeline) / made.rate
    assert same_bits(schedule)


@settings(max_examples=40, deadline=None)
@given(networks(), st.integers(1, 40))
def test_any_number_of_chunks_is_dealt_out_to_the_trees(network, chunks):
    made = spanning_tree_packing.forest(network)
    found = replay.schedule(spanning_tree_packing.schedule(made, collective("allreduce", network.ranks), chunks))
    share = -(-chunks // len(made.trees))
    assert found.chunks == chunks
    assert found.steps <= 2 * made.height + share - 1
    assert found.rounds_per_chunk <= Fraction(found.steps * made.rate.denominator, chunks)


def test_one_way_links_are_refused():
    network = Network("one way", 3, (Route(0, 1, 1), Route(1, 2, 1), Route(2, 0, 1)))
    with pytest.raises(SynthError, match="same units both ways"):
        spanning_tree_packing.forest(network)


def test_a_partition_has_two_parts():
    with pytest.raises(SynthError, match="two parts"):
        spanning_tree_packing.partition_rate(undirected(2, [(0, 1, 1)]), (0, 0))


def test_edges_that_lead_through_switches_are_sent_along_their_routes():
    pairs = [(0, 3, 1), (3, 2, 1), (0, 4, 1), (4, 1, 1), (0, 5, 1), (5, 1, 1), (1, 2, 2)]
    links = [Link(*ends, Fraction(n)) for a, b, n in pairs for ends in ((a, b), (b, a))]
    made = spanning_tree_packing.forest(Topology("made", 3, links, switches=("s0", "s1", "s2")).network())
    assert made.rate == Fraction(5, 2)
    found = spanning_tree_packing.schedule(made, collective("allreduce", 3), 3 * len(made.trees))
    replay.schedule(found)
    assert found.rounds_per_chunk == Fraction(len(found.steps), 3) / made.rate


def test_a_line_of_unlike_links_is_packed_by_its_weakest():
    """No more trees than the weak links let through; a tree for each unit of all links would take minutes."""
    widths = (Fraction(127, 10), Fraction(7, 3), Fraction(11, 10), Fraction(3))
    links = [Link(*ends, width) for a, width in enumerate(widths) for ends in ((a, a + 1), (a + 1, a))]
    made = spanning_tree_packing.forest(Topology("line", 5, tuple(links)).network())
    assert (made.rate, len(made.trees)) == (33, 33)

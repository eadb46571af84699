"""The bound on allreduce where directions are unequal: single cuts beside partitions, never above what schedules
reach."""

import copy
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_graph_strength import best, leaving

from synth.checker.certificates import throughput_cuts
from synth.checker.documents import scale_frontier
from synth.commands import api
from synth.encodings import bounds
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.topology import Limit, Link, Topology
from synth.scale import search
from synth.scale.bounds import allreduce_partition, single_cut
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import fabric
from synth.solvers.deadline import Deadline, time_limited
from synth.topologies import topology


def machine(ranks: int, rows, switches: int = 0, limits: tuple[Limit, ...] = ()) -> Topology:
    links = tuple(Link(a, b, Fraction(width)) for a, b, width in rows)
    return Topology("drawn", ranks, links, limits, tuple(f"s{i}" for i in range(switches)))


def narrowest(given: Topology) -> Fraction:
    """The least that leaves a region which ranks lie in and out of: all regions."""
    return min(
        leaving(given, set(part), False) for n in range(1, given.ranks) for part in combinations(range(given.ranks), n)
    )


@st.composite
def machines(draw, most: int = 5, switches: int = 1):
    """Few ranks and a switch or none, on two circles against each other and more links, of very unequal directions."""
    ranks, more = draw(st.integers(2, most)), draw(st.integers(0, switches))
    nodes = range(ranks + more)
    circle = [(a, (a + 1) % len(nodes)) for a in nodes]
    free = draw(st.lists(st.sampled_from([(a, b) for a in nodes for b in nodes if a != b]), max_size=6))
    pairs = dict.fromkeys([*circle, *((b, a) for a, b in circle), *free])
    return machine(ranks, [(a, b, draw(st.sampled_from((1, 1, 2, 4, 9)))) for a, b in pairs], more)


def test_each_byte_leaves_once():
    """The partition's two crossings may both take the wide way: 2/5."""
    found = search.bound(machine(2, [(0, 1, 1), (1, 0, 4)]), "allreduce")
    assert found.bound_gbps == 1
    assert found.certificate["kind"] == "throughput-cut" and found.certificate["inside"] == [[0, 0]]
    back = search.bound(machine(2, [(0, 1, 4), (1, 0, 1)]), "allreduce")
    assert back.bound_gbps == 1 and back.certificate["inside"] == [[1, 1]]


def test_partitions_stay_where_they_say_more():
    assert search.bound(topology("mesh:3x3"), "allreduce").certificate["kind"] == "allreduce-parts"
    wide = [(a, b, 10 + (a < b)) for a in range(6) for b in range(6) if abs(a - b) in (1, 5)]
    found = search.bound(machine(6, wide), "allreduce")
    assert found.certificate["kind"] == "allreduce-parts" and found.bound_gbps < narrowest(found.topology)


@settings(max_examples=25, deadline=None)
@given(machines())
def test_the_best_of_all_cuts_and_partitions(given):
    """With switches cuts together may say more."""
    found = search.bound(given, "allreduce")
    assert scale_frontier.bound(found.certificate, given) == found.bound
    said = max(best(given), 1 / narrowest(given)) * given.unit_bandwidth()
    assert found.bound == said if not given.switches else found.bound >= said


@settings(max_examples=12, deadline=None)
@given(machines())
def test_no_less_than_broadcast_and_reduce_say(given):
    value = search.bound(given, "allreduce").bound
    for root in range(given.ranks):
        for name in ("broadcast", "reduce"):
            other = search.bound(given, name, root)
            # weights are rounded to simple fractions, in each program by itself
            slack = Fraction(1, 1000) if other.certificate["kind"] == "throughput-cuts" else 0
            assert value >= other.bound * (1 - slack)


@settings(max_examples=8, deadline=None)
@given(machines(most=4))
def test_no_schedule_is_faster(given):
    found = search.frontier(given, "allreduce")
    assert found.points and all(point.rounds_per_chunk >= found.bound for point in found.points)


@settings(max_examples=10, deadline=None)
@given(machines(most=4, switches=0))
def test_no_more_than_a_reduction_and_then_a_broadcast_take(given):
    """Arborescences into the best rank, and others out of it, attain a rate: no bound is above it."""
    exact = bounds.flow(given.network(), collective("allreduce", given.ranks), None).value
    assert search.bound(given, "allreduce").bound <= _mixed(given) * given.unit_bandwidth()
    assert exact <= _mixed(given) * given.unit_bandwidth()


def _mixed(given: Topology) -> Fraction:
    """Seconds per GB of the reduction to rank r, in full, and then of the broadcast from there, for the best rank."""
    ranks = range(given.ranks)
    found = []
    for root in ranks:
        others = [r for r in ranks if r != root]
        sets = [set(part) for n in range(1, len(others) + 1) for part in combinations(others, n)]
        found.append(1 / min(leaving(given, s, False) for s in sets) + 1 / min(leaving(given, s, True) for s in sets))
    return min(found)


@pytest.mark.parametrize("name", ["torus:4x4", "dgx-a100*4", "ndv2*4", "dgx1*2:cross=0+2+5+7", "mesh:3x4"])
def test_symmetries_only_save_work(name):
    graph = fabric(topology(name))
    group = free_group(symmetries(graph), graph.ranks)
    quick, plain = single_cut.narrowest_cut(graph, group), single_cut.narrowest_cut(graph)
    assert quick.time == plain.time
    assert quick.flows <= plain.flows


@pytest.mark.parametrize("seed", range(8))
def test_symmetries_of_unequal_directions(seed):
    """A circulant graph: one turn of it moves all ranks; each offset has a width of its own, and what is joined to it
    too."""
    random = Random(seed)
    ranks, boxes = 8, 1 + seed % 2
    offsets = {1: 1, **{d: random.choice((1, 2, 5)) for d in random.sample(range(2, ranks), 2)}}
    rows = [
        (r + ranks * b, (r + d) % ranks + ranks * b, w * (1 + b))
        for b in range(boxes)
        for r in range(ranks)
        for d, w in offsets.items()
    ]
    if boxes > 1:
        rows += [
            (a, b, w) for r in range(ranks) for a, b, w in ((r, r + ranks, 2), (r + ranks, r, random.choice((1, 3))))
        ][: 2 * ranks]
    turn = tuple((r + 1) % ranks + ranks * b for b in range(boxes) for r in range(ranks))
    links = tuple(Link(a, b, Fraction(w)) for a, b, w in rows)
    graph = fabric(Topology("turning", ranks * boxes, links, generators=(turn,)))
    group = free_group(symmetries(graph), graph.ranks)
    assert single_cut.narrowest_cut(graph, group).time == single_cut.narrowest_cut(graph).time


def test_even_machines_need_no_cut():
    """Where as much enters every node as leaves it, the two parts of a cut say what the cut says."""
    for name in ("mesh:3x3", "dgx-a100*2", "fat-tree:8", "mi250"):
        graph = fabric(topology(name))
        assert single_cut.is_balanced(graph)
        assert allreduce_partition.bound(graph)[0] >= single_cut.narrowest_cut(graph).time


def test_limits_stand_for_links_of_a_cut():
    """Rank 3 may send 9 to each of three ranks, 2 in all: every byte of the buffer takes half a second for its part of
    the sums."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    out = Limit("out of 3", tuple(i for i, (a, _) in enumerate(pairs) if a == 3), Fraction(2))
    found = search.bound(machine(4, [(a, b, 9) for a, b in pairs], limits=(out,)), "allreduce")
    assert found.bound_gbps == 2 and found.certificate["limits"] == [0]


def test_cuts_together_where_a_switch_lets_out_more_than_it_takes_in():
    """From rank 0 a switch takes in 2 and hands 2 on to each of ranks 1 and 2, who reach each other by way of rank 0
    alone."""
    rows = [(0, 3, 2), (3, 1, 2), (3, 2, 2), (1, 0, 9), (2, 0, 9)]
    given = machine(3, rows, 1)
    found = search.bound(given, "allreduce")
    assert found.certificate["kind"] == "throughput-cuts"
    assert found.bound_gbps == 1 and narrowest(given) == 2
    assert scale_frontier.bound(found.certificate, given) == found.bound
    doc = api.frontier_document(found)
    for change in ({"collective": "broadcast", "root": 0}, {"root": 0}, {"cuts": []}, {"potentials": []}):
        wrong = copy.deepcopy(doc)
        wrong["bound"]["certificate"] |= change
        with pytest.raises(VerificationError):
            scale_frontier.document(wrong, Path(), lambda: None)


def test_a_time_limit_leaves_the_ranks_alone():
    given = machine(4, [(a, b, 9 - 8 * (a == 2)) for a in range(4) for b in range(4) if abs(a - b) in (1, 3)])
    with time_limited(Deadline.after(0)):
        value, certificate, short = allreduce_partition.bound(fabric(given))
    assert "time limit" in short and value == throughput_cuts.check(
        certificate, given
    ) * given.unit_bandwidth() == Fraction(1, 2)


def test_altered_certificates_are_refused():
    given = machine(4, [(0, 1, 1), (1, 0, 4), (1, 2, 9), (2, 1, 9), (2, 3, 4), (3, 2, 4)])
    found = search.bound(given, "allreduce")
    assert found.certificate["kind"] == "throughput-cut"
    doc = api.frontier_document(found)
    assert scale_frontier.document(doc, Path(), lambda: None)
    changes = [
        {"inside": [[0, 1]]}, {"inside": [[1, 3]]}, {"inside": []}, {"inside": [[0, 3]]}, {"inside": [[0, 4]]},
        {"inside": [[0.0, 0]]}, {"limits": [0]}, {"root": 0}, {"root": True}, {"collective": "allgather"},
        {"collective": "broadcast", "root": 0}, {"collective": "all"}, {"kind": "throughput-cuts"}, {"entering": True},
        {"kind": "allreduce-parts"}, {"topology": "0" * 64},
    ]  # fmt: skip
    for change in changes:
        wrong = copy.deepcopy(doc)
        wrong["bound"]["certificate"] |= change
        with pytest.raises(VerificationError):
            scale_frontier.document(wrong, Path(), lambda: None)
    wrong = copy.deepcopy(doc)
    wrong["bound"]["value"] = str(found.bound * Fraction(101, 100))
    with pytest.raises(VerificationError, match="is claimed"):
        scale_frontier.document(wrong, Path(), lambda: None)


def test_explain_names_the_cut():
    rows = [(a, b, 1 if a < b else 4) for a, b in combinations(range(20), 2) if abs(a - b) in (1, 19)]
    rows += [(b, a, 4) for a, b, _ in rows]
    found = api.explain(machine(20, rows), "allreduce")
    assert found.rates[0].units == search.bound(machine(20, rows), "allreduce").bound_gbps / 1
    assert "part of every sum" in found.limit and np.array(found.parts).size

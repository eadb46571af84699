"""The bound on allreduce where directions are unequal: the cut around a rank beside partitions, never above what
schedules reach."""

import copy
from fractions import Fraction
from itertools import combinations
from pathlib import Path

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
from synth.scale.bounds import allreduce_partition
from synth.scale.fabric.fabric import fabric
from synth.solvers.deadline import Deadline, time_limited
from synth.topologies import topology


def machine(ranks: int, rows, switches: int = 0, limits: tuple[Limit, ...] = ()) -> Topology:
    links = tuple(Link(a, b, Fraction(width)) for a, b, width in rows)
    return Topology("drawn", ranks, links, limits, tuple(f"s{i}" for i in range(switches)))


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


@settings(max_examples=25, deadline=None)
@given(machines())
def test_the_best_of_all_partitions_and_ranks(given):
    found = search.bound(given, "allreduce")
    assert scale_frontier.bound(found.certificate, given) == found.bound
    alone = [leaving(given, {rank}, entering) for rank in range(given.ranks) for entering in (False, True)]
    said = max(best(given), 1 / min(alone)) * given.unit_bandwidth()
    assert found.bound == said if not given.switches else best(given) * given.unit_bandwidth() <= found.bound <= said


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


def test_limits_stand_for_links_of_a_cut():
    """Rank 3 may send 9 to each of three ranks, 2 in all: every byte of the buffer takes half a second for its part of
    the sums."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    out = Limit("out of 3", tuple(i for i, (a, _) in enumerate(pairs) if a == 3), Fraction(2))
    found = search.bound(machine(4, [(a, b, 9) for a, b in pairs], limits=(out,)), "allreduce")
    assert found.bound_gbps == 2 and found.certificate["limits"] == [0]


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

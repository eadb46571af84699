"""Alltoall at scale: least congestion, its certificate, whole chunks on ways, and the steps of the schedule."""

import copy
import heapq
import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from synth.checker.certificates import path_lengths
from synth.checker.certificates.machine_columns import MachineColumns
from synth.checker.documents import scale_frontier
from synth.checker.schedule import compressed_replay, replay
from synth.encodings import bounds
from synth.errors import InfeasibleError, UsageError, VerificationError
from synth.model.collective import collective
from synth.model.topology import Limit, Link, Topology
from synth.scale import search
from synth.scale.alltoall import concurrent_flow
from synth.scale.alltoall.multiplicative_weights import by_weights
from synth.scale.alltoall.step_assignment import AlltoallPaths, path_sets
from synth.scale.fabric.fabric import fabric
from synth.topologies import modify, topology

# seconds per byte of one pair at unit bandwidth: N^2/8 per torus ring of N, NICs and cuts counted by hand
KNOWN = {
    "dgx1": Fraction(8, 3), "torus:4x4": Fraction(8), "torus:8x8": Fraction(64), "torus:32x32": Fraction(4096),
    "hypercube:16": Fraction(8), "ring:7": Fraction(6), "dgx2": Fraction(15), "dgx-a100*4": Fraction(24),
    "mesh:6x6": Fraction(54),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_the_least_congestion_is_certified_exactly(name):
    machine = topology(name)
    graph = fabric(machine)
    made = concurrent_flow.least_congestion_flows(graph)
    proved = path_lengths.check(made.certificate(), machine) * graph.unit
    assert proved == KNOWN[name]
    assert made.congestion == pytest.approx(float(proved))


@pytest.mark.parametrize("name", ["dgx1", "torus:3x4", "mi250", "dgx-a100*2", "ring:5"])
def test_it_agrees_with_the_general_bound(name):
    machine = topology(name)
    network = machine.network()
    graph = fabric(machine)
    proved = path_lengths.check(concurrent_flow.least_congestion_flows(graph).certificate(), machine) * graph.unit
    assert proved == bounds.flow(network, collective("alltoall", network.ranks), None).value


MACHINES = "dgx1 torus:4x4 mi250*2 dgx-a100*2:net=odd-even mesh:3x4 dgx2 random-regular:10:degree=3"


@pytest.mark.parametrize("name", MACHINES.split())
@pytest.mark.parametrize("shortest", [True, False])
def test_schedules_verify_written_out(name, shortest):
    graph = fabric(topology(name))
    made = concurrent_flow.least_congestion_flows(graph, shortest=shortest)
    *_, ways = path_sets(made)
    for steps in (ways.longest, 2 * ways.longest + 1):
        short = ways.schedule(steps)
        found = compressed_replay.replay(short)
        assert found.steps == steps
        assert float(short.rounds_per_chunk) >= made.congestion * (1 - 1e-6)
        whole = short.written_out()
        replay.schedule(whole)
        assert whole.rounds_per_chunk == short.rounds_per_chunk
    if shortest:
        assert ways.longest == max(d for row in topology(name).network().distances for d in row)
    with pytest.raises(UsageError):
        ways.schedule(ways.longest - 1)


def test_torus_of_64_by_orbits_equals_the_schedule_written_out():
    ways = next(path_sets(concurrent_flow.least_congestion_flows(fabric(topology("torus:8x8")))))
    short = ways.schedule(18)
    whole = short.expanded()
    assert compressed_replay.replay(short).sends == compressed_replay.replay(whole).sends == len(whole.step)
    assert compressed_replay.replay(short).busiest == compressed_replay.replay(whole).busiest
    assert short.rounds_per_chunk / 64 <= Fraction(51, 50)


@pytest.mark.parametrize("name", ["torus:4x4", "mesh:4x4", "random-regular:24:degree=3"])
def test_multiplicative_weights_stay_within_their_certified_gap(name):
    machine = topology(name)
    graph = fabric(machine)
    exact = concurrent_flow.least_congestion_flows(graph)
    made = by_weights(graph, (), np.arange(graph.ranks), phases=60)
    proved = float(path_lengths.check(made.certificate(), machine) * graph.unit)
    assert proved <= exact.congestion * (1 + 1e-9) <= made.congestion * (1 + 2e-9)
    assert made.congestion / proved < 1.12
    compressed_replay.replay(AlltoallPaths(made, 2).schedule(AlltoallPaths(made, 2).longest))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_altered_certificate_proves_more(data):
    name = data.draw(st.sampled_from(["dgx1", "torus:3x4", "dgx-a100*2", "mesh:3x3"]))
    machine, true, certificate = _known(name)
    altered = copy.deepcopy(certificate)
    key = data.draw(st.sampled_from(sorted(altered)))
    if key in ("links", "limits", "generators") and altered[key]:
        row = data.draw(st.sampled_from(altered[key]))
        at = data.draw(st.integers(0, len(row) - 1))
        row[at] += data.draw(st.sampled_from([-2, -1, 1, 5, 10**6, 10**13]))
        if data.draw(st.booleans()) and key != "generators":
            altered[key].append(list(row))
    else:
        altered[key] = data.draw(st.sampled_from([None, "x", [], [[1, 1]], 3]))
    try:
        proved = path_lengths.check(altered, machine)
    except VerificationError:
        return
    assert proved <= true


_CACHE = {}


def _known(name):
    if name not in _CACHE:
        machine = topology(name)
        certificate = concurrent_flow.least_congestion_flows(fabric(machine)).certificate()
        _CACHE[name] = machine, path_lengths.check(certificate, machine), certificate
    return _CACHE[name]


def test_links_that_are_their_own_port_are_priced():
    ends = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 0, Fraction(1, 2)), (1, 2, 1), (2, 1, 1), (3, 0, 1)]
    links = tuple(Link(a, b, Fraction(w)) for a, b, w in ends)
    machine = Topology("narrow", 4, links, (Limit("port", (3, 4), Fraction(1)),))
    graph = fabric(machine)
    made = concurrent_flow.least_congestion_flows(graph)
    assert float(path_lengths.check(made.certificate(), machine) * graph.unit) == pytest.approx(made.congestion)


@st.composite
def broken_clusters(draw):
    """Two to four boxes with NICs for each GPU or shared ones, and one to three missing pairs of links."""
    bases = ["ring:2*2", "ring:4*2", "ring:3*3", "ring:2*4", "fully-connected:3*2", "fully-connected:4*2"]
    machine = topology(draw(st.sampled_from(bases)) + draw(st.sampled_from(["", ":nics=1", ":nics=1"])))
    every = list(combinations(range(machine.ranks), 2))
    pairs = draw(st.lists(st.sampled_from(every), min_size=1, max_size=3, unique=True))
    joined = {(k.src, k.dst) for k in machine.links}
    return modify.apply(machine, without=[f"{a}-{b}" for a, b in pairs if (a, b) in joined])


@settings(max_examples=4, deadline=None, derandomize=True)
@given(broken_clusters())
@example(modify.apply(topology("ring:2*2:nics=1"), without=["0-2"]))  # flows that a shared NIC joins, and no link
@example(modify.apply(topology("ring:4*2"), without=["4-0"]))  # a turn of the boxes keeps the ports, not the links
def test_pairs_that_no_link_joins_are_reached_by_detours(machine):
    try:
        found = search.frontier(machine, "alltoall")
    except InfeasibleError:
        return
    assert found.points and not found.unfinished
    assert scale_frontier.bound(found.certificate, found.topology) == found.bound
    for point in found.points:
        schedule = point.schedule
        scale_frontier.schedule(schedule)
        assert schedule.rounds_per_chunk == point.rounds_per_chunk >= found.bound


# ---------------------------------------------------------------- distances under a certificate


def slow(machine: Topology, price: list[int], start: int) -> list[int | None]:
    """Dijkstra's distances, the obvious way."""
    far: dict[int, int] = {}
    heap = [(0, start)]
    while heap:
        d, u = heapq.heappop(heap)
        if u in far:
            continue
        far[u] = d
        for link, p in zip(machine.links, price, strict=True):
            if link.src == u and link.dst not in far:
                heapq.heappush(heap, (d + p, link.dst))
    return [far.get(n) for n in range(machine.ranks)]


def shapes():
    some = random.Random(4)
    for ranks, extra in ((5, 0), (30, 40), (30, 400)):
        ring = [(i, (i + 1) % ranks) for i in range(ranks)]
        yield (
            ranks,
            ring
            + [(a, b) for a, b in ((some.randrange(ranks), some.randrange(ranks)) for _ in range(extra)) if a != b],
        )
    yield 20, [pair for i in range(1, 20) for pair in ((0, i), (i, 0))]  # a hub
    yield 12, [pair for i in range(12) for pair in ((12, i), (i, 12))]  # a switch


@pytest.mark.parametrize("each", [1, 300, 1 << 12, 1 << 25, 1 << 35])
@pytest.mark.parametrize("together", [1, 1000, 1 << 18])
def test_distances_are_those_of_dijkstra(together, each, monkeypatch):
    """Whatever integers they are found in."""
    monkeypatch.setattr(path_lengths, "TOGETHER", together)
    some = random.Random(7)
    for ranks, pairs in shapes():
        nodes = max(max(pair) for pair in pairs) + 1
        switches = tuple(f"s{i}" for i in range(nodes - ranks))
        machine = Topology("shape", ranks, tuple(Link(a, b, Fraction(1)) for a, b in pairs), (), switches)
        price = [each * some.randrange(5) for _ in pairs]
        found = path_lengths.distance_sums(MachineColumns(machine), np.array(price), np.arange(ranks))
        assert found == [sum(d or 0 for d in slow(machine, price, s)) for s in range(ranks)]


@pytest.mark.parametrize("price", [(1 << 14) // 6, (1 << 14) // 6 + 1, (1 << 30) // 6, (1 << 30) // 6 + 1])
def test_a_rank_that_is_not_reached_is_reported_whatever_the_integers(price):
    machine = Topology("apart", 6, tuple(Link(i, i + 1, Fraction(1)) for i in range(5)))
    widths = MachineColumns(machine)
    assert path_lengths.distance_sums(widths, np.full(5, price), np.arange(1)) == [15 * price]
    with pytest.raises(VerificationError, match="rank 1 does not reach every rank"):
        path_lengths.distance_sums(widths, np.full(5, price), np.arange(1, 2))


def test_a_rank_that_is_not_reached_is_no_slow_one():
    machine = Topology("in", 3, (Link(1, 0, Fraction(1)), Link(2, 0, Fraction(1)), Link(1, 2, Fraction(1))))
    with pytest.raises(VerificationError, match="does not reach every rank"):
        path_lengths.distance_sums(MachineColumns(machine), np.ones(3, np.int64), np.arange(3))
    with pytest.raises(VerificationError, match="does not reach every rank"):
        path_lengths.distance_sums(MachineColumns(Topology("none", 2, ())), np.ones(0, np.int64), np.arange(2))


@pytest.mark.parametrize(("links", "pair"), [(((0, 1), (1, 2), (2, 1)), [1, 0]), (((1, 0), (0, 1), (2, 1)), [0, 2])])
def test_a_pair_apart_is_found_either_way(links, pair):
    machine = Topology("three", 3, tuple(Link(a, b, Fraction(1)) for a, b in links))
    with pytest.raises(InfeasibleError) as error:
        search.bound(machine, "alltoall")
    assert error.value.certificate["pair"] == pair

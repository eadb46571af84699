"""Alltoall at scale: least congestion, its certificate, whole chunks on ways, and the steps of the schedule."""

import copy
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from synth.checker.certificates import path_lengths
from synth.checker.documents import scale_frontier
from synth.checker.schedule import compressed_replay, replay
from synth.encodings import bounds
from synth.errors import InfeasibleError, UsageError, VerificationError
from synth.model.collective import collective
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


@pytest.mark.parametrize(
    "name",
    ["dgx1", "torus:4x4", "mi250*2", "dgx-a100*2:net=odd-even", "mesh:3x4", "dgx2", "random-regular:10:degree=3"],
)
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
    from synth.model.topology import Limit, Link, Topology

    ends = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 0, Fraction(1, 2)), (1, 2, 1), (2, 1, 1), (3, 0, 1)]
    machine = Topology(
        "narrow", 4, tuple(Link(a, b, Fraction(w)) for a, b, w in ends), (Limit("port", (3, 4), Fraction(1)),)
    )
    graph = fabric(machine)
    made = concurrent_flow.least_congestion_flows(graph)
    assert float(path_lengths.check(made.certificate(), machine) * graph.unit) == pytest.approx(made.congestion)


@st.composite
def broken_clusters(draw):
    """Two to four boxes with NICs for each GPU or shared ones, and one to three missing pairs of links."""
    base = draw(
        st.sampled_from(["ring:2*2", "ring:4*2", "ring:3*3", "ring:2*4", "fully-connected:3*2", "fully-connected:4*2"])
    )
    machine = topology(base + draw(st.sampled_from(["", ":nics=1", ":nics=1"])))
    pairs = draw(
        st.lists(st.sampled_from(list(combinations(range(machine.ranks), 2))), min_size=1, max_size=3, unique=True)
    )
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

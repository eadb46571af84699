"""A machine with links beside its switches: exact synthesis may use both between the same two ranks, as flow methods
do."""

import functools
import itertools
from fractions import Fraction

import pytest

from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings import bounds
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.frontier import Frontier
from synth.model.outcome import Sat
from synth.model.topology import Link, Topology
from synth.runtime.link_schedule import LinkSchedule
from synth.scale import search

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

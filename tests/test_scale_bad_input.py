"""Odd fabrics at scale: a right answer or one clear line, and every bound with a certificate that its checker
accepts."""

from fractions import Fraction

import pytest

from synth.checker.documents import scale_frontier
from synth.checker.schedule import compressed_replay
from synth.commands import api
from synth.errors import InfeasibleError, SynthError
from synth.model.topology import Limit, Link, Topology
from synth.scale.search import bound, frontier
from synth.topologies import topology
from tests.command_line import synth

NAMES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")


def _both(*rows):
    return tuple(link for a, b, w in rows for link in (Link(a, b, Fraction(w)), Link(b, a, Fraction(w))))


RING, DOWN = _both((0, 1, 1), (1, 2, 1)), Limit("down", (0, 1), Fraction(0))
CUT_OFF = {
    "switches": Topology("switches", 4, _both((0, 4, 2), (1, 4, 2), (2, 5, 2), (3, 5, 2)), (), ("s", "t")),
    "link of 0": Topology("link of 0", 3, _both((0, 1, 1), (1, 2, 0))),
    "limit of 0": Topology("limit of 0", 3, RING, (DOWN,)),
}
SPARE = {
    "link of 0": Topology("link of 0", 3, _both((0, 1, 1), (1, 2, 0), (0, 2, 1))),
    "limit of 0": Topology("limit of 0", 3, (*RING[2:], *RING[:2], *_both((0, 2, 1))), (DOWN,)),
}
BOXES = _both((0, 1, 4), (1, 2, 4), (0, 2, 4), (3, 4, 4), (2, 5, 1), (3, 5, 1))
ODD = {
    "thirds": Topology("thirds", 3, _both((0, 1, Fraction(7, 3)), (1, 2, Fraction(11, 13)), (0, 2, Fraction(5, 2)))),
    "3 + 2": Topology("3 + 2", 5, BOXES, (), ("net",), (0, 0, 0, 1, 1)),
    "dead switch": Topology("dead switch", 2, _both((0, 1, 1), (0, 2, 1)), (), ("dead",)),
    "two links": Topology("two links", 2, _both((0, 1, 1), (0, 1, 2))),
    "to itself": Topology("to itself", 2, (*_both((0, 1, 1)), Link(0, 0, Fraction(1)))),
}


def _right(machine, name):
    found = frontier(machine, name)
    assert scale_frontier.bound(found.certificate, found.topology) == found.bound > 0
    assert found.points
    for point in found.points[:5]:
        assert compressed_replay.replay(point.schedule).rounds_per_chunk == point.rounds_per_chunk >= found.bound
    assert bound(machine, name).bound == found.bound
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", CUT_OFF)
def test_a_machine_in_pieces_is_impossible_and_not_slow(key, name):
    machine = CUT_OFF[key]
    with pytest.raises(InfeasibleError, match=key):
        frontier(machine, name)
    with pytest.raises(InfeasibleError, match=r"rank \d"):
        bound(machine, name)
    if name not in ("reduce", "alltoall"):
        with pytest.raises(InfeasibleError, match=key) as error:
            api.explain(machine, name)
        assert error.value.certificate and len(error.value.certificate["pair"]) == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", SPARE)
def test_what_carries_nothing_is_left_out(key, name):
    line = Topology("line", 3, _both((0, 1, 1), (0, 2, 1)))
    found = _right(SPARE[key], name)
    assert found.bound == frontier(line, name).bound
    assert any("carry nothing" in note for note in found.notes)
    if name not in ("reduce", "alltoall"):
        assert api.explain(SPARE[key], name).rates[0] == api.explain(line, name).rates[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[pytest.mark.slow] if key in ("thirds", "3 + 2") else []) for key in ODD]
)
def test_odd_machines_have_certified_bounds_and_schedules_that_verify(key, name):
    _right(ODD[key], name)


@pytest.mark.parametrize(("links", "words"), [
    (_both((0, 1, -1)), "negative"), ((), "no links"), (_both((0, 1, 0)), "no links"),
    (_both((0, 1, 10**17), (0, 1, Fraction(1, 10**6))), "round the bandwidths"),
])  # fmt: skip
def test_what_no_method_takes_is_said_in_one_line(links, words):
    machine = Topology("odd", 2, links)
    for call in (lambda: frontier(machine, "allreduce"), lambda: bound(machine, "allgather")):
        with pytest.raises(SynthError, match=words) as error:
            call()
        assert "\n" not in str(error.value)
    if words not in ("no links",):
        with pytest.raises(SynthError, match=f"{words}|listed twice"):
            api.explain(machine, "allreduce")


def test_a_hundred_thousand_links():
    machine = topology("switch:320")
    assert len(machine.links) > 10**5
    found = bound(machine, "allgather")
    assert scale_frontier.bound(found.certificate, machine) == found.bound == 319
    assert found.least_steps == 1


def test_explain_of_ranks_that_no_link_joins_is_proved_infeasible():
    output = synth("explain --topo dgx1 --ranks 0,5,7 --coll broadcast", code=3).output
    assert "rank 1" in output and "the machine's 5" in output


def test_explain_of_many_ranks_is_bounded_by_flows():
    machine = topology("dgx-a100*3")
    found = api.explain(machine, "allgather")
    assert found.rates[0].units == bound(machine, "allgather").bound_gbps / machine.unit_bandwidth()
    assert all(way.units <= found.rates[0].units for way in found.rates)
    assert found.limit == "ranks 8-23: 8 units to the others, which must get 16 of 24 parts from there"

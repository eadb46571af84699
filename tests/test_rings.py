"""Rings side by side: replayed on boxes and clusters, and proofs that no more fit; `synth explain` about them."""

import json
from fractions import Fraction

import pytest

from synth.commands import api
from synth.errors import UsageError
from synth.model.topology import Limit, Link, Topology
from synth.scale import search
from synth.scale.baselines import comparison
from synth.scale.baselines.rings import disjoint_rings
from synth.solvers.deadline import Deadline, time_limited
from synth.topologies import modify, topology
from tests.command_line import synth

# Units that rings carry together, of which no more fit: cuts or CP-SAT prove it.
MOST = {
    "dgx1": 6, "dgx-a100": 1, "dgx-a100*2": 8, "ndv2*4": 1, "rail:4x4": 4, "dgx1*2:cross=0+2+5+7": 4,
    "dgx-a100*2:net=odd-even": 8, "mi250": 6, "mi300x": 7, "pcie-8": 2, "torus:8x8": 4, "fat-tree:16": 1,
    "ring:8": 2, "mesh:3x3": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", MOST)
def test_the_most_rings_that_fit(name):
    machine = topology(name)
    found = disjoint_rings(machine)
    assert (found.units, found.proved_maximum) == (MOST[name], True)
    # The checker replays it, and an overfull link would need more rounds. Several spines: a step takes other routes.
    if found.units and name != "fat-tree:16":
        allgather = api.baseline("ring", machine, "allgather")
        assert allgather.rounds_per_chunk == Fraction(machine.ranks - 1, found.units)


def test_rings_that_may_not_be_the_most():
    found = disjoint_rings(topology("random-regular:64"))
    assert 2 <= found.units <= 4 and found.maximum == 4 and found.complete


def test_a_broken_link_or_boxes_of_another_size_leave_a_right_answer():
    whole = topology("dgx-a100*2")
    for machine, units in ((modify.apply(whole, without=["0-3"]), 8), (modify.apply(whole, ranks="0,1,2,8-12"), 3)):
        assert disjoint_rings(machine).units == units
        allgather = api.baseline("ring", machine, "allgather")
        assert allgather.rounds_per_chunk == Fraction(machine.ranks - 1, units)


def test_a_limit_counts_over_all_rings():
    links = tuple(Link(i, (i + 1) % 4, Fraction(1)) for i in range(4))
    assert disjoint_rings(Topology("ring", 4, links)).units == 1
    half = Topology("ring", 4, links, (Limit("two", (0, 2), Fraction(1)),))
    assert disjoint_rings(half).rings == () and disjoint_rings(half).proved_maximum


def test_parallel_links_are_links_of_their_own():
    pairs = [(a, b, 6) for a in range(1, 5) for b in range(1, 5) if a != b] + [(0, 1, 2), (2, 0, 2)]
    machine = Topology("many", 5, tuple(Link(a, b, Fraction(1)) for a, b, n in pairs for _ in range(n)))
    assert disjoint_rings(machine).units == 2


def test_a_broadcast_is_explained_from_its_own_root():
    narrow = Topology(
        "narrow",
        3,
        tuple(Link(a, b, Fraction(n)) for a, b, n in ((0, 1, 3), (1, 2, 3), (2, 0, 3), (1, 0, 2), (0, 2, 2))),
    )
    rates = [api.explain(narrow, api.collective("broadcast", 3, [start])).rates[0].units for start in range(3)]
    assert rates == [3, 5, 3]  # the least of what leaves a set with the root in it


def test_explain_names_what_limits_rings_and_shortens_parts():
    made = api.explain(topology("dgx-a100*10"), "allreduce")
    rings = made.rates[-1]
    assert rings.name == "disjoint rings" and rings.units == Fraction(8 * 80, 2 * 79)
    assert rings.remark == "8 units in all: no more fit through ranks 0-7"
    assert "0-7 | 8-15 | 16-23 | 24-31 | and 6 more" in made.limit and made.parts[9] == tuple(range(72, 80))
    document = json.loads(synth("explain --topo dgx-a100*2 --coll allgather --format json").stdout)
    assert document["rings"]["most"] and sum(cycle["units"] for cycle in document["rings"]["cycles"]) == 8
    assert document["open"] == []


def test_a_time_limit_leaves_what_was_found():
    with time_limited(Deadline.after(0)):
        found = disjoint_rings(topology("dgx-a100*2"))
    assert not found.complete and not found.proved_maximum
    assert "left open" in synth("explain --topo dgx-a100*2 --coll allreduce --time-limit 0.001", code=4).output


def test_one_rank_is_refused():
    with pytest.raises(UsageError, match="one rank"):
        api.explain(modify.apply(topology("dgx1"), ranks="3"), "allgather")


# ------------------------------------------------------------ `explain` under a time limit


@pytest.mark.parametrize("machine", ["torus:3x6", "dgx1", "dgx-a100*32"])
def test_without_time_there_is_a_bound_and_no_search(monkeypatch, machine):
    whole = api.explain(machine, "allgather").rates[0].units
    monkeypatch.setattr(comparison, "disjoint_rings", lambda *_, **__: pytest.fail("was begun too late"))
    found = api.explain(machine, "allgather", time_limit=0)
    assert found.rates[0].units is not None and whole is not None and found.rates[0].units >= whole
    assert "rings" in found.open
    assert {way.name: way.units for way in found.rates[1:]} == {"disjoint rings": None}


def test_bounds_that_are_asked_for_late_are_named_not_begun(monkeypatch):
    asked = []
    bound = search.bound
    monkeypatch.setattr(
        search,
        "bound",
        lambda machine, name, *given, **more: (asked.append(name), bound(machine, name, *given, **more))[1],
    )
    found = api.explain("dgx-a100*32", "allreduce", time_limit=0)
    assert asked == ["allreduce"]
    assert {"the bound of reduce-scatter", "the bound of allgather", "rings"} <= set(found.open)

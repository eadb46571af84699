"""Rings side by side: packed on boxes and clusters, checked by code that shares nothing with the search, and proofs
that no more fit."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth import api
from synth.cli import root
from synth.errors import UsageError, VerificationError
from synth.model.topology import Limit, Link, Network, Route, Topology
from synth.scale.baselines import double_binary_tree
from synth.scale.baselines.comparison import runs
from synth.scale.baselines.rings import (
    check,
    factor_annealing,
    quotient_network,
    ring_network,
    search,
)
from synth.solvers.processes.deadline import Deadline, time_limited
from synth.topologies import modify, topology

# Units that rings carry together, of which no more fit: cuts say so, or all cycles were listed.
MOST = {
    "dgx-a100*2": 8,
    "dgx-h100*4": 16,
    "dgx2*2": 8,
    "ndv2*4": 1,
    "rail:4x4": 4,
    "dgx1*2:cross=0+2+5+7": 4,
    "dgx1*4:cross=0+2+5+7": 6,
    "dgx-a100*2:net=odd-even": 8,
    "dgx-a100*16": 8,
    "mi250": 6,
    "mi100": 4,
    "mi300x": 7,
    "torus:8x8": 4,
    "fat-tree:16": 1,
    "hypercube:8": 2,
    "mesh:3x3": 0,
    "line:6": 0,
    "mi250*2": 128,
    "random-regular:64": 4,
    "random-regular:64:degree=6": 6,
    "random-regular:512": 4,
    "mesh:6x6": 2,
}


def loads(machine: Topology, found: search.Rings) -> None:
    """By hand, from the topology's own links: every ring Hamiltonian, no link and no limit overfull."""
    network = machine.network()
    load = [0] * len(network.routes)
    for (order, units), way in zip(found.rings, found.links, strict=True):
        assert sorted(order) == list(range(machine.ranks)) and units > 0
        for a, b, link in zip(order, (*order[1:], order[0]), way, strict=True):
            assert (network.routes[link].src, network.routes[link].dst) == (a, b)
            load[link] += units
    assert all(n <= route.units for n, route in zip(load, network.routes, strict=True))
    assert all(sum(load[i] for i in cap.routes) <= cap.units for cap in network.caps)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ("mi250", "mi250*2") else []) for name in MOST],
)
def test_the_most_rings_that_fit(name):
    machine = topology(name)
    found = search.disjoint_rings(machine)
    assert (found.units, found.proved_maximum) == (MOST[name], True)
    assert found.bound is not None and found.bound.units >= found.units
    loads(machine, found)


def test_a_broken_link_or_a_few_boxes_of_another_size_leave_a_right_answer():
    whole = topology("dgx-a100*2")
    for machine in (modify.apply(whole, without=["0-3"]), modify.apply(whole, ranks="0,1,2,8,9,10,11,12")):
        found = search.disjoint_rings(machine)
        loads(machine, found)
        cut = ring_network.ring_cut_bound(ring_network.of_machine(machine))
        assert 0 < found.units <= cut.units
        assert found.proved_maximum and found.units == cut.units


def test_a_thousand_ranks_have_a_small_quotient():
    machine = topology("torus:32x32")
    found = search.disjoint_rings(machine)
    assert (found.units, found.proved_maximum) == (4, True)
    loads(machine, found)


def _ring(size: int, width: int = 1) -> Topology:
    return Topology("ring", size, tuple(Link(i, (i + 1) % size, Fraction(width)) for i in range(size)))


@pytest.mark.parametrize(("cycles", "ways", "words"), [
    ([((0, 1, 2, 3), 3)], [(0, 1, 2, 3)], "3 units of link 0"),
    ([((0, 1, 3, 2), 1)], [(0, 1, 2, 3)], "does not lead"),
    ([((0, 1, 2), 1)], [(0, 1, 2)], "not once round"),
    ([((0, 1, 2, 2), 1)], [(0, 1, 2, 3)], "not once round"),
    ([((0, 1, 2, 3), 0)], [(0, 1, 2, 3)], "not once round"),
    ([((0, 1, 2, 3), 1)], [(0, 1, 2, 9)], "does not have"),
    ([((0, 1, 2, 3), 1)], [], "1 rings with the links of 0"),
])  # fmt: skip
def test_the_checker_refuses_what_is_no_ring(cycles, ways, words):
    machine = _ring(4, 2)
    check.check(Topology("ring", 4, machine.links, unit=Fraction(1)), [((0, 1, 2, 3), 2)], [(0, 1, 2, 3)])
    with pytest.raises(VerificationError, match=words):
        check.check(Topology("ring", 4, machine.links, unit=Fraction(1)), cycles, ways)


def test_the_checker_adds_up_limits():
    machine = _ring(4)
    half = Topology("ring", 4, machine.links, (Limit("two", (0, 2), Fraction(1)),))
    with pytest.raises(VerificationError, match="2 units of limit 0, which has 1"):
        check.check(half, [((0, 1, 2, 3), 1)], [(0, 1, 2, 3)])
    assert search.disjoint_rings(half).rings == () and search.disjoint_rings(half).proved_maximum


def test_a_bound_counts_what_limits_let_through():
    found = ring_network.ring_cut_bound(ring_network.of_machine(topology("dgx-a100*4")))
    assert (found.units, len(found.side)) == (8, 8)
    found = ring_network.ring_cut_bound(
        ring_network.of_machine(topology("ndv2*4").network())
    )  # no boxes are known: the narrow links say what they are
    assert (found.units, len(found.side)) == (1, 8)


def test_a_symmetry_that_is_none_is_not_believed():
    machine = topology("dgx1")
    wrong = ring_network.RingNetwork(
        **{**ring_network.of_machine(machine).__dict__, "generators": ((1, 0, 3, 2, 5, 4, 7, 6),)}
    )
    assert list(quotient_network.quotients(wrong)) == []


def test_several_links_between_two_ranks_share_the_load_of_trees():
    pairs = [Route(a, b, n) for n in (1, 3) for a, b in ((0, 1), (1, 0))]
    wires = ring_network.of_machine(Network("pair", 2, tuple(pairs)))
    assert double_binary_tree.tree_rate(wires) == 4  # up one tree and down the other, each over both links
    assert search.disjoint_rings(Network("pair", 2, tuple(pairs))).units <= 4


def test_a_broadcast_by_trees_is_no_faster_than_any():
    for name in ("ring:2", "line:2", "dgx1", "mi300x", "ring:5"):
        for start in (0, 1):
            made = api.explain(topology(name), api.collective("broadcast", topology(name).ranks, [start]))
            assert all(way.units is not None and way.units <= (made.rates[0].units or 0) for way in made.rates), name


def test_a_broadcast_is_explained_from_its_own_root():
    narrow = Topology(
        "narrow",
        3,
        tuple(Link(a, b, Fraction(n)) for a, b, n in ((0, 1, 3), (1, 2, 3), (2, 0, 3), (1, 0, 2), (0, 2, 2))),
    )
    rates = [api.explain(narrow, api.collective("broadcast", 3, [start])).rates[0].units for start in range(3)]
    assert rates == [3, 5, 3]  # the least of what leaves a set with the root in it


def test_runs_of_ranks():
    assert runs((0, 1, 2)) == "0,1,2" and runs((0, 1, 2, 3, 8, 10, 11)) == "0-3,8,10,11"
    assert runs(range(0, 40, 2)).endswith("14 and 12 runs more")


def test_explain_names_what_limits_rings_and_shortens_parts():
    made = api.explain(topology("dgx-a100*10"), "allreduce")
    ways = {way.name: way for way in made.rates}
    assert ways["all disjoint rings"].remark == "8 units in all: no more leave ranks 0-7"
    assert ways["all disjoint rings"].units == Fraction(8 * 80, 2 * 79)
    assert "0-7 | 8-15 | 16-23 | 24-31 | and 6 more" in made.limit and made.parts[9] == tuple(range(72, 80))
    shown = CliRunner().invoke(root, ["explain", "--topo", "dgx-a100*2", "--coll", "allgather", "--format", "json"])
    document = json.loads(shown.stdout)
    assert document["rings"]["most"] and sum(cycle["units"] for cycle in document["rings"]["cycles"]) == 8
    assert document["open"] == [] and shown.exit_code == 0


def test_a_time_limit_leaves_what_was_found():
    with time_limited(Deadline.after(0)):
        found = search.disjoint_rings(topology("dgx-a100*2"))
    assert not found.complete and not found.proved_maximum
    shown = CliRunner().invoke(
        root, ["explain", "--topo", "dgx-a100*2", "--coll", "allreduce", "--time-limit", "0.001"]
    )
    assert shown.exit_code == 4 and "left open" in shown.output and "Traceback" not in shown.output


def test_one_rank_is_refused():
    with pytest.raises(UsageError, match="one rank"):
        api.explain(modify.apply(topology("dgx1"), ranks="3"), "allgather")


def test_parallel_links_that_were_left_out_leave_no_proof() -> None:
    """Sixty links between each two of eight ranks, two into and out of a ninth: two rings fit, though one link each
    does not show it."""
    pairs = [(a, b, 60) for a in range(1, 9) for b in range(1, 9) if a != b] + [(0, 1, 2), (2, 0, 2)]
    machine = Topology("many", 9, tuple(Link(a, b, Fraction(1)) for a, b, n in pairs for _ in range(n)))
    found = search.disjoint_rings(machine)
    assert found.units == 2 or not found.proved_maximum


def test_rings_in_pairs_where_links_are_wide_and_edges_are_left_over() -> None:
    """Links of unlike widths, parallel ones and a chord too many: cycles one each way, by hand within every link."""
    pairs = [(i, (i + 1) % 9, 3) for i in range(9)] + [(i, (i + 2) % 9, 2) for i in range(9)] + [(0, 4, 2), (0, 1, 1)]
    machine = Topology("wide", 9, tuple(Link(x, y, Fraction(n)) for a, b, n in pairs for x, y in ((a, b), (b, a))))
    wires = ring_network.of_machine(machine)
    *_, (width, made) = factor_annealing.opposite_pairs(wires, [2, 1], 0, 10, 4_000)
    assert (width, len(made)) == (1, 10)
    check.check(machine, [(order.tolist(), 1) for order, _ in made], [links.tolist() for _, links in made])
    one = Topology("limited", 9, machine.links, limits=(Limit("all", (0, 1), Fraction(1)),))
    assert not list(factor_annealing.opposite_pairs(ring_network.of_machine(one), [1], 0, 10, 100))
    assert not list(factor_annealing.opposite_pairs(ring_network.of_machine(_ring(6)), [1], 0, 1, 100))


def test_no_pairs_where_a_grid_has_no_way_round() -> None:
    assert not list(factor_annealing.opposite_pairs(ring_network.of_machine(topology("mesh:5x5")), [1], 0, 2, 300))

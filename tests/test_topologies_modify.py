"""Allocations, broken, slow and measured links."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import FormatError, UsageError
from synth.model.topology import Topology
from synth.topologies import topology
from synth.topologies.builders import preserves
from synth.topologies.modify import apply


def units(machine: Topology) -> dict[tuple[int, int], Fraction]:
    return {(k.src, k.dst): k.bandwidth / 25 for k in machine.links}


def test_an_allocation_renumbers_and_keeps_labels():
    whole, part = topology("dgx1"), apply(topology("dgx1"), ranks="0,1,2,5,7")
    assert (part.ranks, part.labels) == (5, (0, 1, 2, 5, 7))
    old = units(whole)
    expected = {
        (a, b): old[x, y] for a, x in enumerate(part.labels) for b, y in enumerate(part.labels) if (x, y) in old
    }
    assert units(part) == expected
    assert part.name == "dgx1-v100 --ranks 0,1,2,5,7"
    assert apply(part, ranks=[4, 0]).labels == (7, 0)


def test_ranges_and_order():
    assert apply(topology("dgx1"), ranks="6,0-2").labels == (6, 0, 1, 2)
    assert apply(topology("dgx2"), ranks=range(4)).labels == (0, 1, 2, 3)


def test_limits_follow_an_allocation():
    part = apply(topology("dgx2"), ranks="3,8,9")
    assert {m.bandwidth for m in part.limits} == {150}
    assert sorted(len(m.links) for m in part.limits) == [2] * 6
    for limit in part.limits:
        ends = {part.links[i].src for i in limit.links}, {part.links[i].dst for i in limit.links}
        assert min(map(len, ends)) == 1
    # With two ranks each limit has one link of the same bandwidth, and says nothing.
    assert apply(topology("dgx2"), ranks="3,8").limits == ()


def test_boxes_are_renumbered_and_switches_kept():
    assert apply(topology("dgx1*3"), ranks="8-9,17").nodes == (0, 0, 1)
    tree = apply(topology("fat-tree:16"), ranks="0,5,15")
    assert len(tree.switches) == 8
    assert {(r.src, r.dst) for r in tree.network().routes} == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_a_broken_pair_loses_all_units_both_ways():
    old, new = units(topology("dgx1")), units(apply(topology("dgx1"), without=["0-1"]))
    assert old[0, 1] == 2
    assert new == {pair: n for pair, n in old.items() if set(pair) != {0, 1}}


def test_a_slow_pair():
    old, machine = units(topology("dgx1")), apply(topology("dgx1"), degrade=["0-3:1/2", "0-1:0.75"])
    new = units(machine)
    assert new[0, 3] == new[3, 0] == old[0, 3] / 2
    assert new[0, 1] == new[1, 0] == Fraction(3, 2)
    assert machine.unit_bandwidth() == Fraction(25, 2)
    assert {pair for pair in old if old[pair] != new[pair]} == {(0, 3), (3, 0), (0, 1), (1, 0)}


def test_a_slow_rank_and_its_own_switch_port():
    def limits(machine):
        return {limit.name: limit.bandwidth for limit in machine.limits}

    old, machine = topology("dgx-h100"), apply(topology("dgx-h100"), degrade=["3:17/18"])
    assert {link.bandwidth for link in machine.links if 3 in (link.src, link.dst)} == {425}
    changed = {name for name, bandwidth in limits(machine).items() if bandwidth != limits(old)[name]}
    assert changed == {"switch port 3 out", "switch port 3 in"}
    assert {limits(machine)[name] for name in changed} == {425}
    # what ranks share is as fast as it was
    nics, slower = topology("dgx1*2"), apply(topology("dgx1*2"), degrade=["0:1/2"])
    shared = [limit.name for limit in nics.limits if len({nics.links[i].src for i in limit.links}) > 1]
    assert shared
    assert all(limits(slower)[name] == limits(nics)[name] for name in shared if name in limits(slower))


def test_numbers_are_the_machines_own_whatever_is_allocated():
    part = apply(topology("dgx1"), ranks="1,2,5,6", without=["5-6"], degrade=["1-5:1/2"])
    assert units(part) == {(0, 1): 1, (1, 0): 1, (0, 2): Fraction(1, 2), (2, 0): Fraction(1, 2), (1, 3): 2, (3, 1): 2}


def test_links_to_switches_can_break():
    tree = apply(topology("fat-tree:8:leaf=4,spines=2"), without=["leaf0-spine1", "0-leaf0"])
    assert not any(r.src == 0 or "spine1" in r.via for r in tree.network().routes)


def test_declared_symmetries_that_no_longer_hold_are_dropped():
    assert apply(topology("ring:6"), without=["0-1"]).generators == ()
    assert topology("dgx1").generators == ((2, 3, 0, 1, 6, 7, 4, 5), (4, 5, 6, 7, 0, 1, 2, 3))
    assert apply(topology("dgx1"), without=["0-4"]).generators == ((4, 5, 6, 7, 0, 1, 2, 3),)
    assert apply(topology("torus:4x4"), ranks="0-7").generators


@given(st.sampled_from(["dgx1", "dgx2", "torus:3x4", "hypercube:8", "dgx1*2", "mi100"]), st.data())
@settings(max_examples=40, deadline=None)
def test_what_symmetries_are_left_hold(name, data):
    whole = topology(name)
    pairs = sorted({(k.src, k.dst) for k in whole.links})
    gone = data.draw(st.lists(st.sampled_from(pairs), max_size=2, unique_by=frozenset))
    ranks = data.draw(st.lists(st.integers(0, whole.ranks - 1), unique=True, min_size=2))
    machine = apply(whole, without=[f"{a}-{b}" for a, b in gone], ranks=ranks)
    assert machine.labels == tuple(ranks)
    for pi in machine.generators:
        assert preserves(machine, pi)
    for limit in machine.limits:
        assert sum(machine.links[i].bandwidth for i in limit.links) > limit.bandwidth


def test_no_change_is_the_same_machine():
    machine = topology("dgx1")
    assert apply(machine) is machine


BAD = [
    ({"without": ["0-5"]}, "no link between 0 and 5; 0 is joined to 1, 2, 3, 4"),
    ({"without": ["0"]}, "such as 0-3"),
    ({"without": ["0-9"]}, "ranks of 0..7"),
    ({"without": ["0-3", "3-0"]}, "no link between"),
    ({"degrade": ["0-3"]}, "and a factor"),
    ({"degrade": ["0-3:2"]}, "at most 1"),
    ({"degrade": ["0-3:0"]}, "--without removes"),
    ({"degrade": ["0-3:nan"]}, "not a number"),
    ({"degrade": ["0-5:1/2"]}, "no link between"),
    ({"ranks": "0,9"}, "no rank 9"),
    ({"ranks": "0,0"}, "twice"),
    ({"ranks": "a"}, "neither a rank nor a range"),
    ({"ranks": "3-1"}, "neither a rank nor a range"),
    ({"ranks": []}, "empty"),
    ({"ranks": [-1]}, "no rank -1"),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_changes_that_make_no_sense(change, words):
    with pytest.raises(UsageError) as caught:
        apply(topology("dgx1"), **change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_measured_values_override_nominal_ones(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text("# by hand\nsrc,dst,bandwidth_gbps,latency_us\n0,1,48.5,0.9\n\n1, 0, 47, \n")
    machine = apply(topology("dgx1"), links=path)
    links = {(k.src, k.dst): k for k in machine.links}
    assert (links[0, 1].bandwidth, links[0, 1].latency) == (Fraction(97, 2), Fraction(9, 10))
    assert (links[1, 0].bandwidth, links[1, 0].latency) == (47, Fraction(7, 10))
    assert links[0, 2] == topology("dgx1").links[1]
    assert machine.unit_bandwidth() == Fraction(1, 2)
    assert machine.generators == ()
    assert machine.notes == ("measured values of 2 of 32 links from measured.csv; the others are nominal",)
    slow = apply(topology("dgx1"), links=path, degrade=["0-1:1/2"])
    assert {(k.src, k.dst): k.bandwidth for k in slow.links}[0, 1] == Fraction(97, 4)


HEAD = "src,dst,bandwidth_gbps\n"
BAD_CSV = [
    ("", None, "is empty"),
    ("a,b,c\n0,1,2\n", 1, "columns must be"),
    (HEAD, None, "lists no link"),
    (HEAD + "0,1\n", 2, "expected 3 values, found 2"),
    (HEAD + "0,5,20\n", 2, "has no link 0→5"),
    (HEAD + "0,x,20\n", 2, "has no link 0→x"),
    (HEAD + "0,1,20\n\n# again\n0,1,21\n", 5, "listed twice"),
    (HEAD + "0,1,nan\n", 2, "expected a number"),
    (HEAD + "0,1,-4\n", 2, "positive"),
    (HEAD + "0,1,0\n", 2, "positive"),
    ("src,dst,bandwidth_gbps,latency_us\n0,1,5,-1\n", 2, "at least 0"),
]


@pytest.mark.parametrize(("text", "line", "words"), BAD_CSV, ids=range(len(BAD_CSV)))
def test_bad_measurements_get_a_line_number(tmp_path, text, line, words):
    path = tmp_path / "measured.csv"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        apply(topology("dgx1"), links=path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}:" if line else f"{path}:")

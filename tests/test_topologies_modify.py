"""Allocations, broken, slow and measured links."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import FormatError, UsageError
from synth.topologies import topology
from synth.topologies.builders import preserves
from synth.topologies.modify import apply


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
    ({"without": ["0-5"]}, "no link between 0 and 5; 0 is joined to 1, 2, 3, 4"), ({"without": ["0"]}, "such as 0-3"),
    ({"without": ["0-9"]}, "ranks of 0..7"), ({"without": ["0-3", "3-0"]}, "no link between"),
    ({"degrade": ["0-3"]}, "and a factor"), ({"degrade": ["0-3:2"]}, "at most 1"),
    ({"degrade": ["0-3:0"]}, "--without removes"), ({"degrade": ["0-3:nan"]}, "not a number"),
    ({"degrade": ["0-5:1/2"]}, "no link between"), ({"ranks": "0,9"}, "no rank 9"), ({"ranks": "0,0"}, "twice"),
    ({"ranks": "a"}, "neither a rank nor a range"), ({"ranks": "3-1"}, "neither a rank nor a range"),
    ({"ranks": []}, "empty"), ({"ranks": [-1]}, "no rank -1"),
]  # fmt: skip


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

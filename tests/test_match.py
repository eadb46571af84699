from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.model.topology import Link, Topology
from synth.topologies import MACHINES, topology
from synth.topologies.importers import load
from synth.topologies.match import match
from synth.topologies.modify import apply

FIXTURES = Path(__file__).parent / "fixtures"


def relabelled(machine, pi):
    """Rank r becomes pi[r]."""
    links = tuple(replace(k, src=pi[k.src], dst=pi[k.dst]) for k in machine.links)
    return replace(machine, links=links, generators=())


def is_map(machine, other, ranks):
    """Return True if r -> ranks[r] maps `machine` to `other`."""
    there = {(k.src, k.dst): k.bandwidth for k in other.links}
    return there == {(ranks[k.src], ranks[k.dst]): k.bandwidth for k in machine.links}


@pytest.mark.parametrize("name", [n for n in MACHINES if n != "gb200-nvl72"])
def test_every_machine_is_itself(name):
    found = match(topology(name))
    assert found is not None
    assert name in (found.machine, *found.same)
    assert found.scale == 1


def test_a_dump_of_another_labelling():
    dump = load(FIXTURES / "nvidia-smi-hybrid-cube-mesh.txt")
    found = match(dump)
    assert found is not None
    assert found.machine == "dgx1-v100"
    assert found.ranks == (1, 6, 3, 4, 7, 0, 5, 2)  # the least of four
    assert is_map(topology("dgx1"), dump, found.ranks)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["dgx1", "dgx1-p100", "mi250", "mi50-z52", "mi100"]), st.data())
def test_any_labelling_is_found(name, data):
    machine = topology(name)
    other = relabelled(machine, data.draw(st.permutations(range(machine.ranks))))
    found = match(other, [name])
    assert found is not None
    assert is_map(machine, other, found.ranks)


def test_labels_are_the_machine_s_own():
    whole = apply(topology("dgx1*2:cross=0"), ranks="8-15")
    found = match(whole)
    assert found is not None
    assert found.labels == tuple(range(8, 16))
    assert found.ranks == tuple(range(8))


def test_the_machine_nearest_in_speed():
    made = topology("dgx-h100")
    slower = replace(
        made,
        links=tuple(replace(k, bandwidth=Fraction(400)) for k in made.links),
        limits=tuple(replace(m, bandwidth=Fraction(400)) for m in made.limits),
    )
    found = match(slower)
    assert found is not None
    assert (found.machine, found.scale) == ("dgx-h100", Fraction(8, 9))
    assert "8/9" in found.describe()


def test_pcie_may_differ():
    made = topology("mi100")
    slow = replace(made, links=tuple(replace(k, bandwidth=Fraction(12)) if k.kind == "pcie" else k for k in made.links))
    found = match(slow)
    assert found is not None
    assert (found.machine, found.fast_only) == ("mi100-4p3l", True)


def test_families_and_strangers():
    found = match(topology("torus:3x4"))
    assert found is not None
    assert found.machine == "torus:3x4"
    links = tuple(Link(u, v, Fraction(b)) for u, v, b in [(0, 1, 1), (1, 2, 2), (2, 0, 3)])
    assert match(Topology("odd", 3, links)) is None

"""A least R/C that no number of steps attains is distinguished from one that some number attains."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import synth
from synth import bounds
from synth.bounds.attainment import is_never_attained
from synth.model.collective import collective
from synth.model.topology import Link, Topology
from synth.topologies import topology


def floor_of(name, what):
    net = topology(name).network()
    task = collective(what, net.ranks)
    return net, task, bounds.flow(net, task, None)


@pytest.mark.parametrize(
    ("name", "what", "steps"),
    [
        ("dgx1", "allgather", 3),
        ("dgx1", "alltoall", 2),
        ("ring:8", "allgather", 4),
        ("hypercube:16", "allgather", 4),
        ("dgx2", "allgather", 1),
        pytest.param("dgx1*2:cross=0+2+5+7", "allgather", 6, marks=pytest.mark.slow),
        ("dgx1", "gather", 2),
        ("line:2", "broadcast", 1),
    ],
)
def test_what_is_attained_is_not_called_unattained(name, what, steps):
    net, task, floor = floor_of(name, what)
    assert bounds.flow(net, task, steps).value == floor.value
    assert not is_never_attained(net, task, floor)


@pytest.mark.parametrize(
    ("name", "what", "steps"),
    [
        pytest.param("mi250", "allgather", 5, marks=pytest.mark.slow),
        ("dgx1", "broadcast", 2),
        ("ring:5", "broadcast", 2),
        ("line:4", "broadcast", 3),
    ],
)
def test_what_is_never_attained_is_above_its_limit_at_every_number_of_steps(name, what, steps):
    net, task, floor = floor_of(name, what)
    assert is_never_attained(net, task, floor)
    assert all(bounds.flow(net, task, s).value > floor.value for s in range(steps, steps + 3))


def test_a_bound_without_static_cuts_says_nothing():
    net, task, floor = floor_of("dgx1", "broadcast")
    assert not is_never_attained(net, task, replace(floor, certificate={"kind": "distance", "pair": [0, 1]}))
    assert not is_never_attained(net, task, replace(floor, value=Fraction(0)))


def test_a_frontier_says_so(tmp_path):
    found = synth.frontier("ring:5", "broadcast", max_steps=3, log=tmp_path / "log")
    assert any("no number of steps attains it" in note for note in found.notes)


@pytest.mark.parametrize("what", ["reduce-scatter", "gather"])
def test_the_certificate_of_a_sum_is_not_read_as_that_of_its_reversal(what, tmp_path):
    net, task, floor = floor_of("dgx1", what)
    if task.combining:
        assert not is_never_attained(net.reversed(), task.reversed(), floor)
        forwards = bounds.flow(net.reversed(), task.reversed(), None)
        assert forwards.value == floor.value
        assert not is_never_attained(net.reversed(), task.reversed(), forwards)
    found = synth.frontier("dgx1", what, max_steps=2, log=tmp_path / "log")
    assert not any("no number of steps attains it" in note for note in found.notes)


def test_a_frontier_of_a_sum_says_so_by_its_reversal(tmp_path):
    found = synth.frontier("ring:5", "reduce", max_steps=3, log=tmp_path / "log")
    assert any("no number of steps attains it" in note for note in found.notes)


def test_parallel_routes_have_generators_that_permute_links_too():
    links = [Link(a, b, Fraction(1)) for a in range(4) for b in range(4) if (a < 3 or b < 3) and a != b]
    net = Topology("a triangle beside a switch", 3, tuple(links), (), ("s",)).network()
    task = collective("broadcast", 3)
    floor = bounds.flow(net, task, None)
    assert any(len(generator) == 3 for generator in floor.certificate["generators"])
    assert is_never_attained(net, task, floor)
    assert all(bounds.flow(net, task, s).value > floor.value for s in range(1, 5))

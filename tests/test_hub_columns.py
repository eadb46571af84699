"""Allreduce out of ways through hubs: the exchanges, their prices, and whole chunks of the fractions."""

from fractions import Fraction

import pytest

import synth
from synth.checker.schedule import replay
from synth.encodings import bounds
from synth.encodings.hubs.column_generation import HubTreeResult, search_hub_trees
from synth.encodings.hubs.exchanges import exchanges
from synth.model.sends.bitwise_equality import same_bits
from synth.pareto.combining.candidates import Candidates

ODD = [1, 2, 3, 4, 6]  # five GPUs of a DGX-1, with no symmetry


def network(name, ranks=None):
    return synth.topology(name, ranks=ranks).network()


def columns(net, *arguments):
    chunks = Candidates(net, synth.collective("allreduce", net.ranks)).columns()
    assert chunks is not None
    return search_hub_trees(chunks, *arguments)


def test_the_exchanges_that_links_allow():
    counts = [sum(bin(x.hubs).count("1") == k for x in exchanges(network("ring:4"))) for k in range(1, 5)]
    assert counts == [4, 4, 0, 2], "a ring of four swaps along two pairs of its links first, or along the other two"
    assert sum(x.hubs == 15 for x in exchanges(network("fully-connected:4"))) == 1 + 6, (
        "all at once, or two and two, in any order"
    )


@pytest.mark.parametrize("steps", [3, 5, 7])
def test_fractions_meet_the_bound_on_an_odd_machine(steps):
    net = network("dgx1", ODD)
    task = synth.collective("allreduce", net.ranks)
    bound = bounds.flow(net, task, steps).value
    found = columns(net, steps, bound, None, 2.0, 0)
    assert found.value == pytest.approx(float(bound))
    assert found.schedule is not None
    replay.schedule(found.schedule)
    assert found.schedule.rounds_per_chunk == bound


def test_same_bits_where_asked():
    net = network("dgx1", [0, 1, 2, 3, 4, 5, 6])
    free, alike = (columns(net, 3, Fraction(5, 7), None, 1.0, 0, asked) for asked in (False, True))
    assert free.schedule is not None and alike.schedule is not None
    assert (free.schedule.rounds_per_chunk, alike.schedule.rounds_per_chunk) == (Fraction(3, 4), 1), (
        "three hubs that exchange at once cost the same bits"
    )
    assert same_bits(alike.schedule) and not same_bits(free.schedule)


def test_dives_find_what_the_fractions_are_not_whole_for():
    net = network("dgx1", [0, 1, 2, 3, 4, 5, 6])
    found = columns(net, 5, Fraction(16, 39), None, 4.0, 0)
    assert found.value == pytest.approx(7 / 17)
    assert found.schedule is not None
    replay.schedule(found.schedule)
    assert Fraction(7, 17) <= found.schedule.rounds_per_chunk < Fraction(7, 17) * Fraction(104, 100)


def test_too_few_steps_for_hubs():
    net = network("ring:8")
    assert columns(net, 4, Fraction(1), None, 1.0, 0) == HubTreeResult(None, None)


def test_nothing_below_what_is_known():
    net = network("dgx1", ODD)
    found = columns(net, 5, Fraction(1), Fraction(8, 5), 1.0, 0)
    assert found.schedule is None
    assert found.value == pytest.approx(1.6)


def test_a_frontier_of_an_odd_machine_is_proved():
    frontier = synth.frontier(synth.topology("dgx1", ranks=ODD), "allreduce", max_steps=7)
    assert [(p.steps, p.rounds_per_chunk) for p in frontier.points] == [
        (3, Fraction(5, 2)), (4, Fraction(2)), (5, Fraction(8, 5)), (6, Fraction(10, 7)), (7, Fraction(22, 17)),
    ]  # fmt: skip
    assert frontier.complete
    assert all(p.same_bits for p in frontier.points)

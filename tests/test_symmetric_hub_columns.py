"""Mixtures of hubs: the price of a way, moves that keep schedules right, and whole chunks that meet the bound."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from synth.checker.schedule import replay as verify
from synth.encodings.hubs import symmetric_column_generation
from synth.encodings.hubs.annealing import LoadLimits, anneal_loads
from synth.encodings.hubs.symmetric_column_generation import SymmetricHubPathPricer, fractions, rounds_of
from synth.encodings.translated_chunks import TranslatedChunks
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.step_routes import rounds_for
from synth.model.topology import Network, Route
from synth.pareto.combining.candidates import Candidates
from synth.pareto.combining.symmetry_candidates import symmetry_candidates
from synth.topologies import topology


def net(name):
    return topology(name).network()


def alone(network, steps, chunk, routes):
    """The schedule of one chunk that goes as `chunk` says, with as many rounds as it takes."""
    sends = [[] for _ in range(steps)]
    for step, i, kind in chunk.sends(routes):
        r = network.routes[i]
        sends[step - 1].append(Send(0, r.src, r.dst, kind, r.via))
    made = Schedule(
        network, collective("allreduce", network.ranks), 1, tuple(Step(1, tuple(sorted(row))) for row in sends)
    )
    return replace(made, steps=tuple(Step(rounds_for(made.network, step.sends), step.sends) for step in made.steps))


@pytest.mark.parametrize(("name", "steps"), [("dgx1", 4), ("dgx1", 5), ("ring:6", 6), ("hypercube:8", 6)])
def test_every_way_is_a_right_schedule_of_least_sends_and_costs_what_its_sends_cost(name, steps):
    network = net(name)
    ways, rng = SymmetricHubPathPricer(network, steps), np.random.default_rng(3)
    for _ in range(4):
        prices = rng.random((len(network.routes), steps))
        found = ways.price(prices)
        assert found
        assert {len(way.hubs) for way in found} <= {1, 2}
        for way in found:
            tree = ways.tree(way)
            assert sum(prices[i, t - 1] for t, i in tree) == pytest.approx(way.cost)
            replay = verify.schedule(alone(network, steps, ways.chunk(tree), ways.route))
            assert replay.sends == 2 * (network.ranks - 1)


def test_the_cheapest_way_is_the_cheapest_of_all_on_a_line():
    network = Network("line", 3, tuple(Route(a, b, 1) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))))
    prices = np.array([[1.0, 5.0, 9.0], [9.0, 5.0, 1.0], [9.0, 9.0, 1.0], [3.0, 9.0, 9.0]])
    found = SymmetricHubPathPricer(network, 3).price(
        prices
    )  # 0 and 2 send to 1 in step 1 or 2, and 1 sends back in step 2 or 3
    assert found[0].cost == pytest.approx(1.0 + 3.0 + 1.0 + 1.0)
    assert found[0].hubs == (1,)


def one_by_one(network, steps, most):
    """Every route carries so many chunks in every step."""
    count = len(network.routes)
    return LoadLimits([[(), *((i * steps + t,) for t in range(steps))] for i in range(count)], [most] * (count * steps))


@pytest.mark.parametrize(
    ("rounds", "steps", "each"),
    [(42, 5, [9, 8, 8, 8, 9]), (28, 5, [6, 5, 6, 5, 6]), (7, 6, [1, 1, 1, 1, 1, 2]), (12, 3, [4] * 3)],
)
def test_rounds_of_steps(rounds, steps, each):
    assert sorted(rounds_of(rounds, steps)) == sorted(each)
    assert sum(rounds_of(rounds, steps)) == rounds
    if each == each[::-1]:
        assert rounds_of(rounds, steps) == each


@pytest.mark.parametrize(("name", "steps"), [("dgx1", 5), ("ring:6", 7), ("hypercube:8", 7)])
def test_whatever_local_search_does_each_chunk_stays_a_right_schedule(name, steps):
    network = net(name)
    ways, rng = SymmetricHubPathPricer(network, steps), np.random.default_rng(1)
    chunks = []
    for _ in range(3):
        chunks += [ways.chunk(ways.tree(way)) for way in ways.price(rng.random((len(network.routes), steps)))[:20:3]]
    limits = one_by_one(network, steps, 1)
    before = [sorted(chunk.sends(ways.route)) for chunk in chunks]
    swaps = [chunk.swap for chunk in chunks]
    for seed in range(6):
        anneal_loads(chunks, network, steps, limits, 1500, seed)
        for chunk in chunks:
            verify.schedule(alone(network, steps, chunk, ways.route))
            backwards = chunk.mirrored(steps, [ways.route[r.dst, r.src] for r in network.routes])
            verify.schedule(alone(network, steps, backwards, ways.route))
    assert (
        sum(sorted(chunk.sends(ways.route)) != was for chunk, was in zip(chunks, before, strict=True))
        > len(chunks) // 2
    )
    assert swaps != [chunk.swap for chunk in chunks]  # hubs join, part, or swap at another step


def test_local_search_says_that_it_is_done_only_where_all_fits():
    network = net("ring:6")
    ways = SymmetricHubPathPricer(network, 7)
    way = ways.price(np.ones((len(network.routes), 7)))[0]
    for most, seed in ((1, 0), (2, 1), (3, 2)):
        chunks = [ways.chunk(ways.tree(way)) for _ in range(4)]
        done, _ = anneal_loads(chunks, network, 7, one_by_one(network, 7, most), 20_000, seed)
        count = {}
        for chunk in chunks:
            for step, i, _ in chunk.sends(ways.route):
                count[step, i] = count.get((step, i), 0) + 1
        assert done == (max(count.values()) <= most)


def dgx1(steps, value):
    network = net("dgx1")
    asked = Candidates(network, collective("allreduce", 8)).mixture(steps, value)
    assert asked is not None
    return asked


@pytest.mark.parametrize("steps", [5, 6])
def test_fractions_meet_the_bound_and_go_no_lower(steps):
    asked = dgx1(steps, Fraction(7, 24))
    assert asked.value == Fraction(7, 24)
    rounds = rounds_of(asked.rounds, steps)
    for exact in (True, False):
        share, _ = fractions(SymmetricHubPathPricer(net("dgx1"), steps), asked.translation, rounds, 0, exact)
        assert share is not None
        assert sum(share.values()) == pytest.approx(1.0)
        assert (
            fractions(
                SymmetricHubPathPricer(net("dgx1"), steps), asked.translation, [*rounds[:-1], rounds[-1] - 1], 0, exact
            )[0]
            is None
        )


def test_too_few_steps_for_hubs():
    network = net("ring:8")
    translation = TranslatedChunks(
        network,
        collective("allreduce", 8),
        symmetry_candidates(network, collective("allreduce", 8))[0],
        16,
    )
    assert symmetric_column_generation.solve(translation, 4, 32, 1, 0) == symmetric_column_generation.HubSearchResult(
        False, None, 0.0
    )


@pytest.mark.parametrize("steps", [5, 6])
def test_whole_chunks_that_fill_every_link_in_every_step(steps):
    asked = dgx1(steps, Fraction(7, 24))
    found = symmetric_column_generation.solve(asked.translation, steps, asked.rounds, 16, 0)
    assert found.reached
    assert found.schedule is not None
    replay = verify.schedule(found.schedule)
    assert (replay.steps, replay.rounds_per_chunk, replay.chunks) == (steps, Fraction(7, 24), 144)
    assert replay.sends == 14 * 144
    doc = found.schedule.to_json()
    doc["steps"][2]["sends"].pop()
    doc.pop("fingerprint")
    with pytest.raises(VerificationError):
        verify.schedule(doc)

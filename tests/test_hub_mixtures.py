"""Mixtures of hubs: the price of a way, moves that keep schedules right, and whole chunks that meet the bound."""

from fractions import Fraction

import numpy as np
import pytest

import synth
from synth.checker.schedule import replay
from synth.checker.schedule import replay as verify
from synth.encodings import bounds
from synth.encodings.hubs import annealing
from synth.encodings.hubs.column_generation import HubTreeResult, search_hub_trees
from synth.encodings.hubs.exchanges import HubPathPricer, exchanges
from synth.encodings.translated_chunks import TranslatedChunks
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.bitwise_equality import same_bits
from synth.model.sends.step_routes import rounds_for
from synth.model.topology import Network, Route
from synth.pareto.combining.candidates import Candidates
from synth.pareto.combining.symmetry_candidates import symmetry_candidates


def net(name, ranks=None):
    return synth.topology(name, ranks=ranks).network()


def replayed(network, steps, sends):
    """The replay of the schedule of one chunk that goes as `sends` say, with as many rounds as it takes."""
    rows = [[] for _ in range(steps)]
    for step, i, kind in sends:
        r = network.routes[i]
        rows[step - 1].append(Send(0, r.src, r.dst, kind, r.via))
    made = tuple(Step(rounds_for(network, row), tuple(sorted(row))) for row in rows)
    return verify.schedule(Schedule(network, collective("allreduce", network.ranks), 1, made))


@pytest.mark.parametrize(("name", "steps"), [("dgx1", 4), ("dgx1", 5), ("ring:6", 6), ("hypercube:8", 6)])
def test_every_way_is_a_right_schedule_of_least_sends_and_costs_what_its_sends_cost(name, steps):
    network = net(name)
    ways, rng = HubPathPricer(network, steps, most_hubs=2), np.random.default_rng(3)
    for _ in range(4):
        prices = rng.random((len(network.routes), steps))
        found = ways.price(prices)
        assert found
        for way in found:
            sends = ways.sends(way)
            assert sum(prices[i, t - 1] for t, i, _ in sends) == pytest.approx(way.cost)
            assert sorted(annealing.HubChunk.of(sends, network, steps).sends(steps)) == sorted(sends)
            assert replayed(network, steps, sends).sends == 2 * (network.ranks - 1)


def test_the_cheapest_way_is_the_cheapest_of_all_on_a_line():
    network = Network("line", 3, tuple(Route(a, b, 1) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))))
    prices = np.array([[1.0, 5.0, 9.0], [9.0, 5.0, 1.0], [9.0, 9.0, 1.0], [3.0, 9.0, 9.0]])
    ways = HubPathPricer(network, 3, most_hubs=2)
    best = ways.price(prices)[0]  # 0 and 2 send to 1 in step 1 or 2, and 1 sends back in step 2 or 3
    assert best.cost == pytest.approx(1.0 + 3.0 + 1.0 + 1.0)
    assert ways.exchanges[best.exchange].hubs == 1 << 1


def one_by_one(network, steps, most):
    """Every route carries so many chunks in every step."""
    count = len(network.routes)
    rows = [[(), *((i * steps + t,) for t in range(steps))] for i in range(count)]
    return annealing.LoadLimits(rows, [most] * (count * steps), [])


@pytest.mark.parametrize(("name", "steps"), [("dgx1", 5), ("ring:6", 7), ("hypercube:8", 7)])
def test_whatever_local_search_does_each_chunk_stays_a_right_schedule(name, steps, monkeypatch):
    monkeypatch.setattr(annealing, "PROPOSALS", 1500)
    network = net(name)
    ways, rng = HubPathPricer(network, steps, most_hubs=2), np.random.default_rng(1)
    opposite = {(r.src, r.dst): i for i, r in enumerate(network.routes)}
    back = [opposite[r.dst, r.src] for r in network.routes]
    chunks = []
    for _ in range(3):
        for way in ways.price(rng.random((len(network.routes), steps)))[:20:3]:
            chunks.append(annealing.HubChunk.of(ways.sends(way), network, steps))
    before = [sorted(chunk.sends(steps)) for chunk in chunks]
    for seed in range(6):
        annealing.anneal(chunks, network, steps, one_by_one(network, steps, 1), seed)
        for chunk in chunks:
            replayed(network, steps, chunk.sends(steps))
            replayed(network, steps, chunk.reversed(steps, back).sends(steps))
    moved = [sorted(chunk.sends(steps)) != was for chunk, was in zip(chunks, before, strict=True)]
    assert sum(moved) > len(chunks) // 2


def test_local_search_says_that_it_is_done_only_where_all_fits(monkeypatch):
    monkeypatch.setattr(annealing, "PROPOSALS", 20_000)
    network = net("ring:6")
    ways = HubPathPricer(network, 7, most_hubs=2)
    way = ways.price(np.ones((len(network.routes), 7)))[0]
    for most, seed in ((1, 0), (2, 1), (3, 2)):
        chunks = [annealing.HubChunk.of(ways.sends(way), network, 7) for _ in range(4)]
        done = annealing.anneal(chunks, network, 7, one_by_one(network, 7, most), seed)
        count = {}
        for chunk in chunks:
            for step, i, _ in chunk.sends(7):
                count[step, i] = count.get((step, i), 0) + 1
        assert (done is not None) == (max(count.values()) <= most)


def test_too_few_steps_for_hubs():
    network, task = net("ring:8"), collective("allreduce", 8)
    translation = TranslatedChunks(network, task, symmetry_candidates(network, task)[0], 16)
    assert annealing.solve(translation, 4, 32, 1, 0)[0] is None
    assert columns(network, 4, Fraction(1), None, 1.0, 0) == HubTreeResult(None, None)


@pytest.mark.parametrize(("steps", "value"), [(5, Fraction(7, 24)), (6, Fraction(7, 24)), (5, Fraction(41, 144))])
def test_whole_chunks_that_fill_every_link_in_every_step(steps, value):
    asked = Candidates(net("dgx1"), collective("allreduce", 8)).mixture(steps, Fraction(7, 24))
    assert asked is not None and asked.value == Fraction(7, 24) and asked.translation.chunks == 144
    schedule, _ = annealing.solve(asked.translation, steps, int(144 * value), 16, 0)
    if value < Fraction(7, 24):  # the bound: no fractions go lower
        assert schedule is None
        return
    assert schedule is not None
    replay = verify.schedule(schedule)
    assert (replay.steps, replay.rounds_per_chunk, replay.chunks) == (steps, value, 144)
    assert replay.sends == 14 * 144
    doc = schedule.to_json()
    doc["steps"][2]["sends"].pop()
    doc.pop("fingerprint")
    with pytest.raises(VerificationError):
        verify.schedule(doc)


# ---------------------------------------------------------------- allreduces by column generation over hubs


ODD = [1, 2, 3, 4, 6]  # five GPUs of a DGX-1, with no symmetry


def columns(machine, *arguments):
    chunks = Candidates(machine, synth.collective("allreduce", machine.ranks)).columns()
    assert chunks is not None
    return search_hub_trees(chunks, *arguments)


def test_the_exchanges_that_links_allow():
    counts = [sum(bin(x.hubs).count("1") == k for x in exchanges(net("ring:4"))) for k in range(1, 5)]
    assert counts == [4, 4, 0, 2], "a ring of four swaps along two pairs of its links first, or along the other two"
    assert sum(x.hubs == 15 for x in exchanges(net("fully-connected:4"))) == 1 + 6, (
        "all at once, or two and two, in any order"
    )


@pytest.mark.parametrize("steps", [3, 5, 7])
def test_fractions_meet_the_bound_on_an_odd_machine(steps):
    machine = net("dgx1", ODD)
    task = synth.collective("allreduce", machine.ranks)
    bound = bounds.flow(machine, task, steps).value
    found = columns(machine, steps, bound, None, 2.0, 0)
    assert found.value == pytest.approx(float(bound))
    assert found.schedule is not None
    replay.schedule(found.schedule)
    assert found.schedule.rounds_per_chunk == bound


def test_same_bits_where_asked():
    machine = net("dgx1", [0, 1, 2, 3, 4, 5, 6])
    free, alike = (columns(machine, 3, Fraction(5, 7), None, 1.0, 0, asked) for asked in (False, True))
    assert free.schedule is not None and alike.schedule is not None
    assert (free.schedule.rounds_per_chunk, alike.schedule.rounds_per_chunk) == (Fraction(3, 4), 1), (
        "three hubs that exchange at once cost the same bits"
    )
    assert same_bits(alike.schedule) and not same_bits(free.schedule)


def test_dives_find_what_the_fractions_are_not_whole_for():
    machine = net("dgx1", [0, 1, 2, 3, 4, 5, 6])
    found = columns(machine, 5, Fraction(16, 39), None, 4.0, 0)
    assert found.value == pytest.approx(7 / 17)
    assert found.schedule is not None
    replay.schedule(found.schedule)
    assert Fraction(7, 17) <= found.schedule.rounds_per_chunk < Fraction(7, 17) * Fraction(104, 100)


def test_nothing_below_what_is_known():
    machine = net("dgx1", ODD)
    found = columns(machine, 5, Fraction(1), Fraction(8, 5), 1.0, 0)
    assert found.schedule is None
    assert found.value == pytest.approx(1.6)


def test_a_frontier_of_an_odd_machine_is_proved():
    frontier = synth.frontier(synth.topology("dgx1", ranks=ODD), "allreduce", max_steps=7)
    assert [(p.steps, p.rounds_per_chunk) for p in frontier.points] == [
        (3, Fraction(5, 2)), (4, Fraction(2)), (5, Fraction(8, 5)), (6, Fraction(10, 7)), (7, Fraction(22, 17)),
    ]  # fmt: skip
    assert frontier.complete
    assert all(p.same_bits for p in frontier.points)

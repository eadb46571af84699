"""Scan and custom combining collectives: the direct encoding with wanted sets; every schedule is replayed."""

import random
from fractions import Fraction

import pytest

from synth.checker.schedule import replay
from synth.encodings import contributions
from synth.encodings.translated_chunks import TranslatedChunks
from synth.errors import InfeasibleError
from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective, collective
from synth.model.frontier import Open, Point
from synth.model.topology import Link, Topology
from synth.pareto.combining import combining_frontier
from synth.pareto.combining.symmetry_candidates import symmetry_candidates
from synth.solvers.cadical import Cadical
from synth.solvers.processes.deadline import Budget
from synth.topologies import topology


def items(network, task, **options):
    return list(combining_frontier.points(network, task, budget=Budget(), **options))


def check(found):
    """Every point replays; every S has a point, an interval or a bound."""
    best = None
    for item in found:
        if isinstance(item, Point):
            replay.schedule(item.schedule)
            assert item.bound.value <= item.rounds_per_chunk
            assert best is None or item.rounds_per_chunk < best
            best = item.rounds_per_chunk
        elif isinstance(item, Open):
            assert item.upper == best is not None
            assert item.lower < item.upper
    return [item for item in found if isinstance(item, Point)]


def test_scan_on_a_line_needs_one_step_a_hop():
    network = topology("line:4").network()
    found = check(items(network, collective("scan", 4), max_steps=3))
    assert (found[0].steps, found[0].rounds_per_chunk, found[0].status) == (3, 3, "optimal")


def test_scan_on_a_dgx1_attains_what_cuts_say_in_two_and_three_steps():
    """Relays add their own input when what they passed on has left: without that two steps need 3/2."""
    network = topology("dgx1").network()
    points = check(items(network, collective("scan", 8), max_steps=3))
    assert [(p.steps, p.rounds_per_chunk, p.status) for p in points] == [
        (2, 1, "optimal"),
        (3, Fraction(1, 2), "optimal"),
    ]
    assert any(send.local for point in points for step in point.schedule.steps for send in step.sends)


@pytest.mark.parametrize("rounds", [1, 2])
def test_all_prefixes_of_a_pair(rounds):
    network = topology("line:2").network()
    task = collective("scan", 2)
    model, read = contributions.encode(
        TranslatedChunks(network, task, symmetry_candidates(network, task)[-1].translations, rounds), 1, rounds
    )
    answer = Cadical().solve(model)
    schedule = read({v for v, holds in enumerate(answer.values) if holds})
    assert replay.schedule(schedule).rounds_per_chunk == 1
    assert [s[1:4] for s in schedule.steps[0].sends] == [(0, 1, "reduce")] * rounds
    assert same_bits(schedule)


def sums(ranks, *units):
    """A combining collective: each unit from some contributors to some ranks."""
    pre, post = zip(*units, strict=True)
    return Collective("sums", ranks, tuple(map(frozenset, pre)), tuple(map(frozenset, post)), True)


def test_contributors_and_receivers_may_be_apart():
    network = topology("line:4").network()
    found = check(items(network, sums(4, ({0, 1}, {2, 3})), max_steps=3))
    assert (found[0].steps, found[0].rounds_per_chunk, found[0].status) == (3, 3, "optimal")


def test_several_units_share_the_links():
    network = topology("ring:4").network()
    found = check(items(network, sums(4, ({0, 1}, {0, 1}), ({2, 3}, {2, 3})), max_steps=1))
    assert (found[0].steps, found[0].rounds_per_chunk, found[0].status) == (1, Fraction(1), "optimal")


def test_what_cannot_be_reached_is_infeasible():
    network = Topology("apart", 3, (Link(0, 1, Fraction(1)), Link(1, 0, Fraction(1)))).network()
    with pytest.raises(InfeasibleError):
        items(network, collective("allreduce", 3))


@pytest.mark.parametrize("machine", ["line:3", "ring:4"])
def test_a_rank_that_holds_nothing_sends_nothing(machine):
    """Where some ranks contribute nothing every answer of the encoding is a schedule that replays."""
    network, rng, found = topology(machine).network(), random.Random(7), 0
    for _ in range(30):
        pre = {r for r in range(network.ranks) if rng.random() < 0.5} or {0}
        wants = [
            (r, frozenset(i for i in pre if rng.random() < 0.7) or frozenset(pre))
            for r in range(network.ranks)
            if rng.random() < 0.5
        ]
        wants = wants or [(0, frozenset(pre))]
        post = frozenset(r for r, _ in wants)
        task = Collective("custom", network.ranks, (frozenset(pre),), (post,), True, (), (tuple(wants),))
        for chunks, steps in ((1, 2), (2, 4), (3, 5)):
            model, read = contributions.encode(
                TranslatedChunks(network, task, symmetry_candidates(network, task)[-1].translations, chunks),
                chunks,
                steps,
            )
            answer = Cadical(seed=chunks).solve(model)
            if answer.status == "sat":
                found += 1
                replay.schedule(read({v for v, holds in enumerate(answer.values) if holds}))
    assert found > 20

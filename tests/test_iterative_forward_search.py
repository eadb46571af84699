"""Chunks of a combining collective placed one by one: what does not fit is not found."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from synth.checker.schedule import replay as verify
from synth.encodings.chunk_mixtures import iterative_forward_search
from synth.encodings.chunk_mixtures.incremental_sat import OneChunk
from synth.encodings.chunk_mixtures.iterative_forward_search import IterativeForwardSearch
from synth.model.collective import collective
from synth.model.frontier import Open, Point
from synth.model.schedule import Schedule
from synth.model.topology import Cap, Network, Route
from synth.pareto.combining import combining_frontier
from synth.solvers.processes.deadline import Budget
from synth.topologies import topology

PLENTY = 40_000_000
SCAN = collective("scan", 8)
DGX1 = topology("dgx1").network()


def placed(network: Network, chunks: int, rounds: list[int], propagations: int, seed: int) -> Schedule | None:
    """A schedule of a scan of so many chunks with these rounds of each step."""
    one = OneChunk(network, collective("scan", network.ranks), len(rounds))
    try:
        search = IterativeForwardSearch(one, rounds, random.Random(seed), propagations)
        return one.schedule(search.best) if search.run(chunks) else None
    finally:
        one.delete()


@pytest.mark.parametrize(("chunks", "rounds"), [(4, [1, 1, 1]), (7, [2, 1, 1, 1]), (9, [2, 1, 1, 1, 1])])
def test_what_is_placed_replays_with_no_more_rounds_than_asked(chunks: int, rounds: list[int]) -> None:
    found = placed(DGX1, chunks, rounds, PLENTY, 0)
    assert found is not None
    replay = verify.schedule(found)
    assert (replay.chunks, replay.steps) == (chunks, len(rounds))
    assert replay.rounds <= sum(rounds)


def test_chunks_move_out_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    plain = IterativeForwardSearch._chunk_to_eject
    monkeypatch.setattr(IterativeForwardSearch, "_chunk_to_eject", lambda self: moved.append(plain(self)) or moved[-1])
    found = placed(DGX1, 6, [1, 1, 1], PLENTY, 0)
    assert found is not None
    assert verify.schedule(found).rounds_per_chunk == Fraction(1, 2)
    assert len(moved) > 1
    assert set(moved) <= set(range(6))


@pytest.mark.parametrize("seed", range(3))
def test_the_same_arguments_give_the_same_answer(seed: int) -> None:
    first, second = (placed(DGX1, 6, [1] * 4, PLENTY, seed) for _ in range(2))
    assert first is not None
    assert first == second


def test_no_more_than_fits() -> None:
    """The bound at three steps is 1/2: six chunks would meet it, seven would break it."""
    assert placed(DGX1, 7, [1, 1, 1], 1_000_000, 0) is None


def test_one_that_finds_no_room_alone_ends_the_search() -> None:
    assert placed(topology("line:4").network(), 1, [1, 1], PLENTY, 0) is None


def test_an_effort_of_nothing_finds_nothing() -> None:
    assert placed(DGX1, 4, [1, 1, 1], 0, 0) is None


def test_it_is_for_one_unit_on_links_alone() -> None:
    capped = Network("capped", 2, (Route(0, 1, 2),), (Cap((0,), 1),))
    assert iterative_forward_search.applies(DGX1, SCAN)
    assert not iterative_forward_search.applies(capped, collective("scan", 2))
    assert not iterative_forward_search.applies(DGX1, collective("broadcast", 8))
    assert not iterative_forward_search.applies(DGX1, collective("reduce-scatter", 8))


def test_a_scan_on_a_dgx1_gets_better_with_a_step_more() -> None:
    found = list(combining_frontier.points(DGX1, SCAN, budget=Budget(deterministic=True), max_steps=3))
    points = {item.steps: item.rounds_per_chunk for item in found if isinstance(item, Point)}
    assert points[2] == 1
    assert points[3] <= Fraction(3, 5)
    for item in found:
        if isinstance(item, Point):
            verify.schedule(item.schedule)
        if isinstance(item, Open):
            assert item.upper == min(points.values())

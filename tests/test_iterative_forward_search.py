"""Chunks of a combining collective placed one by one: every schedule replays; what does not fit is not found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from synth.checker.schedule import replay as verify
from synth.encodings.chunk_mixtures import iterative_forward_search
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.collective import Collective, collective
from synth.model.frontier import Open, Point
from synth.model.symmetry import Generator
from synth.model.topology import Cap, Network, Route
from synth.pareto.combining import combining_frontier, search_at_steps
from synth.solvers.processes.deadline import Budget
from synth.topologies import topology

PLENTY = 40_000_000
SCAN = collective("scan", 8)
DGX1 = topology("dgx1").network()


def asked(network: Network, task: Collective, chunks: int) -> TranslatedChunks:
    same = Generator(tuple(range(network.ranks)), tuple(range(len(network.routes))), (0,))
    return TranslatedChunks(network, task, (same,), chunks)


@pytest.mark.parametrize(("chunks", "steps", "rounds"), [(4, 3, 3), (7, 4, 5), (9, 5, 6)])
def test_what_is_placed_replays_with_no_more_rounds_than_asked(chunks: int, steps: int, rounds: int) -> None:
    found = iterative_forward_search.place_chunks(asked(DGX1, SCAN, chunks), steps, rounds, PLENTY, 0).schedule
    assert found is not None
    replay = verify.schedule(found)
    assert (replay.chunks, replay.steps) == (chunks, steps)
    assert steps <= replay.rounds <= rounds


def test_chunks_move_out_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    plain = iterative_forward_search.Search._chunk_to_eject
    monkeypatch.setattr(
        iterative_forward_search.Search, "_chunk_to_eject", lambda self: moved.append(plain(self)) or moved[-1]
    )
    found = iterative_forward_search.place_chunks(asked(DGX1, SCAN, 6), 3, 3, PLENTY, 0).schedule
    assert found is not None
    assert verify.schedule(found).rounds_per_chunk == Fraction(1, 2)
    assert len(moved) > 1
    assert set(moved) <= set(range(6))


@pytest.mark.parametrize("seed", range(3))
def test_the_same_arguments_give_the_same_answer(seed: int) -> None:
    first, second = (iterative_forward_search.place_chunks(asked(DGX1, SCAN, 6), 4, 4, PLENTY, seed) for _ in range(2))
    assert first.schedule is not None
    assert (first.schedule.to_json(), first.work) == (second.schedule and second.schedule.to_json(), second.work)


def test_no_more_than_fits() -> None:
    """The bound at three steps is 1/2: six chunks would meet it, seven would break it."""
    assert iterative_forward_search.place_chunks(asked(DGX1, SCAN, 7), 3, 3, 1_000_000, 0).schedule is None


def test_one_that_finds_no_room_alone_ends_the_search() -> None:
    network = topology("line:4").network()
    found = iterative_forward_search.place_chunks(asked(network, collective("scan", 4), 1), 2, 2, PLENTY, 0)
    assert found.schedule is None
    assert found.work < 1


def test_an_effort_of_nothing_finds_nothing() -> None:
    assert iterative_forward_search.place_chunks(asked(DGX1, SCAN, 4), 3, 3, 0, 0).schedule is None


def test_fewer_rounds_than_steps_are_refused() -> None:
    assert iterative_forward_search.place_chunks(asked(DGX1, SCAN, 1), 3, 2, PLENTY, 0).schedule is None


def test_it_is_for_one_unit_on_links_alone() -> None:
    capped = Network("capped", 2, (Route(0, 1, 2),), (Cap((0,), 1),))
    assert iterative_forward_search.applies(DGX1, SCAN)
    assert not iterative_forward_search.applies(capped, collective("scan", 2))
    assert not iterative_forward_search.applies(DGX1, collective("broadcast", 8))
    assert not iterative_forward_search.applies(DGX1, collective("reduce-scatter", 8))


def test_a_scan_on_a_dgx1_gets_better_with_a_step_more(monkeypatch: pytest.MonkeyPatch) -> None:
    efforts = (("meet", 2_000), ("place", 1))
    settings = replace(search_at_steps.SETTINGS, other_efforts=efforts, placement_propagations=PLENTY // 40)
    monkeypatch.setattr(search_at_steps, "SETTINGS", settings)
    found = list(combining_frontier.points(DGX1, SCAN, budget=Budget(deterministic=True), max_steps=3))
    points = {item.steps: item.rounds_per_chunk for item in found if isinstance(item, Point)}
    assert points[2] == 1
    assert points[3] <= Fraction(3, 5)
    for item in found:
        if isinstance(item, Point):
            verify.schedule(item.schedule)
        if isinstance(item, Open):
            assert item.upper == min(points.values())

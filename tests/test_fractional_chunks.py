"""Fractions of chunks, and whole ones from these: every schedule replays, more steps are used, and nothing is claimed
below the bound."""

from __future__ import annotations

from fractions import Fraction

import pytest

from synth import bounds
from synth.checker.schedule import replay as verify
from synth.encodings.chunk_mixtures import fractional_chunks
from synth.encodings.chunk_mixtures.incremental_sat import OneChunk
from synth.encodings.chunk_mixtures.iterative_forward_search import PlacementResult
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.collective import Collective, collective
from synth.model.schedule import Schedule
from synth.model.symmetry import Generator
from synth.model.topology import Cap, Network, Route
from synth.pareto.combining.attempts import Attempt, run_attempt
from synth.topologies import topology

SCAN = collective("scan", 8)
DGX1 = topology("dgx1").network()
RING = topology("ring:4").network()
FEW = 1_500_000


def blended(
    network: Network,
    task: Collective,
    steps: int,
    propagations: int = FEW,
    below: Fraction | None = None,
    *start: Schedule,
) -> PlacementResult:
    least = bounds.combining(network, task, steps).value
    return fractional_chunks.search_mixture(network, task, steps, least, below, propagations, 0, start)


def made(found: PlacementResult) -> Schedule:
    assert found.schedule is not None
    return found.schedule


@pytest.mark.parametrize(("name", "steps"), [("dgx1", 3), ("hypercube:8", 4), ("dgx1-p100", 3)])
def test_what_is_blended_replays_and_keeps_the_bound(name: str, steps: int) -> None:
    network = topology(name).network()
    replay = verify.schedule(made(blended(network, SCAN, steps)))
    assert replay.steps == steps
    assert replay.chunks > 1
    assert replay.rounds_per_chunk >= bounds.combining(network, SCAN, steps).value


def test_a_scan_on_a_ring_of_four() -> None:
    assert verify.schedule(made(blended(RING, collective("scan", 4), 4))).rounds_per_chunk <= Fraction(4, 5)


def test_schedules_with_fewer_steps_say_how_chunks_may_go() -> None:
    """With no effort of its own, what it begins with is what it has: the chunks of a schedule, each with a pause
    anywhere."""
    first = made(blended(DGX1, SCAN, 3, 4 * FEW))
    alone, informed = (
        verify.schedule(made(blended(DGX1, SCAN, 4, 0, None, *start))).rounds_per_chunk for start in ((), (first,))
    )
    assert informed < alone
    assert informed <= first.rounds_per_chunk


def test_the_chunks_of_a_schedule_are_taken_apart_and_put_together_again() -> None:
    schedule = made(blended(DGX1, SCAN, 3))
    same, more = OneChunk(DGX1, SCAN, 3), OneChunk(DGX1, SCAN, 4)
    ways = same.chunks_of(schedule)
    assert sum(len(way.places) for way in ways) <= sum(not s.local for step in schedule.steps for s in step.sends)
    longer = more.chunks_of(schedule)
    assert len(longer) > 2 * len(ways)
    for way in longer[:8]:
        assert verify.schedule(more.schedule([way])).steps == 4
    same.delete()
    more.delete()


def test_more_propagations_find_more_and_the_same_arguments_the_same() -> None:
    few, many, again = (blended(DGX1, SCAN, 3, n) for n in (100_000, 4 * FEW, 100_000))
    assert made(many).rounds_per_chunk < made(few).rounds_per_chunk
    assert made(few).to_json() == made(again).to_json()
    assert few.work == again.work < many.work


def test_what_is_not_below_is_not_given() -> None:
    value = made(blended(DGX1, SCAN, 3)).rounds_per_chunk
    assert blended(DGX1, SCAN, 3, FEW, value).schedule is None
    assert blended(DGX1, SCAN, 3, FEW, value + Fraction(1, 1000)).schedule is not None


def test_too_few_steps_and_other_problems_have_no_answer() -> None:
    line = topology("line:4").network()
    capped = Network("capped", 2, (Route(0, 1, 2),), (Cap((0,), 1),))
    assert fractional_chunks.search_mixture(line, collective("scan", 4), 2, Fraction(1), None, FEW, 0).schedule is None
    assert fractional_chunks.search_mixture(
        capped, collective("scan", 2), 2, Fraction(1), None, FEW, 0
    ) == PlacementResult(None, 0.0)
    assert fractional_chunks.search_mixture(
        DGX1, collective("broadcast", 8), 2, Fraction(1), None, FEW, 0
    ) == PlacementResult(None, 0.0)


def test_a_try_blends() -> None:
    same = Generator(tuple(range(4)), tuple(range(len(RING.routes))), (0,))
    task = collective("scan", 4)
    least = bounds.combining(RING, task, 4).value
    asked = Attempt("blending", TranslatedChunks(RING, task, (same,), 1), 4, 0, FEW, 0, least=least)
    outcome = run_attempt(asked)
    assert outcome.status == "sat"
    assert outcome.schedule is not None
    refused = run_attempt(
        Attempt("blending", asked.translation, 4, 0, FEW, 0, least=least, below=outcome.schedule.rounds_per_chunk)
    )
    assert (refused.status, refused.schedule) == ("gave-up", None)


def test_fewer_rounds_than_steps_are_not_asked_for() -> None:
    """One link, more steps than are needed: the fractions leave steps idle."""
    network = topology("line:2").network()
    for steps in (1, 2, 3):
        found = fractional_chunks.search_mixture(
            network, collective("scan", 2), steps, Fraction(1, 100), None, 200_000, 0, ()
        )
        schedule = made(found)
        assert schedule.rounds >= schedule.step_count > 0 and schedule.rounds_per_chunk == 1

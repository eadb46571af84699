"""Uneven bandwidths, as of NVLink bridges beside PCIe: rounds and chunks run into thousands, and what is built for them
stays small."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from synth.commands import api
from synth.encodings import contributions
from synth.encodings.hubs import reduce_broadcast
from synth.model.collective import collective
from synth.pareto.combining import candidates
from synth.pareto.combining.candidates import COUNTED, Candidates
from synth.topologies import importers

BRIDGES = importers.load(Path(__file__).parent / "fixtures" / "nvidia-smi-bridges.txt").network()
ALLREDUCE = collective("allreduce", 4)
# A bound as the linear programs give it there: of S=3 on a machine whose bridges are 30 times as wide as PCIe.
FINE = Fraction(14_644, 36_605)


def encoded(candidate):
    made, _ = {"hub": reduce_broadcast, "direct": contributions}[candidate.engine].encode(
        candidate.translation, candidate.steps, candidate.rounds
    )
    return len(made.clauses)


def test_formulas_that_count_too_many_rounds_are_not_asked_for():
    some = Candidates(BRIDGES, ALLREDUCE)
    frames = some.frames(3, FINE / 2)
    assert frames and all(f.at(f.least).fits for f in some.frames(3, Fraction(1, 5)))
    asked = [c for f in frames for upper in (None, Fraction(1, 2)) if (c := f.next(upper)) is not None]
    assert asked and all(c.fits for c in asked)
    many = max(asked, key=lambda c: c.rounds)
    finer = replace(
        many, translation=replace(many.translation, chunks=64 * many.translation.chunks), rounds=64 * many.rounds
    )
    assert not finer.fits
    assert replace(frames[0], base=finer, least=finer.rounds, most=finer.rounds).next(None) is None


def test_the_clauses_that_count_rounds_are_about_as_many_as_is_said():
    asked = [c for f in Candidates(BRIDGES, ALLREDUCE).frames(3, FINE / 2) if (c := f.next(None)) is not None]
    for candidate in sorted(asked, key=lambda c: c.rounds)[:: max(1, len(asked) // 12)]:
        translation, steps, rounds = candidate.translation, candidate.steps, candidate.rounds
        said = candidates.estimate_clauses(translation.loads, 2 * len(translation.representatives), steps, rounds)
        counted = encoded(candidate) - encoded(replace(candidate, rounds=steps))
        assert counted <= 2 * said + 2_000
        assert said <= COUNTED


@pytest.mark.parametrize("steps", [1, 2])
def test_points_of_few_steps_are_still_proved(steps):
    found = api.frontier(
        importers.load(Path(__file__).parent / "fixtures" / "nvidia-smi-bridges.txt"), "allreduce", max_steps=steps
    )
    assert found.complete
    assert found.points[-1].steps == steps and found.points[-1].status == "optimal"

"""Column generation where trees are searched, not priced exactly: on machines of 16 ranks it ends at the bound,
whatever the seed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from synth.checker.schedule import replay
from synth.encodings import bounds
from synth.encodings.trees import search
from synth.encodings.trees.column_generation import FoldedProblem, generate
from synth.model import symmetry
from synth.model.collective import collective
from synth.model.outcome import Sat
from synth.solvers.deadline import Budget, Deadline
from synth.topologies import topology


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.parametrize(("name", "steps"), [("dgx-a100*2", 4), ("mi250", 5)])
def test_a_search_leaves_the_steps_that_its_first_trees_send_in(name, steps, seed):
    net = topology(name).network()
    task = collective("allgather", net.ranks)
    group = symmetry.generators(net, task)
    bound = float(bounds.flow(net, task, steps).value)
    found = generate(FoldedProblem(net, task, steps, group), bound, seed=seed)
    assert found is not None
    assert found.value == pytest.approx(bound, rel=1e-6)
    assert found.iterations <= 40


@pytest.mark.slow
def test_near_stops_once_fractions_are_close_enough():
    net = topology("mi250").network()
    task = collective("allgather", net.ranks)
    bound = Fraction(191, 78)
    verdict = search.near(net, task, 6, bound, 60, Budget(Deadline.after(20.0)), close=0.05)
    assert isinstance(verdict, Sat)
    replay.schedule(verdict.schedule)
    assert float(bound) * (1 + 1e-6) < verdict.cost.detail["lp"] <= float(bound) * 1.05
    assert bound < verdict.schedule.rounds_per_chunk <= bound * Fraction(11, 10)

"""The tree engine beside races, on machines of 16 ranks: who ends whom, bounds ahead, and what a sweep finds with
it."""

from fractions import Fraction

import pytest

import synth
from synth.encodings import bounds
from synth.encodings.trees import search
from synth.model.collective import collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Sat, Unknown
from synth.model.schedule import Problem
from synth.pareto import step_search
from synth.pareto.portfolio import portfolio
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline
from synth.topologies import topology

F = Fraction
MACHINE = topology("dgx-a100*2").network()
TASK = collective("allgather", MACHINE.ranks)


def asked(steps, seconds=20.0):
    bound = bounds.flow(MACHINE, TASK, steps)
    return bound, beside(steps, bound, 100, seconds)


def beside(steps, bound, most, seconds):
    arguments = (MACHINE, TASK, steps, bound.value, most, Budget(Deadline.after(seconds)))
    return pool.submit(step_search.TREE_MEMBER.imports, search.meet, arguments)


@pytest.mark.slow
def test_a_race_ends_once_the_trees_beside_it_have_a_schedule():
    bound, job = asked(4)
    hard = Problem(MACHINE, TASK, 13, 4, 15)
    messages = []
    verdict = portfolio.solve(hard, budget=Budget(Deadline.after(60.0)), on_event=messages.append, beside=job)
    assert isinstance(verdict, Sat | Unknown)
    if isinstance(verdict, Unknown):
        assert verdict.reason == "interrupted"
        answer = pool.outcome(job)
        assert isinstance(answer, Sat)
        assert answer.schedule.rounds_per_chunk == bound.value == F(15, 13)
    assert messages
    assert not any(text.startswith("tree ") for text in messages)  # no member does what the job does


def test_a_race_goes_on_where_the_trees_beside_it_find_nothing():
    too_few = beside(2, bounds.flow(MACHINE, TASK, 2), 1, 5.0)  # 103 chunks at the least
    verdict = portfolio.solve(Problem(MACHINE, TASK, 1, 2, 2), budget=Budget(Deadline.after(20.0)), beside=too_few)
    assert isinstance(verdict, Sat)
    assert verdict.schedule.rounds_per_chunk == 2
    assert isinstance(pool.outcome(too_few), Unknown)


def test_bounds_ahead_are_the_bounds():
    ahead = step_search.PrefetchedBounds(MACHINE, TASK, None)
    ahead.begin(3)
    assert list(ahead.jobs) == [3]
    made, other = ahead.bound(3), ahead.bound(2)
    assert isinstance(made, LowerBound) and made.value == bounds.flow(MACHINE, TASK, 3).value == F(2216, 1873)
    assert isinstance(other, LowerBound) and other.value == F(152, 103)  # nobody began it
    assert not ahead.jobs


@pytest.mark.slow
def test_sixteen_ranks_are_proved_or_near_their_bounds(tmp_path):
    found = synth.frontier("dgx-a100*2", "allgather", log=tmp_path / "log", jobs=2)
    proved = {p.steps: p.rounds_per_chunk for p in found.points if p.status == "optimal"}
    assert proved == {1: 8, 2: F(152, 103), 4: F(15, 13)}
    (near,) = [p for p in found.points if p.status != "optimal"]
    assert (near.steps, near.bound.value) == (3, F(2216, 1873))
    assert near.rounds_per_chunk <= near.bound.value * F(101, 100)

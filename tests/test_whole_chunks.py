"""Whole chunks on trees: schedules that meet a bound, or come near it, and budgets that count work instead of time."""

from __future__ import annotations

import signal
import sys
import time
from fractions import Fraction

import dozing
import pytest

from synth.checker.schedule import replay as verify
from synth.encodings import bounds
from synth.encodings.step import StepEncoding
from synth.encodings.trees.search import meet, near
from synth.model.collective import collective
from synth.model.outcome import Sat, Unknown
from synth.model.schedule import Problem
from synth.pareto.portfolio import portfolio
from synth.pareto.portfolio.members import Member
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline, TimeUp
from synth.solvers.python_sat import Cadical
from synth.topologies import topology


@pytest.fixture(autouse=True, scope="module")
def stopped():
    yield
    pool.stop()


DGX1 = topology("dgx1").network()
TWO_ROOTS = collective("multi-broadcast", 8, roots=(0, 5))


@pytest.mark.parametrize(("steps", "value"), [(2, "1"), (3, "9/22"), (5, "5/19"), (6, "6/25")])
def test_a_broadcast_meets_its_bound(steps, value):
    task = collective("broadcast", 8)
    verdict = meet(DGX1, task, steps, Fraction(value), 100)
    assert isinstance(verdict, Sat)
    assert verify.schedule(verdict.schedule).rounds_per_chunk == Fraction(value) == bounds.flow(DGX1, task, steps).value


def test_the_number_of_chunks_is_the_one_at_which_rounds_are_whole():
    verdict = meet(DGX1, TWO_ROOTS, 4, Fraction(7, 17), 1000)
    assert isinstance(verdict, Sat)
    assert verify.schedule(verdict.schedule).rounds_per_chunk == Fraction(7, 17)
    assert verdict.schedule.chunks % 17 == 0
    assert isinstance(meet(DGX1, TWO_ROOTS, 4, Fraction(7, 17), 18), Unknown)  # 17 chunks have no whole rounds


def test_a_thousand_chunks_are_no_more_work():
    verdict = meet(DGX1, TWO_ROOTS, 6, Fraction(491, 1361), 5000)
    assert isinstance(verdict, Sat)
    assert verify.schedule(verdict.schedule).rounds_per_chunk == Fraction(491, 1361)


def test_below_the_infimum_nothing_is_found():
    verdict = meet(DGX1, collective("broadcast", 8), 3, Fraction(2, 5), 100)
    assert isinstance(verdict, Unknown)
    assert verdict.detail == f"the trees found allow no less than {9 / 22:.6g} rounds per chunk"


def test_near_a_bound_that_takes_too_many_chunks():
    bound = bounds.flow(DGX1, TWO_ROOTS, 5).value
    assert bound.denominator == 415
    verdict = near(DGX1, TWO_ROOTS, 5, bound, 100)
    assert isinstance(verdict, Sat)
    replay = verify.schedule(verdict.schedule)
    assert replay.chunks <= 100
    assert bound < replay.rounds_per_chunk < bound * Fraction(11, 10)
    more = near(DGX1, TWO_ROOTS, 5, bound, 300)
    assert isinstance(more, Sat) and more.schedule.rounds_per_chunk < replay.rounds_per_chunk


def test_symmetric_units_share_their_trees():
    task = collective("allgather", 8)
    verdict = meet(DGX1, task, 3, Fraction(7, 6), 60)
    assert isinstance(verdict, Sat)
    assert verify.schedule(verdict.schedule).rounds_per_chunk == Fraction(7, 6)


def test_the_same_seed_gives_the_same_schedule():
    first, second = (meet(DGX1, collective("broadcast", 8), 4, Fraction(4, 13), 100, Budget(seed=3)) for _ in range(2))
    assert isinstance(first, Sat) and isinstance(second, Sat)
    assert first.schedule == second.schedule


def test_a_process_that_sleeps_spends_nothing():
    job = pool.submit(Member("step", "minicard").imports, time.sleep, (1.0,))
    assert pool.result(job, Deadline.after(60)) is None
    assert job.pid > 0
    spent = job.cpu_seconds()
    assert spent is None or spent < 0.5


def test_a_call_that_takes_too_long_is_ended():
    job = pool.submit(Member("step", "minicard").imports, time.sleep, (60.0,))
    with pytest.raises(TimeUp):
        pool.result(job, Deadline.after(0.5))
    pool.end([job])
    assert job.result is None and job.status == signal.SIGKILL


def test_a_race_counts_work_and_not_time(monkeypatch):
    monkeypatch.setattr(portfolio, "run_member", dozing.doze)
    problem = Problem(DGX1, collective("allgather", 8), 7, 3, 8)
    began = time.monotonic()
    verdict = portfolio.solve(problem, budget=Budget(Deadline.after(1.5), 0.3), encoding="step")
    assert isinstance(verdict, Unknown)
    assert verdict.reason == "time"
    if sys.platform.startswith("linux"):
        assert time.monotonic() - began > 1.4  # its 0.3 s of work were not used up, so that it had five times as long


def test_a_solver_counts_its_work_the_same_each_time():
    model, _ = StepEncoding().apply(Problem(DGX1, collective("allgather", 8), 6, 3, 7))
    first, second = (Cadical(conflicts=20).solve(model) for _ in range(2))
    assert first.work == second.work > 0
    assert Cadical(conflicts=5000).solve(model).work > first.work

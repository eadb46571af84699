"""Bounds of one question under a time limit: they take their share of it, in a process of their own, and the search has
the rest."""

import pytest

from synth.commands import api
from synth.encodings import bounds
from synth.model.collective import collective
from synth.model.outcome import Sat, Unsat
from synth.model.schedule import Problem
from synth.pareto import problem_bounds
from synth.pareto.portfolio import portfolio
from synth.solvers import pool
from synth.solvers.deadline import NEVER, Budget, Deadline, OutOfMemory, TimeUp
from synth.topologies import topology

NETWORK = topology("torus:3x3").network()


@pytest.fixture(autouse=True)
def ended():
    yield
    pool.stop()


def question(name: str, chunks: int, steps: int, rounds: int) -> Problem:
    return Problem(NETWORK, collective(name, 9), chunks, steps, rounds)


@pytest.mark.parametrize(
    ("name", "chunks", "steps", "rounds"), [("allgather", 2, 2, 3), ("allreduce", 9, 4, 4), ("allgather", 1, 4, 9)]
)
def test_a_limit_changes_no_answer(name, chunks, steps, rounds):
    asked = question(name, chunks, steps, rounds)
    assert (
        problem_bounds.query_bounds(asked, Budget(Deadline.after(100.0)))
        == problem_bounds.query_bounds(asked, Budget())
        == problem_bounds.rounds(asked)
    )


def test_too_few_steps_are_refuted_without_a_process(monkeypatch):
    monkeypatch.setattr(pool, "submit", lambda *_: pytest.fail("was begun"))
    said = problem_bounds.query_bounds(question("allgather", 1, 1, 9), Budget(Deadline.after(1.0)))
    assert said is not None and said.reason == "at least 2 steps are needed"
    assert said.certificate == bounds.steps(NETWORK, collective("allgather", 9)).certificate


@pytest.mark.parametrize("error", [TimeUp, OutOfMemory])
def test_late_bounds_leave_the_question_to_the_search(monkeypatch, error):
    given = []
    result = pool.result

    def alone(job, deadline=NEVER):
        if job.name != "rounds":
            return result(job, deadline)
        given.append(deadline.remaining())
        pool.end([job])
        raise error

    monkeypatch.setattr(pool, "result", alone)
    found = api.solve("torus:3x3", "allgather", 1, 4, 9, time_limit=100)
    assert isinstance(found, Sat) and given == [pytest.approx(100 * problem_bounds.SHARE, abs=5)]


def test_what_bounds_refute_is_not_searched_for(monkeypatch):
    monkeypatch.setattr(portfolio, "solve", lambda *_, **__: pytest.fail("was searched for"))
    found = api.solve("torus:3x3", "allgather", 2, 2, 3, time_limit=100)
    assert isinstance(found, Unsat) and "needs at least" in found.reason


def test_an_error_of_the_bounds_is_an_error(monkeypatch):
    def wrong(*_):
        raise ArithmeticError("no optimum")

    monkeypatch.setattr(pool, "result", wrong)
    with pytest.raises(ArithmeticError):
        problem_bounds.query_bounds(question("allgather", 1, 4, 9), Budget(Deadline.after(1.0)))

"""Bounds of combining collectives under a time limit: one that takes long rests, what is known serves, and nothing open
is left early."""

import time

import pytest
from dozing import doze, doze_until
from sweeps import swept

from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.encodings.engine import FrontierProblem, Options
from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.outcome import Sat, Unknown, Unsat
from synth.model.schedule import Problem
from synth.pareto import problem_bounds, step_search
from synth.pareto.combining.close_combining import CombiningSearch
from synth.pareto.events import SweepInterrupted
from synth.pareto.portfolio import portfolio
from synth.pareto.synthesize import synthesize
from synth.solvers import pool
from synth.solvers.deadline import NEVER, Budget, Deadline, OutOfMemory, TimeUp
from synth.topologies import topology

NINE, ALL = topology("torus:3x3").network(), collective("allreduce", 9)
LATE = 1000  # seconds to wait for what comes


def never(*_):
    raise UsageError("was asked")


def test_a_bound_that_rests_goes_on_and_is_answered(monkeypatch, tmp_path):
    gate = tmp_path / "gate"
    monkeypatch.setattr(bounds, "flow", doze_until)
    asked = step_search.PrefetchedBounds(gate, ALL, None, Deadline.after(LATE))
    assert asked.bound(2, 0.0) == Unknown("time") == asked.bound(2, 0.0)
    monkeypatch.setattr(bounds, "flow", never)
    gate.touch()
    assert asked.bound(2) is None and not asked.jobs
    assert asked.bound(2) is None  # which has an answer


def test_a_bound_that_fails_says_so_and_one_that_dies_is_not_begun_again(monkeypatch):
    asked = step_search.PrefetchedBounds(NINE, ALL, None, Deadline.after(LATE))
    monkeypatch.setattr(bounds, "flow", time.sleep)
    with pytest.raises(TypeError):
        asked.bound(2)
    monkeypatch.setattr(bounds, "flow", _dies)
    assert asked.bound(3) == Unknown("crash", f"ended with wait status {3 << 8}")
    monkeypatch.setattr(bounds, "flow", never)
    assert asked.bound(3) == Unknown("crash", f"ended with wait status {3 << 8}")


def _dies(*_):
    import os

    os._exit(3)


def test_where_bounds_are_late_a_cut_serves(monkeypatch):
    monkeypatch.setattr(bounds, "flow", doze)
    found = swept(NINE, ALL, time_limit=0.1)
    assert dict(found.bounds)[None] == single_cut_bound(NINE, ALL)
    assert [interval.reason for interval in found.open]


@pytest.mark.parametrize(("name", "coll"), [("ring:4", "allreduce"), ("line:3", "scan")])
def test_a_frontier_with_time_left_returns_to_what_is_open(monkeypatch, name, coll):
    """As if the share of every S had been nothing at first."""
    network = topology(name).network()
    task = collective(coll, network.ranks)
    whole = swept(network, task, max_steps=4)
    limits = CombiningSearch._limits

    def none_at_first(search):
        return limits(search) if search.sweep.share else (Deadline.after(0), float("inf"))

    monkeypatch.setattr(CombiningSearch, "_limits", none_at_first)
    found = swept(network, task, time_limit=60.0, max_steps=4)
    values = [[(p.steps, p.rounds_per_chunk) for p in one.points] for one in (found, whole)]
    assert values[0] == values[1]
    assert found.complete and not found.open
    said = [steps for steps, _ in found.bounds]
    assert len(said) == len(set(said))
    api.verify(found)


def test_ctrl_c_keeps_what_was_found(monkeypatch):
    whole = CombiningSearch._improvements

    def stopped(*arguments):
        yield from whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(CombiningSearch, "_improvements", stopped)
    with pytest.raises(SweepInterrupted) as caught:
        synthesize(FrontierProblem(topology("ring:4"), collective("scan", 4), Options(max_steps=6)), fresh=True)
    assert caught.value.frontier.points


# ---------------------------------------------------------------- bounds of one question take their share of a limit


NETWORK = topology("torus:3x3").network()


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

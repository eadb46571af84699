"""A time limit is one for greedy schedules, bounds and searches together; what ends early is said, and what is held is
kept."""

import time
from random import Random
from types import SimpleNamespace

import pytest
from sweeps import swept

from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.encodings.engine import FrontierProblem, Options
from synth.model.collective import collective
from synth.model.outcome import Unknown
from synth.pareto import step_search
from synth.pareto.first_rows import SingleCut
from synth.pareto.step_search import ENTRY_SHARE, LAST_SHARE
from synth.pareto.sweep import Sweep
from synth.pareto.synthesize import FIRST, synthesize
from synth.solvers import linear_program, pool
from synth.solvers.deadline import NEVER, Deadline, TimeUp, current_deadline, time_limited
from synth.topologies import topology

MACHINE = topology("torus:3x3")
NETWORK, TASK = MACHINE.network(), collective("allgather", 9)


def test_greedy_schedules_take_their_share_of_the_limit_and_it_counts(monkeypatch, tmp_path):
    shares = []

    def slow(engine, problem, found, deadline):
        shares.append((current_deadline().remaining(), deadline.remaining()))
        time.sleep(0.2)
        yield single_cut_bound(NETWORK, TASK)

    monkeypatch.setattr(SingleCut, "improve", slow)
    found = synthesize(
        FrontierProblem(MACHINE, TASK, Options(time_limit=100, max_steps=2, jobs=1)), log=tmp_path / "log"
    )
    assert 0 < max(shares[0]) <= 100 * FIRST
    assert found.seconds >= 0.2


def ahead(monkeypatch, deadline: Deadline = NEVER, **job) -> step_search.PrefetchedBounds:
    """Bounds whose jobs end as `job` says, and that nobody computes here."""
    given = {"result": None, "out_of_memory": False, "done": False, "name": "flow", "status": 9} | job
    monkeypatch.setattr(pool, "submit", lambda *_: SimpleNamespace(signal=lambda number: None, **given))
    monkeypatch.setattr(pool, "wait", lambda *_: None)
    monkeypatch.setattr(bounds, "flow", lambda *_, **__: pytest.fail("was computed here"))
    return step_search.PrefetchedBounds(NETWORK, TASK, None, deadline)


@pytest.mark.parametrize(("job", "why"), [
    ({"out_of_memory": True, "done": True}, "memory"), ({"done": True, "result": ("error", MemoryError())}, "memory"),
    ({}, "time"), ({"done": True}, "crash"),
])  # fmt: skip
def test_a_bound_that_ended_early_is_not_computed_again(job, why, monkeypatch):
    some = ahead(monkeypatch, **job)
    some.begin(3)
    again = [some.bound(3), some.bound(3)]
    assert [bound.reason for bound in again if isinstance(bound, Unknown)] == [why, why]
    some.begin(3)
    assert (3 in some.jobs) == (why == "time")  # that one may still come


def test_no_bound_is_begun_when_the_time_is_over(monkeypatch):
    some = ahead(monkeypatch, Deadline.after(-1))
    assert some.bound(2) == Unknown("time") and not some.jobs


def test_where_bounds_run_out_of_memory_the_one_for_any_number_of_steps_serves(monkeypatch):
    bound = step_search.PrefetchedBounds.bound
    monkeypatch.setattr(
        step_search.PrefetchedBounds,
        "bound",
        lambda self, steps, *share: bound(self, steps) if steps is None else Unknown("memory"),
    )
    found = swept(NETWORK, TASK, jobs=1, max_steps=3)
    assert found.points and found.points[-1].status == "optimal"
    api.verify(found)


LARGER = topology("random-regular:20")


@pytest.fixture
def late(monkeypatch):
    """No bound but the first one comes before the time is over."""
    monkeypatch.setattr(step_search.PrefetchedBounds, "bound", lambda *_: Unknown("time"))


def test_a_cut_serves_where_the_best_bound_is_late(late):
    task = collective("allgather", 20)
    for kind in (task, collective("alltoall", 20), collective("alltonext", 20)):
        found = swept(LARGER.network(), kind, jobs=1, time_limit=1.0, late=2.0)
        (floor,) = [bound for steps, bound in found.bounds if steps is None]
        assert floor == single_cut_bound(LARGER.network(), kind) and floor.value > 0
        api.verify(found)


def test_the_sweep_leaves_time_for_what_follows(monkeypatch, tmp_path):
    """Searches end before the limit, so that first rows are entered and scale points written out within it."""
    ends = []

    def run(sweep):
        ends.append((sweep.deadline.end, sweep.found.started + sweep.options.time_limit))
        sweep.found.sweeping = False
        yield from ()

    monkeypatch.setattr(Sweep, "run", run)
    synthesize(FrontierProblem(MACHINE, TASK, Options(time_limit=100)), log=tmp_path / "log")
    ((searches, limit),) = ends
    assert limit - 100 * (ENTRY_SHARE + LAST_SHARE) <= searches < limit - 100 * LAST_SHARE


def test_a_linear_program_ends_at_the_deadline_unless_it_is_short(monkeypatch):
    """It is the solver that stops: nothing checks the deadline while a program is solved."""

    def solved():
        random = Random(0)
        program = linear_program.LinearProgram([1.0] * 60)
        program.add_rows([(1.0, {j: random.random() for j in range(60)}, None) for _ in range(60)])
        return program.solve()

    whole = solved()
    assert whole is not None
    with time_limited(Deadline.after(0)):
        assert solved() == whole
        monkeypatch.setattr(linear_program, "SHORT", 0.0)
        with pytest.raises(TimeUp):
            solved()

"""A time limit is one for greedy schedules, bounds and searches together; what ends early is said, and what is held is
kept."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from random import Random
from types import SimpleNamespace

import pytest

from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.model.collective import collective
from synth.model.frontier import Frontier, LowerBound, Open
from synth.model.outcome import Unknown
from synth.pareto import engine_choice, incumbents, prefetched_bounds
from synth.pareto.events import Options
from synth.pareto.log import Log
from synth.pareto.sweep import Sweep
from synth.scale import search
from synth.solvers import linear_program, pool
from synth.solvers.deadline import NEVER, Deadline, TimeUp, current_deadline, time_limited
from synth.topologies import topology

MACHINE = topology("torus:3x3")
NETWORK, TASK = MACHINE.network(), collective("allgather", 9)


def test_greedy_schedules_take_their_share_of_the_limit_and_it_counts(monkeypatch, tmp_path):
    shares = []

    def slow(*_):
        shares.append(current_deadline().remaining())
        time.sleep(0.2)
        yield incumbents.Incumbents(bounds.flow(NETWORK, TASK, None))

    monkeypatch.setattr(engine_choice, "find_incumbents", slow)
    options = Options(time_limit=100, max_steps=2, jobs=1)
    found = engine_choice.synthesize(engine_choice.Query(MACHINE, TASK, options, log=tmp_path / "log"))
    assert 0 < shares[0] <= 100 * engine_choice.SETTINGS.incumbent_share
    assert found.seconds >= 0.2


def ahead(monkeypatch, deadline: Deadline = NEVER, **job) -> prefetched_bounds.PrefetchedBounds:
    """Bounds whose jobs end as `job` says, and that nobody computes here."""
    given = {"result": None, "out_of_memory": False, "done": False, "name": "flow", "status": 9} | job
    monkeypatch.setattr(pool, "submit", lambda *_: SimpleNamespace(signal=lambda number: None, **given))
    monkeypatch.setattr(pool, "wait", lambda *_: None)
    monkeypatch.setattr(bounds, "flow", lambda *_, **__: pytest.fail("was computed here"))
    return prefetched_bounds.PrefetchedBounds(NETWORK, TASK, None, deadline)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"out_of_memory": True, "done": True}, "memory"),
        ({"done": True, "result": ("error", MemoryError())}, "memory"),
        ({}, "time"),
        ({"done": True}, "crash"),
    ],
)
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


def test_bounds_under_a_limit_are_the_bounds():
    some = prefetched_bounds.PrefetchedBounds(NETWORK, TASK, None, Deadline.after(1000))
    for steps in (None, 2):
        made = some.bound(steps)
        assert isinstance(made, LowerBound) and made.value == bounds.flow(NETWORK, TASK, steps).value


def test_where_bounds_run_out_of_memory_the_one_for_any_number_of_steps_serves(monkeypatch):
    bound = prefetched_bounds.PrefetchedBounds.bound
    monkeypatch.setattr(
        prefetched_bounds.PrefetchedBounds,
        "bound",
        lambda self, steps, *share: bound(self, steps) if steps is None else Unknown("memory"),
    )
    found = Sweep(NETWORK, TASK, Options(jobs=1, max_steps=3), Log(None, "")).run()
    assert found.points and found.points[-1].status == "optimal"
    api.verify(found)


def test_when_the_time_is_over_what_is_held_is_kept():
    *_, last = incumbents.find_incumbents(NETWORK, TASK, incumbents.scale_search(MACHINE, TASK))
    seeds = last.schedules
    assert seeds
    found = Sweep(
        NETWORK, TASK, Options(jobs=1, time_limit=1.0), Log(None, ""), seeds=seeds, started=time.monotonic() - 2
    ).run()
    assert found.points
    assert (
        found.complete and not found.notes
    )  # the search for a higher bound was ended, but a seed attains the one that there is
    api.verify(found)


def test_seeds_that_come_after_the_time_limit_are_not_logged(tmp_path):
    """A record of many sends takes as long as a replay, and the next run has the same seeds without a search."""
    *_, last = incumbents.find_incumbents(NETWORK, TASK, incumbents.scale_search(MACHINE, TASK))
    options, began = Options(jobs=1, time_limit=1.0), time.monotonic() - 2
    with Log(tmp_path / "log", "key") as log:
        found = Sweep(NETWORK, TASK, options, log, seeds=last.schedules, started=began).run()
    assert found.points and not Log(tmp_path / "log", "key").records


def test_later_seeds_are_kept_too():
    machine = topology("random-regular:20")
    network, task = machine.network(), collective("allgather", 20)
    first = int(bounds.steps(network, task).value)
    *_, last = incumbents.find_incumbents(network, task, incumbents.scale_search(machine, task))
    seeds = last.schedules
    later = tuple((name, s) for name, s in seeds if len(s.steps) > first)
    assert later
    found = Sweep(
        network, task, Options(jobs=1, time_limit=1.0), Log(None, ""), seeds=later, started=time.monotonic() - 2
    ).run()
    assert found.points[0].steps == min(len(schedule.steps) for _, schedule in later)
    api.verify(found)


LARGER = topology("random-regular:20")


@pytest.fixture
def late(monkeypatch):
    """No bound but the first one comes before the time is over."""
    monkeypatch.setattr(prefetched_bounds.PrefetchedBounds, "bound", lambda *_: Unknown("time"))


def test_engines_hand_on_what_they_have(late, monkeypatch, tmp_path):
    """Scale methods run once, before the sweep, and their cut and schedules serve where its bounds are late."""
    calls = []

    def counted(module, name):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, **named: calls.append(name) or original(*given, **named))

    counted(search, "throughput")
    counted(search, "build")
    counted(search, "greedy_points")
    counted(engine_choice, "synthesize_exact")
    exact = engine_choice.synthesize_exact
    unproved = Open(9, Fraction(1), None, "time")
    monkeypatch.setattr(engine_choice, "synthesize_exact", lambda *given: replace(exact(*given), open=(unproved,)))
    found = api.frontier(LARGER, "allgather", time_limit=1000, log=tmp_path / "log")
    assert calls == ["throughput", "build", "greedy_points", "synthesize_exact"]
    assert isinstance(found, Frontier) and found.points
    (floor,) = [bound for steps, bound in found.bounds if steps is None]
    assert floor.certificate["kind"] == "static-cuts"


def test_a_cut_serves_where_the_best_bound_is_late(late):
    task = collective("allgather", 20)
    for kind in (task, collective("alltoall", 20), collective("alltonext", 20)):
        found = Sweep(
            LARGER.network(), kind, Options(jobs=1, time_limit=1.0), Log(None, ""), started=time.monotonic() - 2
        ).run()
        (floor,) = [bound for steps, bound in found.bounds if steps is None]
        assert floor == single_cut_bound(LARGER.network(), kind) and floor.value > 0
        api.verify(found)


def test_the_sweep_leaves_time_for_what_follows(monkeypatch, tmp_path):
    """Searches end before the limit, so that incumbents are entered and scale points written out within it."""
    ends = []

    def run(sweep):
        ends.append((sweep.deadline.end, sweep.started + sweep.options.time_limit))
        return SimpleNamespace(open=())

    monkeypatch.setattr(Sweep, "run", run)
    options = Options(time_limit=100)
    engine_choice.synthesize(engine_choice.Query(MACHINE, TASK, options, log=tmp_path / "log"))
    ((searches, limit),) = ends
    assert limit - 100 * (engine_choice.SETTINGS.entry_share + engine_choice.SETTINGS.last_share) <= searches
    assert searches < limit - 100 * engine_choice.SETTINGS.last_share


def test_seeds_of_more_steps_than_the_sweep_visits_are_kept():
    machine = topology("switch:20")
    network, task = machine.network(), collective("scan", 20)
    *_, last = incumbents.find_incumbents(network, task, None, machine=machine)
    first = int(bounds.steps(network, task).value)
    found = Sweep(
        network,
        task,
        Options(jobs=1, time_limit=1.0),
        Log(None, ""),
        seeds=last.schedules,
        started=time.monotonic() - 2,
    ).run()
    longest = max(last.schedules, key=lambda row: len(row[1].steps))[1]
    assert len(longest.steps) > first + 6 and found.points[-1].steps == len(longest.steps) and not found.complete
    api.verify(found)


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

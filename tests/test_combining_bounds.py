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
from synth.model.outcome import Unknown
from synth.pareto import step_search
from synth.pareto.combining.close_combining import CombiningSearch
from synth.pareto.events import SweepInterrupted
from synth.pareto.synthesize import synthesize
from synth.solvers import pool
from synth.solvers.deadline import Deadline
from synth.topologies import topology

NINE, ALL = topology("torus:3x3").network(), collective("allreduce", 9)
LATE = 1000  # seconds to wait for what comes


@pytest.fixture(autouse=True)
def ended():
    yield
    pool.stop()


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
    assert [(p.steps, p.rounds_per_chunk) for p in found.points] == [
        (p.steps, p.rounds_per_chunk) for p in whole.points
    ]
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

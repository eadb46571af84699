"""Results after a time limit or Ctrl-C: no result so far is lost, and every unfinished stage is named once."""

from dataclasses import replace
from fractions import Fraction

import pytest

from synth.checker.documents import scale_frontier
from synth.encodings import bounds
from synth.encodings.engine import FrontierProblem
from synth.model.collective import collective
from synth.model.frontier import Open
from synth.pareto.events import SweepInterrupted
from synth.pareto.flow import AllFlow, QuickFlow, RestOfFlow
from synth.pareto.sweep import Sweep
from synth.pareto.synthesize import synthesize
from synth.scale import search
from synth.scale.alltoall import concurrent_flow
from synth.scale.candidate import Candidate
from synth.scale.forests import build
from synth.scale.search_state import SearchState
from synth.solvers.deadline import Deadline, TimeUp, time_limited
from synth.topologies import topology


def test_ctrl_c_in_the_last_flow_stage_keeps_the_points_before_it(monkeypatch):
    """They stand in a frontier of exact synthesis that has a bound and had no time for more."""

    def left(sweep):
        found = sweep.found
        floor = bounds.flow(found.network, found.collective, None)
        found.add_open(Open(2, floor.value, None, "time", floor.certificate))
        found.sweeping = False
        yield floor

    def tell(event) -> None:
        if event.text == "forests":
            raise KeyboardInterrupt

    monkeypatch.setattr(Sweep, "run", left)
    for early in (QuickFlow, AllFlow):
        monkeypatch.setattr(early, "applies", lambda *_: False)
    monkeypatch.setattr(RestOfFlow, "applies", lambda *_: True)
    with pytest.raises(SweepInterrupted) as kept:
        synthesize(FrontierProblem(topology("torus:3x3"), collective("allgather", 9)), tell)
    assert kept.value.frontier.points
    assert all(p.construction.startswith("flow: ") for p in kept.value.frontier.points)


def test_shortest_ways_are_tried_after_a_search_that_was_cut_short(monkeypatch):
    flows = concurrent_flow.least_congestion_flows

    def late(fabric, group=None, *, shortest=False):
        if not shortest:
            raise TimeUp
        return flows(fabric, group, shortest=True)

    monkeypatch.setattr(concurrent_flow, "least_congestion_flows", late)
    found = search.frontier(topology("torus:3x4"), "alltoall", time_limit=1000)
    assert found.points and all(p.construction == "flows, shortest paths" for p in found.points)
    assert found.unfinished == ("a higher bound: ended by the time limit",)
    assert not any("within" in note for note in found.notes)


@pytest.mark.parametrize("error", [TimeUp, pytest.param(KeyboardInterrupt, marks=pytest.mark.slow)])
def test_a_stronger_bound_is_kept_when_the_search_for_a_forest_ends(error, monkeypatch):
    machine = topology("dgx2*2")
    whole = search.frontier(machine, "allgather")
    assert whole.certificate["kind"] == "throughput-cuts"

    def late(*_):
        raise error

    monkeypatch.setattr(build, "balance_switches", late)  # what comes after the higher bound
    found = search.frontier(machine, "allgather", time_limit=1000)
    assert found.bound == whole.bound == scale_frontier.bound(found.certificate, machine)
    assert any(line.startswith("forests: ") for line in found.unfinished)


@pytest.mark.parametrize("name", ["random-regular:24", "line:9", "dgx-a100*2:net=odd-even"])
@pytest.mark.parametrize("what", ["allgather", "reduce", "alltoall"])
def test_frontier_and_bound_count_the_same_steps_under_a_limit(name, what):
    machine = topology(name)
    whole = search.bound(machine, what).least_steps
    assert search.frontier(machine, what, time_limit=0).least_steps == whole
    assert search.bound(machine, what, time_limit=0).least_steps == whole


def test_where_the_machine_is_large_both_count_from_the_same_ranks(monkeypatch):
    monkeypatch.setattr(search, "DISTANCE_WORK", 200)
    machine = topology("random-regular:24")
    one, other = (call(machine, "allgather", time_limit=1000).least_steps for call in (search.bound, search.frontier))
    assert one == other <= search.bound(machine, "allgather").least_steps


def test_a_stage_is_named_once():
    found = SearchState(lambda text: None)
    with time_limited(Deadline.after(0)):
        found.mark_open("a higher bound", "ended by the time limit")
        found.stage("a higher bound", lambda: None)
    assert found.open == ["a higher bound: ended by the time limit"]
    made = search.bound(topology("random-regular:24"), "allgather", time_limit=0)
    assert len([line for line in made.unfinished if line.startswith("a higher bound")]) == 1
    assert replace(made, bounds=()).unfinished == made.unfinished


def test_stages_that_a_time_limit_ended_are_resumed():
    """The time of one call may be a share of the whole, after which there is more."""
    found, runs = SearchState(lambda text: None), []

    def late():
        runs.append("late")
        if len(runs) < 2:
            raise TimeUp

    found.plan("late", late)
    found.plan("next", lambda: runs.append("next"))
    found.advance()
    assert found.open == ["late: ended by the time limit"] and len(found.pending) == 1
    found.resume()
    assert not found.open
    while found.pending:
        found.advance()
    assert runs == ["late", "late", "next"] and not found.open


def test_of_nearly_equal_rates_the_one_of_fewest_chunks_is_kept():
    def point_of(bound):
        found = SearchState(lambda text: None)
        found.bound = bound, {}
        rows = [(3, Fraction(2001, 2000), 2000), (3, Fraction(1), 4000), (3, Fraction(11, 10), 10), (4, Fraction(1), 1)]
        found.add_points(Candidate(*row, "made", lambda: pytest.fail("was written out")) for row in rows)
        return [(point.steps, point.chunks) for point in found.points()]

    assert point_of(Fraction(1, 2)) == [(3, 2000), (4, 1)]
    assert point_of(Fraction(1)) == [(3, 4000)]  # the least is proved to be the least

"""Time limits and Ctrl-C at scale: they end the work near their time, keep what was found, and say what is left
open."""

import json
import math
import operator
import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from fractions import Fraction

import pytest

from synth.checker.documents import scale_frontier
from synth.commands import api
from synth.commands.bound import FewerBounds
from synth.encodings import bounds
from synth.encodings.engine import FrontierProblem
from synth.errors import InfeasibleError
from synth.model.collective import collective
from synth.model.frontier import Open
from synth.model.outcome import Unknown
from synth.model.topology import Link, Topology
from synth.pareto import flow_frontier
from synth.pareto.events import SweepInterrupted
from synth.pareto.flow import AllFlow, QuickFlow, RestOfFlow
from synth.pareto.sweep import Sweep
from synth.pareto.synthesize import synthesize
from synth.scale import search
from synth.scale.alltoall import concurrent_flow
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.candidate import Candidate
from synth.scale.fabric.fabric import fabric
from synth.scale.forests import build
from synth.scale.search_state import SearchState
from synth.solvers import pool
from synth.solvers.deadline import (
    NEVER,
    Deadline,
    OutOfMemory,
    TimeUp,
    check_deadline,
    current_deadline,
    no_time_limit,
    time_limited,
)
from synth.solvers.pool import run_in_process
from synth.topologies import topology
from tests.command_line import synth

NAMES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
HARD = "random-regular:24"


def test_of_nested_ends_the_earliest_holds():
    check_deadline()
    with time_limited(Deadline.after(1000)):
        with time_limited(Deadline.after(0)):
            assert current_deadline().over
            with pytest.raises(TimeUp), time_limited(Deadline.after(500)):
                check_deadline()
            with no_time_limit():
                check_deadline()
        check_deadline()
        assert 900 < current_deadline().remaining() <= 1000
    assert not current_deadline().limited


def test_a_deadline_is_an_end_on_its_clock(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(time, "process_time", lambda: 7.0)
    ten = Deadline.after(10)
    assert ten.end == 110 and ten.remaining() == 10 and not ten.over
    assert ten.within(4).end == ten.share(0.4).end == 104
    assert ten.within(20) == ten.within(None) == ten
    assert Deadline.after(10, cpu=True).share(0.5) == Deadline(12.0, cpu=True)
    assert NEVER == Deadline.after(None) == NEVER.share(0.0) and not NEVER.limited and NEVER.remaining() == math.inf
    with pytest.raises(TimeUp):
        Deadline(100.0).check()


def made(*links):
    return Topology("three", 3, tuple(Link(a, b, Fraction(width), Fraction(1)) for a, b, width in links))


def test_alltoall_without_time_is_never_called_impossible_where_it_is_slow():
    slow = made((0, 1, 400), (1, 0, 400), (1, 2, 400), (2, 1, 400), (0, 2, "1/10000"))
    found = search.frontier(slow, "alltoall", time_limit=0)
    assert found.unfinished
    assert 0 < found.bound <= search.bound(slow, "alltoall").bound
    apart_ = made((0, 1, 1), (1, 0, 1), (1, 2, 1))
    for limit in (0, None):
        with pytest.raises(InfeasibleError, match="no link leads to rank 0 from where rank 2 is"):
            search.frontier(apart_, "alltoall", time_limit=limit)


def test_a_call_apart_is_killed_when_the_time_is_over():
    threads = threading.active_count()
    with pytest.raises(TimeUp), time_limited(Deadline.after(0.1)):
        run_in_process(time.sleep, 1000)
    assert run_in_process(abs, -7) == run_in_process(run_in_process, abs, -7) == 7
    with pytest.raises(ZeroDivisionError):
        run_in_process(operator.truediv, 1, 0)
    with pytest.raises(OutOfMemory):
        run_in_process(bytes, 1 << 45)
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("call", "argument", "reason"),
    [(bytes, 1 << 45, "memory"), (os._exit, 3, "crash"), (time.sleep, 1000, "time"), (abs, -7, None)],
)
def test_a_job_has_a_result_or_a_reason_for_none(call, argument, reason):
    job = pool.submit((), call, (argument,))
    found = pool.outcome(job, Deadline.after(0.3) if reason == "time" else NEVER)
    assert found == 7 if reason is None else isinstance(found, Unknown) and found.reason == reason
    pool.end([job])
    assert job.done


def test_an_error_of_a_job_is_raised_or_a_crash():
    with pytest.raises(ZeroDivisionError):
        pool.outcome(pool.submit((), operator.truediv, (1, 0)))
    found = pool.outcome(pool.submit((), operator.truediv, (1, 0)), errors_crash=True)
    assert found == Unknown("crash", "ZeroDivisionError: division by zero")


def test_a_call_apart_knows_the_end():
    with time_limited(Deadline.after(1000)):
        assert 900 < run_in_process(current_deadline).remaining() <= 1000
    assert run_in_process(current_deadline) == NEVER


def test_ctrl_c_kills_a_call_apart(monkeypatch):
    begun = []
    submit = pool.submit

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pool, "submit", lambda *given: begun.append(submit(*given)) or begun[-1])
        patched.setattr(pool, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_in_process(time.sleep, 1000)
    pool.wait(begun)
    assert [job.status for job in begun] == [signal.SIGKILL]


@pytest.mark.parametrize("name", NAMES)
def test_without_time_there_is_a_bound_that_holds_and_no_claim_beyond_it(name):
    machine = topology(HARD)
    whole = search.bound(machine, name)
    for found in (search.frontier(machine, name, time_limit=0), search.bound(machine, name, time_limit=0)):
        assert found.unfinished
        assert 0 < scale_frontier.bound(found.certificate, found.topology) == found.bound <= whole.bound
        assert all(point.rounds_per_chunk >= whole.bound for point in found.points)
        assert found.to_json()["open"] == list(found.unfinished)
    assert not whole.unfinished
    assert "open" not in whole.to_json()


@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c_loses_the_stage_in_flight_alone(name):
    begun: list[str] = []

    def stop(text: str) -> None:
        begun.append(text)
        if len(begun) > 4 or text == "paths of least congestion":
            raise KeyboardInterrupt

    found = search.frontier(topology("torus:3x4"), name, progress=stop)
    assert found.interrupted
    assert any("interrupted" in line for line in found.unfinished)
    assert name == "alltoall" or found.points
    assert not search.frontier(topology("torus:3x4"), name).interrupted


def test_a_cut_that_the_time_limit_found_says_that_it_is_not_the_whole_search():
    made = fabric(topology("dgx-a100*2:net=odd-even"))
    with time_limited(Deadline.after(0)):
        early = throughput(made)
    assert not early.whole
    assert throughput(made).whole
    assert early.time <= throughput(made).time


@pytest.mark.parametrize("command", ["pareto", "bound"])
def test_the_command_ends_undecided_with_what_it_has(command):
    words = f"{command} --topo {HARD} --coll allgather --engine flow --time-limit 0.000000001s"
    output = synth(words, code=4).output
    assert "left open" in output and "GB/s" in output


def test_exact_bounds_in_no_time_are_those_that_there_are():
    with pytest.raises(FewerBounds) as less:
        api.bound("dgx1", "allgather", time_limit=0)
    assert less.value.exit_code == 4
    assert [steps for steps, _ in less.value.found] == [0, None]  # the quick bound
    assert "left open" in synth("bound --topo dgx1 --coll allgather --time-limit 0.0001s", code=4).output
    assert api.bound("dgx1", "allgather", time_limit=60) == api.bound("dgx1", "allgather")


def test_an_interrupted_flow_frontier_is_printed(tmp_path, monkeypatch):
    class Stopped(search.ScaleSearch):
        def __init__(self, machine, name, root, progress, **asked):
            super().__init__(machine, name, root, stop, **asked)

    def stop(text: str) -> None:
        if text == "forests":
            raise KeyboardInterrupt

    monkeypatch.setattr(flow_frontier, "ScaleSearch", Stopped)
    out = tmp_path / "found.json"
    synth("pareto --topo ring:6 --coll allgather --engine flow -o", out, code=130)
    assert json.loads(out.read_text())["points"]
    assert json.loads(out.read_text())["open"] == ["forests: interrupted"]


def test_a_fork_server_that_died_is_replaced(monkeypatch):
    started, begin = [], subprocess.Popen

    def noted(*words, **how):
        started.append(begin(*words, **how))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    own = ("colorsys",)  # a server of this test
    assert pool.run_in_process(abs, -2, imports=own) == 2
    started[0].kill()
    os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(started[0], "poll", lambda: None)  # nobody has noticed yet
    assert pool.run_in_process(abs, -3, imports=own) == 3
    assert len(started) == 2


# -------------------------------- results so far are kept, and every unfinished stage is named once


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

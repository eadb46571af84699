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
from fractions import Fraction

import pytest

from synth.checker.documents import scale_frontier
from synth.commands import api
from synth.commands.bound import FewerBounds
from synth.errors import InfeasibleError
from synth.model.outcome import Unknown
from synth.model.topology import Link, Topology
from synth.pareto import flow_frontier
from synth.scale import search
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.fabric import fabric
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

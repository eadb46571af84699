"""The race: right answers whoever wins, unknown for every other ending, and no process left behind."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from synth.checker.schedule import replay
from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.outcome import Sat, Unknown, Unsat
from synth.model.schedule import Problem
from synth.pareto.portfolio import members, portfolio
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline
from synth.topologies import topology

HARD = (7, 3, 8)  # DGX-1 allgather: below the bound, and beyond what a solver refutes in a minute


def dgx1(coll, *query):
    return Problem(topology("dgx1").network(), collective(coll, 8), *query)


def solved(problem, **options):
    verdict = portfolio.solve(problem, budget=options.pop("budget", Budget(Deadline.after(120))), **options)
    if isinstance(verdict, Sat):
        replay.schedule(verdict.schedule)
        assert verdict.schedule.problem.fingerprint == problem.fingerprint
    return verdict


@pytest.mark.parametrize(
    "encoding", ["auto", "step", "quotient@0", "quotient", "sccl", "path", "step/minicard", "quotient@1/z3"]
)
def test_a_schedule_whoever_is_asked(encoding):
    verdict = solved(dgx1("allgather", 1, 2, 2), encoding=encoding)
    assert isinstance(verdict, Sat)
    name = members.parse(encoding)[0]
    assert name == "auto" or verdict.cost.engine.startswith(name)
    assert verdict.cost.cpu > 0


@pytest.mark.parametrize(("coll", "query", "kind"), [
    ("allgather", (6, 3, 7), Sat), ("reduce-scatter", (6, 3, 7), Sat), ("reduce", (6, 3, 3), Sat),
    ("alltoall", (3, 2, 8), Sat), ("allgather", (3, 2, 4), Unsat), ("reduce-scatter", (3, 2, 4), Unsat),
    ("alltoall", (1, 2, 2), Unsat),
])  # fmt: skip
def test_auto(coll, query, kind):
    assert isinstance(solved(dgx1(coll, *query)), kind)


def test_a_quotient_alone_never_proves_anything():
    verdict = solved(dgx1("allgather", 3, 2, 4), encoding="quotient@0")
    assert isinstance(verdict, Unknown)
    assert verdict.reason == "gave-up"


def test_deterministic_gives_the_same_schedule_twice():
    problem = dgx1("allgather", 6, 3, 7)
    first, second = (solved(problem, budget=Budget(Deadline.after(120), seed=5, deterministic=True)) for _ in range(2))
    assert isinstance(first, Sat)
    assert first.schedule.to_json() == second.schedule.to_json()
    assert first.cost.engine == second.cost.engine
    assert isinstance(solved(dgx1("allgather", 3, 2, 4), budget=Budget(Deadline.after(60), deterministic=True)), Unsat)


def test_time_runs_out_as_unknown():
    verdict = solved(dgx1("allgather", *HARD), budget=Budget(Deadline.after(0.4)))
    assert isinstance(verdict, Unknown)
    assert verdict.reason == "time"


def test_memory_runs_out_as_unknown():
    verdict = solved(dgx1("alltoall", 3, 8, 8), encoding="step", budget=Budget(Deadline.after(60), memory=30 << 20))
    assert isinstance(verdict, Unknown)
    assert verdict.reason == "memory"


def test_a_crash_is_unknown(monkeypatch):
    monkeypatch.setattr(portfolio, "run_member", _crash_instead)
    verdict = portfolio.solve(dgx1("allgather", 1, 2, 2), budget=Budget(Deadline.after(20)), encoding="step")
    assert isinstance(verdict, Unknown)
    assert verdict.reason == "crash"


def _crash_instead(*_):
    os.kill(os.getpid(), signal.SIGSEGV)


def test_the_quick_solver_goes_first_except_on_large_problems():
    small = dgx1("allgather", 6, 3, 7)
    names = [str(member) for member, _ in members.select_members(small, "auto", "auto")]
    assert names[:4] == ["quotient@0/minicard", "quotient@1/minicard", "step/minicard", "quotient@0/cadical"]
    late = portfolio.start_delays([member for member, _ in members.select_members(small, "auto", "auto")], small)
    assert late == sorted(late)
    net = topology("torus:8x8").network()
    large = [
        str(member)
        for member, _ in members.select_members(Problem(net, collective("allgather", 64), 4, 8, 63), "auto", "auto")
    ]
    assert large[:2] == ["quotient@0/cadical", "tree"]
    assert set(names) >= set(large)


def test_solvers_of_one_library_share_a_fork_server():
    assert members.Member("step", "minicard").imports == members.Member("quotient", "cadical", 0).imports
    assert members.Member("step", "minicard").imports != members.Member("step", "z3").imports


def test_a_large_call_begins_before_the_server_is_ready(monkeypatch, tmp_path):
    """Its modules may take seconds to import, which no deadline would end."""
    gate = tmp_path / "gate"
    (tmp_path / "gated.py").write_text(
        f"from dozing import doze_until\ndoze_until(__import__('pathlib').Path({str(gate)!r}))"
    )
    monkeypatch.syspath_prepend(tmp_path)
    early, late = (pool.submit(("gated",), len, (bytes(20 << 20),)) for _ in range(2))
    assert pool.outcome(early, Deadline.after(0.1)) == Unknown("time")
    pool.end([early])
    gate.touch()
    assert pool.result(late) == 20 << 20


def test_unknown_names_and_collectives_are_usage_errors():
    problem = dgx1("allgather", 1, 2, 2)
    for options, message in [
        ({"encoding": "stepp"}, "did you mean step"), ({"solver": "cadicall"}, "did you mean cadical"),
        ({"encoding": "quotient@99"}, "subgroups"),
        ({"encoding": "path", "solver": "cadical"}, "its own solver"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=message):
            portfolio.solve(problem, budget=Budget(Deadline.after(5)), **options)
    with pytest.raises(UsageError, match="allreduce"):
        portfolio.solve(dgx1("allreduce", 1, 2, 2), budget=Budget(Deadline.after(5)))


def test_fewer_rounds_than_steps():
    assert isinstance(portfolio.solve(dgx1("allgather", 1, 3, 2), budget=Budget(Deadline.after(5))), Unsat)


def descendants(pid):
    found, todo = [], [pid]
    while todo:
        command = ["ps", "-o", "pid=", "--ppid", str(todo.pop())]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        todo += map(int, listed.split())
        found += map(int, listed.split())
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


BUSY = f"""
from synth.pareto.portfolio import portfolio
from synth.model.collective import collective
from synth.model.schedule import Problem
from synth.topologies import topology
from synth.solvers.deadline import Budget, Deadline
print("ready", flush=True)
try:
    problem = Problem(topology("dgx1").network(), collective("allgather", 8), *{HARD})
    portfolio.solve(problem, budget=Budget(Deadline.after(60)))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_behind(how, tmp_path):
    """Of a script without a main guard, which no process of a search runs again; nor are there files."""
    script, files = tmp_path / "script.py", tmp_path / "files"
    script.write_text(BUSY)
    files.mkdir()
    environment = {**os.environ, "TMPDIR": str(files)}
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "ready\n"
    until = time.monotonic() + 30
    children = []
    while len(children) < 3 and time.monotonic() < until:
        time.sleep(0.05)
        children = descendants(process.pid)
    assert len(children) >= 3
    process.send_signal(how)
    output = process.communicate(timeout=20)[0]
    assert output == ("interrupted\n" if how == signal.SIGINT else "")
    until = time.monotonic() + 20
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, children)) and not list(files.iterdir())


def test_from_several_threads():
    verdicts = []
    threads = [threading.Thread(target=lambda: verdicts.append(solved(dgx1("allgather", 2, 2, 3)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(v) for v in verdicts] == [Sat] * 3

"""The benchmark tells the truth: renumbered problems are the same problem, wrong answers are seen, tables say what was
measured."""

import json
import math
from fractions import Fraction

import pytest

from bench import choice, encodings, goals, measure, relabel, sweeps
from synth import api, bounds
from synth.checker.schedule import replay
from synth.model.collective import collective
from synth.model.outcome import Sat, Unknown, Unsat
from synth.model.schedule import Problem
from synth.pareto.portfolio import portfolio
from synth.solvers.processes import pool
from synth.solvers.processes.deadline import Budget, Deadline


def test_the_list_is_fixed_and_has_no_row_twice():
    assert len(encodings.INSTANCES) >= 40
    assert len({row[:5] for row in encodings.INSTANCES}) == len(encodings.INSTANCES)
    assert {row[5] for row in encodings.INSTANCES} == {"sat", "unsat"}


@pytest.mark.parametrize(
    ("topology", "collective", "steps"),
    [("dgx1", "allgather", 2), ("mi50-z52", "broadcast", 4), ("dgx2", "alltoall", 1)],
)
def test_a_renumbered_problem_has_the_same_bound_and_symmetries(topology, collective, steps):
    plain = relabel.problem(topology, collective, 1, steps, steps)
    seen = {plain.network.routes}
    for seed in (1, 2):
        moved = relabel.problem(topology, collective, 1, steps, steps, seed=seed)
        assert moved.network.routes not in seen
        seen.add(moved.network.routes)
        assert relabel.problem(topology, collective, 1, steps, steps, seed=seed) == moved
        assert (
            bounds.flow(moved.network, moved.collective, steps).value
            == bounds.flow(plain.network, plain.collective, steps).value
        )
        assert len(moved.network.generators) == len(plain.network.generators)
        links = {(r.src, r.dst): r.units for r in moved.network.routes}
        for image in moved.network.generators:
            assert {(image[a], image[b]): units for (a, b), units in links.items()} == links


@pytest.mark.slow
def test_one_instance_measured():
    row = encodings.measure(("dgx1-v100", "allgather", 2, 2, 3, "sat"), seeds=3, timeout=60)
    pool.stop()
    assert row["error"] == ""
    assert [run["verdict"] for run in (*row["path"], *row["auto"])] == ["sat"] * 6
    assert 0 < row["auto_cpu"] <= row["auto_all"]
    total = encodings.summary([row])
    assert total["both"] == 1
    assert math.isclose(total["geomean_cpu"], row["path_cpu"] / row["auto_cpu"], abs_tol=0.01)


def test_a_wrong_answer_is_an_error():
    asked = relabel.problem("dgx1", "allgather", 2, 2, 3)
    found = portfolio.solve(asked, budget=Budget(Deadline.after(60)))
    pool.stop()
    assert isinstance(found, Sat)
    what = ["dgx1", "allgather", 2, 2, 3]
    assert encodings._wrong(found, "sat", what) == ""
    assert encodings._wrong(found, "unsat", what) != ""
    assert encodings._wrong(found, "sat", ["dgx1", "allgather", 2, 2, 2]) != ""
    assert encodings._wrong(Unsat("so it says"), "sat", what) != ""
    assert encodings._wrong(Unknown("time"), "sat", what) == ""


def test_undecided_instances_are_shown_and_left_out_of_the_mean():
    def row(name, path, auto):
        return {"instance": name, "error": "", "auto": [{"engine": "step/cadical"}], "path": []} | {
            f"{side}_{key}": value for side, value in (("path", path), ("auto", auto)) for key in ("cpu", "all", "wall")
        }

    rows = [row("one", 8.0, 2.0), row("two", 1.0, 1.0), row("three", None, 0.5)]
    total = encodings.summary(rows)
    assert (total["instances"], total["both"], total["path_only_undecided"]) == (3, 2, 1)
    assert total["geomean_cpu"] == 2.0
    shown = encodings.table({"rows": rows, "summary": total, "timeout": 60, "seeds": 5, "setting": measure.where()})
    assert "> 60 wall" in shown
    assert "**2×**" in shown
    assert "2 of 3 instances" in shown


def test_medians():
    assert measure.median([3, 1, 2]) == 2
    assert measure.median([1, math.inf, 2]) == 2
    assert measure.median([1, math.inf, math.inf]) == math.inf
    assert measure.geomean([1, 4]) == pytest.approx(2)


def test_commands_are_timed_with_their_children():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(3_000_000))'])"
    run = measure.command([measure.sys.executable, "-c", code])
    assert run.code == 0
    assert run.cpu > 0.01
    assert measure.command([measure.sys.executable, "-c", "import time; time.sleep(30)"], timeout=0.2).code == -1


def test_the_goals_check_what_they_say(monkeypatch):
    check = goals.frontier({2: "3/2", 3: "7/6"}, complete=True)
    good = [
        {"steps": 2, "bandwidth": "3/2", "status": "optimal", "bound": {"value": "3/2"}},
        {"steps": 3, "bandwidth": "7/6", "status": "optimal", "bound": {"value": "7/6"}},
    ]
    floor = {"steps": None, "value": "7/6", "scope": "any-chunks", "certificate": {}}
    machine = api.topology("ring:4").network()
    problem = {"topology": machine.to_json(), "collective": collective("allgather", 4).to_json(1)}
    doc = {**problem, "points": good, "complete": True, "bounds": [floor], "open": []}
    assert check(doc) == goals.ends_proved(doc) == goals.decided(doc) == ""
    assert check(doc | {"complete": False}) != ""
    assert check(doc | {"points": good[:1]}) != ""
    assert check(doc | {"points": [*good, good[0] | {"steps": 4}]}) != ""
    assert check(doc | {"points": [good[0] | {"status": "best-known"}, good[1]]}) != ""
    lower = [doc | {"bounds": [floor | {"value": value}]} for value in ("8/7", "1")]
    assert [goals.ends_proved(one) != "" for one in lower] == [False, True]  # within a tenth, and not
    assert goals.ends_proved(doc | {"points": [good[0] | {"status": "best-known"}, good[1]]}) != ""
    far = {"steps": 3, "bandwidth": "2", "status": "best-known", "bound": {"value": "3/2"}}
    assert goals.ends_proved(doc | {"points": [good[0], far, good[1]]}) != ""
    assert goals.frontier({2: "3/2"}, upto={3: "1"})(doc) != ""


@pytest.mark.slow
def test_a_goal_measured(tmp_path):
    goal = goals.Goal("a small one", goals.pareto("ring:4", "allgather"), 60, goals.frontier({2: "3/2"}, complete=True))
    row = goals.measure(goal, tmp_path / "result.json", 120)
    assert row["error"] == ""
    assert row["answer"] == "2: 3/2; complete"
    assert 0 < row["certificate"] < 20_000
    wrong = goals.Goal("a wrong one", goals.pareto("ring:4", "allgather"), 60, goals.frontier({2: "1"}))
    assert goals.measure(wrong, tmp_path / "result.json", 120)["error"] == "S=2: 3/2, expected 1"


def test_the_sweep_inside_counts_every_engine():
    found = measure.command([measure.sys.executable, "-m", "bench.sweeps", "--inside", "guided", "--limit", "120"])
    figures = json.loads(found.stdout)
    assert figures["queries"] == 2
    assert (
        figures["synthesis_cpu"] >= figures["engines_cpu"] >= figures["winners_cpu"] >= 0
    )  # 0: trees won, in the sweep
    assert figures["engines_cpu"] > 0
    assert set(sweeps.SWEEPS) == {"guided", "blind"}


def test_the_replay_of_a_renumbered_broadcast_has_its_root_moved():
    asked = relabel.problem("mi50-z52", "broadcast", 2, 4, 4, roots=[0], seed=3)
    found = portfolio.solve(asked, budget=Budget(Deadline.after(60)))
    pool.stop()
    assert isinstance(found, Sat)
    assert isinstance(asked, Problem)
    assert replay.schedule(found.schedule).rounds_per_chunk == Fraction(2)
    assert asked.collective.pre[0] == frozenset(asked.collective.roots)


def test_a_root_that_nobody_named_moves_with_its_rank():
    from bench.relabel import problem
    from synth import bounds

    values = {
        bounds.flow(p.network, p.collective, 4).value
        for p in (problem("dgx1", "broadcast", 13, 4, 4, seed=s) for s in range(6))
    }
    assert len(values) == 1, "the same problem in another order has the same bound"


def test_rows_on_choice_are_of_one_commit():
    here = {"commit": "a", "changed": False}
    earlier = {"setting": here, "rows": [{"machine": "dgx1"}]}
    assert choice.started(earlier, here)["rows"] == earlier["rows"]
    others = [("b", False), ("a", True), ("", False)]
    for commit, changed in others:
        other = {"commit": commit, "changed": changed}
        begun = choice.started(earlier, other)
        assert begun["rows"] == [] and begun["setting"] == other
    assert choice.started({"rows": []}, here)["rows"] == []


def test_rows_on_choice_that_are_measured_again_say_their_commit():
    rows = [{"machine": "dgx1", "collective": "alltoall"}, {"machine": "dgx-a100", "collective": "alltoall"}]
    earlier = {"setting": {"commit": "a", "changed": False}, "rows": rows}
    begun = choice.started(earlier, {"commit": "b", "changed": False}, "dgx1")
    assert begun["rows"] == rows[1:] and begun["now"] == "b" and begun["setting"] == earlier["setting"]
    again = earlier | {"rows": [rows[0] | {"commit": "b"}, rows[1]]}
    assert choice.started(again, {"commit": "b", "changed": False}, "dgx1")["rows"] == again["rows"]
    assert choice.started(again, {"commit": "b", "changed": True}, "dgx1")["rows"] == rows[1:]

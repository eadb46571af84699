"""The benchmark tells the truth: wrong answers are seen, and children are counted."""

import pytest

from bench import goals, measure


def test_commands_are_timed_with_their_children():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(3_000_000))'])"
    run = measure.command([measure.sys.executable, "-c", code])
    assert run.code == 0
    assert run.cpu > 0.01
    assert measure.command([measure.sys.executable, "-c", "import time; time.sleep(30)"], timeout=0.2).code == -1


def test_the_goals_check_what_they_say():
    check = goals.frontier({2: "3/2", 3: "7/6"}, complete=True)
    good = [
        {"steps": 2, "bandwidth": "3/2", "status": "optimal", "bound": {"value": "3/2"}},
        {"steps": 3, "bandwidth": "7/6", "status": "optimal", "bound": {"value": "7/6"}},
    ]
    floor = {"steps": None, "value": "7/6", "scope": "any-chunks", "certificate": {}}
    doc = {"points": good, "complete": True, "bounds": [floor], "open": []}
    assert check(doc) == goals.ends_proved(doc) == ""
    assert check(doc | {"complete": False}) != ""
    assert check(doc | {"points": good[:1]}) != ""
    assert check(doc | {"points": [*good, good[0] | {"steps": 4}]}) != ""
    assert check(doc | {"points": [good[0] | {"status": "best-known"}, good[1]]}) != ""
    lower = [doc | {"bounds": [floor | {"value": value}]} for value in ("8/7", "1")]
    assert [goals.ends_proved(one) != "" for one in lower] == [False, True]  # within a tenth, and not
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

"""bench.ablation: its switches name what there is, and a run goes on where an earlier one ended."""

from __future__ import annotations

import importlib

import pytest

from bench import ablation


@pytest.mark.parametrize("switch", ablation.SWITCHES, ids=lambda switch: switch.name)
def test_a_switch_replaces_what_there_is(switch):
    for place in switch.changes:
        module, _, path = place.partition(":")
        owner = importlib.import_module(module)
        for attribute in path.split("."):
            owner = getattr(owner, attribute)


def test_runs_go_on_where_an_earlier_one_ended():
    slow, quick = (ablation.Problem(name, name, "allgather") for name in ("slow", "quick"))
    rows: dict = {"slow": {"none": {"cpu": 9.0, "calls": {"search.near": [1, 1, 0.1]}}}}
    made = []
    for problem, switch in ablation.runs([slow, quick], ["later slices", "growing C", "diving"], rows):
        made.append((problem.name, switch.name))
        calls = {"search.near": [1, 1, 0.1]} if switch.name == "none" else {}
        rows.setdefault(problem.name, {})[switch.name] = {"cpu": 1.0, "calls": calls}
    assert made == [
        ("quick", "none"),
        *((name, switch) for name in ("quick", "slow") for switch in ("later slices", "growing C")),
    ]
    assert not list(ablation.runs([slow, quick], ["later slices", "growing C", "diving"], rows))
    assert {switch.name for _, switch in ablation.runs([quick], ["near on trees"], rows)} == {"near on trees"}


def test_a_run_of_flow_methods_counts_the_points_of_each_construction():
    problem = ablation.Problem("ring:6 broadcast", "ring:6", "broadcast", {"engine": "flow"})
    found = ablation.run(problem, ablation.Switch("none", {}))
    assert found["points"], found
    assert any(name.startswith("points: ") for name in found["calls"])

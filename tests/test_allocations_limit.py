"""A time limit on allocations: what was rated by then is printed, what is missing is said, and the exit code is 4."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from synth.commands import api, root
from synth.commands.allocations import FewerAllocations
from synth.scale.baselines import allocations
from synth.solvers import deadline


def synth(*words: str):
    return CliRunner().invoke(root, ["allocations", "--topo", "dgx1-v100", *words])


@pytest.fixture
def soon(monkeypatch):
    """The time is over after two classes have been rated."""
    rates, rated = allocations.optimal_rates, []

    def counted(*given):
        if len(rated) == 2:
            monkeypatch.setattr(deadline.time, "monotonic", lambda: float("inf"))
        rated.append(given)
        return rates(*given)

    monkeypatch.setattr(allocations, "optimal_rates", counted)


def test_what_was_rated_is_kept(soon):
    with pytest.raises(FewerAllocations, match="2 classes of allocations rated") as fewer:
        api.allocations("dgx1-v100", ("broadcast",), [3, 4], time_limit=1000)
    assert [made.ranks for made, _ in fewer.value.found] == [(0, 1, 2), (0, 1, 3)]
    assert fewer.value.exit_code == 4


def test_the_table_says_what_is_missing(soon):
    found = synth("--coll", "broadcast", "--time-limit", "1000s")
    assert found.exit_code == 4, found.output
    assert "2 classes of allocations up to isomorphism" in found.stdout
    assert "left open: classes of 3 GPUs or more that are not listed" in found.stdout


def test_so_does_the_document(soon):
    found = synth("--coll", "broadcast", "--time-limit", "1000s", "--format", "json")
    doc = json.loads(found.stdout)
    assert (
        found.exit_code == 4
        and len(doc["classes"]) == 2
        and doc["open"] == ["classes of 3 GPUs or more that are not listed"]
    )


def test_without_any_there_is_still_an_answer():
    found = synth("--gpus", "5", "--time-limit", "0.000001s")
    assert found.exit_code == 4 and "left open: classes of 5 GPUs or more" in found.stdout, found.output


def test_enough_time_leaves_nothing_open():
    found = synth("--gpus", "8", "--coll", "broadcast", "--time-limit", "600s", "--format", "json")
    assert found.exit_code == 0 and "open" not in json.loads(found.stdout)


def test_json_goes_to_a_file_and_the_table_to_stdout(tmp_path):
    found = synth("--gpus", "8", "--coll", "broadcast", "-o", str(tmp_path / "a.json"), "--format", "json")
    assert (
        found.stdout.startswith("allocations of dgx1-v100") and json.loads((tmp_path / "a.json").read_text())["classes"]
    )

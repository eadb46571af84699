"""The benchmark of alltoall, allocations and schedules says what was measured, and sees wrong answers."""

import json

import pytest

from bench import scale_rates
from bench.scale_rates import Row


@pytest.mark.parametrize(
    ("kind", "machine"),
    [
        ("alltoall", "torus:4x4"),
        pytest.param("written", "dgx-a100*2", marks=pytest.mark.slow),
        ("expanded", "torus:3x4"),
    ],
)
def test_a_row_measures_and_checks(kind, machine):
    found = scale_rates.inside(kind, machine)
    assert found["wrong"] == "" and found["seconds"][found["timed"]] > 0 and found["mb"] > 0


@pytest.mark.slow
def test_wrong_answers_and_missed_goals_are_seen(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        scale_rates,
        "ROWS",
        (Row("weights", "torus:3x3", 0), Row("alltoall", "nonsense"), Row("expanded", "torus:3x3", wanted="equal")),
    )
    target = tmp_path / "rates.json"
    assert scale_rates.main(["-o", str(target)]) == 1
    first, second, third = json.loads(target.read_text())["rows"]
    assert first["wrong"].startswith("linear program") and "nonsense" in second["wrong"]
    shown = capsys.readouterr().out
    assert third["wrong"] == "" and "| equal |" in shown
    assert "0 (missed)" in shown and "wrong: linear program" in shown

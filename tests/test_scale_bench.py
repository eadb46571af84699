"""The benchmark of bounds and forests says what was measured, and sees wrong answers."""

from __future__ import annotations

import json

import pytest

from bench import scale
from bench.scale import Row


@pytest.mark.parametrize(("method", "depth"), [("bound", None), ("packing", 1), ("symmetric", 1)])
def test_one_row_measures_and_checks(method: str, depth: int | None) -> None:
    found = scale.inside(method, "dgx-a100")
    assert found["bound"] == found["bandwidth"] == found["certificate"] == "2400/7"
    assert found["depth"] == depth and found["mb"] > 0
    assert set(scale.TIMED[method]) <= set(found["seconds"])


def test_broadcasts_are_measured_too() -> None:
    found = scale.inside("rooted", "dgx-a100*8")
    assert found["bound"] == found["bandwidth"] == found["certificate"] == "200"
    assert found["depth"] == 4 and set(scale.TIMED["rooted"]) <= set(found["seconds"])


@pytest.mark.slow
def test_wrong_answers_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (
        Row("ring:4", "packing", 1.5, 60),
        Row("ring:4", "bound", 2.67, 0),
        Row("ring:5", "symmetric", 2.5, None, 1),
        Row("nonsense", "bound"),
    )
    monkeypatch.setattr(scale, "ROWS", rows)
    target = tmp_path / "scale.json"
    assert scale.main(["--runs", "1", "-o", str(target)]) == 1
    wrong = [row["wrong"] for row in json.loads(target.read_text())["rows"]]
    assert wrong[:3] == ["2.67 GB/s, not 1.5", "", "depth 2, not 1"] and "nonsense" in wrong[3]
    shown = capsys.readouterr().out
    assert "| 2.67 GB/s, not 1.5 | 1.50 |" in shown and "0 (missed)" in shown and "nonsense" in shown
    scale.main(["--table", "-o", str(target)])
    assert "0 (missed)" in capsys.readouterr().out

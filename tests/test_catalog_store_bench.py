"""The benchmark of the catalog compares every answer with what was put, and says what it measured."""

from __future__ import annotations

import pytest

from bench import catalog
from bench.catalog import STAGES, Goal
from synth.catalog.store.store import Store
from synth.model.frontier import Frontier

COUNT = 12


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A dozen entries of one problem, and its frontier."""
    found = catalog.api.frontier("ring:4", "allgather")
    assert isinstance(found, Frontier)
    path = tmp_path_factory.mktemp("bench") / "catalog.db"
    with Store.open(path, create=True) as store:
        store.put_all([catalog.entry(found, i * len(catalog.PROBLEMS)) for i in range(COUNT)])
    return path, found


@pytest.mark.parametrize("stage", [s.stage for s in STAGES if s.stage != "ls of one machine"])
def test_a_stage_measures_and_checks(stage, filled) -> None:
    path, found = filled
    row = catalog.inside(stage, path, COUNT, found)
    assert row["wrong"] == "" and row["cpu"] > 0


@pytest.mark.parametrize("stage", ["ls", "ls printed", "lookup", "has", "get", "find", "find renumbered"])
def test_a_wrong_answer_is_seen(stage, filled, tmp_path) -> None:
    """Of a catalog that lacks what was put."""
    _, found = filled
    with Store.open(tmp_path / "empty.db", create=True) as store:
        other = catalog.api.frontier("line:2", "broadcast")
        assert isinstance(other, Frontier)
        store.put(catalog.entry(other, 0))
    assert catalog.inside(stage, tmp_path / "empty.db", COUNT, found)["wrong"]


def test_the_table_says_what_was_missed() -> None:
    rows = [
        {**Goal("ls", 0.2, "all")._asdict(), "cpu": 0.31, "wall": 1, "wrong": ""},
        {"stage": "get", "wrong": "stopped"},
    ]
    text = catalog.table(
        {
            "setting": catalog.where(),
            "entries": 10,
            "runs": 1,
            "bytes": 1 << 20,
            "points": 20,
            "filled": 0.5,
            "rows": rows,
        }
    )
    assert "| ls | 0.31 | 0.2 (missed) | all |" in text and "wrong: stopped" in text and "50.0 ms" in text

"""Every known answer, from the papers and recomputed: tests/data/known_results.csv and known_frontiers.yaml."""

import csv
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

import synth
from synth.model.outcome import Sat, Unsat

DATA = Path(__file__).parent / "data"
RESULTS = list(csv.DictReader((DATA / "known_results.csv").read_text().splitlines()))
FRONTIERS = yaml.safe_load((DATA / "known_frontiers.yaml").read_text())


def _name(row: dict) -> str:
    return " ".join(row[key] for key in ("topology", "collective", "chunks", "steps", "rounds") if key in row)


def _frontiers() -> list:
    """Every frontier, whole ones that take long as slow tests, and in the quick tests the first of their points."""
    rows = []
    for row in FRONTIERS:
        last = row.get("quick_to")
        slow = last is not None or "cross" in row["topology"]
        rows.append(pytest.param(row, id=_name(row), marks=[pytest.mark.slow] if slow else []))
        if last is not None:
            first = {key: row[key] for key in ("topology", "collective", "root") if key in row}
            first |= {"last": last, "points": {s: rate for s, rate in row["points"].items() if s <= last}}
            rows.append(pytest.param(first, id=f"{_name(row)} to {last} steps"))
    return rows


def _ask(row: dict, **options) -> Sat | Unsat:
    chunks, steps, rounds = (int(row[key]) for key in ("chunks", "steps", "rounds"))
    verdict = synth.solve(row["topology"], row["collective"], chunks, steps, rounds, time_limit=120, **options)
    assert isinstance(verdict, Sat | Unsat), verdict
    return verdict


@pytest.mark.parametrize("row", RESULTS, ids=_name)
def test_result(row):
    verdict = _ask(row)
    assert type(verdict) is {"sat": Sat, "unsat": Unsat}[row["verdict"]]
    if isinstance(verdict, Sat):
        schedule = verdict.schedule
        asked = [int(row[k]) for k in ("chunks", "steps", "rounds")]
        found = synth.checker.schedule.replay.schedule(schedule)
        assert [found.chunks, found.steps, found.rounds] == asked


@pytest.mark.parametrize("row", [row for row in RESULTS if row["verdict"] == "unsat"], ids=_name)
def test_refuted_without_the_bounds_too(row):
    assert isinstance(_ask(row, encoding="step"), Unsat)


@pytest.mark.parametrize("row", _frontiers())
def test_frontier(row, tmp_path):
    roots = [row["root"]] if "root" in row else []
    last = row.get("last") or row.get("complete_to") or (None if row.get("complete") else max(row["points"]))
    frontier = synth.frontier(
        row["topology"], row["collective"], roots=roots, max_steps=last, log=tmp_path / "log", fresh=True
    )
    known = {steps: Fraction(bandwidth) for steps, bandwidth in row["points"].items()}
    assert {p.steps: p.rounds_per_chunk for p in frontier.points if p.steps in known} == known
    assert {p.steps for p in frontier.points if p.status == "optimal" and p.bound.scope == "any-chunks"} >= set(known)
    assert {p.steps for p in frontier.points} - set(known) <= set(row.get("open", {}))
    for steps, (lower, upper) in row.get("open", {}).items():
        interval = next((o for o in frontier.open if o.steps == steps), None)
        point = next((p for p in frontier.points if p.steps == steps), None)
        reached = point.rounds_per_chunk if point else interval.upper
        assert Fraction(lower) <= reached <= Fraction(upper)
        assert (point.bound.value if point else interval.lower) >= Fraction(lower)
    if row.get("complete") or row.get("complete_to"):
        assert frontier.complete
        assert frontier.max_steps == row.get("complete_to")
    if "limit" in row:
        assert min(bound.value for steps, bound in frontier.bounds if steps is None) == Fraction(row["limit"])
    assert synth.verify(frontier)

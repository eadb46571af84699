"""A large frontier is read strictly: a field more, or a value of another kind, is refused with file and place."""

from __future__ import annotations

import copy
import json
from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth import api
from synth.checker.certificates.throughput_cuts import digest
from synth.cli import root
from synth.errors import VerificationError
from synth.model.documents import link_columns
from synth.model.topology import Link, Topology
from synth.scale.search import frontier
from synth.topologies import topology

WHOLE = json.loads(json.dumps(frontier(topology("ring:4"), "allgather").to_json()))
ROOTED = json.loads(json.dumps(frontier(topology("ring:4"), "broadcast", 1).to_json()))


def changed(doc: dict, path: str, value: object) -> dict:
    """`doc` with another value at `path`."""
    doc = copy.deepcopy(doc)
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    inner = doc
    for key in way:
        inner = inner[key]
    inner[last] = value  # type: ignore[index]
    return doc


def message(doc: dict, tmp_path) -> tuple[int, str]:
    (tmp_path / "a.json").write_text(json.dumps(doc))
    found = CliRunner().invoke(root, ["verify", str(tmp_path / "a.json")])
    return found.exit_code, found.stderr.removeprefix(f"synth: error: {tmp_path}/a.json: ")


@pytest.mark.parametrize("doc", [WHOLE, ROOTED, WHOLE | {"open": ["a line"]}])
def test_what_is_written_is_read(doc, tmp_path):
    assert message(doc, tmp_path) == (4, "")  # its points have no files


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("extra", 1, "$: 'extra' is not a known field"),
        ("topology.extra", 1, "topology: 'extra' is not a known field"),
        ("points.0.extra", 1, "points[0]: 'extra' is not a known field"),
        ("bound.extra", 1, "bound: 'extra' is not a known field"),
        ("root", 2, "root: allgather has no root"),
        ("root", "x", "root: allgather has no root"),
        ("seconds", "soon", "seconds: "),
        ("seconds", -1, "seconds: "),
        ("seconds", None, "seconds: "),
        ("seconds", True, "seconds: "),
        ("points.0.engine", 7, "points[0].engine: "),
        ("points.0.engine", None, "points[0].engine: "),
        ("points.0.engine", "a\u001b[2J", "points[0].engine: "),
        ("notes", "x", "notes: "),
        ("notes", [3], "notes[0]: "),
        ("open", {}, "open: "),
        ("open", [None], "open[0]: "),
        ("points.0.steps", 0, "points[0].steps: "),
        ("points.0.steps", 2.0, "points[0].steps: "),
        ("points.0.file", 3, "points[0].file: "),
        ("points", {}, "points: "),
        ("points.0.gap", 0.5, "points[0].gap: "),
        ("bound.value", 3, "bound.value: "),
        ("least_steps", True, "least_steps: "),
        ("topology.name", 5, "topology.name: "),
        ("topology.ranks", "4", "topology.ranks: "),
        ("collective", ["allgather"], "collective: "),
        ("collective", "scan", "collective: "),
    ],
)
def test_anything_else_is_refused_with_its_place(path, value, place, tmp_path):
    code, line = message(changed(WHOLE, path, value), tmp_path)
    assert code == 5 and line.startswith(place) and line.count("\n") == 1, line


def test_the_machine_of_an_impossible_collective_too():
    apart = Topology("apart", 4, (Link(0, 1, Fraction(1), Fraction(0)), Link(2, 3, Fraction(1), Fraction(0))))
    doc = {
        "schema": "synth.infeasible/1",
        "collective": "allgather",
        "max_steps": None,
        "topology": {"name": "apart", "ranks": 4, "unit_gbps": "1"} | link_columns.columns(apart),
        "certificate": {
            "kind": "unreachable",
            "topology": digest(apart),
            "collective": "allgather",
            "root": None,
            "pair": [0, 2],
            "closed": [[0, 1]],
        },
    }
    assert "no schedule, rank 0 cannot reach rank 2" in api.verify(doc)[0]
    doc["topology"]["extra"] = 1  # type: ignore[index]
    with pytest.raises(VerificationError, match="topology: 'extra' is not a known field"):
        api.verify(doc)


@pytest.mark.parametrize("value", [None, 4, -1, 1.0, True, "1"])
def test_a_broadcast_has_a_rank_as_its_root(value, tmp_path):
    code, line = message(changed(ROOTED, "root", value), tmp_path)
    assert code == 5 and line.startswith("root: "), line


def test_seconds_are_finite(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(WHOLE).replace(f'"seconds": {WHOLE["seconds"]}', '"seconds": 1e999'))
    found = CliRunner().invoke(root, ["verify", str(tmp_path / "a.json")])
    assert found.exit_code == 5 and "seconds: expected seconds" in found.stderr


def test_a_report_refuses_it_too(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(changed(WHOLE, "points.0.engine", 7)))
    found = CliRunner().invoke(root, ["report", str(tmp_path / "a.json"), "-o", str(tmp_path / "a.html")])
    assert found.exit_code == 1 and "points[0].engine: expected a line of text" in found.stderr, found.output

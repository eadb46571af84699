"""`synth verify` of what `synth bound -o` writes."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from synth.checker.documents import exact_frontier
from synth.commands.root import root
from synth.errors import VerificationError
from synth.model.documents.json_reader import MACHINE


@pytest.fixture(scope="module")
def doc(tmp_path_factory: pytest.TempPathFactory) -> dict:
    file: Path = tmp_path_factory.mktemp("bounds") / "b.json"
    asked = ["bound", "--topo", "dgx1", "--coll", "scan", "--format", "json", "-o", str(file)]
    assert CliRunner().invoke(root, asked).exit_code == 0
    outcome = CliRunner().invoke(root, ["verify", str(file)])
    assert outcome.exit_code == 0, outcome.output
    assert "R/C ≥ 1/6 for any S" in outcome.output
    return json.loads(file.read_text())


def test_every_bound_is_checked(doc: dict) -> None:
    assert exact_frontier.document(doc) == [
        "bound: S ≥ 2, certificate checked",
        "bound: R/C ≥ 1 at S=2, certificate checked",
        "bound: R/C ≥ 1/2 at S=3, certificate checked",
        "bound: R/C ≥ 1/3 at S=4, certificate checked",
        "bound: R/C ≥ 5/18 at S=5, certificate checked",
        "bound: R/C ≥ 1/4 at S=6, certificate checked",
        "bound: R/C ≥ 7/30 at S=7, certificate checked",
        "bound: R/C ≥ 2/9 at S=8, certificate checked",
        "bound: R/C ≥ 1/6 for any S, certificate checked",
        MACHINE,
    ]


@pytest.mark.parametrize("where", ["value", "price", "steps", "kind", "link", "meaning", "field"])
def test_one_change_and_it_fails(doc: dict, where: str) -> None:
    bad = copy.deepcopy(doc)
    entry = bad["bounds"][2]
    match where:
        case "value":
            entry["value"] = "2/3"
        case "price":
            entry["certificate"]["prices"][0][-1] += 1
        case "steps":
            entry["steps"] = 4
        case "kind":
            bad["bounds"][0]["steps"] = 2
        case "link":
            bad["topology"]["links"][0][2] += 1
        case "meaning":
            bad["collective"]["post"][0][2] = [0, 1]
        case "field":
            bad["proved"] = True
    with pytest.raises(VerificationError):
        exact_frontier.document(bad)

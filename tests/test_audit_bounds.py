"""`synth verify` of what `synth bound -o` writes."""

import copy
import json
from pathlib import Path

import pytest
from test_forged_at_scale import changed

from synth.checker.documents import exact_frontier
from synth.errors import VerificationError
from synth.model.documents.json_reader import MACHINE
from tests.command_line import synth


@pytest.fixture(scope="module")
def doc(tmp_path_factory: pytest.TempPathFactory) -> dict:
    file: Path = tmp_path_factory.mktemp("bounds") / "b.json"
    synth("bound --topo dgx1 --coll scan --format json -o", file)
    assert "R/C ≥ 1/6 for any S" in synth("verify", file).output
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


@pytest.mark.parametrize(("path", "value"), [
    ("bounds.2.value", "2/3"), ("bounds.2.certificate.prices.0.3", 10**6), ("bounds.2.steps", 4), ("bounds.0.steps", 2),
    ("topology.links.0.2", 9), ("collective.post.0.2", [0, 1]), ("proved", True),
])  # fmt: skip
def test_one_change_and_it_fails(doc: dict, path: str, value: object) -> None:
    bad = changed(copy.deepcopy(doc), path, value)
    with pytest.raises(VerificationError):
        exact_frontier.document(bad)

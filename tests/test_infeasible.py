"""Infeasible problems: the proof that the command line writes, checked and corrupted."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth.checker.certificates import cuts
from synth.checker.documents import exact_frontier
from synth.commands import api, root
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.documents.json_reader import MACHINE

APART = """\
name: two pairs
ranks: 4
nodes: [0, 0, 1, 1]
links:
- {src: 0, dst: 1, bandwidth: 25, both: true}
- {src: 2, dst: 3, bandwidth: 25, both: true}
"""


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "apart.yaml").write_text(APART)


def proof(words: str) -> tuple[dict, str]:
    """The document and the error line of a command line that is refused with exit code 3."""
    outcome = CliRunner().invoke(root, [*words.split(), "-o", "proof.json"])
    assert outcome.exit_code == 3, outcome.output
    with open("proof.json") as file:
        return json.load(file), outcome.stderr


@pytest.mark.parametrize("command", ["pareto", "bound", "pareto --engine flow", "bound --engine flow"])
@pytest.mark.parametrize("name", ["allgather", "reduce", "allreduce", "alltoall"])
def test_ranks_apart_leave_a_proof(command, name):
    doc, said = proof(f"{command} --topo apart.yaml --coll {name}")
    assert "proof.json" in said
    assert doc["certificate"]["kind"] == "unreachable"
    assert "no schedule" in exact_frontier.document(doc)[0]
    outcome = CliRunner().invoke(root, ["verify", "proof.json"])
    assert (outcome.exit_code, outcome.stdout.splitlines()[-1]) == (
        0,
        f"proof.json: verified: {name} on two pairs, 4 ranks",
    )


@pytest.mark.parametrize("name", ["allgather", "broadcast"])
def test_a_bound_in_time_names_the_box_without_links_and_leaves_a_proof(name):
    doc, said = proof(f"bound --topo apart.yaml --coll {name} --sizes 1KB")
    assert "no link joins box 0 (ranks 0-1) to other boxes" in said
    assert "no schedule" in exact_frontier.document(doc)[0]


def test_the_proof_goes_to_stdout_where_asked():
    outcome = CliRunner().invoke(root, ["pareto", "--topo", "apart.yaml", "--coll", "allgather", "--format", "json"])
    assert outcome.exit_code == 3
    assert exact_frontier.document(json.loads(outcome.stdout)) == [
        "allgather on two pairs: no schedule, unit 0 cannot reach rank 2, certificate checked",
        MACHINE,
    ]


def test_too_few_steps_leave_a_proof():
    doc, _ = proof("pareto --topo ring:8 --coll allgather --max-steps 3")
    assert exact_frontier.document(doc) == [
        "allgather on ring:8: no schedule of 3 steps or fewer, S ≥ 4, certificate checked",
        MACHINE,
    ]
    for most in (4, 100, None, -1, True, "3"):
        with pytest.raises(VerificationError, match=r"max_steps|kind"):
            exact_frontier.document(doc | {"max_steps": most})


def test_an_altered_proof_is_refused():
    doc, _ = proof("pareto --topo apart.yaml --coll allgather")
    certificate, topology = doc["certificate"], doc["topology"]
    for wrong in (
        doc | {"certificate": certificate | {"closed": [0]}},
        doc | {"certificate": certificate | {"closed": [0, 1, 2]}},
        doc | {"certificate": certificate | {"closed": [2, 3]}},
        doc | {"certificate": certificate | {"pair": [0, 1]}},
        doc | {"certificate": certificate | {"kind": "distance"}},
        doc | {"topology": topology | {"links": [*topology["links"], [1, 2, 1]]}},
        doc | {"more": 1},
        {key: value for key, value in doc.items() if key != "certificate"},
        doc | {"certificate": 3},
        doc | {"max_steps": 2},
    ):
        with pytest.raises(VerificationError):
            exact_frontier.document(wrong)


def test_a_link_that_carries_nothing_is_no_way():
    line = api.topology("line:2")
    down = replace(line, links=(line.links[0], replace(line.links[1], bandwidth=Fraction(0))), generators=())
    task = collective("allgather", 2)
    network, certificate = api.unreachable(down, task)
    assert cuts.check(certificate, network.to_json(), task.to_json(1)) == 0
    assert api.unreachable(line, task) is None

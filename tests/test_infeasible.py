"""Infeasible problems: the proof that the command line writes, on machines of any size, checked and corrupted."""

import copy
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from synth.checker.certificates import cuts, unreachable
from synth.checker.documents import exact_frontier, scale_frontier
from synth.commands import api
from synth.errors import InfeasibleError, UsageError, VerificationError
from synth.model.collective import collective
from synth.model.documents.json_reader import assumed
from synth.topologies import modify, topology
from tests.command_line import synth

APART = """\
name: two pairs
ranks: 4
nodes: [0, 0, 1, 1]
links:
- {src: 0, dst: 1, bandwidth: 25, both: true}
- {src: 2, dst: 3, bandwidth: 25, both: true}
"""
NONE = "name: none\nranks: 3\nlinks: []\n"
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
COMMANDS = ("pareto", "bound", "pareto --engine flow", "bound --engine flow")
TORUS = modify.apply(topology("torus:20x20"), without=("0-1", "0-20", "0-19", "0-380"))  # rank 0 is alone


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("apart.yaml").write_text(APART)
    Path("none.yaml").write_text(NONE)


def proof(words: str) -> tuple[dict, str]:
    """The document and the error line of a command line that is refused with exit code 3."""
    said = synth(words, "-o proof.json", code=3).stderr
    assert "the proof is in proof.json" in said
    return json.loads(Path("proof.json").read_text()), said


@pytest.mark.parametrize("machine", ["apart.yaml", "none.yaml"])
@pytest.mark.parametrize(
    ("command", "name"),
    [*((command, name) for command in COMMANDS for name in COLLECTIVES), ("explain", "allreduce")],
)
def test_ranks_apart_leave_a_proof(command, machine, name):
    doc, _ = proof(f"{command} --topo {machine} --coll {name}")
    assert doc["certificate"]["kind"] == "unreachable"
    assert "no schedule" in api.verify(doc)[0]
    last = synth("verify proof.json").stdout.splitlines()[-1]
    assert last.startswith(f"proof.json: verified: {name} on {'two pairs' if machine == 'apart.yaml' else 'none'}, ")


@pytest.mark.parametrize("name", ["allgather", "broadcast"])
def test_a_bound_in_time_names_the_box_without_links_and_leaves_a_proof(name):
    doc, said = proof(f"bound --topo apart.yaml --coll {name} --sizes 1KB")
    assert "no link joins box 0 (ranks 0-1) to other boxes" in said
    assert "no schedule" in exact_frontier.document(doc)[0]


def test_the_proof_goes_to_stdout_where_asked():
    shown = synth("pareto --topo apart.yaml --coll allgather --format json", code=3).stdout
    said = "allgather on two pairs: no schedule, unit 0 cannot reach rank 2, certificate checked"
    assert exact_frontier.document(json.loads(shown)) == [said, assumed()]


def test_too_few_steps_leave_a_proof():
    doc, _ = proof("pareto --topo ring:8 --coll allgather --max-steps 3")
    said = "allgather on ring:8: no schedule of 3 steps or fewer, S ≥ 4, certificate checked"
    assert exact_frontier.document(doc) == [said, assumed()]
    for most in (4, 100, None, -1, True, "3"):
        with pytest.raises(VerificationError, match=r"max_steps|kind"):
            exact_frontier.document(doc | {"max_steps": most})


def document(machine, name):
    """The proof of the programming interface that ranks are apart."""
    with pytest.raises(InfeasibleError) as raised:
        api.frontier(machine, name)
    return json.loads(json.dumps(api.infeasible_document(machine, name, raised.value)))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_hundreds_of_ranks_are_proved_apart(name):
    assert "no schedule, rank " in api.verify(document(TORUS, name))[0]
    with pytest.raises(InfeasibleError):
        api.scale_bound(TORUS, name)


def test_a_refusal_without_a_proof_has_a_document_where_ranks_are_apart():
    machine = modify.apply(topology("ring:6"), without=("0-1", "3-4"))
    assert api.infeasible_document(machine, "broadcast", InfeasibleError("says who")) is not None
    assert api.infeasible_document("ring:6", "broadcast", InfeasibleError("says who")) is None


GONE = object()
ALTERED = [
    ("certificate", GONE), ("certificate", 3), ("certificate.kind", "distance"), ("more", 1), ("max_steps", 2),
    ("certificate.closed", None), ("certificate.closed", []),
]  # fmt: skip
EXACT = [
    ("certificate.closed", [0]), ("certificate.closed", [0, 1, 2]), ("certificate.closed", [2, 3]),
    ("certificate.pair", [0, 1]), ("topology.links", [[0, 1, 1], [1, 0, 1], [1, 2, 1], [2, 3, 1], [3, 2, 1]]),
]  # fmt: skip
SCALE = [
    ("certificate.closed", [[0, 399]]), ("certificate.closed", [[0, 1]]), ("certificate.closed", [[0, 10**9]]),
    ("certificate.closed", [[2, 3]]), ("certificate.pair", [1, 2]), ("certificate.pair", [0, 0]),
    ("certificate.pair", [0, 400]), ("certificate.collective", "allgather"), ("certificate.topology", "0"),
    ("collective", "scan"), ("topology", GONE), ("topology.ranks", 401), ("topology.sorts", [["2", "1", "unknown"]]),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["exact", "flow"])
def test_an_altered_proof_is_refused(engine):
    if engine == "exact":
        doc, check, changes = document("apart.yaml", "allgather"), exact_frontier.document, EXACT
    else:
        doc, check, changes = document(TORUS, "alltoall"), scale_frontier.infeasible, SCALE
    check(doc)
    for path, value in [*ALTERED, *changes]:
        altered = copy.deepcopy(doc)
        *way, last = path.split(".")
        inner = altered[way[0]] if way else altered
        if value is GONE:
            del inner[last]
        else:
            inner[last] = value
        with pytest.raises(VerificationError):
            assert not check(altered), (path, value)


@pytest.mark.parametrize(("name", "pair"), [("broadcast", [1, 0]), ("reduce", [0, 1])])
def test_the_root_must_be_what_is_apart(name, pair):
    certificate = document(TORUS, name)["certificate"]
    unreachable.check(certificate, TORUS)
    with pytest.raises(VerificationError, match="root 0 asks"):
        unreachable.check(certificate | {"pair": pair}, TORUS)


def test_a_rank_alone_has_nothing_to_send():
    Path("one.yaml").write_text("name: one\nranks: 1\nlinks: []\n")
    with pytest.raises(UsageError, match="single rank, which needs no data"):
        api.frontier("one.yaml", "allgather", engine="flow")


def test_a_link_that_carries_nothing_is_no_way():
    line = api.topology("line:2")
    down = replace(line, links=(line.links[0], replace(line.links[1], bandwidth=Fraction(0))), generators=())
    task = collective("allgather", 2)
    network, certificate = api.unreachable(down, task)
    assert cuts.check(certificate, network.to_json(), task.to_json(1)) == 0
    assert api.unreachable(line, task) is None

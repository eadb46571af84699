"""Ranks that no link joins, on machines of any size: proved by flow methods too, and the proof re-checked."""

import json

import pytest
from click.testing import CliRunner

from synth.checker.certificates import unreachable
from synth.checker.documents import scale_frontier
from synth.commands import api, root
from synth.errors import InfeasibleError, UsageError, VerificationError
from synth.topologies import modify, topology

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
NONE = "name: none\nranks: 3\nlinks: []\n"
CUT = ("0-1", "0-20", "0-19", "0-380")


@pytest.mark.parametrize("command", ["pareto", "bound"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_ranks_without_any_link_are_proved_apart(command, collective, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.yaml").write_text(NONE)
    words = f"{command} --engine flow --topo none.yaml --coll {collective} -o a.json".split()
    found = CliRunner().invoke(root, words)
    assert found.exit_code == 3 and "the proof is in a.json" in found.stderr, found.output
    checked = CliRunner().invoke(root, ["verify", "a.json"])
    assert checked.exit_code == 0 and "no schedule" in checked.stdout


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_hundreds_of_ranks_are_proved_apart(collective):
    machine = modify.apply(topology("torus:20x20"), without=CUT)
    with pytest.raises(InfeasibleError) as raised:
        api.frontier(machine, collective)
    doc = json.loads(json.dumps(api.infeasible_document(machine, collective, raised.value)))
    assert "no schedule, rank " in api.verify(doc)[0]
    with pytest.raises(InfeasibleError):
        api.scale_bound(machine, collective)


def test_the_api_makes_the_document_of_either_engine():
    machine = modify.apply(topology("ring:6"), without=("0-1", "3-4"))
    for engine in ("exact", "flow"):
        with pytest.raises(InfeasibleError) as raised:
            api.frontier(machine, "broadcast", roots=[2], engine=engine)
        doc = api.infeasible_document(machine, "broadcast", raised.value, roots=[2])
        assert "no schedule" in api.verify(doc or {})[0]
    assert api.infeasible_document(machine, "broadcast", InfeasibleError("says who")) is not None  # it is proved here
    assert api.infeasible_document("ring:6", "broadcast", InfeasibleError("says who")) is None


def _doc(collective="alltoall"):
    machine = modify.apply(topology("torus:20x20"), without=CUT)
    with pytest.raises(InfeasibleError) as raised:
        api.frontier(machine, collective)
    return api.infeasible_document(machine, collective, raised.value) or {}


def test_an_altered_proof_is_refused():
    doc = json.loads(json.dumps(_doc()))
    certificate, given = doc["certificate"], doc["topology"]
    for key, value in (
        ("closed", [[0, 399]]),
        ("closed", [[0, 1]]),
        ("closed", []),
        ("closed", [[0, 10**9]]),
        ("closed", [[2, 3]]),
        ("pair", [1, 2]),
        ("pair", [0, 0]),
        ("pair", [0, 400]),
        ("kind", "distance"),
        ("collective", "allgather"),
        ("topology", "0"),
        ("closed", None),
    ):
        with pytest.raises(VerificationError):
            scale_frontier.infeasible(doc | {"certificate": certificate | {key: value}})
    for wrong in (
        doc | {"max_steps": 3},
        doc | {"more": 1},
        doc | {"collective": "scan"},
        {k: v for k, v in doc.items() if k != "topology"},
        doc | {"topology": given | {"ranks": 401}},
        doc | {"topology": given | {"sorts": [["2", "1", "unknown"]]}},
    ):
        with pytest.raises(VerificationError):
            scale_frontier.infeasible(wrong)


@pytest.mark.parametrize(("collective", "pair"), [("broadcast", [1, 0]), ("reduce", [0, 1])])
def test_the_root_must_be_what_is_apart(collective, pair):
    doc = _doc(collective)
    machine = modify.apply(topology("torus:20x20"), without=CUT)
    unreachable.check(doc["certificate"], machine)
    with pytest.raises(VerificationError, match="root 0 asks"):
        unreachable.check(doc["certificate"] | {"pair": pair}, machine)


def test_a_rank_alone_has_nothing_to_send(tmp_path):
    (tmp_path / "one.yaml").write_text("name: one\nranks: 1\nlinks: []\n")
    with pytest.raises(UsageError, match="single rank, which needs no data"):
        api.frontier(tmp_path / "one.yaml", "allgather", engine="flow")


@pytest.mark.parametrize("command", ["explain", "pareto", "bound"])
def test_every_command_that_finds_ranks_apart_leaves_the_proof(command, tmp_path):
    (tmp_path / "none.yaml").write_text(NONE)
    words = [command, "--topo", str(tmp_path / "none.yaml"), "--coll", "allreduce", "-o", str(tmp_path / "a.json")]
    found = CliRunner().invoke(root, words)
    assert found.exit_code == 3 and "the proof is in" in found.stderr, found.output
    assert CliRunner().invoke(root, ["verify", str(tmp_path / "a.json")]).exit_code == 0

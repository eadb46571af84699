"""Which solver answered what; z3's second answers; the limits that SCCL's encoding keeps."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import synth
from synth.checker.documents import exact_frontier
from synth.commands import root
from synth.errors import VerificationError
from synth.model.frontier import Frontier
from synth.model.outcome import Sat, Unknown, Unsat
from synth.model.schedule import Problem
from synth.pareto import cross_check as crosscheck
from synth.pareto.cross_check import cross_check
from synth.pareto.portfolio.selection import select_members
from synth.solvers.deadline import Budget


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> Frontier:
    found = synth.frontier("ring:4", "allgather", log=tmp_path_factory.mktemp("ring") / "log")
    assert isinstance(found, Frontier)
    return found


def question(found: Frontier, chunks=2, steps=2, rounds=3) -> Problem:
    return Problem(found.network, found.collective, chunks, steps, rounds)


def test_z3_races_where_it_is_named_alone(ring):
    assert not [member for member, _ in select_members(question(ring), "auto", "auto") if member.solver == "z3"]
    assert {member.solver for member, _ in select_members(question(ring), "auto", "z3") if member.solver} == {"z3"}
    assert "sccl" in [str(member) for member, _ in select_members(question(ring), "auto", "z3")]


def test_every_point_has_an_answer_in_the_document(ring):
    document = ring.to_json()
    exact_frontier.document(document)
    answered = {
        (a["chunks"], a["steps"], a["rounds"]): a["solver"] for a in document["answers"] if a["verdict"] == "schedule"
    }
    assert all(answered[p.chunks, p.steps, p.rounds] == p.construction for p in ring.points)
    assert Frontier.from_json(json.loads(json.dumps(document))).answers == ring.answers


@pytest.mark.parametrize(
    "change",
    [{"verdict": "optimal"}, {"solver": 3}, {"chunks": 0}, {"rounds": True}, {"proof": "none"}, {"steps": None}],
)
def test_an_answer_that_is_none_is_refused(ring, change):
    document = ring.to_json()
    document["answers"][0] |= change
    with pytest.raises(VerificationError, match=r"answers\[0\]"):
        exact_frontier.document(document)


@pytest.mark.parametrize(
    ("machine", "what"), [("ring:4", "reduce-scatter"), ("fully-connected:3", "allreduce"), ("line:3", "scan")]
)
def test_z3_decides_as_the_frontier_does(machine, what, tmp_path):
    found = synth.frontier(machine, what, max_steps=3, log=tmp_path / "log")
    assert isinstance(found, Frontier)
    checked = cross_check(found, Budget())
    new = checked.answers[len(found.answers) :]
    assert len(new) >= len(found.points)
    assert all("z3" in answer.solver or answer.solver == "sccl" for answer in new)
    assert checked.notes[-1] == f"cross-check: z3 decided {len(new)} of {len(new)} questions as the frontier does"


def test_a_contradiction_ends_in_an_error_and_doubt_is_said(ring, monkeypatch):
    point = ring.points[0]
    assert point.rounds > point.steps
    answers = iter([Sat(point.schedule), Sat(point.schedule)])
    monkeypatch.setattr(crosscheck, "_ask", lambda problem, budget: next(answers))
    with pytest.raises(VerificationError, match="the frontier says infeasible"):
        cross_check(ring, Budget())
    monkeypatch.setattr(crosscheck, "_ask", lambda problem, budget: Unsat(""))
    with pytest.raises(VerificationError, match="the frontier says schedule"):
        cross_check(ring, Budget())
    monkeypatch.setattr(crosscheck, "_ask", lambda problem, budget: Unknown("time"))
    assert "z3 decided 0 of" in cross_check(ring, Budget()).notes[-1]


def test_verbose_says_who_answered():
    words = "pareto --topo ring:4 --coll allgather --fresh -v --cross-check"
    outcome = CliRunner().invoke(root, words.split(), env={"SYNTH_CACHE": None})
    assert outcome.exit_code == 0
    assert "C=2 S=2 R=3: a schedule, by " in outcome.stderr
    assert "cross-check 1 of 2" in outcome.stderr


def test_extra_rounds_are_those_of_sccl(tmp_path):
    """With k = 0 every step has one round, whatever the sweep and the engine."""
    for number, options in enumerate(({}, {"sweep": "blind"}, {"encoding": "step"})):
        found = synth.frontier(
            "line:4", "alltoall", max_extra_rounds=0, max_steps=5, log=tmp_path / str(number), **options
        )
        assert isinstance(found, Frontier)
        assert found.points
        assert all(p.rounds == p.steps for p in found.points)
        exact_frontier.document(found.to_json())
    free = synth.frontier("line:4", "alltoall", max_steps=5, log=tmp_path / "free")
    assert any(p.rounds > p.steps for p in free.points)


def test_a_frontier_without_answers_is_read(ring):
    document = replace(ring, answers=()).to_json()
    del document["answers"]
    assert Frontier.from_json(document).answers == ()
    exact_frontier.document(document)

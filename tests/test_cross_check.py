"""Which solver answered what; z3's second answers; the limits that SCCL's encoding keeps."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

import synth
from synth.checker.documents import exact_frontier
from synth.errors import UsageError, VerificationError
from synth.model.frontier import Frontier
from synth.model.schedule import Problem
from synth.pareto.cross_check import ask_all, ask_small
from synth.pareto.portfolio.members import check_names, select_members
from synth.solvers.deadline import Budget, Deadline
from tests.command_line import synth as cli


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> Frontier:
    return synth.frontier("ring:4", "allgather", log=tmp_path_factory.mktemp("ring") / "log")


def question(found: Frontier, chunks=2, steps=2, rounds=3) -> Problem:
    return Problem(found.network, found.collective, chunks, steps, rounds)


def test_z3_races_where_it_is_named_alone(ring):
    assert not [member for member, _ in select_members(question(ring), "auto", "auto") if member.solver == "z3"]
    assert {member.solver for member, _ in select_members(question(ring), "auto", "z3") if member.solver} == {"z3"}
    assert "sccl" in [str(member) for member, _ in select_members(question(ring), "auto", "z3")]


def test_every_point_has_an_answer_in_the_document(ring):
    document = ring.to_json()
    exact_frontier.document(document)
    schedules = [a for a in document["answers"] if a["verdict"] == "schedule"]
    answered = {(a["chunks"], a["steps"], a["rounds"]): a["solver"] for a in schedules}
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
    lines: list[str] = []
    for check in (ask_small(found, tell=lines.append), ask_all(found, Budget())):
        assert len(check.answers) >= len(found.points)
        assert not check.left
        assert all("z3" in answer.solver for answer in check.answers)
        assert str(check).startswith(f"z3 agrees on {len(check.answers)} of {len(check.answers)} question")
    assert len(lines) == len(check.answers)


def test_small_questions_are_chosen_by_size_and_the_others_named(tmp_path):
    """Of DGX-1's allgather (6, 3, 6) has no schedule, which z3 does not find out within its steps."""
    found = synth.frontier("dgx1", "allgather", log=tmp_path / "log")
    check = ask_small(found)
    assert str(check) == "z3 agrees on 3 of 4 questions; (C=6, S=3, R=6) needs --cross-check"
    assert [answer.solver for answer in check.answers] == ["sccl/z3", "sccl/z3", "quotient@0/z3"]
    assert check.answers == ask_small(found).answers
    assert check.seconds > 0
    late = ask_small(found, Deadline.after(0))
    assert (late.answers, len(late.left)) == ((), 4)
    assert str(late) == "z3 decided none of 4 questions in the 2 s that it has; --cross-check asks all"
    few = replace(check, answers=check.answers[:1], left=late.left)
    assert str(few).endswith("; (C=2, S=2, R=3), (C=2, S=2, R=2), (C=6, S=3, R=7) and 1 more need --cross-check")


def test_an_allreduce_in_sccls_encoding_is_reduce_scatter_and_allgather(tmp_path):
    found = synth.frontier("line:2", "allreduce", log=tmp_path / "log", sweep="blind", encoding="sccl")
    (point,) = found.points
    assert (point.chunks, point.steps, point.rounds) == (2, 2, 2)
    check = ask_small(found)
    assert str(check) == "z3 agrees on 1 of 1 question, on 1 as reduce-scatter + allgather"
    assert check.answers[0].solver == "composed/sccl/z3"


@pytest.mark.parametrize(("rounds", "says"), [(4, "the frontier says infeasible"), (2, "the frontier says schedule")])
def test_a_contradiction_ends_in_an_error(ring, rounds, says):
    (point,) = ring.points
    claimed = replace(point.bound, value=Fraction(rounds, point.chunks))
    wrong = replace(ring, points=(replace(point, rounds=rounds, bound=claimed),))
    with pytest.raises(VerificationError, match=says) as raised:
        synth.cross_check(wrong)
    assert raised.value.exit_code == 5
    with pytest.raises(VerificationError, match=says):
        ask_all(wrong, Budget())


@pytest.mark.parametrize(
    ("options", "note"),
    [("", True), ("-q", False), ("--format json", False), ("-o -", False), ("-o f.json", True),
     ("--encoding sccl", False), ("--solver z3", False), ("--cross-check", False)],
)  # fmt: skip
def test_z3_is_asked_after_rows_that_are_shown(options, note, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = f"pareto --topo ring:4 --coll allgather --fresh {options}"
    outcome = cli(words)
    assert (" s z3 agrees on 2 of 2 questions" in outcome.stderr) is note
    assert ("note: z3 agrees on 2 of 2 questions" in outcome.stdout) is ("--cross-check" in options)


def test_ctrl_c_while_z3_is_asked_leaves_the_rows(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("synth.pareto.cross_check.ask_small", interrupt)
    words = "pareto --topo ring:4 --coll allgather --fresh -o f.json"
    monkeypatch.chdir(tmp_path)
    outcome = cli(words, code=130)
    assert "complete: no schedule" in outcome.stdout
    assert outcome.stderr.splitlines()[-1] == "synth: interrupted; z3 was asked nothing more"
    assert exact_frontier.document(json.loads((tmp_path / "f.json").read_text()))


@pytest.mark.parametrize(
    ("encoding", "solver", "meant"),
    [
        ("auto", "auto", ("auto", None, "auto")), ("auto", "Z3", ("auto", None, "z3")),
        ("step", "z3", ("step", None, "z3")), ("quotient@1/minicard", "minicard", ("quotient", 1, "minicard")),
        ("path", "auto", ("sccl", None, "auto")), ("sccl", "z3", ("sccl", None, "z3")),
        ("sccl", "cadical", "brings its own solver"), ("tree", "z3", "brings its own solver"),
        ("step/z3", "cadical", "names its solver"), ("step", "z33", "did you mean z3"),
        ("steps", "auto", "did you mean step"),
    ],
)  # fmt: skip
def test_encodings_and_the_solvers_that_they_go_with(encoding, solver, meant):
    if isinstance(meant, str):
        with pytest.raises(UsageError, match=meant):
            check_names(encoding, solver)
    else:
        assert check_names(encoding, solver) == meant


def test_extra_rounds_are_those_of_sccl(tmp_path):
    """With k = 0 every step has one round, whatever the sweep and the engine."""
    for number, options in enumerate(({}, {"sweep": "blind"}, {"encoding": "step"})):
        options |= {"max_extra_rounds": 0, "max_steps": 5, "log": tmp_path / str(number)}
        found = synth.frontier("line:4", "alltoall", **options)
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

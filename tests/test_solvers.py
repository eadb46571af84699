"""The solvers behind the port, unknowns that stay unknown, and proofs that a small checker believes or not."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.certificates import lrat, proof_file
from synth.checker.certificates.step_formula import FormulaSize, dimacs_hash
from synth.encodings.lrat_proofs import formula, write_proof
from synth.errors import MissingDependencyError, SynthError, UncheckedError, VerificationError
from synth.model.collective import collective
from synth.model.schedule import Problem
from synth.solvers import cadical, cp_sat, minicard, z3_sat
from synth.solvers.boolean_model import Model
from synth.solvers.cadical import Cadical
from synth.solvers.cadical_lrat import refute
from synth.solvers.cp_sat import CpSat
from synth.solvers.minicard import MiniCard
from synth.solvers.z3_sat import Z3Sat, reason
from synth.topologies import topology

SOLVERS = (Cadical, CpSat, MiniCard, Z3Sat)
clause = st.lists(st.integers(1, 6).flatmap(lambda v: st.sampled_from([v, -v])), min_size=1, max_size=3)


def check_proof(certificate, problem, folder):
    """Check a certificate against the documents of a problem."""
    size = FormulaSize(problem.chunks, problem.steps, problem.rounds)
    return proof_file.check(certificate, problem.network.to_json(), problem.collective.to_json(1), size, folder)


def of(clauses, counts=()):
    model = Model()
    model.block(6)
    model.clauses = [list(c) for c in clauses]
    for literals, k in counts:
        model.at_most(list(literals), k)
    return model


@settings(max_examples=40, deadline=None)
@given(st.lists(clause, max_size=24), st.lists(st.tuples(clause, st.integers(0, 2)), max_size=3), st.integers(0, 3))
def test_solvers_agree_and_their_solutions_hold(clauses, counts, seed):
    answers = [solver(seed=seed).solve(of(clauses, counts)) for solver in SOLVERS]
    assert len({answer.status for answer in answers}) == 1
    for answer in answers:
        if answer.status == "sat":
            true = {v if answer.values[v] else -v for v in range(1, 7)}
            assert all(set(c) & true for c in clauses)
            assert all(sum(x in true for x in literals) <= k for literals, k in counts)


def pigeons(holes):
    """One pigeon too many: unsatisfiable, and slow to refute."""
    model = Model()
    at = {(p, h): model.var() for p in range(holes + 1) for h in range(holes)}
    for p in range(holes + 1):
        model.clause([at[p, h] for h in range(holes)])
    for h in range(holes):
        for p in range(holes + 1):
            for q in range(p):
                model.clause([-at[p, h], -at[q, h]])
    return model


@pytest.mark.parametrize("solver", (Cadical, MiniCard, Z3Sat))
def test_a_budget_of_conflicts_ends_unknown(solver):
    answer = solver(conflicts=20).solve(pigeons(8))
    assert (answer.status, answer.detail) == ("gave-up", "conflicts")
    assert solver().solve(pigeons(5)).status == "unsat"


@pytest.mark.parametrize(
    ("module", "name", "solver"),
    [
        (cadical, "Cadical195", Cadical),
        (cp_sat, "cp_model", CpSat),
        (minicard, "Library", MiniCard),
        (z3_sat, "z3", Z3Sat),
    ],
)
def test_a_missing_library_names_its_install_command(monkeypatch, module, name, solver):
    monkeypatch.setattr(module, name, None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        solver().solve(of([[1]]))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("timeout", "time"),
        ("memout", "memory"),
        ("interrupted from keyboard", "interrupted"),
        ("canceled", "interrupted"),
        ("?", "gave-up"),
    ],
)
def test_what_z3_calls_unknown(text, why):
    assert reason(text) == (why, text)


@settings(max_examples=40, deadline=None)
@given(st.lists(clause, min_size=10, max_size=40))
def test_refutations_check(clauses):
    lines = refute(clauses)
    assert (lines is None) is (Cadical().solve(of(clauses)).status == "sat")
    if lines is not None:
        assert lrat.check(clauses, lines) == len(lines)


SQUARE = [[1, 2], [1, -2], [-1, 2], [-1, -2]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["5 1 0 1 2 0"], "without the empty clause"),
        (["5 0 1 2 0"], "not a unit"),
        (["5 1 0 1 2 0", "6 0 5 9 0"], "clause 9 is unknown"),
        (["5 1 0 1 2 0", "6 0 5 0"], "without a conflict"),
        (["5 1 0 1 2 0", "5 0 5 3 4 0"], "exists already"),
        (["5 1 0 1 2 0", "5 d 1 0", "6 0 1 3 4 0"], "clause 1 is unknown"),
        (["5 x 0"], "not a step"),
        (["5 1 0 1 2"], "end with 0"),
    ],
)
def test_false_proofs_are_refused(lines, message):
    with pytest.raises(VerificationError, match=message):
        lrat.check(SQUARE, lines)
    assert lrat.check(SQUARE, ["5 1 0 1 2 0", "6 0 5 3 4 0"]) == 2


UNSAT = [
    ("allgather", 3, 2, 4),
    ("allgather", 6, 2, 7),
    ("broadcast", 3, 2, 2),
    ("alltoall", 1, 2, 2),
    ("reduce-scatter", 3, 2, 4),
]


@pytest.mark.parametrize(("coll", "chunks", "steps", "rounds"), UNSAT)
def test_proofs_of_known_infeasible_problems(tmp_path, coll, chunks, steps, rounds):
    problem = Problem(topology("dgx1").network(), collective(coll, 8), chunks, steps, rounds)
    certificate = json.loads(json.dumps(write_proof(problem, tmp_path)))
    check_proof(certificate, problem, tmp_path)
    easier = Problem(problem.network, problem.collective, chunks, steps, rounds + 3)
    with pytest.raises(VerificationError):
        check_proof(certificate, easier, tmp_path)
    variables, clauses = formula(easier)
    forged = {
        **certificate,
        "problem": easier.fingerprint,
        "rounds": rounds + 3,
        "cnf": dimacs_hash(variables, clauses),
    }
    with pytest.raises(VerificationError):
        check_proof(forged, easier, tmp_path)


def test_a_feasible_problem_has_no_proof(tmp_path):
    with pytest.raises(SynthError, match="has a schedule"):
        write_proof(Problem(topology("dgx1").network(), collective("allgather", 8), 1, 2, 2), tmp_path)


@pytest.mark.parametrize(
    "size", [{"chunks": 1 << 199}, {"rounds": 1 << 60}, {"steps": 1 << 40, "rounds": 1 << 40}, {"chunks": 1 << 20}]
)
def test_a_formula_that_is_too_large_is_not_written(tmp_path, size):
    problem = replace(Problem(topology("ring:4").network(), collective("broadcast", 4), 3, 2, 2), **size)
    asked = {"problem": problem.fingerprint, "chunks": problem.chunks, "steps": problem.steps, "rounds": problem.rounds}
    certificate = {"kind": "lrat", **asked, "cnf": "0" * 64, "file": "proof.xz", "sha256": "0" * 64, "lemmas": 1}
    (tmp_path / "proof.xz").write_bytes(b"")
    with pytest.raises(UncheckedError, match="too large a formula"):
        check_proof(certificate, problem, tmp_path)


def test_an_altered_proof_file_is_refused(tmp_path):
    problem = Problem(topology("dgx1").network(), collective("broadcast", 8), 3, 2, 2)
    certificate = write_proof(problem, tmp_path)
    file = tmp_path / certificate["file"]
    good = file.read_bytes()
    file.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
    with pytest.raises(VerificationError, match="not the one"):
        check_proof(certificate, problem, tmp_path)
    file.write_bytes(good[: len(good) // 2])
    import hashlib

    cut = {**certificate, "sha256": hashlib.sha256(good[: len(good) // 2]).hexdigest()}
    with pytest.raises(VerificationError):
        check_proof(cut, problem, tmp_path)
    with pytest.raises(VerificationError, match="no proof file"):
        check_proof({**certificate, "file": "../" + certificate["file"]}, problem, tmp_path)

"""The solvers behind the port, unknowns that stay unknown, and proofs that a small checker believes or not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.certificates import lrat
from synth.errors import MissingDependencyError, VerificationError
from synth.solvers import python_sat, z3_solvers
from synth.solvers.boolean_model import Model
from synth.solvers.python_sat import Cadical, MiniCard, refute
from synth.solvers.z3_solvers import Z3Sat, reason

SOLVERS = (Cadical, MiniCard, Z3Sat)
clause = st.lists(st.integers(1, 6).flatmap(lambda v: st.sampled_from([v, -v])), min_size=1, max_size=3)


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
        (python_sat, "Cadical195", Cadical),
        (python_sat, "Minicard", MiniCard),
        (z3_solvers, "z3", Z3Sat),
    ],
)
def test_a_missing_library_names_its_install_command(monkeypatch, module, name, solver):
    monkeypatch.setattr(module, name, None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        solver().solve(of([[1]]))


@pytest.mark.parametrize(("text", "why"), [
    ("timeout", "time"), ("memout", "memory"), ("interrupted from keyboard", "interrupted"),
    ("canceled", "interrupted"), ("?", "gave-up"),
])  # fmt: skip
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

"""The solvers behind the port, unknowns that stay unknown, and proofs that a small checker believes or not."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.certificates import lrat
from synth.errors import MissingDependencyError, VerificationError
from synth.solvers import python_sat, z3_solvers
from synth.solvers.boolean_model import Model
from synth.solvers.python_sat import Cadical, MiniCard, refute
from synth.solvers.rationalise import CLOSE, largest_remainders, near_integers, roundings, simple_fractions
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


# ---------------------------------------------------------------- exact numbers near floats


def test_simple_duals_become_themselves():
    values = [1 / 3, 0.25, 0.0]
    first = next(roundings(values, (100,), 10**9))
    assert (first.scale, first.down) == (12, False)
    assert [first(value) for value in values] == [4, 3, 0]


def test_scales_beyond_the_largest_are_left_out_and_the_last_rounds_down():
    values = np.random.default_rng(0).random(20).tolist()
    (last,) = roundings(values, (100, 1_000), 1_000)
    assert (last.scale, last.down) == (1_000, True)
    assert all(last(value) <= value * 1_000 < last(value) + 1 + 1e-6 for value in values)
    assert sum(last(value, sum(values)) for value in values) <= 1_000


def test_near_integers_are_exact_or_rounded_down():
    assert near_integers([0.5, 1 / 3], 10, 60, 1e-9) == (6, [3, 2])
    assert near_integers([0.5, 0.123456], 10, 60, 1e-9) == (60, [30, 7])
    assert near_integers([1 / 7, 1 / 9], 10, 60, 1e-9) == (60, [8, 6])  # a common denominator of 63


def test_simple_fractions_keep_the_sign():
    assert simple_fractions([-0.5, 2 / 7], 10) == [Fraction(-1, 2), Fraction(2, 7)]


@pytest.mark.parametrize("total", [1, 2, 7, 64, 1000])
def test_shares_add_up_however_they_are_rounded(total):
    for shares in (np.random.default_rng(3).random(40), np.eye(40)[3], np.full(40, 1 / 40)):
        parts = largest_remainders(shares.tolist(), total)
        assert sum(parts) == total and min(parts) >= 0
        assert np.abs(np.array(parts) - shares / shares.sum() * total).max() < 1 + CLOSE


def test_every_part_gets_its_least():
    assert largest_remainders([0.01, 0.01, 10.0], 5, 1) == [1, 1, 3]
    assert largest_remainders([1.0, 1.0], 2, 1) == [1, 1]

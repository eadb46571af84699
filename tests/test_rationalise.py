"""Exact numbers near floats: roundings, integers of a common scale, largest remainders."""

from fractions import Fraction

import numpy as np
import pytest

from synth.solvers.rationalise import CLOSE, largest_remainders, near_integers, roundings, simple_fractions


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

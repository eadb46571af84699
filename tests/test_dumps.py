"""Dumps of random machines, written and read back, as printed and damaged (bench/dumps.py)."""

from collections import Counter

import pytest

from bench import dumps

CASES = 120


@pytest.mark.parametrize("cases", [CASES, pytest.param(20 * CASES, marks=pytest.mark.slow)])
def test_dumps_give_the_machine_and_damaged_ones_the_same_or_a_refusal(tmp_path, cases):
    results = Counter()
    for number in range(cases):
        for form, damage, result, why, text in dumps.case(7, number, tmp_path / "dump.txt"):
            damaged = damage != "none"
            results[damaged, result] += 1
            allowed = ("same", "refused", "noted") if damaged else ("same",)
            assert result in allowed, f"case {number}, {form}, {damage}: {result}: {why}\n{text}"
    # Most dumps can still be read, many cannot, and few say that something is missing.
    assert results[False, "same"] == cases
    assert results[True, "same"] > cases / 4
    assert results[True, "refused"] > cases / 8
    assert results[True, "noted"] < cases / 8


def test_a_misreading_would_be_found(tmp_path):
    text = "\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n"
    links = {(0, 1): (50, "nvlink"), (1, 0): (50, "nvlink")}
    for width, result in ((50, "same"), (25, "silent")):
        right = (2, (0, 0), {pair: (width, kind) for pair, (_, kind) in links.items()}, set())
        notes = dumps.load(tmp_path / "dump.txt").notes if width == 25 else ()
        assert dumps.outcome(tmp_path / "dump.txt", text, right, notes)[0] == result
    assert dumps.outcome(tmp_path / "dump.txt", text[:-4], right)[0] == "refused"

"""Lower bounds in time against exhaustive asynchronous search on small random machines (more: python -m
bench.time_bounds)."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bench import time_bounds
from bench.asynchronous_search import Machine, Search, Unit


def link(a: int, b: int, gbps: int = 1, late: int = 0) -> tuple[int, int, Fraction, Fraction]:
    return a, b, Fraction(gbps), Fraction(late)


@pytest.mark.parametrize(
    ("machine", "units", "chunks", "time"),
    [
        (Machine(3, (link(0, 1, 1, 2), link(1, 2, 1, 3))), [Unit((0,), (2,), Fraction(4000))], 1, 4 + 2 + 4 + 3),
        (Machine(3, (link(0, 1, 1, 2), link(1, 2, 1, 3))), [Unit((0,), (2,), Fraction(4000))], 2, 4 + 2 + 2 + 3),
        (Machine(2, (link(0, 2, 2, 1), link(2, 1, 1, 1))), [Unit((0,), (1,), Fraction(1000))], 1, 1 + 2),
        (
            Machine(3, (link(0, 1), link(0, 2)), (((0, 1), Fraction(1)),)),
            [Unit((0,), (1,), Fraction(1000)), Unit((0,), (2,), Fraction(1000))],
            1,
            2,
        ),
    ],
)
def test_the_search_finds_known_times(machine: Machine, units: list[Unit], chunks: int, time: int) -> None:
    found = Search(machine, units, False, chunks, 10_000).run()
    assert found.exhausted and found.time == time


def test_sums_wait_for_all_their_parts() -> None:
    machine = Machine(3, (link(0, 1, 1, 1), link(1, 2, 1, 1)))
    found = Search(machine, [Unit((0, 1, 2), (2,), Fraction(1000))], True, 1, 10_000).run()
    assert found.exhausted and found.time == 4


@pytest.mark.parametrize("number", range(40))
def test_no_bound_lies_above_the_time_of_a_schedule(number: int) -> None:
    row = time_bounds.examine(time_bounds.instance(17, number), 300)
    assert row["answer"] != "contradiction", row

"""Ranges: disjoint and without gaps, good enough at every judged size, no switch that noise explains."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.catalog.tuner.curves import Curve, no_jumps
from synth.catalog.tuner.measurements import Sample
from synth.catalog.tuner.size_ranges import Option, crossing, ranges
from synth.catalog.tuner.tune import Question, TunerCandidate, choose_algorithms
from synth.model.tuning_plan import Algorithm, Range

SIZES = [1 << k for k in range(8, 29, 2)]


def within(share):
    return lambda size: share


def line(start, per_byte):
    return lambda size: start + per_byte * size


def option(seconds, divisor=4, spread=0.0):
    return Option(seconds, lambda size: spread, divisor)


def predicted(label, seconds, jumps=no_jumps):
    return TunerCandidate(Algorithm(label, "nccl", None, "Simple", 1, 1), None, (), seconds, jumps)


def chosen_labels(found):
    return [found.algorithms[row.order[0]].label for row in found.table.ranges]


def check(found, low, high):
    assert found[0].low == low and found[-1].high == high
    for before, after in pairwise(found):
        assert before.low <= before.high
        assert after.low == before.high + 1
        assert after.order != before.order
    assert all(row.order and len(set(row.order)) == len(row.order) for row in found)


lines = st.lists(
    st.tuples(st.floats(1e-7, 1e-3), st.floats(1e-13, 1e-8), st.sampled_from([4, 8, 12, 16, 24, 40, 192])),
    min_size=1,
    max_size=7,
)


@settings(max_examples=150, deadline=None)
@given(
    lines, st.sampled_from([0.0, 0.01, 0.2]), st.lists(st.integers(1, 1 << 30), min_size=1, max_size=12, unique=True)
)
def test_ranges_are_disjoint_without_gaps_and_lose_no_more_than_the_tolerance(drawn, tolerance, sizes):
    options, sizes = [option(line(a, b), d) for a, b, d in drawn], sorted(sizes)
    found = ranges(options, sizes, within(tolerance))
    check(found, sizes[0], sizes[-1])
    for size in sizes:
        row = next(r for r in found if r.low <= size <= r.high)
        best = min(o.seconds(size) for o in options)
        assert options[row.order[0]].seconds(size) <= best * (1 + tolerance) * (1 + 1e-9)


@settings(max_examples=150, deadline=None)
@given(lines, st.integers(1, 64))
def test_the_first_of_a_range_that_admits_a_size_is_good_enough_there(drawn, factor):
    """Also where the first choice does not divide: what comes next is the best of those that remain, within the
    tolerance."""
    options = [option(line(a, b), d) for a, b, d in drawn]
    sizes = [size * factor for size in SIZES]
    for row in ranges(options, sizes, within(0.01)):
        for size in [s for s in sizes if row.low <= s <= row.high]:
            able = [k for k, o in enumerate(options) if size % o.divisor == 0]
            first = next((k for k in row.order if k in able), None)
            assert (first is None) == (not able)
            if first is not None:
                best = min(options[k].seconds(size) for k in able)
                assert options[first].seconds(size) <= best * 1.01 * (1 + 1e-9)


def test_a_switch_lies_where_the_times_cross():
    found = ranges([option(line(1e-6, 1e-9)), option(line(3e-6, 5e-10))], SIZES, within(0.0))
    assert found == [Range(256, 3999, (0,)), Range(4000, SIZES[-1], (1,))]


def test_a_switch_that_wins_no_more_than_the_repeats_spread_does_not_happen():
    better = lambda size: 1e-6 * (0.97 if size in (4096, 65536) else 1.03)  # noqa: E731
    steady = line(1e-6, 0)
    assert len(ranges([option(steady), option(better)], SIZES, within(0.0))) == 5
    assert ranges([option(steady, spread=0.04), option(better, spread=0.02)], SIZES, within(0.0)) == [
        Range(256, SIZES[-1], (0,))
    ]


def test_isolated_flips_are_smoothed_within_the_tolerance_and_only_there():
    flips = [1.005, 0.995] * 6
    jagged = lambda size: 1e-6 * flips[SIZES.index(size)] if size in SIZES else 1e-6  # noqa: E731
    assert len(ranges([option(line(1e-6, 0)), option(jagged)], SIZES, within(0.0))) > 5
    assert len(ranges([option(line(1e-6, 0)), option(jagged)], SIZES, within(0.01))) == 1
    steep = lambda size: 1e-6 * (0.5 if size == 4096 else 2)  # noqa: E731
    assert [r.order for r in ranges([option(line(1e-6, 0)), option(steep)], SIZES, within(0.01))] == [(0,), (1,), (0,)]


def test_within_the_tolerance_what_admits_more_sizes_is_preferred():
    found = ranges([option(line(1e-6, 0), 192), option(line(1.005e-6, 0), 64)], SIZES, within(0.01))
    assert found == [Range(256, SIZES[-1], (1,))]
    found = ranges([option(line(1e-6, 0), 192), option(line(1.05e-6, 0), 64)], SIZES, within(0.01))
    assert found == [Range(256, SIZES[-1], (0, 1))]
    found = ranges(
        [option(line(1e-6, 0), 192), option(line(1.05e-6, 0), 64), option(line(1.1e-6, 0), 192)], SIZES, within(0.01)
    )
    assert found == [Range(256, SIZES[-1], (0, 1))]  # what is slower and admits no more never comes


def test_an_option_that_is_known_at_some_sizes_only_serves_those():
    part = lambda size: 1e-7 if 4096 <= size <= 65536 else None  # noqa: E731
    found = ranges([option(line(1e-6, 0)), option(part)], SIZES, within(0.0))
    assert [(r.low, r.order) for r in found] == [(256, (0,)), (4096, (1,)), (65537, (0,))]


def test_crossing_is_the_least_size_from_which_the_new_one_is_ahead():
    assert crossing(line(0, 2), line(1000, 1), 10, 5000) == 1000
    assert crossing(line(0, 1), line(1000, 2), 10, 5000) == 5000  # never: then at the next judged size
    assert crossing(line(0, 2), line(9, 1), 10, 5000) == 11  # at the first size already, where both are good enough


def test_ranges_switch_several_times_between_two_sizes_where_times_jump():
    """The stair is the fastest at both sizes, and slower on the first part of each of its treads."""
    treads = range(1000, 9000, 1000)
    stair = lambda size: 1e-6 * (100 + size // 1000 * 10 + size % 1000 / 1000)  # noqa: E731
    even = lambda size: 1e-6 * (95 + size / 100)  # noqa: E731
    jumps = lambda low, high: [at for n in treads for at in (n - 1, n) if low < at <= high]  # noqa: E731
    question = Question("allreduce", 4, (2999, 5999), 1, 0.0)
    found = choose_algorithms(question, [predicted("stair", stair, jumps), predicted("even", even)], None)
    labels = chosen_labels(found)
    assert labels == ["stair", "even", "stair", "even", "stair", "even", "stair"]
    for row, label in zip(found.table.ranges, labels, strict=True):
        for size in (row.low, row.high or 0):
            assert min((stair(size), "stair"), (even(size), "even"))[1] == label
    alone = choose_algorithms(question, [predicted("stair", stair), predicted("even", even)], None)
    assert len(alone.table.ranges) < len(labels)


def test_an_algorithm_that_wins_for_a_third_of_an_octave_is_found():
    """The dent is the fastest from 1,220,000 to 1,320,000 bytes alone: between 1 MB and 2 MB, and not at √2 MB."""
    even = lambda size: 1e-12 * size  # noqa: E731
    dent = lambda size: 1e-12 * size * (0.9 if 1_220_000 <= size <= 1_320_000 else 1.1)  # noqa: E731
    question = Question("allreduce", 4, (1_000_000, 2_000_000), 1)
    found = choose_algorithms(question, [predicted("even", even), predicted("dent", dent)], None)
    assert chosen_labels(found) == ["even", "dent", "even"]


def test_a_second_crossing_beside_a_tie_is_found():
    """The bump is the slower one from 1,070,000 to 1,190,000 bytes alone; 1.5% divide the times at 1 MB and 1.26 MB."""
    even = lambda size: 1.015e-12 * size  # noqa: E731
    bump = lambda size: 1e-12 * size * (1.05 if 1_070_000 <= size <= 1_190_000 else 1)  # noqa: E731
    question = Question("allreduce", 4, (1_000_000, 2_000_000), 1)
    found = choose_algorithms(question, [predicted("even", even), predicted("bump", bump)], None)
    assert chosen_labels(found) == ["bump", "even", "bump"]


def test_when_the_time_is_over_sizes_between_those_of_the_question_are_left_out():
    asked: list[int] = []

    def even(size):
        asked.append(size)
        return 1e-6 * size

    one = predicted("even", even)
    question = Question("allreduce", 4, (1024, 1 << 20), 1)
    whole = choose_algorithms(question, [one], None)
    assert len(asked) > 10 and not whole.notes[:-1]
    asked.clear()
    cut = choose_algorithms(question, [one], None, lambda: len(asked) > 4)
    assert len(asked) == 5 and cut.table.seconds == whole.table.seconds
    assert cut.notes[0].startswith("the time limit ended the comparison at sizes between those given after 0 of 29")


def test_predictions_are_exact_at_the_sizes_given_and_switch_between_them_for_more_than_the_tolerance_alone():
    """Two times cross twice on each tread of the stair, and never differ by more than half a per cent."""
    stair = lambda size: 1e-6 * (1000 + size // 1000 * 10)  # noqa: E731
    even = lambda size: 1e-6 * (995 + size / 100)  # noqa: E731
    jumps = lambda low, high: [at for n in range(1000, 9000, 1000) for at in (n - 1, n) if low < at <= high]  # noqa: E731
    candidates = [predicted("stair", stair, jumps), predicted("even", even, jumps)]
    question = Question("allreduce", 4, (2999, 5999), 1)
    found = choose_algorithms(question, candidates, None)
    assert len(found.table.ranges) == 1
    for size, seconds in zip(found.table.sizes, found.table.seconds, strict=True):
        assert seconds == min(stair(size), even(size))
    assert len(choose_algorithms(question._replace(tolerance=0.0), candidates, None).table.ranges) == 7


def test_at_the_sizes_given_no_switch_gains_a_nanosecond_alone():
    """Of 5 µs: the faster one changed with each size."""
    times = {1024: (5.000, 5.001), 2048: (5.002, 5.001), 4096: (5.003, 5.004), 8192: (5.1, 5.2), 16384: (5.6, 5.5)}
    candidates = []
    for place, label in enumerate(("first", "second")):
        at = {size: seconds[place] * 1e-6 for size, seconds in times.items()}
        candidates.append(predicted(label, lambda size, at=at: at[max(s for s in at if s <= size)]))
    question = Question("allreduce", 4, tuple(times), 1)
    found = choose_algorithms(question, candidates, None)
    assert [found.algorithms[k].label for k in found.table.chosen if k is not None] == ["first"] * 4 + ["second"]
    assert max(loss for loss in found.table.losses if loss is not None) < 0.001
    exact = choose_algorithms(question._replace(tolerance=0.0), candidates, None)
    assert set(exact.table.losses) == {0.0} and len(exact.table.ranges) == 4


samples = st.lists(
    st.tuples(st.integers(1, 1 << 30), st.floats(1e-7, 1)), min_size=1, max_size=8, unique_by=lambda row: row[0]
)


@given(samples)
def test_a_curve_goes_through_its_samples(rows):
    curve = Curve(tuple(Sample(size, time) for size, time in sorted(rows)))
    bent = Curve(curve.samples, model=lambda size: 1e-6 + 3e-10 * size)
    for size, time in rows:
        assert curve.seconds(size) == pytest.approx(time)
        assert bent.seconds(size) == pytest.approx(time)


def test_between_samples_time_is_linear_in_the_size():
    truth = lambda size: 5e-6 + 1e-9 * size  # noqa: E731
    curve = Curve(tuple(Sample(size, truth(size)) for size in (256, 1 << 12, 1 << 24)))
    for size in (128, 300, 4096, 5000, 1 << 20, 1 << 25):
        assert curve.seconds(size) == pytest.approx(truth(size))


def test_beyond_the_samples_a_curve_ends():
    curve = Curve((Sample(1024, 1e-6), Sample(2048, 4e-6)))
    assert curve.seconds(4096) == pytest.approx(8e-6)  # in proportion, no steeper
    assert curve.seconds(512) == pytest.approx(0.5e-6)
    assert curve.seconds(4097) is None and curve.seconds(511) is None
    falling = Curve((Sample(1024, 4e-6), Sample(2048, 1e-6)))
    assert (falling.seconds(512), falling.seconds(4096)) == (4e-6, 1e-6)
    assert Curve((Sample(1024, 1e-6),)).seconds(2048) == pytest.approx(1e-6)
    assert Curve().seconds(1024) is None


def test_a_single_time_scales_the_model():
    model = lambda size: 1e-6 + 1e-9 * size  # noqa: E731
    curve = Curve((Sample(1000, 3e-6),), model)
    assert curve.seconds(2000) == pytest.approx(4.5e-6)
    assert curve.seconds(2001) is None
    assert Curve((), model).seconds(1 << 30) == model(1 << 30)


def test_the_order_of_options_does_not_change_what_is_chosen():
    random = Random(1)
    options = [option(line(random.uniform(1e-6, 1e-5), random.uniform(1e-12, 1e-9))) for _ in range(8)]
    picked = [[options[r.order[0]] for r in ranges(options, SIZES, within(0.01))]]
    for _ in range(5):
        mixed = random.sample(options, len(options))
        picked.append([mixed[r.order[0]] for r in ranges(mixed, SIZES, within(0.01))])
    assert all(found == picked[0] for found in picked)

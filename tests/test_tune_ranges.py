"""Ranges of sizes: disjoint and without gaps, good enough at every judged size, no switch that noise explains."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.catalog.tuner.candidates import TunerCandidate
from synth.catalog.tuner.choice import Question, choose_algorithms
from synth.catalog.tuner.cost_model import MeasuredTime, fit, terms
from synth.catalog.tuner.fewer_chunks import of_chunks
from synth.catalog.tuner.measurements import Sample, interpolated
from synth.checker.schedule import replay
from synth.commands import api
from synth.errors import SynthError
from synth.model.tuning_plan import Algorithm

SIZES = tuple(1 << k for k in range(8, 29, 2))


def candidate(label, seconds, divisor=1, backend="synth"):
    """Return a candidate whose measured time is `seconds(size)` at each of `SIZES` where it is not None."""
    samples = []
    for size in SIZES:
        if (time := seconds(size)) is not None:
            samples.append(Sample(size, time))
    return TunerCandidate(Algorithm(label, backend, None, "Simple", 1, divisor), tuple(samples))


def line(start, per_byte):
    return lambda size: start + per_byte * size


def ranges(candidates, tolerance=0.0, sizes=SIZES, element=4):
    found = choose_algorithms(Question("allgather", 4, sizes, element, tolerance), candidates)
    return [(row.low, row.high, [found.algorithms[k].label for k in row.order]) for row in found.table.ranges]


lines = st.lists(
    st.tuples(st.floats(1e-7, 1e-3), st.floats(1e-13, 1e-8), st.sampled_from([1, 2, 3, 6, 48])), min_size=1, max_size=7
)


@settings(max_examples=60, deadline=None)
@given(lines, st.sampled_from([0.0, 0.01, 0.2]), st.sampled_from([1, 3, 64]))
def test_ranges_have_no_gaps_and_lose_no_more_than_the_tolerance_with_padding_and_without(drawn, tolerance, factor):
    sizes = tuple(size for size in (factor * one for one in SIZES) if size <= SIZES[-1])
    known = [candidate(f"a{i}", line(a, b), divisor) for i, (a, b, divisor) in enumerate(drawn)]
    found = choose_algorithms(Question("allgather", 4, sizes, 4, tolerance), known)
    rows = found.table.ranges
    assert (rows[0].low, rows[-1].high) == (sizes[0], sizes[-1])
    for before, after in pairwise(rows):
        assert before.low <= before.high and after.low == before.high + 1 and after.order != before.order
    for size in sizes:
        times = {}
        for one in known:
            # Padded sizes beyond twice the last sample have no time.
            time = one.time(size, 4)
            if time is not None:
                times[one.algorithm.label] = time.seconds
        (row,) = (one for one in rows if one.low <= size <= one.high)
        labels = [found.algorithms[k].label for k in row.order]
        assert times[labels[0]] <= min(times.values()) * (1 + tolerance) * (1 + 1e-9)
        whole = {one.algorithm.label for one in known if size % (4 * one.algorithm.divisor) == 0} & times.keys()
        first = next((label for label in labels if label in whole), None)
        assert (first is None) == (not whole)
        if first is not None:
            assert times[first] <= min(times[label] for label in whole) * (1 + tolerance) * (1 + 1e-9)


def test_a_switch_lies_where_the_times_cross():
    found = ranges([candidate("a", line(1e-6, 1e-9)), candidate("b", line(3e-6, 5e-10))])
    assert found == [(256, 3999, ["a"]), (4000, SIZES[-1], ["b"])]


@pytest.mark.parametrize(("tolerance", "count"), [(0.0, 5), (0.08, 1)])
def test_a_switch_that_wins_no_more_than_the_tolerance_does_not_happen(tolerance, count):
    flips = lambda size: 1e-6 * (0.97 if size in (4096, 65536) else 1.03)  # noqa: E731
    assert len(ranges([candidate("a", line(1e-6, 0)), candidate("b", flips)], tolerance)) == count


def test_what_is_known_at_some_sizes_only_serves_those():
    early = candidate("early", lambda size: 1e-6 if size <= 4096 else None)
    late = candidate("late", lambda size: 2e-6 if size >= 4096 else None)
    assert ranges([early, late]) == [(256, 16383, ["early"]), (16384, SIZES[-1], ["late"])]
    found = choose_algorithms(Question("allgather", 4, SIZES), [early])
    assert found.table.sizes == SIZES[:3] and "no time is known at 16 KB, " in found.notes[0]
    with pytest.raises(SynthError, match="nothing says how long"):
        choose_algorithms(Question("allgather", 4, (1 << 20,)), [early])


def test_no_schedule_is_kept_where_the_librarys_own_is_faster_and_the_schedule_stands_after_it():
    ours, theirs = candidate("ours", line(1e-6, 1.005e-9)), candidate("theirs", line(2e-6, 1e-9), 1, "nccl")
    found = ranges([ours, theirs], 0.01)
    assert [order for _, _, order in found] == [["ours", "theirs"], ["theirs", "ours"]]
    equal = [candidate("ours", line(1e-6, 0), 8), candidate("theirs", line(1e-6, 0), 1, "nccl")]
    assert ranges(equal)[0][2][0] == "theirs"  # of equals the one that needs no file


def test_times_between_samples_are_on_lines_and_end_at_twice_the_last():
    samples = (Sample(100, 1.0), Sample(200, 2.0), Sample(400, 2.5))
    for size, seconds in {100: 1.0, 150: 1.5, 300: 2.25, 50: 0.5, 800: 3.5, 49: None, 801: None}.items():
        found = interpolated(samples, size)
        assert (found and found.seconds) == (None if seconds is None else pytest.approx(seconds))
    assert interpolated(samples[:1], 150).seconds == 1.0  # one time alone
    falling = (Sample(100, 3.0), Sample(200, 2.0))
    assert interpolated(falling, 400).seconds == 2.0  # time does not fall with the size beyond what was measured


@pytest.mark.parametrize("machine", ["full:8", "dgx-a100*2"])
def test_a_fit_finds_the_latencies_and_bandwidths_that_made_the_times(machine):
    schedules = [api.baseline(name, machine, "allgather") for name in ("ring", "direct", "bruck")]
    true = {"launch": 5e-6, "step": 2e-6, "wire": 1.25}
    rows = []
    for schedule in schedules:
        for size in (1 << 10, 1 << 16, 1 << 22, 1 << 28):
            row = terms(schedule, "LL", size)
            rows.append(MeasuredTime(schedule, "LL", size, sum(true[name.split()[0]] * row[name] for name in row)))
    found = fit(rows)
    assert found["residuals"]["greatest"] < 1e-6
    for name, value in found["coefficients"].items():
        assert value == pytest.approx(true[name.split()[0]], rel=0.01), name
    assert "5 µs a launch (LL)" in found["words"][0] and "80% of the nominal bandwidth" in found["words"][0]


@pytest.mark.parametrize(
    ("name", "machine", "collective"),
    [
        ("direct", "dgx-a100", "allreduce"),
        ("direct", "full:4", "reduce-scatter"),
        ("ring", "ring:4", "allgather"),
        ("direct", "full:4", "alltoall"),
    ],
)
def test_schedules_of_any_number_of_chunks_are_right_and_load_links_evenly(name, machine, collective):
    schedule = api.baseline(name, machine, collective)
    for chunks in (1, schedule.chunks, 2 * schedule.chunks, 2 * schedule.chunks + 1):
        found = of_chunks(schedule, chunks)
        assert replay.schedule(found).chunks == chunks and found.step_count <= schedule.step_count
        assert chunks % schedule.chunks or found.rounds_per_chunk <= schedule.rounds_per_chunk

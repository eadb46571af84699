"""Views: numbers and sentences of the tables, HTML, plots."""

from __future__ import annotations

import itertools
import os
import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from synth.commands import api
from synth.errors import UsageError
from synth.model.bounds.time_bound import SizeBound, TimeBound
from synth.model.build_result import BuildResult, BuildRow, BuiltTable, LibraryTime
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.number_text import bytes_text, number, size_text
from synth.model.schedule import Schedule, Send, Step
from synth.program.analysis.report import size_text as lint_size_text
from synth.view import build, frontier_text, run_table, tables
from synth.view.drawings import plot
from synth.view.frontier_text import AlgorithmTime, Report


def test_sizes_left_to_the_library_are_ranges_with_both_times():
    ring = (LibraryTime("nccl-ring", 3e-6),)
    rows = []
    for size, name in ((1024, "S2"), (2048, ""), (4096, ""), (8192, ""), (16384, "S3"), (32768, "")):
        rows.append(BuildRow(size, name, "LL", (), 2e-6, size * 1e-9, ring, None))
    plan = SimpleNamespace(says="a clock", topology=None)
    tables = (BuiltTable("allreduce", 4, None, tuple(rows)),)
    (report,) = build.reports(BuildResult("ring:4", "", "msccl", "out", tables, (), plan, ()))
    assert report.sentences[:2] == (
        "left to the library: 2 KB to 8 KB (2 KB: 3 µs by nccl-ring, 2.05 by a schedule; 8 KB: 3 µs by nccl-ring, "
        "8.19 by a schedule)",
        "left to the library: 32 KB (3 µs by nccl-ring, 32.8 by a schedule)",
    )


def test_numbers_of_bytes_are_digits_without_separators():
    """They were written in three ways."""
    assert [bytes_text(size) for size in (0, 1, 2505396992)] == ["0 bytes", "1 byte", "2505396992 bytes"]
    assert lint_size_text(1572865) == "1572865 bytes" and lint_size_text(1 << 20) == "1 MiB"


def made(*points: tuple[int, int, int], topology: str = "line:2", **more) -> Frontier:
    """A frontier of broadcasts with the given (steps, rounds, chunks); schedules are filled with empty steps."""
    network, collective = api.topology(topology).network(), api.collective("broadcast", 2)
    found = []
    for steps, rounds, chunks in points:
        empty = [Step(1, (Send(0, 0, 1),)), *[Step(1, ()) for _ in range(steps - 2)], Step(rounds - steps + 1, ())][
            :steps
        ]
        schedule = Schedule(network, collective, chunks, tuple(empty))
        found.append(Point.of(schedule, LowerBound(Fraction(rounds, chunks), {"kind": "test"}), "by hand"))
    return Frontier(network, collective, tuple(found), **more)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (Fraction(1, 3), "0.333"), (7, "7"), (12345, "12345"), (0.00001234, "0.000012"), (1.5, "1.5")],
)
def test_numbers_have_three_digits_and_no_exponent(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(1, "1 B"), (1023, "1023 B"), (1024, "1 KB"), (1 << 20, "1 MB"), (128 << 20, "128 MB"), (1 << 40, "1 TB")],
)
def test_sizes_as_text(size, text):
    assert size_text(size) == text


def test_spans_cover_every_size_and_agree_with_best():
    found = made((2, 8, 2), (3, 9, 3), (4, 11, 4), (9, 11, 10))
    spans = [span for span in frontier_text.fastest_sizes(found) if span]
    assert spans[0][0] == 0
    assert spans[-1][1] is None
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    for point, span in zip(found.points, frontier_text.fastest_sizes(found), strict=True):
        if span:
            middle = span[0] * 2 + 1 if span[1] is None else (span[0] + span[1]) / 2
            assert found.best(int(middle)) is point


def test_a_point_that_is_best_nowhere_says_so():
    found = made((2, 8, 2), (3, 39, 10), (4, 4, 4))
    assert frontier_text.fastest_sizes(found)[1] is None
    assert frontier_text.choice(found, 1024).rows[1][-1] == "no size"


def opened(*rows: tuple[int, object]) -> tuple[Open, ...]:
    """Intervals above 1 that the time left open: (steps, upper end)."""
    return tuple(Open(steps, Fraction(1), upper and Fraction(upper), "time") for steps, upper in rows)


def proved(*rows: tuple[int, int, object], **more) -> Frontier:
    """A frontier of points with the given (steps, rounds of two chunks, lower bound)."""
    points = [replace(made((s, r, 2)).points[0], bound=LowerBound(Fraction(b), {})) for s, r, b in rows]
    return replace(made(**more), points=tuple(points))


def bounds(*rows: tuple[int | None, object]) -> tuple:
    return tuple((steps, LowerBound(Fraction(value), {})) for steps, value in rows)


ANY = "open: with {} the least rounds/chunk is at least "
BETWEEN = {"bounds": bounds((None, 1)), "open": opened((6, "5/2"))}
# A frontier, and all its sentences in which some words stand, up to a place in them.
SENTENCES = [
    (made((2, 3, 2), complete=True), "^complete",
     ["complete: no schedule in this model, with any number of chunks, is better"]),
    (made((2, 3, 2), complete=True, max_steps=8), "^complete", ["complete up to 8 steps"]),
    (made((2, 3, 2)), "^complete", []),
    (made((2, 3, 2)), "incomplete", ["incomplete"]),
    (made((2, 3, 2), labels=(4, 7)), "stand for", ["stand for the machine's 4, 7"]),
    (made((2, 3, 2), labels=(0, 1)), "stand for", []),
    (made((2, 3, 2), open=opened((3, "3/2"), (4, "3/2"), (5, "3/2"), (6, None))), "^open", [
        ANY.format("3 to 5 steps") + "1, at most 3/2 (the time ran out)",
        ANY.format("6 steps") + "1, nothing was found (the time ran out)",
    ]),
    # intervals of the same bound and reason are one line, and steps between points are listed too
    (proved((3, 6, 1), (4, 4, 1), (7, 3, 1), open=opened((2, None), (3, 3), (4, 2), (5, 2), (7, "3/2")),
            bounds=bounds((None, 1))), "the least", [
        ANY.format("2 steps") + "1, nothing was found (the time ran out)",
        ANY.format("3 to 5 and 7 steps") + "1, at most 3 (3 steps) down to 3/2 (7 steps) (the time ran out)",
        ANY.format("6 steps") + "1, at most 2 (not decided)",
        "with any number of steps the least rounds/chunk is at least 1: the 7-step point is 50% above that",
    ]),
    (proved((2, 9, 2), (4, 5, "3/2"), (9, 4, 1), **BETWEEN), "^open", [
        ANY.format("3 steps") + "3/2, at most 9/2 (not decided)",
        ANY.format("5 and 7 to 8 steps") + "1, at most 5/2 (not decided)",
        ANY.format("6 steps") + "1, at most 5/2 (the time ran out)",
    ]),
    (proved((2, 9, 2), (4, 5, "3/2"), bounds=bounds((3, "9/2"))), "^open", []),
]  # fmt: skip


@pytest.mark.parametrize(("found", "words", "said"), SENTENCES, ids=range(len(SENTENCES)))
def test_what_is_open_and_what_is_complete_is_said_once(found, words, said):
    lines = [line for line in frontier_text.sentences(found) if re.search(words, line)]
    assert len(lines) == len(said), lines
    for line, part in zip(lines, said, strict=True):
        assert part in line


def test_without_latency_the_last_point_is_best_everywhere():
    base = made((2, 8, 2), (3, 9, 3), complete=True)
    routes = tuple(route._replace(latency=Fraction(0)) for route in base.network.routes)
    found = replace(base, machine=replace(base.network, routes=routes))
    assert frontier_text.fastest_sizes(found) == [None, (0, None)]
    assert any("no latency of this topology is known" in line for line in frontier_text.sentences(found))


def test_an_empty_frontier_can_be_shown():
    assert frontier_text.report(made(complete=True)).rows == ()
    assert "<table>" in made()._repr_html_()
    assert frontier_text.choice(made(), 1024).rows == ()


def test_the_same_frontier_makes_the_same_picture():
    found = made(
        (2, 3, 2), (3, 4, 3), bounds=((2, LowerBound(Fraction(3, 2), {})), (3, LowerBound(Fraction(4, 3), {})))
    )
    first, second = plot.image(found.plot(), ".svg"), plot.image(found.plot(), ".SVG")
    assert first == second
    assert b"<svg" in first
    assert plot.image(found.plot(), ".png").startswith(b"\x89PNG")


def test_the_plot_shows_the_points_and_the_bounds_below_them():
    found = made(
        (2, 3, 2), (4, 4, 4), bounds=((2, LowerBound(Fraction(3, 2), {})), (3, LowerBound(Fraction(5, 4), {})))
    )
    (axes,) = found.plot().axes
    drawn = {tuple(map(tuple, line.get_xydata())) for line in axes.get_lines()}
    assert ((2.0, 1.5), (4.0, 1.0)) in drawn
    assert ((1.0, 1.5), (3.0, 1.25), (4.0, 1.0), (5.0, 1.0)) in drawn


def test_an_unknown_kind_of_picture_is_refused():
    with pytest.raises(UsageError, match=r"\.svg, \.png, \.pdf"):
        plot.image(None, ".gif")


WIDTH_ROWS = (
    ("2", "3", "2", "3/2", "optimal", "trees in and out x 4", "12.5"),
    ("10", "1048576", "65536", "123456/7890123", "best known (bound 7/6)", "direct", "171.43"),
)
WIDTH_COLUMNS = (
    ("steps", "right"), ("rounds", "right"), ("chunks", "right"), ("rounds/chunk", "right"), ("status", "left"),
    ("construction", "left"), ("GB/s at 1 MB", "right"),
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 200])
def test_tables_are_as_the_golden_files_at_each_width(width, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    report = Report("allgather on ring:4", WIDTH_COLUMNS, WIDTH_ROWS, ("complete",))
    text = (("name", "left"), ("description", "left"))
    prose = (("dgx1", "8 V100 in a hybrid cube mesh of NVLinks of 25 GB/s each, as in SCCL and its tables"),)
    tables.print_report(report, Report("", text, prose))
    out = capsys.readouterr().out
    golden = Path(__file__).parent / "golden" / f"tables-{width}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(out)
    assert out == golden.read_text()
    assert all(len(line) <= width for line in out.splitlines())
    assert "123456/7890123" in out


def test_tables_break_no_word_and_have_no_rule_without_a_header(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    row = ("1234567890", "0987654321", "construction")
    for columns in ((("a", "right"), ("b", "right"), ("c", "left")), (("", "left"),) * 3):
        tables.print_report(Report("first", columns, (row,), ("end",)), Report("second", (), (), ()))
        out = capsys.readouterr().out
        assert all(word in out for word in row)
        assert row[0] in out and "\n\nsecond\n" in out
        assert ("─" in out) == bool(columns[0][0])


@pytest.mark.parametrize(("seconds", "said"), [(4e-6, "is as much;"), (6e-6, "is 1.5 times as much;")])
def test_a_prediction_that_meets_the_bound_in_time_has_no_factor(seconds, said):
    row = SizeBound(1024, Fraction(4), Fraction(0), "Simple", "a path")
    bound = TimeBound("ring:4", "allgather", None, False, Fraction(0), None, (row,))
    found = made((2, 3, 2))
    time = AlgorithmTime("S2-R3-C2", "Simple", 1, seconds)
    assert said in frontier_text.choice(found, 1024, bound, [time]).sentences[1]


def test_columns_of_times_in_place_have_a_heading():
    head = {
        "collective": "allgather",
        "ranks": 2,
        "root": None,
        "op": "sum",
        "executor": "reference",
        "says": "made up",
    }
    columns = [name for name, _ in run_table.measured(head | {"rows": [], "programs": []}).columns]
    assert columns[6:8] == ["time (us)", "algbw (GB/s)"] and columns[10] == "in place: time (us)"

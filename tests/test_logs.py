"""nccl-tests' output, text and JSON, as measurements: the same times whatever stands before its lines, or the fault and
its place."""

import json
from copy import deepcopy
from itertools import product

import nccl_tests_output as tool
import pytest
from nccl_tests_output import Run

from synth.catalog.tuner import nccl_tests as logs
from synth.catalog.tuner.measurements import Sample, median_samples
from synth.errors import FormatError, UsageError

NEW = tool.text(Run("allgather", 4, {1024: (10.5, 10.25), 2048: (11, 10.75), 4096: (105713, None)}, options="c"))
OLD = tool.text(Run("allgather", 2, {8: (20, 21)}, version="2.0"))
TIMES = {1 << 20: (38.1, 38.48), 1 << 21: (47.4, 47.87), 1 << 22: (70.2, 70.9), 1 << 23: (101.5, 102.52)}
ALLREDUCE = Run("allreduce", 8, TIMES)


def read(text, tmp_path, backend="x", collective="allgather", ranks=4, **options):
    path = tmp_path / "log.txt"
    path.write_text(text)
    return logs.load(path, backend, collective, ranks, **options)


def samples(*rows):
    return tuple(Sample(size, pytest.approx(micro * 1e-6)) for size, micro in rows)


def out_of_place(run):
    return samples(*((size, pair[0]) for size, pair in run.times.items()))


def test_a_new_log_of_nccl_tests(tmp_path):
    (found,) = read(NEW, tmp_path, "nccl", ranks=None)
    assert (found.backend, found.label, found.collective, found.ranks) == ("nccl", "nccl", "allgather", 4)
    assert found.samples == samples((1024, 10.5), (2048, 11), (4096, 105713))
    (inside,) = read(NEW, tmp_path, "nccl", in_place=True)
    # the last was timed out of place only
    assert inside.samples == samples((1024, 10.25), (2048, 10.75), (4096, 105713))


def test_an_old_log_of_nccl_tests(tmp_path):
    (found,) = read(OLD, tmp_path, "nccl/ring/LL", ranks=2)
    assert (found.label, found.backend) == ("nccl/ring/LL", "nccl")
    assert found.options == (("algorithm", "ring"), ("protocol", "LL"))
    assert found.samples == samples((8, 20))  # `error` is the rounding, not a count


@pytest.mark.parametrize("options", ["", "S", "c", "P", "SPc"])
def test_columns_of_options(tmp_path, options):
    """-S 1 ends a row with a date and a time of day; per-iteration times stand between the two kinds of calls."""
    text = tool.text(ALLREDUCE._replace(options=options))
    assert read(text, tmp_path, collective="allreduce", ranks=8)[0].samples == out_of_place(ALLREDUCE)
    inside = read(text, tmp_path, collective="allreduce", ranks=8, in_place=True)[0].samples
    assert inside == samples(*((size, pair[1]) for size, pair in TIMES.items()))


def test_several_processes_that_print_are_not_mixed(tmp_path):
    """Each rank of a program without MPI prints a table of its own."""
    alone = tool.lines(Run("allreduce", 1, TIMES))
    slower = {size: (2 * out, 2 * into) for size, (out, into) in TIMES.items()}
    other = tool.lines(Run("allreduce", 1, slower))
    together = [line for pair in zip(alone, other, strict=True) for line in pair]
    for ranks in (None, 1):
        with pytest.raises(FormatError, match=r"do not grow|several print|holds 2 tables"):
            read("\n".join(together), tmp_path, collective="allreduce", ranks=ranks)


def test_the_one_table_that_fits_is_taken(tmp_path):
    """A job runs one test after another, or one test on more and more ranks."""
    faster = {size: (out / 2, into / 2) for size, (out, into) in TIMES.items()}
    others = [Run("reduce-scatter", 8, faster), Run("allreduce", 4, faster), Run("broadcast", 8, faster)]
    for version in ("2.19", "2.12", "2.0"):
        tables = [run._replace(version=version) for run in (others[0], ALLREDUCE, *others[1:])]
        text = "".join(map(tool.text, tables))
        assert read(text, tmp_path, collective="allreduce", ranks=8)[0].samples == out_of_place(ALLREDUCE)
        with pytest.raises(FormatError, match="none of 3 other tables is of allgather on 8 ranks"):
            read(text, tmp_path, collective="allgather", ranks=8)
        with pytest.raises(FormatError, match="holds 2 tables of allreduce on 8 ranks, at 16, 42"):
            read(tool.text(ALLREDUCE) * 2, tmp_path, collective="allreduce", ranks=8)


@pytest.mark.parametrize("collective", tool.TESTS)
@pytest.mark.parametrize("version", ["2.19", "2.12", "2.0"])
def test_every_test_is_read_as_itself_and_as_no_other_kind(tmp_path, collective, version):
    """Without the name of the test, bandwidths, counts, operation and root tell it as far as they differ."""
    run = Run(collective, 8, TIMES, version=version)
    assert read(tool.text(run), tmp_path, collective=collective, ranks=8)[0].samples == out_of_place(run)
    if run.factor() != 1:
        with pytest.raises(FormatError, match="busbw is"):
            read(tool.text(run).replace("Rank", "rnk"), tmp_path, collective=collective, ranks=5)
    for other in tool.TESTS:
        alike = version != "2.19" and {collective, other} in ({"allgather", "alltoall"}, {"gather", "scatter"})
        if alike:
            assert "does not name" in read(tool.text(run), tmp_path, collective=other, ranks=8)[0].says
        elif other != collective:
            with pytest.raises(FormatError):
                read(tool.text(run), tmp_path, collective=other, ranks=8)


def broken(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "line", "what", "options"),
    [
        (NEW, 12, "all_gather_perf", {"collective": "allreduce"}),
        (NEW, 12, "4 ranks, expected 8", {"ranks": 8}),
        (broken(NEW, "Collective test starting: all_gather_perf", "x"), 14, "redop is 'none'",
         {"collective": "allreduce"}),
        (tool.text(Run("allgather", 4, TIMES, wrong=3)), 14, "3 results of this run were wrong", {}),
        (broken(NEW, "11.00", "fast"), 15, "are no size, time", {}),
        (broken(NEW, "11.00", "-1"), 15, "are no size, time", {}),
        (broken(NEW, "11.00", "1e400"), 15, "are no size, time", {}),
        (broken(NEW, "11.00    0.19", "11.00"), 15, "has 12 columns, its header 13", {}),
        (broken(NEW, "11.00    0.19", "5.00    0.19"), 15, "2048 bytes in 5 µs", {}),
        (broken(NEW, "        1024  ", "     x  1024  "), 14, "looks like a row", {}),
        (broken(NEW, "#  Rank  2", "#  rnk  2"), 12, "lists 3 ranks, up to 3", {"ranks": None}),
        (broken(NEW, "#  Rank  2", "#  Rank  1"), 12, "several print at once", {}),
        (broken(NEW, "#  Rank  3 Group  0", "#  Rank  3 Group  1"), 12, "2 groups at once", {}),
        (tool.text(ALLREDUCE._replace(options="C")), 18, "no column 'time'",
         {"collective": "allreduce", "ranks": 8}),
        (tool.text(Run("broadcast", 4, TIMES, root=1)), 14, "root is 1, expected 0",
         {"collective": "broadcast", "root": 0}),
        ("hello\n", None, "no output of nccl-tests", {}),
        ("# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)\n", None, "no output of nccl-tests", {}),
        ("\n".join(NEW.splitlines()[:13]), None, "no row", {}),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_file_and_a_line(tmp_path, text, line, what, options):
    with pytest.raises(FormatError) as error:
        read(text, tmp_path, **options)
    place = f"{tmp_path / 'log.txt'}:" + ("" if line is None else f"{line}:")
    assert str(error.value).startswith(place)
    assert what in str(error.value)
    assert error.value.place == line


DAY = ALLREDUCE._replace(times={size: (out / 2, into / 2) for size, (out, into) in TIMES.items()})
KIND = Run("allgather", 4, {size: (3 * out, 3 * into) for size, (out, into) in TIMES.items()}, version="2.12")
# What logs suffer on their way, at line k.
FAULTS = {
    "a line is lost": lambda rows, k, _: [*rows[:k], *rows[k + 1 :]],
    "a line ends early": lambda rows, k, _: [*rows[:k], rows[k][: 2 * len(rows[k]) // 3], *rows[k + 1 :]],
    "a line begins late": lambda rows, k, _: [*rows[:k], rows[k][11:], *rows[k + 1 :]],
    "two lines become one": lambda rows, k, _: [*rows[:k], "".join(rows[k : k + 2]), *rows[k + 2 :]],
    "two lines change places": lambda rows, k, _: [*rows[:k], *rows[k : k + 2][::-1], *rows[k + 2 :]],
    "blanks are lost": lambda rows, k, _: [*rows[:k], rows[k].replace("  ", "", 15), *rows[k + 1 :]],
    "a line has a prefix": lambda rows, k, _: [*rows[:k], f"7: {rows[k]}", *rows[k + 1 :]],
    "another run prints between": lambda rows, k, other: [*rows[:k], *other, *rows[k:]],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_log_gives_the_times_of_one_run_or_is_refused(tmp_path, fault):
    """Each fault at each line, of a log alone and of one with a fault more: a line that is lost three lines above."""
    refused = 0
    for version, other in (("2.0", KIND), ("2.12", DAY), ("2.19", DAY)):
        whole, beside = tool.lines(ALLREDUCE._replace(version=version)), tool.lines(other._replace(version=version))
        for k, twice in product(range(len(whole)), (False, True)):
            rows = FAULTS[fault](whole, k, beside)
            try:
                (found,) = read("\n".join(rows[: k - 3] + rows[k - 2 :] if twice else rows), tmp_path,
                                collective="allreduce", ranks=8)  # fmt: skip
            except FormatError:
                refused += 1
                continue
            runs = [dict(out_of_place(run)) for run in (ALLREDUCE, DAY)]
            assert any(dict(found.samples).items() <= run.items() for run in runs), (version, k, rows)
    assert refused


@pytest.mark.parametrize("name", ["", "nccl/", "nccl/ring/LL/x", "/LL"])
def test_backends_have_names(name):
    with pytest.raises(UsageError):
        logs.backend(name)


def test_repeats_are_pooled_by_the_median_whatever_their_order():
    rows = [Sample(8, 3.0), Sample(8, 1.0), Sample(4, 5.0), Sample(8, 2.0)]
    assert median_samples(rows) == median_samples(rows[::-1]) == (Sample(4, 5.0), Sample(8, 2.0))


# ---------------------------------------------------------------- JSON

RUN = Run("allreduce", 4, {1024: (20.0, 18.0), 2048: (None, 25.0), 1 << 22: (90.5, 91.25)}, root=0)
DOCUMENT = tool.document(RUN)


def load(tmp_path, document, collective="allreduce", ranks=4, in_place=False):
    content = document if isinstance(document, str) else json.dumps(document)
    return read(content, tmp_path, "nccl", collective, ranks, in_place=in_place)


@pytest.mark.parametrize(
    ("in_place", "times"), [(False, (20e-6, 25e-6, 90.5e-6)), (True, (18e-6, 25e-6, 91.25e-6))]
)  # fmt: skip
def test_times_are_those_of_the_calls(tmp_path, in_place, times):
    (found,) = load(tmp_path, DOCUMENT, in_place=in_place)
    assert (found.collective, found.ranks, found.backend) == ("allreduce", 4, "nccl")
    assert [one.size for one in found.samples] == [1024, 2048, 1 << 22]
    assert [one.seconds for one in found.samples] == pytest.approx(times)


def test_ranks_are_those_of_all_processes(tmp_path):
    """Devices stand in `config`, and only the first of each process is listed."""
    for ranks, each in ((8, 8), (16, 8), (8, 1), (8, 2)):
        run = Run("allgather", ranks, {1 << 20: (90.0, 91.0)}, each=each)
        assert load(tmp_path, tool.document(run), "allgather", None)[0].ranks == ranks
        with pytest.raises(FormatError, match=f"is of {ranks} ranks, expected 4"):
            load(tmp_path, tool.document(run), "allgather", 4)
    with pytest.raises(FormatError, match="lists 2 ranks, up to 7"):
        broken = tool.document(Run("allgather", 2, {1 << 20: (90.0, 91.0)}))
        broken["config"]["devices"][1]["rank"] = 7
        load(tmp_path, broken, "allgather", 2)


@pytest.mark.parametrize("collective", tool.TESTS)
def test_text_and_json_of_one_run_agree(tmp_path, collective):
    """CPU time (-C 1) is not the time of the collective: both readers refuse it."""
    run = Run(collective, 8, {1 << 20: (38.1, 38.48), 1 << 23: (101.5, 102.52)}, root=3)
    for options in ("", "c", "C"):
        found = []
        for name, content in (
            ("x.json", json.dumps(tool.document(run._replace(options=options)))),
            ("x.txt", tool.text(run._replace(options=options))),
        ):
            path = tmp_path / name
            path.write_text(content)
            if options == "C":
                with pytest.raises(FormatError, match=r"no column 'time'|no row with a time"):
                    logs.load(path, "nccl", collective, 8)
            else:
                found.append(logs.load(path, "nccl", collective, None)[0])
        for one in found:
            assert (one.collective, one.ranks, one.samples) == (collective, 8, found[0].samples)
    for other in tool.TESTS:
        if other != collective:
            with pytest.raises(FormatError):
                load(tmp_path, tool.document(run) | {"args": [], "config": {}}, other, 5)
            with pytest.raises(FormatError, match="is of"):
                load(tmp_path, tool.document(run), other, 8)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("results",), [], "log.txt:results: expected a list"),
        (("results", 1), 7, "is no document of nccl-tests"),
        (("results", 1, "size"), -4, "are no size"),
        (("results", 1, "redop"), "none", "no test of allreduce"),
        (("results", 0, "out_of_place", "time"), -1, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), 0, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), True, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), 10**400, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), 30.0, "is that of 1024 bytes in 30 µs"),
        (("results", 2, "out_of_place", "bus_bw"), 46.3, "busbw is 46.3 GB/s"),
        (("results", 0, "size"), 1324, "busbw is"),
        (("results", 0, "out_of_place", "nwrong"), 3, "were wrong"),
        (("args",), ["all_gather_perf"], "is of all_gather_perf"),
        (("config", "devices"), [{"rank": 0}], "is of 1 ranks, expected 4"),
        (("config", "devices"), [{}], "is no document of nccl-tests"),
    ],
)
def test_malformed_documents_are_refused_with_the_place(tmp_path, path, value, text):
    document = deepcopy(DOCUMENT)
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(FormatError, match=text):
        load(tmp_path, document)


def test_what_is_no_json_is_refused(tmp_path):
    with pytest.raises(FormatError, match="is not JSON"):
        load(tmp_path, '{"results": [')

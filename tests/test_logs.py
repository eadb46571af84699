"""nccl-tests' output as measurements: the same times whatever stands before its lines, or the fault and its line."""

from random import Random

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


def random_run(random):
    """Return a run of random size, times, ranks and options."""
    ranks = random.choice([2, 3, 4, 7, 8, 16, 64])
    first = random.choice([64, 1 << 10, 1 << 16]) * ranks * 8
    micro = random.uniform(5, 90)
    times = {}
    for k in range(random.randint(1, 8)):
        micro *= random.uniform(1.01, 2.5)
        times[first << k] = (micro, micro * random.uniform(0.9, 1.2))
    return Run(
        random.choice([*tool.TESTS]), ranks, times, random.choice(["float", "half", "int8", "double"]),
        version=random.choice(["2.0", "2.12", "2.17", "2.19"]), options=random.choice(["", "", "c", "S"]),
    )  # fmt: skip


def damaged(text, others, random):
    """Return a text with one to three faults, as logs get them on their way; `others` are runs to mix in."""
    for _ in range(random.randint(1, 3)):
        rows = text.split("\n")
        k, other = random.randrange(len(rows)), random.randrange(len(rows))
        of_table = [at for at, line in enumerate(rows) if "  " in line and "#" not in line]
        if of_table and random.random() < 0.6:
            k, other = random.choice(of_table), random.choice(of_table)
        match random.randrange(9):
            case 0:  # a line is lost
                del rows[k]
            case 1:  # a line ends early
                rows[k] = rows[k][: random.randint(0, len(rows[k]))]
            case 2:  # a line begins late
                rows[k] = rows[k][random.randint(0, random.choice([12, len(rows[k])])) :]
            case 3:  # two lines become one
                rows[k : k + 2] = ["".join(rows[k : k + 2])]
            case 4:  # two lines change places
                rows[k], rows[other] = rows[other], rows[k]
            case 5:  # blanks are lost
                rows[k] = rows[k].replace("  ", "", random.randint(1, 4))
            case 6 if others:  # lines of another run stand between them, in their order
                more = tool.lines(others.pop())
                places = sorted(random.randrange(len(rows) + 1) for _ in more)
                for place, line in reversed(list(zip(places, more, strict=True))):
                    rows.insert(place, line)
            case 7 if others:  # another run stands before or after
                more = tool.lines(others.pop())
                rows = random.choice([rows + more, more + rows])
            case _:  # one line has a prefix more
                rows[k] = random.choice(["7: ", "[1,3]<stderr>:", "2026-07-10 ", "x"]) + rows[k]
        text = "\n".join(rows)
    return text


def check_damaged(seed, cases, tmp_path):
    """Return how many damaged logs were read and how many refused. All times that are read are those of one run that
    is of the collective and ranks that were asked for, at their sizes."""
    random = Random(seed)
    taken = refused = 0
    for _ in range(cases):
        run = random_run(random)
        text = tool.text(run)
        asked = {"collective": run.collective, "ranks": run.ranks, "root": run.root}
        # Others are of any kind, or the same call on another day.
        another_day = {}
        for size, (out, into) in run.times.items():
            share = random.choice([0.5, 2])
            another_day[size] = (share * out, share * into)
        others = [random_run(random), run._replace(times=another_day)]
        random.shuffle(others)
        allowed = []
        for one in (run, *others):
            shown = {size: pytest.approx(float(tool.number(pair[0], 7)) * 1e-6) for size, pair in one.times.items()}
            try:
                (clean,) = read(text if one is run else tool.text(one), tmp_path, **asked)
            except FormatError:
                assert one is not run
                continue
            assert {s.size: s.seconds for s in clean.samples} == shown
            allowed.append(shown)
        try:
            (found,) = read(damaged(text, others, random), tmp_path, **asked)
        except FormatError:
            refused += 1
            continue
        taken += 1
        of = [shown for shown in allowed if all(shown.get(s.size) == s.seconds for s in found.samples)]
        assert of, (asked, (tmp_path / "log.txt").read_text())
    return taken, refused


def test_a_damaged_log_gives_the_same_times_or_is_refused(tmp_path):
    taken, refused = check_damaged(1, 60, tmp_path)
    assert taken > 8 and refused > 20


@pytest.mark.parametrize("name", ["", "nccl/", "nccl/ring/LL/x", "/LL"])
def test_backends_have_names(name):
    with pytest.raises(UsageError):
        logs.backend(name)


def test_repeats_are_pooled_by_the_median_whatever_their_order():
    rows = [Sample(8, 3.0), Sample(8, 1.0), Sample(4, 5.0), Sample(8, 2.0)]
    assert median_samples(rows) == median_samples(rows[::-1]) == (Sample(4, 5.0), Sample(8, 2.0))

"""nccl-tests' and OSU's text output: times, sizes in one convention, and the file and line of what is wrong."""

from pathlib import Path

import pytest

from synth.catalog.tuner import logs
from synth.catalog.tuner.measurements import Sample, median_samples
from synth.errors import FormatError, UsageError

RANKS = "\n".join(
    f"#  Rank {r:2d} Group  0 Pid {4000 + r:6d} on       node device {r:2d} [0000:{16 + r:02x}:00] NVIDIA H100 80GB HBM3"
    for r in range(4)
)
NEW = f"""\
# nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808
# Collective test starting: all_gather_perf
# nThread 1 nGpus 4 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
{RANKS}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024            64     float    none      -1    10.50    0.10    0.07       0    10.25    0.10    0.07     N/A
        2048           128     float    none      -1    11.00    0.19    0.14       0    10.75    0.19    0.14       0
        4096           256     float    none      -1   105713    0.34    0.26     N/A      N/A     N/A     N/A     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.2
#
# Collective test concluded: all_gather_perf
"""
# no redop for allgather, `error` instead of `#wrong`, ranks listed without groups
OLD = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   2111 on       dgx device  0 [0x06] Tesla V100-SXM2-16GB
#   Rank  1 Pid   2111 on       dgx device  1 [0x07] Tesla V100-SXM2-16GB
#
#                                               out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             1   float    20.00    0.00    0.00  2e-07    21.00    0.00    0.00  0e+00
"""
OSU = """\

# OSU MPI-CUDA Allgather Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
1                       8.06              6.75              9.18        1000
256                    12.20             12.12             12.82        1000
"""
OSU_PLAIN = """\
# OSU MPI Allreduce Latency Test v5.3
# Size            Latency (us)
4                         3.50
1024                      5.25
"""


def read(text, tmp_path, backend="x", collective="allgather", ranks=4, **options):
    path = tmp_path / "log.txt"
    path.write_text(text)
    return logs.load(path, backend, collective, ranks, **options)


def samples(*rows):
    return tuple(Sample(size, pytest.approx(micro * 1e-6)) for size, micro in rows)


def test_a_new_log_of_nccl_tests(tmp_path):
    (found,) = read(NEW, tmp_path, "nccl", ranks=None)
    assert (found.backend, found.label, found.collective, found.ranks) == ("nccl", "nccl", "allgather", 4)
    assert found.samples == samples((1024, 10.5), (2048, 11), (4096, 105713))
    (inside,) = read(NEW, tmp_path, "nccl", in_place=True)
    assert inside.samples == samples(
        (1024, 10.25), (2048, 10.75), (4096, 105713)
    )  # the last was timed out of place only


def test_an_old_log_of_nccl_tests(tmp_path):
    (found,) = read(OLD, tmp_path, "nccl/ring/LL", ranks=2)
    assert (found.label, found.backend) == ("nccl/ring/LL", "nccl")
    assert found.options == (("algorithm", "ring"), ("protocol", "LL"))
    assert found.samples == samples((8, 20))  # `error` is the rounding, not a count


def test_a_log_that_mpirun_tagged(tmp_path):
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in NEW.splitlines())
    assert read("[1,1]<stderr>:no display\n" + tagged, tmp_path)[0].samples == read(NEW, tmp_path)[0].samples


def test_sizes_of_osu_are_one_ranks(tmp_path):
    (found,) = read(OSU, tmp_path, "mpi")
    assert found.samples == samples((4, 8.06), (1024, 12.2))
    assert "multiplied by 4" in found.says
    (whole,) = read(OSU_PLAIN, tmp_path, "mpi", "allreduce")
    assert whole.samples == samples((4, 3.5), (1024, 5.25))
    assert "multiplied" not in whole.says


@pytest.mark.parametrize(
    ("name", "title", "times"),
    [
        ("alltoall", "OSU MPI All-to-All Personalized Exchange Latency Test v5.6.3", 4),
        ("reduce-scatter", "OSU MPI Reduce_scatter Latency Test v5.6.3", 1),
        ("broadcast", "OSU MPI Broadcast Latency Test v7.5", 1),
        ("scatter", "OSU MPI Scatter Latency Test v7.5", 4),
        ("allgather", "OSU NCCL Allgather Latency Test v7.2", 4),
    ],
)
def test_titles_of_osu(tmp_path, name, title, times):
    text = f"# {title}\n# Size       Avg Latency(us)   P50 Tail Lat(us)\n64   9.5   9.0\n"
    assert read(text, tmp_path, "mpi", name)[0].samples == samples((64 * times, 9.5))


def broken(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "line", "what", "options"),
    [
        (NEW, 2, "all_gather_perf", {"collective": "allreduce"}),
        (NEW, None, "4 ranks, expected 8", {"ranks": 8}),
        (
            broken(NEW, "Collective test starting: all_gather_perf", "x"),
            14,
            "redop is 'none'",
            {"collective": "allreduce"},
        ),
        (broken(NEW, "0.14       0    10.75", "0.14       3    10.75"), 15, "#wrong is 3", {}),
        (broken(NEW, "11.00", "fast"), 15, "'fast' is no time", {}),
        (broken(NEW, "11.00", "-1"), 15, "'-1' is no time", {}),
        (broken(NEW, "11.00    0.19", "11.00"), 15, "has 12 columns, its header 13", {}),
        (OSU, None, "does not say how many ranks", {"ranks": None}),
        (OSU, 2, "Allgather", {"collective": "allreduce"}),
        (broken(OSU, "12.20", "nan"), 6, "'nan' is no time", {}),
        (broken(OSU, "12.20  ", ""), 6, "has 4 columns, its header 5", {}),
        ("hello\n", None, "no output of nccl-tests or of OSU", {}),
        ("# Size       Avg Latency(us)\n", None, "no row", {}),
        ("\n".join(NEW.splitlines()[:13]), None, "no row", {}),
    ],
)
def test_what_is_wrong_has_a_file_and_a_line(tmp_path, text, line, what, options):
    with pytest.raises(FormatError) as error:
        read(text, tmp_path, **options)
    place = f"{tmp_path / 'log.txt'}:" + ("" if line is None else f"{line}:")
    assert str(error.value).startswith(place)
    assert what in str(error.value)
    assert error.value.place == line


def test_failed_validation_of_osu_counts_for_nothing(tmp_path):
    text = "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)        Validation\n64   9.5   Fail\n"
    with pytest.raises(FormatError, match="validation failed"):
        read(text, tmp_path)


@pytest.mark.parametrize("name", ["", "nccl/", "nccl/ring/LL/x", "/LL"])
def test_backends_have_names(name):
    with pytest.raises(UsageError):
        logs.backend(name)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(FormatError, match="does not exist"):
        logs.load(Path(tmp_path / "none.txt"), "nccl", "allgather", 8)


def test_repeats_are_pooled_by_the_median_whatever_their_order():
    rows = [Sample(8, 3.0), Sample(8, 1.0), Sample(4, 5.0, 0.5), Sample(8, 2.0)]
    assert median_samples(rows) == median_samples(rows[::-1]) == (Sample(4, 5.0, 0.5), Sample(8, 2.0, 1.0))

"""Reader of the output of OSU's micro-benchmarks (`osu_allgather` and the others), versions 3 to 7, for MPI and NCCL.

    # OSU MPI Allgather Latency Test v7.0
    # Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations

The second column is the mean over ranks, in µs; least, most, iterations and percentiles may follow, and in version 7
whether the results were right. Sizes are bytes of one rank's message: of allgather, gather and scatter what one rank
contributes or gets, of alltoall what it sends one other; they are multiplied by the ranks to give nccl-tests' size. The
others' are whole buffers already. The number of ranks is not printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.catalog.tuner.measurements import Measurement, Sample, median_samples
from synth.errors import FormatError

NAMES = {
    "allgather": "allgather",
    "allreduce": "allreduce",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce-scatter",
    "reduce scatter": "reduce-scatter",
    "gather": "gather",
    "scatter": "scatter",
    "all-to-all personalized exchange": "alltoall",
    "alltoall": "alltoall",
    "all-to-all": "alltoall",
}
PER_RANK = ("allgather", "gather", "scatter", "alltoall")
_TITLE = re.compile(r"#\s*OSU\s+(\S+)\s+(.+?)\s+Latency\s+Test", re.IGNORECASE)
_SIZE = re.compile(r"#\s*Size\s+.*Lat", re.IGNORECASE)


def is_header(line: str) -> bool:
    """Return True if the line is the header that names the columns."""
    return bool(_SIZE.match(line))


def read(
    rows: Sequence[tuple[int, str]], file: str, collective: str, ranks: int | None, in_place: bool
) -> list[Measurement]:
    """Return one measurement of `collective`; the caller sets label and backend. Raises FormatError with the line."""
    if ranks is None:
        raise FormatError("OSU's output does not say how many ranks there were; say it (a topology, or --gpus N)", file)
    times = ranks if collective in PER_RANK else 1
    columns, samples = 0, []
    for number, line in rows:
        if title := _TITLE.match(line):
            _is_of(title[2], collective, file, number)
        elif is_header(line):
            columns = len(re.split(r"\s{2,}", line.lstrip("# ").strip()))
        elif columns and (words := line.split()) and words[0].isdecimal():
            samples.append(_row(words, columns, times, file, number))
    if not samples:
        raise FormatError("has a header of OSU's micro-benchmarks and no row with a time below it", file)
    unit = f"; its sizes are one rank's and were multiplied by {times}" if times > 1 else ""
    return [
        Measurement(
            "mpi",
            "mpi",
            collective,
            ranks,
            median_samples(samples),
            f"times as OSU's micro-benchmark printed them{unit}",
            file,
        )
    ]


def _is_of(title: str, collective: str, file: str, number: int) -> None:
    name = NAMES.get(title.lower().removesuffix(" collective"))
    if name != collective:
        raise FormatError(f"is OSU's test of {title}, expected one of {collective}", file, number)


def _row(words: list[str], columns: int, times: int, file: str, number: int) -> Sample:
    if len(words) < 2 or len(words) != columns:
        raise FormatError(f"has {len(words)} columns, its header {columns}", file, number)
    if "fail" in (word.lower() for word in words):
        raise FormatError(
            "validation failed: the results of this run were wrong, so its times count for nothing", file, number
        )
    try:
        value = float(words[1])
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise FormatError(f"{words[1]!r} is no time in µs", file, number)
    if words[0] == "0":
        raise FormatError("a size of 0 bytes", file, number)
    return Sample(int(words[0]) * times, value * 1e-6)

"""Reader of the output of nccl-tests and rccl-tests (`all_gather_perf` and the others), in any version.

Lines begin with ``#``, but for the rows. The header names the columns of a row: ``size count type [redop] [root]``,
then
``time algbw busbw #wrong`` twice, out of place and in place (``error`` before version 2.12, ``bytes N .. res`` before
2). Sizes are bytes of the larger of one rank's buffers, times µs. `#wrong` is ``N/A`` where nothing was checked (``-c
0``). The ranks are those that the header lists, one line each; versions since 2.17 say which test it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.catalog.tuner.measurements import Measurement, Sample, median_samples
from synth.errors import FormatError

NAMES = {
    "all_gather": "allgather", "all_reduce": "allreduce", "reduce_scatter": "reduce-scatter", "alltoall": "alltoall",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "sendrecv",
}  # fmt: skip
SUMS = ("allreduce", "reduce", "reduce-scatter")
WRONG = ("#wrong", "error", "res")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*(?:Pid|device)", re.IGNORECASE)
_TEST = re.compile(r"#\s*Collective test starting:\s*(\w+)", re.IGNORECASE)


def is_header(line: str) -> bool:
    """Return True if the line is the header that names the columns."""
    words = line.lstrip("# ").split()
    return line.startswith("#") and words[:1] in (["size"], ["bytes"]) and "algbw" in words and "busbw" in words


def read(
    rows: Sequence[tuple[int, str]], file: str, collective: str, ranks: int | None, in_place: bool
) -> list[Measurement]:
    """Return one measurement of `collective`; the caller sets label and backend. Raises FormatError with the line."""
    seen: set[int] = set()
    columns: list[str] = []
    samples = []
    for number, line in rows:
        if test := _TEST.match(line):
            _is_of(test[1], collective, file, number)
        elif listed := _RANK.match(line):
            seen.add(int(listed[1]))
        elif is_header(line):
            columns = line.lstrip("# ").split()
        elif columns and (words := line.split()) and words[0].isdecimal() and not line.startswith("#"):
            sample = _row(words, columns, file, number, collective, in_place)
            samples += [sample] if sample else []
    if not samples:
        raise FormatError("has a header of nccl-tests and no row with a time below it", file)
    count = len(seen) or ranks
    if count is None:
        raise FormatError("does not list its ranks; say how many there are (a topology, or --gpus N)", file)
    if ranks is not None and count != ranks:
        raise FormatError(f"is of {count} ranks, expected {ranks}", file)
    return [
        Measurement(
            "nccl", "nccl", collective, count, median_samples(samples), "times as nccl-tests printed them", file
        )
    ]


def _is_of(test: str, collective: str, file: str, number: int) -> None:
    name = NAMES.get(test.partition("_perf")[0])
    if name is not None and name != collective:
        raise FormatError(f"is of {test}, expected a test of {collective}", file, number)


def _row(
    words: list[str], columns: list[str], file: str, number: int, collective: str, in_place: bool
) -> Sample | None:
    if len(words) != len(columns):
        raise FormatError(f"has {len(words)} columns, its header {len(columns)}: {' '.join(columns)}", file, number)
    if "redop" in columns:
        op = words[columns.index("redop")]
        if (op == "none") == (collective in SUMS):
            raise FormatError(f"redop is {op!r}: this is no test of {collective}", file, number)
    times = [i for i, name in enumerate(columns) if name == "time"]
    wrong = [i for i, name in enumerate(columns) if name.lower() in WRONG]
    if not times:
        raise FormatError(f"there is no column 'time' in {' '.join(columns)}", file, number)
    at = min(int(in_place), len(times) - 1)
    if words[times[at]] == "N/A":
        at = 0 if at else len(times) - 1  # only one of the two was run
    if words[times[at]] == "N/A":
        return None
    seconds, size = _positive(words[times[at]], file, number) * 1e-6, int(words[0])
    if at < len(wrong):
        _right(words[wrong[at]], columns[wrong[at]], file, number)
    return Sample(size, seconds) if size else None


def _positive(word: str, file: str, number: int) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise FormatError(f"{word!r} is no time in µs", file, number)
    return value


def _right(word: str, column: str, file: str, number: int) -> None:
    """Check a result: `#wrong` counts wrong elements; the older `error` is the greatest difference, rounding
    included."""
    if word == "N/A":
        return
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if column == "#wrong" and value != 0:
        raise FormatError(
            f"#wrong is {word}: the results of this run were wrong, so its times count for nothing", file, number
        )

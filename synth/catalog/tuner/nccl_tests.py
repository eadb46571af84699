"""Reader of nccl-tests' and rccl-tests' output (`all_gather_perf` and the others): text since 2.0, JSON since 2.17.

A table has a row for each size: bytes of the larger of one rank's buffers, elements, type, operation, root, and twice
(out of place, in place) the time in µs, the bandwidths in GB/s and the number of wrong elements. Bus bandwidth is a
factor of the collective and the ranks times size / time (doc/PERFORMANCE.md of nccl-tests), which tells a table of
another collective and a damaged row. In text, lines begin with ``#`` but for the rows, and the header names the
columns; options add columns (util.cu of 2.19). In JSON, `results` has the rows and `config` lists the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from synth.catalog.tuner.measurements import Measurement, Sample, median_samples
from synth.errors import FormatError, UsageError
from synth.model.collective import bus_factor
from synth.model.documents import json_reader
from synth.model.documents.foreign_forms import form_of
from synth.model.documents.text_file import text_of

MOST = 64 << 20  # bytes of a log
NAMES = {
    "all_gather": "allgather", "all_reduce": "allreduce", "reduce_scatter": "reduce-scatter", "alltoall": "alltoall",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "sendrecv",
    "alltoallv": "alltoallv", "hypercube": "hypercube",
}  # fmt: skip
SUMS = ("allreduce", "reduce", "reduce-scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
# Bus bandwidths are printed with two decimals, times with three digits or more.
ROUNDING, SHARE = 0.0051, 0.02
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b(?:\s+Group\s+(\d+)\b)?", re.IGNORECASE)
_DATE_AND_TIME = re.compile(r"\s(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)$")
_PROGRAM = re.compile(
    rf"\b({'|'.join(sorted(NAMES, key=len, reverse=True))})_perf\b|Collective test starting: (\w+?)(?:_perf)?\s*$"
)
_NO_NUMBER = ("N/A", "inf", "nan", None)


class TestRow(NamedTuple):
    """A row. `place`: its line, or its path in a document. `time`: µs, None where it was not run. `busbw`: GB/s.

    `wrong`: the number of wrong elements, "" where there are none, or they were not counted.
    """

    place: str | int
    size: int
    redop: str
    root: int | None
    time: float | None
    busbw: float | None
    wrong: str


@dataclass
class TestTable:
    """The results of one run. `test`: the name of its program, "" where nothing says it. `ranks`: those listed, in
    the `groups` that run at once (NCCL_TESTS_SPLIT)."""

    __test__ = False  # no class of tests

    place: str | int | None = None
    test: str = ""
    ranks: list[int] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)
    rows: list[TestRow] = field(default_factory=list)


def backend(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the backend and its options of a text such as ``nccl``, or ``nccl/ring/LL`` with NCCL's algorithm and
    protocol. Raises UsageError."""
    name, *more = (part.strip() for part in text.split("/"))
    if not name or len(more) > 2 or not all(more):
        raise UsageError(f"{text!r} is no backend such as nccl, rccl or nccl/ring/LL (its algorithm and protocol)")
    return name.lower(), tuple(zip(("algorithm", "protocol"), more, strict=False))


def log_text(path: Path) -> str:
    """Return the text of a log of at most `MOST` bytes. Raises FormatError."""
    return text_of(path, MOST)


def load(
    path: Path, name: str, collective: str, ranks: int | None, root: int | None = None, in_place: bool = False
) -> list[Measurement]:
    """Return the times of the backend `name` (see `backend`) for `collective` in a log or JSON of nccl-tests.

    `ranks`: the number of ranks, None to take it from the log. `root`: of a rooted collective. Raises FormatError with
    the line, also where no table or more than one is of them, or results are wrong.
    """
    # the tables of the text or the document
    text, file = log_text(path), str(path)
    kind, options = backend(name)
    if text.lstrip()[:1] == "{" and '"results"' in text:
        tables, says = [_document(text, file, in_place)], "times as nccl-tests wrote them"
    else:
        tables, says = _tables(text, file, in_place), "times as nccl-tests printed them"
    if not tables:
        expected = "is no output of nccl-tests: no line begins with `# size count type .. algbw busbw`"
        raise FormatError(form_of(text) or expected, file)

    # the one table that is of this collective, of so many ranks
    fitting, misfits = [], []
    for table in tables:
        misfit = _misfit(table, collective, ranks, root)
        if misfit is None:
            fitting.append(table)
        else:
            misfits.append(misfit)
    asked = collective if ranks is None else f"{collective} on {ranks} ranks"
    if len(fitting) > 1:
        places = ", ".join(str(table.place) for table in fitting[:8])
        raise FormatError(
            f"holds {len(fitting)} tables of {asked}, at {places}: give each run as a file of its own", file
        )
    if not fitting:
        reason, place = misfits[0]
        more = f" (and none of {len(misfits) - 1} other tables is of {asked})" if len(misfits) > 1 else ""
        raise FormatError(reason + more, file, place)

    # its times: none where results were wrong
    table = fitting[0]
    count = ranks or len(table.ranks)
    if not count:
        raise FormatError("does not list its ranks; name the machine (--topo), which says how many there are", file)
    samples = []
    for row in table.rows:
        if row.wrong:
            raise FormatError(
                f"{row.wrong} results of this run were wrong: its times count for nothing", file, row.place
            )
        if row.time is not None and row.size:
            samples.append(Sample(row.size, row.time * 1e-6))
    if not samples:
        raise FormatError("has a header of nccl-tests and no row with a time below it", file)
    if not table.test:
        says += f"; the log of {collective} does not name its test"
    label = "/".join((kind, *(value for _, value in options)))
    return [Measurement(label, kind, collective, count, median_samples(samples), says, file, root, options=options)]


def _misfit(
    table: TestTable, collective: str, ranks: int | None, root: int | None
) -> tuple[str, str | int | None] | None:
    """Return why a table is not of `collective` on `ranks` ranks from or to `root`, and where; None if it is."""
    if NAMES.get(table.test, collective) != collective:
        return f"is of {table.test}_perf, expected a test of {collective}", table.place
    listed = len(table.ranks)
    if sorted(table.ranks) != [*range(listed)]:
        reason = f"lists {listed} ranks, up to {max(table.ranks)}: some are missing, or several print at once"
        return reason, table.place
    if listed and ranks is not None and listed != ranks:
        return f"is of {listed} ranks, expected {ranks}", table.place
    if len(table.groups) > 1:
        return f"is of {len(table.groups)} groups at once (NCCL_TESTS_SPLIT), not of one alone", table.place
    for before, after in pairwise(table.rows):
        if after.size <= before.size and after.size:
            return "its sizes do not grow: lines of several runs are mixed, or out of order", after.place

    # each row is one of this collective: its operation, its root, and the bandwidth that follows from its time
    factor = bus_factor(collective, ranks or listed) if ranks or listed else None
    for row in table.rows:
        # sendrecv_perf prints the operation of -o, which it does not use.
        if collective != "sendrecv" and (row.redop in ("", "none")) == (collective in SUMS):
            return f"redop is {row.redop[:20]!r}: this is no test of {collective}", row.place
        rooted = row.root is not None and row.root >= 0
        if rooted != (collective in ROOTED):
            return f"root is {row.root}: this is no test of {collective}", row.place
        if rooted and root is not None and row.root != root:
            return f"root is {row.root}, expected {root}", row.place
        if factor is not None and row.time is not None and row.busbw is not None and row.size:
            expected = float(factor) * row.size / row.time / 1000
            if abs(row.busbw - expected) > ROUNDING + SHARE * expected:
                text = f"busbw is {row.busbw:g} GB/s, {expected:.3g} is that of {row.size} bytes in {row.time:g} µs"
                return f"{text} by {collective} on {ranks or listed} ranks: another call, or a damaged row", row.place
    return None


def _tables(text: str, file: str, in_place: bool) -> list[TestTable]:
    """Return the tables of a text, with the times in place or out of place. Raises FormatError."""
    found: list[TestTable] = []
    columns: list[str] = []  # of the table that is read; none between tables
    coming = TestTable()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()[:2000]
        words = line.lstrip("# ").split()
        if line.startswith("#") and words[:1] == ["size"] and {"algbw", "busbw"} <= {*words}:
            columns, coming.place = words, number
            found.append(coming)
            coming = TestTable()
        elif columns and line[:1].isdecimal() and len(words) > 1:
            found[-1].rows.append(_row(_DATE_AND_TIME.sub(r" \1_\2", line).split(), columns, file, number, in_place))
        elif listed := _RANK.match(line):
            coming.ranks.append(int(listed[1]))
            coming.groups.add(int(listed[2] or 0))
            columns = []
        elif program := _PROGRAM.search(line):
            coming.test = program[1] or program[2]
        elif found and not line.startswith("#") and sum(word.replace(".", "", 1).isdecimal() for word in words) >= 6:
            raise FormatError(
                "looks like a row of nccl-tests and is below no header, or begins otherwise", file, number
            )
    return found


def _row(words: list[str], columns: list[str], file: str, number: int, in_place: bool) -> TestRow:
    if len(words) != len(columns):
        raise FormatError(f"has {len(words)} columns, its header {len(columns)}: {' '.join(columns)}", file, number)
    # the columns before the first time, and those from the wanted time to the next one
    times = [i for i, name in enumerate(columns) if name == "time"]
    if not times:
        raise FormatError(f"there is no column 'time' in {' '.join(columns)}", file, number)
    starts = times[::-1] if in_place else times
    start = next((i for i in starts if words[i] != "N/A"), starts[0])  # only one of the two may have been run
    end = min([i for i in times if i > start], default=len(columns))
    values = dict(zip(columns[: times[0]] + columns[start:end], words[: times[0]] + words[start:end], strict=True))
    return _checked(values["size"], values, ("time", "busbw", "#wrong"), file, number)


def _document(text: str, file: str, in_place: bool) -> TestTable:
    """Return the table in a JSON document, with the times in place or out of place. Raises FormatError."""
    doc = json_reader.document(text, file)
    rows = doc.get("results") if isinstance(doc, dict) else None
    if not isinstance(rows, list) or not rows:
        raise FormatError("expected a list of results", file, "results")
    found = TestTable("results")
    program = _PROGRAM.search(str(doc.get("args")))
    found.test = program[1] or "" if program else ""
    # Without MPI, and with several GPUs of a process, only the first rank of each process is listed.
    config = doc["config"] if isinstance(doc.get("config"), dict) else {}
    try:
        each = config.get("nthreads", 1) * config.get("ngpus", 1)
        for device in config.get("devices", doc.get("devices")) or ():
            found.ranks.append(device["rank"])
            found.groups.add(device.get("group", 0))
        if found.ranks == [each * k for k in range(len(found.ranks))]:
            found.ranks = [*range(each * len(found.ranks))]
        for i, row in enumerate(rows):
            times = row.get("in_place" if in_place else "out_of_place") or row.get("in_place") or row["out_of_place"]
            found.rows.append(_checked(row["size"], row | times, ("time", "bus_bw", "nwrong"), file, f"results[{i}]"))
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"is no document of nccl-tests: {error!r}"[:120], file, "results") from None
    return found


def _checked(size: Any, values: dict[str, Any], names: Sequence[str], file: str, place: str | int) -> TestRow:
    """Return the row of some values; `names`: the keys of time, bus bandwidth, wrong elements. Raises FormatError."""
    time, bus, wrong = (values.get(name) for name in names)
    root = str(values.get("root")).strip()
    try:
        microseconds = None if time in _NO_NUMBER else float(time)
        bandwidth = None if bus in _NO_NUMBER else float(bus)
        bytes_ = int(str(size))
    except (TypeError, ValueError, OverflowError):
        raise FormatError(f"{(size, time, bus)!r:.60} are no size, time and bandwidth", file, place) from None
    timed = microseconds is None or 0 < microseconds < 1e300
    if bytes_ < 0 or not timed or not 0 <= (bandwidth or 0.0) < 1e300:
        raise FormatError(f"{(size, time, bus)!r:.60} are no size, time and bandwidth", file, place)
    return TestRow(
        place,
        bytes_,
        str(values.get("redop") or ""),
        int(root) if root.removeprefix("-").isdecimal() else None,
        microseconds,
        bandwidth,
        "" if wrong in (None, 0, "0", "0e+00", "N/A") else f"{wrong!s:.20}",
    )

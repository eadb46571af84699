"""Reader of nccl-tests' and rccl-tests' output (`all_gather_perf` and the others): text since 2.0, JSON since 2.17.

A table has a row for each size: bytes of the larger of one rank's buffers, elements, type, operation, root, and twice
(out of place, in place) the time in µs, the bandwidths in GB/s and the number of wrong elements. Bus bandwidth is a
factor of the collective and the ranks times size / time (doc/PERFORMANCE.md of nccl-tests), which tells a table of
another collective and a damaged row. In text, lines begin with ``#`` but for the rows, and the header names the
columns; options add columns (util.cu of 2.19). In JSON, `results` has the rows and `config` lists the ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePath
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
_TEST = re.compile(r"#\s*Collective test starting:\s*(\w+)", re.IGNORECASE)
_PROGRAM = re.compile(rf"\b(?:{'|'.join(sorted(NAMES, key=len, reverse=True))})_perf\b")
_DATE_AND_TIME = re.compile(r"\s(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)$")


class TestRow(NamedTuple):
    """A row. `place`: its line, or its path in a document. `time`: µs, None where it was not run. `busbw`: GB/s.

    `wrong`: why its results are wrong, "" where they are not, or were not checked.
    """

    place: str | int
    size: int
    redop: str
    root: int | None
    time: float | None
    busbw: float | None
    wrong: str = ""


@dataclass
class TestTable:
    """The results of one run. `test`: the name of its program, "" where nothing says it. `ranks`: those listed.

    `groups`: those that run at once (NCCL_TESTS_SPLIT). `cpu_time`: its times are those that the CPU took (-C 1).
    """

    __test__ = False  # no class of tests

    place: str | int | None = None
    test: str = ""
    test_place: str | int | None = None
    ranks: list[int] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)
    cpu_time: bool = False
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
    text, file = log_text(path), str(path)
    kind, options = backend(name)
    if text.lstrip()[:1] == "{" and '"results"' in text:
        tables, says = [_document(text, file, in_place)], "times as nccl-tests wrote them"
    else:
        tables, says = _tables(text, file, in_place), "times as nccl-tests printed them"
    if not tables:
        expected = "is no output of nccl-tests: no line begins with `# size count type .. algbw busbw`"
        if "algbw" in text and "busbw" in text:
            expected += "; take away what a launcher puts before each line (srun --label, kubectl logs --prefix)"
            raise FormatError(expected, file)
        raise FormatError(form_of(text) or expected, file)
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
    table = fitting[0]
    count = ranks or len(table.ranks)
    if not count:
        raise FormatError("does not list its ranks; name the machine (--topo), which says how many there are", file)
    samples = []
    for row in table.rows:
        if row.wrong:
            raise FormatError(f"{row.wrong}: the results of this run were wrong, so its times count for nothing",
                              file, row.place)  # fmt: skip
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
    name = NAMES.get(PurePath(table.test).name.partition("_perf")[0])
    if name is not None and name != collective:
        return f"is of {table.test[:40]}, expected a test of {collective}", table.test_place
    listed = len(table.ranks)
    if sorted(table.ranks) != [*range(listed)]:
        return (
            f"lists {listed} ranks, up to {max(table.ranks)}: some are missing, or several print at once",
            table.place,
        )
    if listed and ranks is not None and listed != ranks:
        return f"is of {listed} ranks, expected {ranks}", table.place
    if table.cpu_time:
        return "gives the CPU time of the call (-C 1), not that of the collective; run it without -C", table.place
    if len(table.groups) > 1:
        return f"is of {len(table.groups)} groups at once (NCCL_TESTS_SPLIT), not of one alone", table.place
    for before, after in pairwise(table.rows):
        if after.size <= before.size and after.size:
            return "its sizes do not grow: lines of several runs are mixed, or out of order", after.place
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
    coming, programs = TestTable(), set[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()[:2000]
        words = line.lstrip("# ").split()
        if line.startswith("#") and words[:1] in (["size"], ["bytes"]) and {"algbw", "busbw"} <= {*words}:
            if words[0] == "bytes":
                raise FormatError("is of the tests in NCCL 1, whose times are ms: use nccl-tests", file, number)
            columns = words
            coming.place, coming.cpu_time = number, "cputime" in columns
            if not coming.test and len(programs) == 1:
                coming.test, coming.test_place = programs.pop(), number
            found.append(coming)
            coming, programs = TestTable(), set()
        elif test := _TEST.match(line):
            coming, columns = TestTable(None, test[1], number), []
        elif listed := _RANK.match(line):
            coming.ranks.append(int(listed[1]))
            coming.groups.add(int(listed[2] or 0))
            columns = []
        elif columns and line[:1].isdecimal() and len(words) > 1:
            found[-1].rows.append(_row(_DATE_AND_TIME.sub(r" \1_\2", line).split(), columns, file, number, in_place))
        else:
            programs |= set(_PROGRAM.findall(line))
            numbers = sum(word.replace(".", "", 1).isdecimal() for word in words)
            if found and not line.startswith("#") and numbers >= 6:
                raise FormatError("looks like a row of nccl-tests and is below no header, or begins otherwise",
                                  file, number)  # fmt: skip
    return found


def _row(words: list[str], columns: list[str], file: str, number: int, in_place: bool) -> TestRow:
    if len(words) != len(columns):
        hint = "; run without NCCL_DEBUG, or with NCCL_DEBUG_FILE" if "NCCL" in words else ""
        raise FormatError(
            f"has {len(words)} columns, its header {len(columns)}: {' '.join(columns)}{hint}", file, number
        )
    times = [i for i, name in enumerate(columns) if name in ("time", "cputime")]
    if not times:
        raise FormatError(f"there is no column 'time' in {' '.join(columns)}", file, number)
    at = min(int(in_place), len(times) - 1)
    if words[times[at]] == "N/A":
        at = 0 if at else len(times) - 1  # only one of the two was run
    start, end = times[at], [*times, len(columns)][at + 1]
    group = dict(zip(columns[start:end], words[start:end], strict=True))
    first = dict(zip(columns[: times[0]], words[: times[0]], strict=True))
    time, root = words[start], first.get("root")
    if not words[0].isdecimal():
        raise FormatError(f"{words[0]!r} is no size in bytes", file, number)
    if time != "N/A" and not 0 < _number(time) < float("inf"):
        raise FormatError(f"{time!r} is no time in µs", file, number)
    bus = group.get("busbw", "N/A")
    if bus not in ("N/A", "inf", "nan") and not 0 <= _number(bus) < float("inf"):
        raise FormatError(f"{bus!r} is no bandwidth in GB/s", file, number)
    wrong = group.get("#wrong", "N/A")  # the older `error` is the greatest difference, rounding included
    return TestRow(
        number,
        int(words[0]),
        first.get("redop", ""),
        int(root) if root is not None and root.removeprefix("-").isdecimal() else None,
        None if time == "N/A" else _number(time),
        None if bus in ("N/A", "inf", "nan") else _number(bus),
        "" if wrong in ("N/A", "0", "0e+00") else f"#wrong is {wrong}",
    )


def _number(word: str) -> float:
    """Return the number in a word; -1 for other words."""
    try:
        return float(word)
    except ValueError:
        return -1.0


def _document(text: str, file: str, in_place: bool) -> TestTable:
    """Return the table in a JSON document, with the times in place or out of place. Raises FormatError."""
    doc = json_reader.document(text, file)
    rows = doc.get("results") if isinstance(doc, dict) else None
    if not isinstance(rows, list) or not rows:
        raise FormatError("expected a list of results", file, "results")
    args = doc.get("args")
    words = args.split() if isinstance(args, str) else args
    found = TestTable("results", "", "args")
    if isinstance(words, list) and words and isinstance(words[0], str):
        found.test = words[0]
    # Without MPI, and with several GPUs of a process, only the first rank of each process is listed.
    config = doc.get("config")
    config = config if isinstance(config, dict) else {}
    devices = config.get("devices", doc.get("devices"))
    each = 1
    if "nthreads" in config and "ngpus" in config:
        each = _whole(config["nthreads"], file, "config") * _whole(config["ngpus"], file, "config")
    for i, device in enumerate(devices if isinstance(devices, list) else []):
        if not isinstance(device, dict):
            raise FormatError("expected an object", file, f"devices[{i}]")
        found.ranks.append(_whole(device.get("rank"), file, f"devices[{i}].rank"))
        found.groups.add(_whole(device.get("group", 0), file, f"devices[{i}].group"))
    if found.ranks == [each * k for k in range(len(found.ranks))]:
        found.ranks = [*range(each * len(found.ranks))]
    for i, row in enumerate(rows):
        place = f"results[{i}]"
        if not isinstance(row, dict):
            raise FormatError("expected an object", file, place)
        order = ("in_place", "out_of_place") if in_place else ("out_of_place", "in_place")
        times = next((row[name] for name in order if isinstance(row.get(name), dict)), {})
        time, bus = times.get("time", times.get("cpu_time")), times.get("bus_bw")
        found.cpu_time = found.cpu_time or ("cpu_time" in times and "time" not in times)
        for value, name in ((time, "time in µs"), (bus, "bandwidth")):
            fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300
            if value is not None and (not fits or (value == 0 and value is time)):
                raise FormatError(f"{repr(value)[:40]} is no {name}", file, place)
        wrong, root = times.get("nwrong"), row.get("root")
        if isinstance(root, str) and len(root) < 20 and root.strip().removeprefix("-").isdecimal():
            root = int(root)  # a text with blanks before it
        found.rows.append(
            TestRow(
                place,
                _whole(row.get("size"), file, f"{place}.size"),
                str(row.get("redop") or ""),
                root if isinstance(root, int) and not isinstance(root, bool) else None,
                None if time is None else float(time),
                None if bus is None else float(bus),
                "" if wrong in (None, 0, "0", "N/A") else f"nwrong is {wrong!r}"[:60],
            )
        )
    return found


def _whole(value: Any, file: str, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(f"{value!r} is no whole number of at least 0"[:120], file, place)
    return value

"""Reader of the output of nccl-tests and rccl-tests (`all_gather_perf` and the others), versions 2.0 and later.

Lines begin with ``#``, but for the rows. The header names the columns of a row: ``size count type [redop] [root]``,
then ``time algbw busbw #wrong`` twice, out of place and in place (``error`` before version 2.12). Options add columns
(util.cu of 2.19): ``i_min i_max i_p99 i_cv%`` after each of the two, of single calls, and ``timestamp``, two words, at
the end (``-S 1``); with ``-C 1`` ``cputime`` stands for ``time``. Times are µs. `#wrong` is ``N/A`` where nothing was
checked (``-c 0``). The ranks are those that are listed above the header, one line each; versions since 2.17 say which
test it is. The tests in NCCL 1, ``bytes N type op ..``, print ms, and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from synth.catalog.tuner.line_prefixes import Line, sources
from synth.catalog.tuner.nccl_tests import NAMES, TYPES, Printed, TestRow, TestTable, check_rows
from synth.errors import FormatError

WRONG = ("#wrong", "error")
MOST_LINE = 2000  # characters of a line that can be of a table
MOST_EXPONENT = 300  # of a number that was printed: more is no time and no bandwidth
_HEADER = re.compile(r"#\s*(?:size|bytes)\s")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b(?:\s+Group\s+(\d+)\b)?", re.IGNORECASE)
_TEST = re.compile(r"#\s*Collective test starting:\s*(\w+)", re.IGNORECASE)
_OPTIONS = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)\s.*step:\s*\d+\((factor|bytes)\)", re.IGNORECASE)
_PROGRAM = re.compile(rf"\b(?:{'|'.join(sorted(NAMES, key=len, reverse=True))})_perf\b")
_FOOTER = re.compile(r"#\s*(?:Out of bounds values|Avg bus bandwidth|Collective test concluded|Using devices)")
_DATE, _CLOCK = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d\d:\d\d:\d\d")


def header_start(line: str) -> int | None:
    """Return where the header that names the columns begins in a line; None in other lines."""
    found = _HEADER.search(line)
    if found is None:
        return None
    words = line[found.start() :].split()
    return found.start() if "algbw" in words and "busbw" in words else None


def tables(lines: Iterable[str], file: str, in_place: bool) -> list[TestTable]:
    """Return the tables in the lines of a log, with the times in place or out of place. Raises FormatError."""
    streams, others = sources(lines, header_start)
    found: list[TestTable] = []
    for stream in streams:
        found += _tables(stream, file, in_place)
    for number, line in others:
        _check_no_row(line, file, number)
    for table in found:
        check_rows(table, file)
    return sorted(found, key=lambda table: int(table.place or 0))


def _tables(stream: Iterable[Line], file: str, in_place: bool) -> list[TestTable]:
    """Return the tables of one source of lines."""
    found: list[TestTable] = []
    columns: list[str] = []  # of the table that is read; none between tables
    coming, programs = TestTable(None), set[str]()
    for number, text in stream:
        line = text.strip()
        if len(line) > MOST_LINE:
            continue
        if header_start(line) == 0:
            columns = line.lstrip("# ").split()
            if columns[0] == "bytes":
                raise FormatError("is of the tests in NCCL 1, whose times are ms: use nccl-tests", file, number)
            coming.place, coming.cpu_time = number, "cputime" in columns
            if not coming.test and len(programs) == 1:
                coming.test, coming.test_place = programs.pop(), number
            found.append(coming)
            coming, programs = TestTable(None), set()
        elif test := _TEST.match(line):
            coming, columns = TestTable(None, test[1], number), []
        elif options := _OPTIONS.match(line):
            if coming.each is not None or coming.ranks:
                coming = TestTable(None)
            coming.each = int(options[1]) * int(options[2])
            coming.in_bytes = options[3] == "bytes"
            columns = []
        elif listed := _RANK.match(line):
            coming.ranks.append(int(listed[1]))
            coming.groups.add(int(listed[2] or 0))
            columns = []
        elif _FOOTER.match(line):
            columns = []
        elif columns and line[:1].isdecimal() and len(line.split()) > 1:
            found[-1].rows.append(_row(line.split(), columns, file, number, in_place))
        else:
            programs |= set(_PROGRAM.findall(line))
            _check_no_row(line, file, number)
    return found


def _check_no_row(line: str, file: str, number: int) -> None:
    """Raise FormatError for a line that looks like a row, so that no row is lost."""
    words = line.split()
    numbers = sum(word.replace(".", "", 1).isdecimal() for word in words)
    if not line.startswith("#") and numbers >= 6 and any(word in TYPES for word in words):
        raise FormatError("looks like a row of nccl-tests and is below no header, or begins otherwise", file, number)


def _row(words: list[str], columns: list[str], file: str, number: int, in_place: bool) -> TestRow:
    if columns[-1] == "timestamp" and len(words) > 1 and _DATE.fullmatch(words[-2]) and _CLOCK.fullmatch(words[-1]):
        words = [*words[:-2], f"{words[-2]} {words[-1]}"]
    if len(words) != len(columns):
        hint = "; run without NCCL_DEBUG, or with NCCL_DEBUG_FILE" if "NCCL" in words else ""
        raise FormatError(
            f"has {len(words)} columns, its header {len(columns)}: {' '.join(columns)}{hint}", file, number
        )
    first = dict(zip(columns[::-1], words[::-1], strict=True))  # a name's first column
    times = [i for i, name in enumerate(columns) if name in ("time", "cputime")]
    if not times:
        raise FormatError(f"there is no column 'time' in {' '.join(columns)}", file, number)
    at = min(int(in_place), len(times) - 1)
    if words[times[at]] == "N/A":
        at = 0 if at else len(times) - 1  # only one of the two was run
    start, end = times[at], [*times, len(columns)][at + 1]
    group = dict(zip(columns[start:end], words[start:end], strict=True))
    time = group.get("time") or group["cputime"]
    size, count, root = words[0], first.get("count", ""), first.get("root")
    if not size.isdecimal():
        raise FormatError(f"{size!r} is no size in bytes", file, number)
    return TestRow(
        number,
        int(size),
        int(count) if count.isdecimal() else None,
        first.get("type", ""),
        first.get("redop", ""),
        int(root) if root is not None and root.removeprefix("-").isdecimal() else None,
        None if time == "N/A" else _positive(time, file, number),
        _bandwidth(group["algbw"], file, number) if "algbw" in group else None,
        _bandwidth(group["busbw"], file, number) if "busbw" in group else None,
        _wrong(group, file, number),
    )


def _printed(word: str) -> Printed | None:
    """Return a number that was printed with its digits; None for other words."""
    try:
        exact = Decimal(word)
    except InvalidOperation:
        return None
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exact.adjusted()) > MOST_EXPONENT:
        return None
    half = 0.501 * 10.0**exponent
    return Printed(float(exact), float(exact) - half, float(exact) + half)


def _positive(word: str, file: str, number: int) -> Printed:
    printed = _printed(word)
    if printed is None or not 0 < printed.value < float("inf"):
        raise FormatError(f"{word!r} is no time in µs", file, number)
    return printed


def _bandwidth(word: str, file: str, number: int) -> Printed | None:
    printed = _printed(word)
    if word in ("N/A", "inf", "nan"):
        return None
    if printed is None or printed.value < 0:
        raise FormatError(f"{word!r} is no bandwidth in GB/s", file, number)
    return printed


def _wrong(group: dict[str, str], file: str, number: int) -> str:
    """Return how the results are wrong: `#wrong` counts wrong elements; the older `error` is the greatest difference,
    rounding included."""
    column = next((name for name in group if name.lower() in WRONG), None)
    if column is None or group[column] == "N/A":
        return ""
    word = group[column]
    printed = _printed(word)
    return f"#wrong is {word}" if column == "#wrong" and (printed is None or printed.value != 0) else ""

"""Reader of the JSON of nccl-tests from version 2.17 on (`all_gather_perf -J FILE`).

A document has `results`, one for each size: `size`, `count`, `type`, `redop`, `root`, and `out_of_place` and
`in_place`, each with `time` in µs, `alg_bw`, `bus_bw` and `nwrong`, or null where it was not run; with ``-C 1`` there
is `cpu_time` instead of `time`. `config` has `nthreads`, `ngpus` and `devices`, which lists ranks; `args` begins with
the program (util.cu of nccl-tests). Other fields are not needed, and ignored.
"""

from __future__ import annotations

from typing import Any

from synth.catalog.tuner.nccl_tests import Printed, TestRow, TestTable, check_rows
from synth.errors import FormatError
from synth.model.documents import json_reader

MAX_RESULTS = 1 << 20
DIGIT = 0.501e-6  # half of the last of six decimals, and a little for its rounding


def is_document(text: str) -> bool:
    """Return True if the text may be such a document."""
    return text.lstrip()[:1] == "{" and '"results"' in text


def table(text: str, file: str, in_place: bool) -> TestTable:
    """Return the table in a document, with the times in place or out of place. Raises FormatError with the place."""
    doc = json_reader.document(text, file)
    rows = doc.get("results") if isinstance(doc, dict) else None
    if not isinstance(rows, list) or not rows or len(rows) > MAX_RESULTS:
        raise FormatError(f"expected a list of 1 to {MAX_RESULTS} results", file, "results")
    found = TestTable("results", _program(doc.get("args")), "args")
    # Devices stand in `config`; without MPI, and with several GPUs of a process, only the first of each is listed.
    config = doc.get("config")
    config = config if isinstance(config, dict) else {}
    devices = config.get("devices", doc.get("devices"))
    for i, device in enumerate(devices if isinstance(devices, list) else []):
        place = f"devices[{i}]"
        if not isinstance(device, dict):
            raise FormatError("expected an object", file, place)
        found.ranks.append(_whole(device.get("rank"), "rank", file, place))
        found.groups.add(_whole(device.get("group", 0), "group", file, place))
    if "nthreads" in config and "ngpus" in config:
        threads = _whole(config["nthreads"], "nthreads", file, "config")
        found.each = threads * _whole(config["ngpus"], "ngpus", file, "config")
    found.in_bytes = "step_bytes" in config
    for i, row in enumerate(rows):
        found.rows.append(_row(row, found, in_place, file, f"results[{i}]"))
    check_rows(found, file)
    return found


def _program(args: Any) -> str:
    """Return the program that the arguments begin with, "" where they do not."""
    words = args.split() if isinstance(args, str) else args
    return words[0] if isinstance(words, list) and words and isinstance(words[0], str) else ""


def _row(row: Any, found: TestTable, in_place: bool, file: str, place: str) -> TestRow:
    if not isinstance(row, dict):
        raise FormatError("expected an object", file, place)
    order = ("in_place", "out_of_place") if in_place else ("out_of_place", "in_place")
    times = next((row[name] for name in order if isinstance(row.get(name), dict)), None)
    time = algbw = busbw = None
    wrong = ""
    if times is not None:
        found.cpu_time = found.cpu_time or ("cpu_time" in times and "time" not in times)
        time = _number(times.get("time", times.get("cpu_time")), "time in µs", file, place)
        if time.value <= 0:
            raise FormatError(f"{time.value!r} is no time in µs", file, place)
        algbw = None if times.get("alg_bw") is None else _number(times["alg_bw"], "bandwidth", file, place)
        busbw = None if times.get("bus_bw") is None else _number(times["bus_bw"], "bandwidth", file, place)
        if times.get("nwrong") not in (None, 0, "0", "N/A"):
            wrong = f"nwrong is {times['nwrong']!r}"[:60]
    root, count = row.get("root"), row.get("count")
    if (
        isinstance(root, str) and len(root) < 20 and root.strip().removeprefix("-").isdecimal()
    ):  # a text with blanks before it
        root = int(root)
    return TestRow(
        place,
        _whole(row.get("size"), "size", file, place),
        None if count is None else _whole(count, "count", file, place),
        str(row.get("type") or ""),
        str(row.get("redop") or ""),
        root if isinstance(root, int) and not isinstance(root, bool) else None,
        time,
        algbw,
        busbw,
        wrong,
    )


def _whole(value: Any, name: str, file: str, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(f"{name} is {value!r}: expected a whole number of at least 0"[:120], file, place)
    return value


def _number(value: Any, name: str, file: str, place: str) -> Printed:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise FormatError(f"{repr(value)[:40]} is no {name}", file, place)
    return Printed(float(value), float(value) - DIGIT, float(value) + DIGIT)

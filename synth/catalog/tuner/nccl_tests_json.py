"""Reader of the JSON of nccl-tests from version 2.19 on (`all_gather_perf -J FILE`).

A document has `results`, one for each size: `size`, `redop`, and `out_of_place` and `in_place`, each with `time` (or
`cpu_time`) in µs and `nwrong`, or null where it was not run. `devices` lists the ranks, `args` begins with the program.
Other fields are not needed, and ignored.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from synth.catalog.tuner.measurements import Measurement, Sample, median_samples
from synth.catalog.tuner.nccl_tests_log import NAMES, SUMS
from synth.errors import FormatError
from synth.model.documents import json_reader

MAX_RESULTS = 1 << 20
SAID = "times as nccl-tests wrote them"


def is_document(text: str) -> bool:
    """Return True if the text may be such a document."""
    return text.lstrip()[:1] == "{" and '"results"' in text


def read(text: str, file: str, collective: str, ranks: int | None, in_place: bool) -> list[Measurement]:
    """Return one measurement of `collective`; the caller sets label and backend. Raises FormatError with the place."""
    doc = json_reader.document(text, file)
    rows = doc.get("results") if isinstance(doc, dict) else None
    if not isinstance(rows, list) or not rows or len(rows) > MAX_RESULTS:
        raise FormatError(f"expected a list of 1 to {MAX_RESULTS} results", file, "results")
    _check_test(doc.get("args"), collective, file)
    devices = doc.get("devices")
    count = len(devices) if isinstance(devices, list) and devices else ranks
    if count is None:
        raise FormatError("does not list its ranks; say how many there are (a topology, or --gpus N)", file, "devices")
    if ranks is not None and count != ranks:
        raise FormatError(f"is of {count} ranks, expected {ranks}", file, "devices")
    samples = []
    for i, row in enumerate(rows):
        sample = _sample(row, collective, in_place, file, f"results[{i}]")
        samples += [sample] if sample else []
    if not samples:
        raise FormatError("has no result with a time", file, "results")
    return [Measurement("nccl", "nccl", collective, count, median_samples(samples), SAID, file)]


def _check_test(args: Any, collective: str, file: str) -> None:
    """Check that the program, where the arguments begin with it, is the test of the collective."""
    words = args.split() if isinstance(args, str) else args
    if not isinstance(words, list) or not words or not isinstance(words[0], str):
        return
    test = PurePath(words[0]).name
    if NAMES.get(test.partition("_perf")[0], collective) != collective:
        raise FormatError(f"is of {test[:40]}, expected a test of {collective}", file, "args")


def _sample(row: Any, collective: str, in_place: bool, file: str, place: str) -> Sample | None:
    if not isinstance(row, dict):
        raise FormatError("expected an object", file, place)
    size, op = row.get("size"), row.get("redop")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise FormatError(f"size is {size!r}: expected a whole number of bytes"[:120], file, place)
    if isinstance(op, str) and op and (op == "none") == (collective in SUMS):
        raise FormatError(f"redop is {op[:20]!r}: this is no test of {collective}", file, place)
    order = ("in_place", "out_of_place") if in_place else ("out_of_place", "in_place")
    found = next((row[name] for name in order if isinstance(row.get(name), dict)), None)
    if found is None or not size:
        return None
    time = found.get("time", found.get("cpu_time"))
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 < time < float("inf"):
        raise FormatError(f"{time!r} is no time in µs"[:120], file, place)
    wrong = found.get("nwrong")
    if wrong not in (None, 0, "0", "N/A"):
        raise FormatError(f"nwrong is {wrong!r}: the results of this run were wrong"[:120], file, place)
    return Sample(size, time * 1e-6)

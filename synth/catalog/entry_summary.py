"""Summaries of entries, read without schedules and without parsing certificates: for tables of many entries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from synth.catalog.entry import FAILED
from synth.catalog.store.blobs import Blob, unpack, unpack_bytes
from synth.catalog.store.rows import EXACT, EntryRow
from synth.errors import FormatError
from synth.model.rational import rational

OPTIMAL = "optimal"
# Steps, the proved lower bound on rounds per chunk, and the least rounds per chunk of a known schedule (None: none).
Interval = tuple[int, Fraction, Fraction | None]


@dataclass(frozen=True)
class EntrySummary:
    """The figures of one entry.

    `row`: its columns in the catalog. `versions`: of synth and the solvers. Exact synthesis sets `complete`,
    `max_steps` and `rows`: (steps, least, greatest rounds per chunk) by growing steps; greatest None: no schedule
    known. Flow methods set `bound`, the lower bound on rounds per chunk for any number of steps, and `reached`: (steps,
    rounds per chunk) of each point.
    """

    row: EntryRow
    versions: Mapping[str, str]
    complete: bool = False
    max_steps: int | None = None
    rows: tuple[Interval, ...] = ()
    bound: Fraction | None = None
    reached: tuple[tuple[int, Fraction], ...] = ()


def summarize(
    row: EntryRow, provenance: str, frontier: Blob | None, points: list[tuple[int, str, str]]
) -> EntrySummary:
    """Return the summary of an entry. Raises FormatError, naming the entry, where a part of it is damaged.

    `row`: its row. `provenance`: its provenance as JSON. `frontier`: its document, None of a failed entry. `points`:
    steps, rounds per chunk and status of each point.
    """
    part = "row"
    try:
        versions = json.loads(provenance)["versions"]
        part = "frontier"
        if frontier is None:
            if row.state != FAILED:
                raise FormatError("is gone")
            return EntrySummary(row, versions)
        if row.engine != EXACT:
            doc = unpack(frontier)
            reached = tuple((p["steps"], rational(p["bandwidth"])) for p in doc["points"])
            return EntrySummary(row, versions, bound=rational(doc["bound"]["value"]), reached=reached)
        proved = row.complete and all(status == OPTIMAL for _, _, status in points)
        doc = _head(frontier) if proved else unpack(frontier)
        if proved:
            intervals = {steps: (rational(value), rational(value)) for steps, value, _ in points}
        else:
            intervals = {p["steps"]: (rational(p["bound"]["value"]), rational(p["bandwidth"])) for p in doc["points"]}
        return EntrySummary(row, versions, doc["complete"], doc["max_steps"], _rows(intervals, doc["open"]))
    except FormatError as error:
        raise FormatError(f"entry {row.id} is damaged: its {part} {error}") from None
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise FormatError(f"entry {row.id} is damaged: its {part} cannot be read: {error!r}"[:300]) from None


def _head(frontier: Blob) -> dict[str, Any]:
    """Return the document of a frontier up to its points.

    Keys are sorted, and the schedules, which are nearly the whole document, come after the keys that are needed here.
    """
    data = unpack_bytes(frontier)
    try:
        doc = json.loads(data[: data.index(b',"points":[')] + b"}")
    except ValueError:  # a value before the points contains the key "points" itself
        return unpack(frontier)
    return doc if isinstance(doc, dict) and {"complete", "max_steps", "open"} <= doc.keys() else unpack(frontier)


def _rows(
    intervals: Mapping[int, tuple[Fraction, Fraction]], open_intervals: list[dict[str, Any]]
) -> tuple[Interval, ...]:
    """Return the intervals of the points, narrowed or added to by the open intervals of the document."""
    rows: dict[int, tuple[Fraction, Fraction | None]] = dict(intervals)
    for interval in open_intervals:
        steps, low = interval["steps"], rational(interval["lower"])
        if steps in rows:
            low = max(low, rows[steps][0])
        rows[steps] = (low, _or_none(interval["upper"]))
    return tuple((steps, low, high) for steps, (low, high) in sorted(rows.items()))


def _or_none(value: object) -> Fraction | None:
    return None if value is None else rational(value)

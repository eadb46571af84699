"""What an entry says, read without its schedules and without making values of its certificates: for tables of many
entries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from synth.catalog.entry import FAILED
from synth.catalog.store.blobs import Blob, unpack, unpack_bytes
from synth.catalog.store.rows import EXACT, Row
from synth.errors import FormatError
from synth.model.rational import rational

OPTIMAL = "optimal"
Interval = tuple[
    int, Fraction, Fraction | None
]  # steps, the least possible R/C as far as it is proved, the least reached


@dataclass(frozen=True)
class Told:
    """`rows`: an interval for each number of steps; `reached`: steps and R/C of the points, of flow methods above
    `bound`."""

    row: Row
    versions: Mapping[str, str]
    complete: bool = False
    max_steps: int | None = None
    rows: tuple[Interval, ...] = ()
    bound: Fraction | None = None
    reached: tuple[tuple[int, Fraction], ...] = ()


def told(row: Row, provenance: str, frontier: Blob | None, points: list[tuple[int, str, str]]) -> Told:
    """From an entry's row, what is kept of its making, its document, and of its points steps, R/C and status. Raises
    FormatError."""
    part = "row"
    try:
        versions = json.loads(provenance)["versions"]
        part = "frontier"
        if frontier is None:
            if row.state != FAILED:
                raise FormatError("is gone")
            return Told(row, versions)
        if row.engine != EXACT:
            doc = unpack(frontier)
            reached = tuple((p["steps"], rational(p["bandwidth"])) for p in doc["points"])
            return Told(row, versions, bound=rational(doc["bound"]["value"]), reached=reached)
        proved = row.complete and all(status == OPTIMAL for _, _, status in points)
        doc = _head(frontier) if proved else unpack(frontier)
        if proved:
            found = {steps: (rational(value), rational(value)) for steps, value, _ in points}
        else:
            found = {p["steps"]: (rational(p["bound"]["value"]), rational(p["bandwidth"])) for p in doc["points"]}
        return Told(row, versions, doc["complete"], doc["max_steps"], _rows(found, doc["open"]))
    except FormatError as error:
        raise FormatError(f"entry {row.id} is damaged: its {part} {error}") from None
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise FormatError(f"entry {row.id} is damaged: its {part} cannot be read: {error!r}"[:300]) from None


def _head(frontier: Blob) -> dict[str, Any]:
    """A frontier's document up to its points: keys are in order, and schedules, which are nearly all of it, come after
    these."""
    data = unpack_bytes(frontier)
    try:
        doc = json.loads(data[: data.index(b',"points":[')] + b"}")
    except ValueError:  # what is said before holds points of its own
        return unpack(frontier)
    return doc if isinstance(doc, dict) and {"complete", "max_steps", "open"} <= doc.keys() else unpack(frontier)


def _rows(found: Mapping[int, tuple[Fraction, Fraction]], left: list[dict[str, Any]]) -> tuple[Interval, ...]:
    rows: dict[int, tuple[Fraction, Fraction | None]] = dict(found)
    for o in left:
        low = rational(o["lower"])
        rows[o["steps"]] = (max(low, rows[o["steps"]][0]) if o["steps"] in rows else low, _or_none(o["upper"]))
    return tuple((steps, low, high) for steps, (low, high) in sorted(rows.items()))


def _or_none(value: object) -> Fraction | None:
    return None if value is None else rational(value)

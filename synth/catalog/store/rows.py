"""Conversion of entries to rows and blobs, and back, without the database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, STATES, Entry, Provenance
from synth.catalog.isomorphism import invariant
from synth.catalog.store import exact_frontiers, scale_frontiers
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.errors import FormatError, SynthError
from synth.model.frontier import ParetoFrontier
from synth.model.rational import show

EXACT, FLOW = "exact", "flow"
# How the frontiers of each engine are stored, checked and named.
CODECS: dict[str, Any] = {EXACT: exact_frontiers, FLOW: scale_frontiers}
# Rank of each state when an entry is added twice: a failed entry never replaces a result, an open entry never a
# complete one.
WORTH = {FAILED: 0, OPEN: 1, DONE: 2, INFEASIBLE: 2}


class EntryRow(NamedTuple):
    """The columns of an entry that `ls` shows, read without its frontier.

    `points`: the number of points. `steps`: the least and the greatest number of steps. `like`: for an alias the
    fingerprint of the entry that answers it, else "".
    """

    fingerprint: str
    topology: str
    collective: str
    roots: tuple[int, ...]
    ranks: int
    options: tuple[tuple[str, str], ...]
    state: str
    engine: str
    complete: bool
    intervals: int
    points: int
    steps: tuple[int, int] | None
    seconds: float
    created: str
    reason: str
    like: str = ""

    @property
    def id(self) -> str:
        """The first 12 digits of the fingerprint, as in `Entry.id`."""
        return self.fingerprint[:12]

    def to_json(self) -> dict:
        """Return the JSON object that `synth catalog ls --format json` prints."""
        return {"id": self.id} | self._asdict() | {"roots": list(self.roots), "options": dict(self.options)}


class Choice(NamedTuple):
    """One point of an entry, counted from 1. `seconds`: the predicted time, None where the query has no size."""

    fingerprint: str
    point: int
    steps: int
    rounds: int
    chunks: int
    rounds_per_chunk: str
    status: str
    construction: str
    seconds: float | None

    def to_json(self) -> dict:
        """Return the JSON object that `synth catalog ls --size --format json` prints."""
        keys = list(self._fields)
        keys[keys.index("rounds_per_chunk")] = "bandwidth"
        return dict(zip(keys, self, strict=True))


@dataclass(frozen=True)
class Packed:
    """An entry ready to be written: columns of its row, rows of its points, blobs by name."""

    columns: dict[str, Any]
    points: tuple[tuple, ...]
    blobs: dict[str, Blob]
    measurements: tuple[tuple[str, Blob], ...]


def packed(entry: Entry) -> Packed:
    """Return `entry` as rows and blobs. Raises SynthError where its state is unknown or its frontier is missing."""
    if entry.state not in STATES:
        raise SynthError(f"{entry.id}: state {entry.state!r}; an entry is {', '.join(STATES)}")
    if entry.frontier is None and entry.state != FAILED:
        raise SynthError(
            f"{entry.id}: a state of {entry.state!r} without a frontier; one without points says what the problem is"
        )
    frontier = entry.frontier
    complete, intervals, alpha, unit, share = _facts(frontier)
    columns = {
        "fingerprint": entry.fingerprint,
        "topology": entry.topology,
        "collective": entry.collective,
        "roots": _roots(entry.roots),
        "ranks": entry.ranks,
        "options": json.dumps(dict(sorted(entry.options)), separators=(",", ":")),
        "state": entry.state,
        "engine": EXACT if frontier is None else frontier.engine,
        "complete": complete,
        "intervals": intervals,
        "invariant": "",
        "alpha": alpha,
        "unit": unit,
        "share": share,
        "reason": entry.reason,
        "seconds": entry.seconds,
        "provenance": json.dumps(entry.provenance.to_json()),
        "created": entry.provenance.created,
        "points": len(frontier.points) if frontier is not None else 0,
        "fewest": None,
        "most": None,
    }
    if frontier is not None and frontier.points:
        steps = [p.steps for p in frontier.points]
        columns |= {"fewest": min(steps), "most": max(steps)}
    rows: list[tuple] = []
    blobs: dict[str, Blob] = {}
    if frontier is not None:
        for p in frontier.points:
            value = show(p.rounds_per_chunk), float(p.rounds_per_chunk)
            rows.append((p.steps, p.rounds, p.chunks, *value, p.status, p.construction))
        blobs = CODECS[frontier.engine].packed(frontier)
    if entry.exact is not None:
        columns["invariant"] = invariant(entry.exact.network, entry.exact.collective, entry.options)
    if entry.certificate:
        blobs["certificate"] = pack(entry.certificate)
    measured = tuple((str(doc.get("executor", "")), pack(doc)) for doc in entry.measurements)
    return Packed(columns, tuple((k, *row) for k, row in enumerate(rows, 1)), blobs, measured)


def _facts(frontier: ParetoFrontier | None) -> tuple[bool, int, float, float, float]:
    """Return whether the frontier is complete, its number of open intervals, α in µs, the GB/s of one unit, and the
    share of the message size that one unit of data holds."""
    if frontier is None:
        return False, 0, 0.0, 0.0, 0.0
    facts = float(frontier.latency), float(frontier.unit), float(frontier.unit_share)
    return frontier.complete, len(frontier.open), *facts


def entry(columns: dict[str, Any], blobs: dict[str, Blob], measurements: tuple[Blob, ...] = ()) -> Entry:
    """Return the entry of rows and blobs of `packed`. Raises FormatError, naming the entry, where they are damaged."""
    name = str(columns["fingerprint"])[:12]
    part = "row"
    try:
        frontier: ParetoFrontier | None = None
        part = "frontier"
        if "frontier" in blobs:
            frontier = CODECS[columns["engine"]].unpacked(blobs)
        elif columns["state"] != FAILED:
            raise FormatError("is gone")
        part = "certificate"
        certificate = unpack(blobs["certificate"]) if "certificate" in blobs else {}
        part = "measurement"
        documents = tuple(map(unpack, measurements))
        part = "row"
        return Entry(
            columns["fingerprint"],
            columns["topology"],
            columns["collective"],
            columns["ranks"],
            _options(columns["options"]),
            columns["state"],
            frontier,
            certificate,
            columns["reason"],
            columns["seconds"],
            Provenance.from_json(json.loads(columns["provenance"])),
            documents,
        )
    except FormatError as error:
        raise FormatError(f"entry {name} is damaged: its {part} {error}") from None
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise FormatError(f"entry {name} is damaged: its {part} cannot be read: {error!r}"[:300]) from None


def row_of_columns(columns: tuple) -> EntryRow:
    """Return the row in the `columns` of a query in `LIGHT`. Raises FormatError if it is damaged."""
    try:
        (
            fingerprint,
            topology,
            collective,
            roots,
            ranks,
            options,
            state,
            engine,
            complete,
            intervals,
            seconds,
            created,
            reason,
            points,
            fewest,
            most,
            like,
        ) = columns
        if state not in STATES or engine not in (EXACT, FLOW):
            raise ValueError(f"state {state!r}, engine {engine!r}")
        if not type(topology) is type(collective) is type(created) is type(reason) is str:
            raise ValueError("a text is none")
        steps = None if fewest is None else _pair(fewest, most)
        return EntryRow._make(
            (
                fingerprint,
                topology,
                collective,
                _ints(roots),
                ranks,
                _options(options),
                state,
                engine,
                bool(complete),
                intervals,
                points,
                steps,
                float(seconds),
                created,
                reason,
                like,
            )
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(f"entry {str(columns[0])[:12]} is damaged: its row cannot be read: {error}"[:300]) from None


_FACTS = (
    "e.ranks, e.options, e.state, e.engine, e.complete, e.intervals, e.seconds, e.created, e.reason, e.points, "
    "e.fewest, e.most"
)
# The queries of all entries and of all aliases; a caller appends a condition to each.
LIGHT = (
    f"SELECT e.fingerprint, e.topology, e.collective, e.roots, {_FACTS}, '' FROM entries e",
    f"SELECT a.fingerprint, a.topology, a.collective, a.roots, {_FACTS}, e.fingerprint FROM aliases a JOIN entries "
    f"e ON e.id = a.entry",
)


def _roots(roots: tuple[int, ...]) -> str:
    return ",".join(map(str, roots))


@lru_cache(1 << 12)
def _ints(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


@lru_cache(1 << 12)
def _pair(fewest: int, most: int) -> tuple[int, int]:
    return fewest, most


@lru_cache(1 << 12)
def _options(text: str) -> tuple[tuple[str, str], ...]:
    # `raw_decode` of one decoder is faster than json.loads, and `ls` reads this text of every entry.
    return tuple(_DECODER.raw_decode(text)[0].items()) if text != "{}" else ()


_DECODER = json.JSONDecoder()

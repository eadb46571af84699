"""Entries as rows and blobs, and back: what `Store` writes and reads, without the database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, STATES, Entry, Provenance
from synth.catalog.isomorphism import invariant
from synth.catalog.store import scale_frontiers
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.errors import FormatError, SynthError
from synth.model.frontier import Frontier
from synth.model.rational import show
from synth.model.scale_frontier import Large

EXACT, FLOW = "exact", "flow"
# What replaces what when an entry is put twice: a crash never replaces a result, a budget that ran out never one that
# is complete.
WORTH = {FAILED: 0, OPEN: 1, DONE: 2, INFEASIBLE: 2}


class Row(NamedTuple):
    """What `ls` shows of an entry, read without its frontier. `points`: how many; `steps`: from the fewest to the most.

    `like`: for a machine that the entry of another answers for, that entry's fingerprint; else "".
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
        """As `Entry.id`."""
        return self.fingerprint[:12]

    def to_json(self) -> dict:
        """As `synth catalog ls --format json` prints it."""
        return {"id": self.id} | self._asdict() | {"roots": list(self.roots), "options": dict(self.options)}


class Choice(NamedTuple):
    """One point of an entry as a look-up finds it, from 1; `seconds` predicted, None where no size was asked for."""

    fingerprint: str
    point: int
    steps: int
    rounds: int
    chunks: int
    bandwidth: str
    status: str
    construction: str
    seconds: float | None


@dataclass(frozen=True)
class Packed:
    """An entry ready to be written: columns of its row, rows of its points, blobs by name."""

    columns: dict[str, Any]
    points: tuple[tuple, ...]
    blobs: dict[str, Blob]
    measurements: tuple[tuple[str, Blob], ...]


def packed(entry: Entry) -> Packed:
    """`entry` as rows. Raises SynthError for one that says too little to be kept."""
    if entry.state not in STATES:
        raise SynthError(f"{entry.id}: state {entry.state!r}; an entry is {', '.join(STATES)}")
    if entry.frontier is None and entry.state != FAILED:
        raise SynthError(
            f"{entry.id}: a state of {entry.state!r} without a frontier; one without points says what the problem is"
        )
    found = entry.frontier
    complete, intervals, alpha, unit, share = _facts(found)
    columns = {
        "fingerprint": entry.fingerprint,
        "topology": entry.topology,
        "collective": entry.collective,
        "roots": _roots(entry.roots),
        "ranks": entry.ranks,
        "options": json.dumps(dict(sorted(entry.options)), separators=(",", ":")),
        "state": entry.state,
        "engine": FLOW if isinstance(found, Large) else EXACT,
        "complete": complete,
        "intervals": intervals,
        "invariant": invariant(found.network, found.collective, entry.options) if isinstance(found, Frontier) else "",
        "alpha": alpha,
        "unit": unit,
        "share": share,
        "reason": entry.reason,
        "seconds": entry.seconds,
        "provenance": json.dumps(entry.provenance.to_json()),
        "created": entry.provenance.created,
        "points": len(found.points) if found is not None else 0,
        "fewest": None,
        "most": None,
    }
    if found is not None and found.points:
        columns |= {"fewest": min(p.steps for p in found.points), "most": max(p.steps for p in found.points)}
    rows: list[tuple] = []
    blobs = {}
    if isinstance(found, Frontier):
        rows = [
            (p.steps, p.rounds, p.chunks, show(p.bandwidth), float(p.bandwidth), p.status, p.construction)
            for p in found.points
        ]
        blobs["frontier"] = pack(found.to_json())
    elif found is not None:
        rows = [
            (p.steps, p.rounds, p.chunks, show(p.bandwidth), float(p.bandwidth), _status(found, p.bandwidth), p.engine)
            for p in found.points
        ]
        blobs = scale_frontiers.packed(found)
    if entry.certificate:
        blobs["certificate"] = pack(entry.certificate)
    measured = tuple((str(doc.get("executor", "")), pack(doc)) for doc in entry.measurements)
    return Packed(columns, tuple((k, *row) for k, row in enumerate(rows, 1)), blobs, measured)


def _status(found: Large, bandwidth: object) -> str:
    return "optimal" if bandwidth == found.bound else "best-known"


def _facts(found: Frontier | Large | None) -> tuple[bool, int, float, float, float]:
    """Complete, open intervals, α in µs, GB/s of one unit, and one unit's share of the size."""
    if isinstance(found, Frontier):
        net = found.network
        return found.complete, len(found.open), float(net.latency), float(net.unit), float(found.collective.unit_share)
    if found is None:
        return False, 0, 0.0, 0.0, 0.0
    return False, 0, float(found.latency), float(found.unit), float(found.unit_share)


def entry(columns: dict[str, Any], blobs: dict[str, Blob], measurements: tuple[Blob, ...] = ()) -> Entry:
    """The inverse of `packed`. Raises FormatError, naming the entry, for rows that are not what was written."""
    name = str(columns["fingerprint"])[:12]
    part = "row"
    try:
        found: Frontier | Large | None = None
        part = "frontier"
        if columns["engine"] == FLOW and "frontier" in blobs:
            found = scale_frontiers.unpacked(blobs)
        elif "frontier" in blobs:
            found = Frontier.from_json(unpack(blobs["frontier"]))
        elif columns["state"] != FAILED:
            raise FormatError("is gone")
        part = "certificate"
        certificate = unpack(blobs["certificate"]) if "certificate" in blobs else {}
        part = "measurement"
        documents = tuple(map(unpack, measurements))
        part = "row"
        made = Entry(
            columns["fingerprint"],
            columns["topology"],
            columns["collective"],
            columns["ranks"],
            _options(columns["options"]),
            columns["state"],
            found,
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
    return made


def light(columns: tuple) -> Row:
    """A row of `LIGHT`. Raises FormatError for one that is not what was written."""
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
        return Row._make(
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
# Every entry, and every machine that one answers for too; a condition follows each.
LIGHT = (
    f"SELECT e.fingerprint, e.topology, e.collective, e.roots, {_FACTS}, '' FROM entries e",
    f"SELECT a.fingerprint, a.topology, a.collective, a.roots, {_FACTS}, e.fingerprint FROM aliases a JOIN entries "
    f"e ON e.id = a.entry",
)


def _roots(roots: tuple[int, ...]) -> str:
    return ",".join(map(str, roots))


@lru_cache(1 << 12)
def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(r) for r in text.split(",")) if text else ()


@lru_cache(1 << 12)
def _pair(fewest: int, most: int) -> tuple[int, int]:
    return fewest, most


@lru_cache(1 << 12)
def _options(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_DECODER.raw_decode(text)[0].items()) if text != "{}" else ()


_DECODER = json.JSONDecoder()

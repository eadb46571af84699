"""Programs and measurements in a catalog.

A measured program belongs to an entry if a point of the entry, lowered again, gives the same program.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from synth.catalog.entry import Entry
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.canonical_json import canonical
from synth.model.documents.json_reader import schema_text
from synth.model.schedule import Schedule
from synth.program import checked_lowering
from synth.program.program import MAX_INSTANCES, Program

MEASURED = "synth.measured/1"
MOST_PROGRAMS, MOST_ROWS = 10_000, 1_000_000  # programs and rows of one document of measurements
# Entries that are tried for one measured program: those with a point of as many steps, rounds per chunk and chunks.
MOST_CANDIDATES = 200


class StoredProgram(NamedTuple):
    """A stored program without its instructions: the point (from 1) that it was lowered from, and the options of the
    lowering."""

    fingerprint: str
    point: int
    runtime: str
    protocol: str
    instances: int


def fingerprint(program: Program) -> str:
    """Return the SHA-256 of the program's canonical JSON, by which measurements name it."""
    return hashlib.sha256(canonical(program.to_json())).hexdigest()


def write(base: sqlite3.Connection, entry: int, program: Program, kept: StoredProgram) -> bool:
    """Add a row for `program`; return False where there is one already."""
    blob = pack(program.to_json())
    cursor = base.execute(
        "INSERT OR IGNORE INTO programs (entry, point, fingerprint, runtime, protocol, instances, sum, size, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (entry, kept.point, kept.fingerprint, kept.runtime, kept.protocol, kept.instances, *blob),
    )
    return cursor.rowcount > 0


def read(blob: Blob, expected: str) -> Program:
    """Return the program in a blob. Raises FormatError where it is damaged, or its fingerprint is not `expected`."""
    try:
        program = Program.from_json(unpack(blob))
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise FormatError(f"program {expected[:12]} cannot be read: {error!r}"[:300]) from None
    if fingerprint(program) != expected:
        raise FormatError(f"program {expected[:12]} is not the one that was written")
    return program


def measured_programs(doc: Any) -> list[dict]:
    """Return the programs of a document ``synth.measured/1``, whose form is checked. Raises FormatError with the
    place."""
    if not isinstance(doc, dict) or doc.get("schema") != MEASURED:
        schema = doc.get("schema") if isinstance(doc, dict) else None
        raise FormatError(f"holds no measurements: {schema_text(schema)}, expected {MEASURED!r}")
    programs, rows = doc.get("programs"), doc.get("rows")
    if not isinstance(programs, list) or not 0 < len(programs) <= MOST_PROGRAMS:
        raise FormatError(f"expected a list of 1 to {MOST_PROGRAMS} programs", place="$.programs")
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise FormatError(f"expected a list of at most {MOST_ROWS} rows", place="$.rows")
    for i, program in enumerate(programs):
        valid = (
            isinstance(program, dict)
            and isinstance(program.get("fingerprint"), str)
            and isinstance(program.get("protocol"), str)
            and isinstance(program.get("steps"), int | None)
            and isinstance(program.get("bandwidth"), str | None)
        )
        if not valid or type(program.get("chunks")) is not int:
            raise FormatError(
                "expected a program with fingerprint, protocol, chunks, and its steps and bandwidth",
                place=f"$.programs[{i}]",
            )
    for i, row in enumerate(rows):
        valid = isinstance(row, dict) and type(row.get("program")) is int and 0 <= row["program"] < len(programs)
        if not valid or type(row.get("size")) is not int or not isinstance(row.get("seconds"), int | float):
            raise FormatError("expected a row with program, size and seconds", place=f"$.rows[{i}]")
    named = all(isinstance(doc.get(key), str | None) for key in ("collective", "topology"))
    if not named or not isinstance(doc.get("executor"), str) or type(doc.get("ranks")) is not int:
        raise FormatError("expected the names of a collective, a topology and an executor, and a number of ranks")
    return programs


def lowered(entry: Entry, program: dict) -> tuple[StoredProgram, Program] | None:
    """Return the point of `entry` that a measured program was lowered from, and the program; None where it is of none.

    `program`: its row in a measured document.
    """
    from synth.program.lowering_options import LoweringOptions

    for number, schedule in _schedules(entry, program):
        instances, rest = divmod(program["chunks"], schedule.chunks)
        if rest or not 0 < instances <= MAX_INSTANCES:
            continue
        try:
            lowering = checked_lowering.lower(
                schedule, LoweringOptions(protocol=program["protocol"], instances=instances)
            )
        except VerificationError:
            raise
        except SynthError:
            continue
        if fingerprint(lowering) == program["fingerprint"]:
            return StoredProgram(program["fingerprint"], number, "synth", lowering.protocol, instances), lowering
    return None


def _schedules(entry: Entry, program: dict) -> Iterator[tuple[int, Schedule]]:
    """Yield the number and the schedule of each point of the entry with as many steps as `program`."""
    for k, point in enumerate(entry.frontier.points if entry.frontier is not None else (), 1):
        if program.get("steps") in (None, point.steps):
            with suppress(SynthError):  # not stored, and then it cannot have been run as a program
                schedule = point.schedule
                if schedule.sends <= checked_lowering.MAX_SENDS:
                    yield k, schedule.written_out()


def candidates(base: sqlite3.Connection, doc: dict, program: dict) -> list[str]:
    """Return the fingerprints of entries and aliases with a point of the steps and R/C of a measured program.

    Those of the measured machine come first. `doc`: the measured document. `program`: the program's entry in it.
    """
    steps, bandwidth = program.get("steps"), program.get("bandwidth")
    text = (
        "SELECT DISTINCT n.fingerprint, n.topology FROM (SELECT id, fingerprint, topology FROM entries"
        " UNION ALL SELECT entry, fingerprint, topology FROM aliases) n JOIN entries e ON e.id = n.id JOIN points p "
        "ON p.entry = e.id"
        " WHERE e.ranks = ?1 AND (?2 IS NULL OR e.collective = ?2) AND (?3 IS NULL OR p.steps = ?3) AND (?4 IS NULL "
        "OR p.bandwidth = ?4)"
        " AND ?5 % p.chunks = 0 ORDER BY n.topology != ?6, n.fingerprint LIMIT ?7"
    )
    topology = doc.get("topology")
    values = (
        doc.get("ranks"),
        doc.get("collective"),
        steps,
        bandwidth,
        program["chunks"],
        topology or "",
        MOST_CANDIDATES,
    )
    return [row[0] for row in base.execute(text, values)]

"""Programs and measurements in a catalog: which entry a measured program belongs to is decided by lowering its points
again."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from synth.catalog.entry import Entry
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule, canonical
from synth.program.program import MOST_INSTANCES, Program

MEASURED = "synth.measured/1"
MOST_PROGRAMS, MOST_ROWS = 10_000, 1_000_000
# Points looked at for one measured program: those that agree in steps, rounds per chunk and number of chunks.
MOST_CANDIDATES = 200
WRITTEN_SENDS = 1 << 20


class Kept(NamedTuple):
    """A program of a catalog without its instructions: the point (from 1) that it was lowered from, and how."""

    fingerprint: str
    point: int
    runtime: str
    protocol: str
    instances: int


def fingerprint(program: Program) -> str:
    """SHA-256 of the program's canonical JSON: what measurements name it by."""
    return hashlib.sha256(canonical(program.to_json())).hexdigest()


def write(base: sqlite3.Connection, entry: int, program: Program, kept: Kept) -> bool:
    """A row for `program`; False where it is there already."""
    blob = pack(program.to_json())
    made = base.execute(
        "INSERT OR IGNORE INTO programs (entry, point, fingerprint, runtime, protocol, instances, sum, size, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (entry, kept.point, kept.fingerprint, kept.runtime, kept.protocol, kept.instances, *blob),
    )
    return made.rowcount > 0


def read(blob: Blob, expected: str) -> Program:
    """The program in a row. Raises FormatError where it is not what was written."""
    try:
        program = Program.from_json(unpack(blob))
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise FormatError(f"program {expected[:12]} cannot be read: {error!r}"[:300]) from None
    if fingerprint(program) != expected:
        raise FormatError(f"program {expected[:12]} is not the one that was written")
    return program


def measured(doc: Any) -> list[dict]:
    """The programs that a document names, after a look at its form. Raises FormatError with the place."""
    if not isinstance(doc, dict) or doc.get("schema") != MEASURED:
        raise FormatError(
            f"holds no measurements: its schema is {doc.get('schema') if isinstance(doc, dict) else None!r}, not "
            f"{MEASURED!r}"
        )
    programs, rows = doc.get("programs"), doc.get("rows")
    if not isinstance(programs, list) or not 0 < len(programs) <= MOST_PROGRAMS:
        raise FormatError(f"expected a list of 1 to {MOST_PROGRAMS} programs", place="$.programs")
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise FormatError(f"expected a list of at most {MOST_ROWS} rows", place="$.rows")
    for i, program in enumerate(programs):
        texts = isinstance(program, dict) and all(
            isinstance(program.get(key), str) for key in ("fingerprint", "protocol")
        )
        point = (
            texts and isinstance(program.get("steps"), int | None) and isinstance(program.get("bandwidth"), str | None)
        )
        if not point or type(program.get("chunks")) is not int:
            raise FormatError(
                "expected a program with fingerprint, protocol, chunks, and its steps and bandwidth",
                place=f"$.programs[{i}]",
            )
    for i, row in enumerate(rows):
        good = isinstance(row, dict) and type(row.get("program")) is int and 0 <= row["program"] < len(programs)
        if not good or type(row.get("size")) is not int or not isinstance(row.get("seconds"), int | float):
            raise FormatError("expected a row with program, size and seconds", place=f"$.rows[{i}]")
    named = all(isinstance(doc.get(key), str | None) for key in ("collective", "topology")) and isinstance(
        doc.get("executor"), str
    )
    if not named or type(doc.get("ranks")) is not int:
        raise FormatError("expected the names of a collective, a topology and an executor, and a number of ranks")
    return programs


def lowered(entry: Entry, program: dict) -> tuple[Kept, Program] | None:
    """The point of `entry` that `program`, a row of a measured document, was lowered from, and the same program again;
    None: of none."""
    from synth.program.checked_lowering import lower

    for number, schedule in _schedules(entry, program):
        instances, rest = divmod(program["chunks"], schedule.chunks)
        if rest or not 0 < instances <= MOST_INSTANCES:
            continue
        try:
            made = lower(schedule, protocol=program["protocol"], instances=instances)
        except VerificationError:
            raise
        except SynthError:
            continue
        if fingerprint(made) == program["fingerprint"]:
            return Kept(program["fingerprint"], number, "synth", made.protocol, instances), made
    return None


def _schedules(entry: Entry, program: dict) -> Iterator[tuple[int, Schedule]]:
    found = entry.frontier
    if isinstance(found, Frontier):
        yield from ((k, p.schedule) for k, p in enumerate(found.points, 1) if program.get("steps") in (None, p.steps))
    elif found is not None:
        from synth.scale.greedy.bulk_expansion import schedule

        for k, point in enumerate(found.points, 1):
            if program.get("steps") in (None, point.steps):
                try:
                    bulk = point.make()
                    if len(bulk.step) <= WRITTEN_SENDS:
                        yield k, schedule(bulk)
                except SynthError:  # not kept, or too large to write out: then nobody has run it as a program either
                    continue


def candidates(base: sqlite3.Connection, doc: dict, program: dict) -> list[str]:
    """Fingerprints of entries and aliases that have a point like `program`, those of the machine that was measured
    first."""
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

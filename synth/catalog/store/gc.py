"""Garbage collection of a catalog: failed and damaged entries, programs and measurements of removed points, and rows of
removed entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synth.catalog.entry import FAILED
from synth.catalog.store import programs as store_programs
from synth.catalog.store.blobs import Blob, unpack
from synth.catalog.store.find import Alias
from synth.catalog.store.sqlite_file import sqlite_errors, transaction
from synth.catalog.store.store import Store
from synth.errors import FormatError, SynthError

BELONGING = ("points", "blobs", "programs", "measurements", "aliases")


@dataclass(frozen=True)
class RemovableRows:
    """Rows of one table that are to be removed, and the reason."""

    table: str
    key: str
    rows: tuple[tuple, ...]
    why: str

    def line(self) -> str:
        """Return the line that `synth catalog gc` prints."""
        return f"{len(self.rows)} {NAMES[self.table][len(self.rows) > 1]}: {self.why}"[:2000]


NAMES = {
    "entries": ("entry", "entries"),
    "points": ("point", "points"),
    "blobs": ("document", "documents"),
    "programs": ("program", "programs"),
    "measurements": ("measurement", "measurements"),
    "aliases": ("alias", "aliases"),
}


def removable_rows(store: Store) -> list[RemovableRows]:
    """Return the rows that `collect` would remove. Raises SynthError."""
    with sqlite_errors(store.path):
        return list(_waste(store))


def collect(store: Store) -> tuple[list[RemovableRows], int]:
    """Remove `removable_rows` and shrink the file; return these rows and the bytes by which the file is smaller.

    Raises SynthError.
    """
    removed = removable_rows(store)
    before = store.path.stat().st_size
    with sqlite_errors(store.path):
        with transaction(store.base):
            for group in removed:
                store.base.executemany(f"DELETE FROM {group.table} WHERE {group.key}", group.rows)
        store.base.execute("VACUUM")
        store.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return removed, before - store.path.stat().st_size


def _waste(store: Store) -> Iterator[RemovableRows]:
    base = store.base
    rows = base.execute("SELECT id, state, created FROM entries ORDER BY id").fetchall()
    # A row is identified by more than its number: another process may have replaced the entry by a better one
    # meanwhile.
    same = "id = ? AND state = ? AND created = ?"
    failed = tuple(row for row in rows if row[1] == FAILED)
    if failed:
        yield RemovableRows("entries", same, failed, "failed in an earlier run; the next `build` tries again")
    damaged, reasons, alive = [], [], set()
    for row in rows:
        if row[1] == FAILED:
            continue
        try:
            store.entry(row[0], measurements=False)
            alive.add(row[0])
        except FormatError as error:
            damaged.append(row)
            reasons.append(str(error))
    if damaged:
        yield RemovableRows("entries", same, tuple(damaged), f"{'; '.join(reasons)}; the next `build` makes it again")
    yield from _orphaned(store)
    yield from _obsolete(store, alive)


def _orphaned(store: Store) -> Iterator[RemovableRows]:
    """Yield rows of entries that were removed."""
    for table in BELONGING:
        key = "entry" if table == "points" else "id"
        rows = store.base.execute(
            f"SELECT DISTINCT {key} FROM {table} WHERE entry NOT IN (SELECT id FROM entries)"
        ).fetchall()
        if rows:
            yield RemovableRows(
                table, f"{key} = ? AND entry NOT IN (SELECT id FROM entries)", tuple(rows), "of entries that are gone"
            )


def _obsolete(store: Store, alive: set[int]) -> Iterator[RemovableRows]:
    """Yield damaged and obsolete aliases, programs and measurements of the entries in the rows `alive`."""
    base, same = store.base, "id = ? AND sum = ?"
    aliases, programs, measurements = [], [], []
    for number, key, *blob in base.execute("SELECT entry, id, sum, size, body FROM aliases").fetchall():
        if number in alive and not _is_valid_alias(store, number, Blob(*blob)):
            aliases.append((key, blob[0]))
    remaining = set()
    text = "SELECT entry, id, fingerprint, point, sum, size, body FROM programs"
    for number, key, fingerprint, point, *blob in base.execute(text).fetchall():
        if number in alive:
            if _is_valid_program(store, number, fingerprint, point, Blob(*blob)):
                remaining.add((number, fingerprint))
            else:
                programs.append((key, blob[0]))
    for number, key, *blob in base.execute("SELECT entry, id, sum, size, body FROM measurements").fetchall():
        if number in alive and not _has_program(store, number, Blob(*blob), remaining):
            measurements.append((key, blob[0]))
    if aliases:
        yield RemovableRows("aliases", same, tuple(aliases), "damaged, or of another numbering than their entry")
    if programs:
        yield RemovableRows("programs", same, tuple(programs), "damaged, or of points that are gone")
    if measurements:
        yield RemovableRows("measurements", same, tuple(measurements), "damaged, or of programs that are gone")


def _is_valid_alias(store: Store, number: int, blob: Blob) -> bool:
    try:
        Alias.read(blob).of(store.entry(number, measurements=False))
    except (FormatError, KeyError, ValueError, TypeError):
        return False
    return True


def _is_valid_program(store: Store, number: int, fingerprint: str, point: int, blob: Blob) -> bool:
    points = store.base.execute("SELECT count(*) FROM points WHERE entry = ?", (number,)).fetchone()[0]
    try:
        store_programs.read(blob, fingerprint)
    except FormatError:
        return False
    return 1 <= point <= points


def _has_program(store: Store, number: int, blob: Blob, programs: set[tuple[int, str]]) -> bool:
    """Return True if a program of a measured document is stored, or is the lowering of a point of the entry."""
    try:
        rows = store_programs.measured_programs(unpack(blob))
        if any((number, row["fingerprint"]) in programs for row in rows):
            return True
        entry = store.entry(number, measurements=False)
        return any(store_programs.lowered(entry, row) is not None for row in rows)
    except SynthError:
        return False

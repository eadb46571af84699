"""`gc`: what a catalog need not keep: failed and damaged entries, programs and measurements of points that are gone,
stray rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synth.catalog.entry import FAILED
from synth.catalog.store import programs as store_programs
from synth.catalog.store.blobs import Blob, unpack
from synth.catalog.store.find import Alias
from synth.catalog.store.sqlite_file import said, transaction
from synth.catalog.store.store import Store
from synth.errors import FormatError, SynthError

BELONGING = ("points", "blobs", "programs", "measurements", "aliases")


@dataclass(frozen=True)
class Waste:
    """Rows of one table to be removed, and why."""

    table: str
    key: str
    rows: tuple[tuple, ...]
    why: str

    def line(self) -> str:
        """As `gc` prints it."""
        return f"{len(self.rows)} {NAMES[self.table][len(self.rows) > 1]}: {self.why}"[:2000]


NAMES = {
    "entries": ("entry", "entries"),
    "points": ("point", "points"),
    "blobs": ("document", "documents"),
    "programs": ("program", "programs"),
    "measurements": ("measurement", "measurements"),
    "aliases": ("alias", "aliases"),
}


def waste(store: Store) -> list[Waste]:
    """What `collect` would remove. Raises SynthError."""
    with said(store.path):
        return list(_waste(store))


def collect(store: Store) -> tuple[list[Waste], int]:
    """Remove it, and give the space back to the file system: what went, and bytes that the file is smaller. Raises
    SynthError."""
    found = waste(store)
    before = store.path.stat().st_size
    with said(store.path):
        with transaction(store.base):
            for one in found:
                store.base.executemany(f"DELETE FROM {one.table} WHERE {one.key}", one.rows)
        store.base.execute("VACUUM")
        store.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return found, before - store.path.stat().st_size


def _waste(store: Store) -> Iterator[Waste]:
    base = store.base
    rows = base.execute("SELECT id, state, created FROM entries ORDER BY id").fetchall()
    # What is removed is named by more than its number: another process may have put something better there meanwhile.
    same = "id = ? AND state = ? AND created = ?"
    failed = tuple(row for row in rows if row[1] == FAILED)
    if failed:
        yield Waste("entries", same, failed, "failed in an earlier run; the next `build` tries again")
    bad, why, alive = [], [], set()
    for row in rows:
        if row[1] == FAILED:
            continue
        try:
            store.entry(row[0], measurements=False)
            alive.add(row[0])
        except FormatError as error:
            bad.append(row)
            why.append(str(error))
    if bad:
        yield Waste("entries", same, tuple(bad), f"{'; '.join(why)}; the next `build` makes it again")
    yield from _stray(store)
    yield from _belonging(store, alive)


def _stray(store: Store) -> Iterator[Waste]:
    for table in BELONGING:
        key = "entry" if table == "points" else "id"
        rows = store.base.execute(
            f"SELECT DISTINCT {key} FROM {table} WHERE entry NOT IN (SELECT id FROM entries)"
        ).fetchall()
        if rows:
            yield Waste(
                table, f"{key} = ? AND entry NOT IN (SELECT id FROM entries)", tuple(rows), "of entries that are gone"
            )


def _belonging(store: Store, alive: set[int]) -> Iterator[Waste]:
    """Aliases, programs and measurements of entries that stay."""
    base, same = store.base, "id = ? AND sum = ?"
    aliases, programs, lost = [], [], []
    for number, key, *blob in base.execute("SELECT entry, id, sum, size, body FROM aliases").fetchall():
        if number in alive and not _fits(store, number, Blob(*blob)):
            aliases.append((key, blob[0]))
    left = set()
    text = "SELECT entry, id, fingerprint, point, sum, size, body FROM programs"
    for number, key, fingerprint, point, *blob in base.execute(text).fetchall():
        if number in alive:
            if _good(store, number, fingerprint, point, Blob(*blob)):
                left.add((number, fingerprint))
            else:
                programs.append((key, blob[0]))
    for number, key, *blob in base.execute("SELECT entry, id, sum, size, body FROM measurements").fetchall():
        if number in alive and not _lives(store, number, Blob(*blob), left):
            lost.append((key, blob[0]))
    if aliases:
        yield Waste("aliases", same, tuple(aliases), "damaged, or of another numbering than their entry")
    if programs:
        yield Waste("programs", same, tuple(programs), "damaged, or of points that are gone")
    if lost:
        yield Waste("measurements", same, tuple(lost), "damaged, or of programs that are gone")


def _fits(store: Store, number: int, blob: Blob) -> bool:
    try:
        Alias.read(blob).of(store.entry(number, measurements=False))
    except (FormatError, KeyError, ValueError, TypeError):
        return False
    return True


def _good(store: Store, number: int, fingerprint: str, point: int, blob: Blob) -> bool:
    points = store.base.execute("SELECT count(*) FROM points WHERE entry = ?", (number,)).fetchone()[0]
    try:
        store_programs.read(blob, fingerprint)
    except FormatError:
        return False
    return 1 <= point <= points


def _lives(store: Store, number: int, blob: Blob, programs: set[tuple[int, str]]) -> bool:
    """Whether some program of a measured document is kept, or is what a point of the entry is lowered to."""
    try:
        rows = store_programs.measured(unpack(blob))
        if any((number, row["fingerprint"]) in programs for row in rows):
            return True
        entry = store.entry(number, measurements=False)
        return any(store_programs.lowered(entry, row) is not None for row in rows)
    except SynthError:
        return False

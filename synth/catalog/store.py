"""The file of a catalog: an SQLite database with one row an entry.

with Store.open("catalog.db", create=True) as store:
    store.put(entry)
    answer = store.find(network, collective)

A row holds what a listing shows, as JSON, and the frontier's document, compressed. Nothing that is read is trusted, its
size included. Several processes may write: an entry is there as a whole or not at all.
"""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple, Self

from synth.catalog import relabelling as relabel
from synth.catalog.entry import DONE, OPEN, Entry, EntryRow
from synth.catalog.isomorphism import invariant
from synth.checker.documents import exact_frontier
from synth.errors import FormatError, SynthError, UsageError, VerificationError
from synth.model.collective import Collective
from synth.model.documents.canonical_json import canonical
from synth.model.frontier import Frontier
from synth.model.rational import rational
from synth.model.symmetry import renumbering
from synth.model.topology import Network

APPLICATION = 0x53594E44  # of the file's header: a catalog of synth
TABLE = "CREATE TABLE entries (fingerprint TEXT PRIMARY KEY, invariant TEXT, row TEXT, frontier BLOB)"
INDEX = "CREATE INDEX by_invariant ON entries (invariant)"
PATIENCE = 60.0  # seconds to wait for another writer, which locks the file for one entry at a time
# Bytes of one document when unpacked, and of memory to unpack it: what a damaged or hostile file can take.
MOST_BYTES, MOST_MEMORY = 1 << 28, 1 << 25
MALFORMED = (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError)


class CheckedEntry(NamedTuple):
    """The result for one entry: `lines`, one for each verified claim, or the `error`."""

    fingerprint: str
    lines: tuple[str, ...]
    error: str | None


class Store:
    """An open catalog. Errors of the database are raised as SynthErrors of one line each."""

    def __init__(self, base: sqlite3.Connection, path: Path) -> None:
        self.base, self.path = base, path

    @classmethod
    def open(cls, path: str | Path, *, create: bool = False) -> Self:
        """Open the catalog at `path` to read it, with `create` also to write it; it is then made where there is none.

        Raises FormatError (no catalog), SynthError.
        """
        path = Path(path)
        if not path.exists() and not create:
            raise SynthError(
                f"there is no catalog {path}; `synth catalog build` makes one, --db FILE or SYNTH_CATALOG names "
                f"another, `synth catalog ls --shipped` lists that of the package"
            )
        with _errors(path):
            # a reader undoes the half transaction of a writer that was killed, where it may write
            mode = "rw" if os.access(path, os.W_OK) else "ro"
            address = f"{path.resolve().as_uri()}?mode={'rwc' if create else mode}"
            base = sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, uri=True)
            try:
                if create:
                    base.execute("BEGIN IMMEDIATE")  # of two processes one makes the tables
                if create and not base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    for statement in (TABLE, INDEX, f"PRAGMA application_id = {APPLICATION}"):
                        base.execute(statement)
                if base.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                    raise FormatError("is an SQLite database, but no catalog of this synth", str(path))
                if create:
                    base.execute("COMMIT")
            except BaseException:
                base.close()
                raise
        return cls(base, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.base.close()

    def put(self, entry: Entry) -> bool:
        """Add `entry`; return False if the stored one of its problem is kept instead.

        A done entry is never replaced, and an open one only by an entry that is done or has points as good.
        """
        frontier = entry.frontier
        key = invariant(frontier.network, frontier.collective, entry.options)
        body = pack(frontier)
        with _errors(self.path):
            self.base.execute("BEGIN IMMEDIATE")
            with self.base:  # commits, or undoes everything
                old = self.row(entry.fingerprint)
                if fresh := old is None or (old.state == OPEN and (entry.state == DONE or _as_good(entry, old))):
                    values = (entry.fingerprint, key, json.dumps(entry.to_json()), body)
                    self.base.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", values)
        return fresh

    def row(self, fingerprint: str) -> EntryRow | None:
        """Return the row of this very problem, None where there is none. Raises FormatError where it is damaged."""
        with _errors(self.path):
            text = "SELECT fingerprint, row FROM entries WHERE fingerprint = ?"
            found = self.base.execute(text, (fingerprint,)).fetchone()
        return None if found is None else _read_row(*found)

    def ls(self, topology: str | None = None, collective: str | None = None) -> list[EntryRow]:
        """Return the entries (of a machine, of a collective) by topology and collective, read without their frontiers.

        Raises FormatError where one is damaged.
        """
        with _errors(self.path):
            found = self.base.execute("SELECT fingerprint, row FROM entries").fetchall()
        rows = [_read_row(*values) for values in found]
        wanted = [row for row in rows if topology in (None, row.topology) and collective in (None, row.collective)]
        return sorted(wanted, key=lambda row: (row.topology, row.collective, row.roots, row.fingerprint))

    def get(self, name: str) -> Entry:
        """Return the entry whose fingerprint is or begins with `name`. Raises UsageError (none, several), FormatError
        (damaged)."""
        text = name.strip().lower()
        if not text or not set("0123456789abcdef").issuperset(text):
            raise UsageError(f"{name!r} is no entry; an id is made of 0-9 and a-f (`synth catalog ls` shows them)")
        with _errors(self.path):
            query = "SELECT fingerprint, row, frontier FROM entries WHERE fingerprint BETWEEN ? AND ? LIMIT 4"
            found = self.base.execute(query, (text, text + "g")).fetchall()
        if not found:
            raise UsageError(f"there is no entry {name} in {self.path} (`synth catalog ls` shows them)")
        if len(found) > 1:
            ids = ", ".join(str(values[0])[:12] for values in found)
            raise UsageError(f"{name} begins more than one entry: {ids}; give more digits")
        return _read(*found[0])

    def find(
        self,
        network: Network,
        collective: Collective,
        options: Mapping[str, str] | None = None,
        labels: Sequence[int] = (),
    ) -> Entry | None:
        """Return the entry that answers this problem in any numbering of its ranks, None where there is none.

        Its frontier is relabelled, with the numbering, name, GB/s and latencies of `network`, and its schedules and
        certificates are checked again.
        """
        # entries of the same invariant may be of the same problem; the map from one to the other decides
        problem = network, collective
        with _errors(self.path):
            query = "SELECT fingerprint, row, frontier FROM entries WHERE invariant = ? ORDER BY fingerprint"
            candidates = self.base.execute(query, (invariant(*problem, options),)).fetchall()
        for values in candidates:
            try:
                entry = _read(*values)
                found = renumbering((entry.frontier.network, entry.frontier.collective), problem)
                if found is None:
                    continue
                moved = relabel.frontier(entry.frontier, *problem, found, labels)
                exact_frontier.document(moved.to_json())
            except (FormatError, VerificationError, *MALFORMED):  # damaged or forged: no answer
                continue
            return replace(entry, frontier=moved)
        return None

    def fingerprints(self) -> list[str]:
        """Return the fingerprints of all entries, in the order in which they were added."""
        with _errors(self.path):
            return [row[0] for row in self.base.execute("SELECT fingerprint FROM entries ORDER BY rowid")]

    def verify(self) -> Iterator[CheckedEntry]:
        """Replay and re-check every entry by exact arithmetic, without a solver, and yield the results.

        An entry that is wrong does not stop the verification of the others.
        """
        for key in self.fingerprints():
            try:
                # what the row says is what its frontier says
                entry = self.get(key)
                frontier = entry.frontier
                expected = Entry.of(frontier, entry.options, entry.seconds, entry.provenance, entry.topology)
                for name, value in entry.to_json().items():
                    if expected.to_json()[name] != value:
                        raise VerificationError(f"its row has another {name} than its frontier")
                with _errors(self.path):
                    query = "SELECT invariant FROM entries WHERE fingerprint = ?"
                    (stored,) = self.base.execute(query, (key,)).fetchone()
                if stored != invariant(frontier.network, frontier.collective, entry.options):
                    raise VerificationError("its row has another invariant than its problem")
                yield CheckedEntry(key, tuple(exact_frontier.document(frontier.to_json())), None)
            except (SynthError, *MALFORMED) as error:
                yield CheckedEntry(str(key), (), str(error)[:300])


def pack(frontier: Frontier) -> bytes:
    """Return the document of a frontier, compressed. Raises SynthError where it is too large to be read again."""
    data = canonical(frontier.to_json())
    if len(data) > MOST_BYTES:
        raise SynthError(f"a frontier of {len(data)} bytes; a catalog keeps at most {MOST_BYTES}")
    return lzma.compress(data)


def unpack(body: bytes) -> dict:
    """Return the document in the bytes of `pack`. Raises FormatError where they are damaged or too large."""
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, MOST_MEMORY)
    try:
        data = unpacker.decompress(body, MOST_BYTES)
        if not unpacker.eof:
            raise FormatError(f"is cut short, or unpacks to more than {MOST_BYTES} bytes")
        return json.loads(data)
    except (lzma.LZMAError, *MALFORMED) as error:
        raise FormatError(f"cannot be unpacked: {error}"[:200]) from None


def _read_row(fingerprint: str, row: str) -> EntryRow:
    try:
        return EntryRow.from_json(json.loads(row))
    except MALFORMED as error:
        raise FormatError(f"entry {str(fingerprint)[:12]} is damaged: {error!r}"[:300]) from None


def _read(fingerprint: str, row: str, body: bytes) -> Entry:
    listed = _read_row(fingerprint, row)
    if listed.fingerprint != fingerprint:
        raise FormatError(f"entry {str(fingerprint)[:12]} is damaged: its row is that of {listed.id}")
    try:
        return Entry(**vars(listed), frontier=Frontier.from_json(unpack(body)))
    except (FormatError, VerificationError, *MALFORMED) as error:
        raise FormatError(f"entry {listed.id} is damaged: its frontier {error}"[:300]) from None


def _as_good(entry: Entry, old: EntryRow) -> bool:
    """Return True if each point of `old` has one of `entry` with no more steps and rounds per chunk."""
    for steps, rate in old.points:
        reached = [rational(mine) for few, mine in entry.points if few <= steps]
        if min(reached, default=inf) > rational(rate):
            return False
    return True


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise FormatError("is no catalog: not an SQLite database", str(path)) from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise FormatError("is damaged: SQLite cannot read part of it", str(path)) from error
        raise SynthError(f"{path}: {error}; can it, and its folder, be read and written?") from error

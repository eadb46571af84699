"""Queries of a catalog's database: by fingerprint, by machine and collective, or all entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from synth.catalog.entry import Entry
from synth.catalog.entry_summary import EntrySummary, summarize
from synth.catalog.isomorphism import invariant
from synth.catalog.store.blobs import Blob, check_checksum, unpack
from synth.catalog.store.find import Alias
from synth.catalog.store.programs import StoredProgram, read
from synth.catalog.store.rows import LIGHT, Choice, EntryRow, entry, row_of_columns
from synth.catalog.store.sqlite_file import connect, snapshot, sqlite_errors
from synth.errors import FormatError, UsageError
from synth.program.program import Program

DIGITS = frozenset("0123456789abcdef")
# In a file of at most this many bytes `ls` compares the checksums of all documents, in a larger one only their lengths.
SUMMED = 8 << 20


class Reader:
    """An open catalog. Errors of the database are raised as SynthErrors of one line each."""

    def __init__(self, base: sqlite3.Connection, path: Path) -> None:
        self.base, self.path = base, path

    @classmethod
    def open(cls, path: str | Path, *, create: bool = False) -> Self:
        """Open the catalog at `path`; with `create` it is made where there is none.

        Raises FormatError (no catalog, a newer version), SynthError.
        """
        return cls(connect(Path(path), create, cls._add_invariants), Path(path))

    @classmethod
    def _add_invariants(cls, base: sqlite3.Connection, version: int) -> None:
        """Compute the invariants that version 1 lacked: without them no entry is found for an isomorphic problem."""
        for (number,) in base.execute("SELECT id FROM entries WHERE invariant = '' AND ? = 1", (version,)).fetchall():
            try:
                stored = cls(base, Path()).entry(number, measurements=False)
            except FormatError:  # `verify` names it, `gc` removes it
                continue
            if stored.exact is not None:
                value = invariant(stored.exact.network, stored.exact.collective, stored.options)
                base.execute("UPDATE entries SET invariant = ? WHERE id = ?", (value, number))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.base.close()

    def state_of(self, fingerprint: str) -> str | None:
        """Return the state of the entry with this fingerprint or alias; None if there is no such entry."""
        with sqlite_errors(self.path):
            row = self.base.execute(
                "SELECT state FROM entries WHERE fingerprint = ?1 UNION ALL"
                " SELECT e.state FROM aliases a JOIN entries e ON e.id = a.entry WHERE a.problem = ?1",
                (fingerprint,),
            ).fetchone()
        return None if row is None else str(row[0])

    def get(self, name: str) -> Entry:
        """Return the entry whose fingerprint is or begins with `name`. Raises UsageError (none, several), FormatError
        (damaged).

        For the fingerprint of an alias, the entry is returned in the numbering of the alias's machine.
        """
        number, fingerprint, blob = self._find_row(name)
        stored = self.entry(number)
        if blob is None:
            return stored
        try:
            return replace(self._alias(fingerprint, blob).of(stored), fingerprint=fingerprint)
        except FormatError as error:
            if "damaged" in str(error):
                raise
            raise FormatError(f"entry {fingerprint[:12]} is damaged: it {error}") from None

    def summary(self, name: str) -> EntrySummary:
        """Return the summary of the entry whose fingerprint is or begins with `name`, read without its schedules.

        Raises UsageError (none, several), FormatError (damaged).
        """
        number, fingerprint, alias = self._find_row(name)
        with sqlite_errors(self.path), snapshot(self.base):
            text, table = (LIGHT[0], "e") if alias is None else (LIGHT[1], "a")
            row = self.base.execute(f"{text} WHERE {table}.fingerprint = ?", (fingerprint,)).fetchone()
            provenance = self.columns(number)["provenance"]
            document = self.base.execute(
                "SELECT sum, size, body FROM blobs WHERE entry = ? AND name = 'frontier'", (number,)
            ).fetchone()
            points = self.base.execute(
                "SELECT steps, bandwidth, status FROM points WHERE entry = ?", (number,)
            ).fetchall()
        return summarize(row_of_columns(row), provenance, None if document is None else Blob(*document), points)

    def entry(self, number: int, *, measurements: bool = True) -> Entry:
        """Return the entry in row `number`. Raises FormatError where it is damaged."""
        with sqlite_errors(self.path), snapshot(self.base):
            documents = self.base.execute(
                "SELECT sum, size, body FROM measurements WHERE entry = ? ORDER BY id", (number,)
            ).fetchall()
            measured = tuple(Blob(*row) for row in documents)
            return entry(self.columns(number), self.blobs(number), measured if measurements else ())

    def _find_row(self, name: str) -> tuple[int, str, Blob | None]:
        """Return the row number of the entry or alias whose fingerprint begins with `name`, its fingerprint, and the
        blob of an alias (None for an entry)."""
        text = name.strip().lower()
        if not text or not DIGITS.issuperset(text):
            raise UsageError(f"{name!r} is no entry; an id is made of 0-9 and a-f (`synth catalog ls` shows them)")
        with sqlite_errors(self.path):
            rows = self.base.execute(
                "SELECT id, fingerprint, '', 0, NULL FROM entries WHERE fingerprint >= ?1 AND fingerprint < ?2 "
                "UNION ALL"
                " SELECT entry, fingerprint, sum, size, body FROM aliases WHERE fingerprint >= ?1 AND fingerprint < "
                "?2 LIMIT 4",
                (text, text + "g"),
            ).fetchall()
        if not rows:
            raise UsageError(f"there is no entry {name} in {self.path} (`synth catalog ls` shows them)")
        if len(rows) > 1:
            ids = ", ".join(row[1][:12] for row in rows)
            raise UsageError(f"{name} begins more than one entry: {ids}; give more digits")
        number, fingerprint, *blob = rows[0]
        return number, fingerprint, None if blob[2] is None else Blob(*blob)

    def row_of(self, name: str) -> int:
        """Return the row number of the entry or alias whose fingerprint begins with `name`. Raises UsageError."""
        return self._find_row(name)[0]

    def fingerprint_of(self, name: str) -> str:
        """Return the fingerprint of the entry whose fingerprint, or alias, begins with `name`. Raises UsageError."""
        return str(self.columns(self.row_of(name))["fingerprint"])

    def programs(self, name: str) -> list[StoredProgram]:
        """Return the stored programs of an entry's points, without instructions."""
        number = self.row_of(name)
        with sqlite_errors(self.path):
            text = (
                "SELECT fingerprint, point, runtime, protocol, instances FROM programs WHERE entry = ? ORDER BY "
                "point, id"
            )
            return [StoredProgram(*row) for row in self.base.execute(text, (number,))]

    def program(self, fingerprint: str) -> Program | None:
        """Return the program of this fingerprint, None where the catalog has none. Raises FormatError where it is
        damaged."""
        with sqlite_errors(self.path):
            row = self.base.execute(
                "SELECT sum, size, body FROM programs WHERE fingerprint = ? LIMIT 1", (fingerprint,)
            ).fetchone()
        return None if row is None else read(Blob(*row), fingerprint)

    def columns(self, number: int) -> dict[str, Any]:
        """Return the columns of row `number` by name. Raises UsageError where the row was removed meanwhile."""
        cursor = self.base.execute("SELECT * FROM entries WHERE id = ?", (number,))
        names = [column[0] for column in cursor.description]
        row = cursor.fetchone()
        if row is None:
            raise UsageError(f"the entry was removed from {self.path} meanwhile")
        return dict(zip(names, row, strict=True))

    def blobs(self, number: int) -> dict[str, Blob]:
        """Return the compressed documents of an entry by name."""
        rows = self.base.execute("SELECT name, sum, size, body FROM blobs WHERE entry = ?", (number,))
        return {name: Blob(*blob) for name, *blob in rows}

    def ls(
        self,
        topology: str | None = None,
        collective: str | None = None,
        state: str | None = None,
        ranks: int | None = None,
    ) -> Iterator[EntryRow | FormatError]:
        """Yield the entries by topology and collective, read without their frontiers; for a damaged one the error.

        Each argument that is not None selects the entries with that value.
        """
        columns = {"topology": topology, "collective": collective, "state": state, "ranks": ranks}
        filters = {name: value for name, value in columns.items() if value is not None}
        with sqlite_errors(self.path), snapshot(self.base):
            damaged = self._damaged()
            rows = []
            for text, names_table in zip(LIGHT, ("e", "a"), strict=True):
                where = []
                for name in filters:
                    table = names_table if name in ("topology", "collective") else "e"
                    where.append(f"{table}.{name} = ?")
                text = f"{text} WHERE {' AND '.join(where) or 'TRUE'}"
                rows += self.base.execute(text, list(filters.values())).fetchall()
        try:
            rows.sort(key=itemgetter(1, 2, 3, 5))  # topology, collective, roots, options
        except TypeError:  # a damaged row
            rows.sort(key=lambda values: tuple(map(str, values)))
        for values in rows:
            try:
                row = row_of_columns(values)
                if row.fingerprint in damaged:
                    raise FormatError(f"entry {row.id} is damaged: its {damaged[row.fingerprint]}")
                yield row
            except FormatError as error:
                yield error

    def _damaged(self) -> dict[str, str]:
        """Return the damage of documents by the fingerprint of their entry: wrong lengths and, in a small catalog,
        wrong checksums."""
        text = (
            "SELECT e.fingerprint, b.name FROM blobs b JOIN entries e ON e.id = b.entry WHERE length(b.body) != "
            "b.packed"
        )
        damage = {key: f"{name} is not as long as what was written" for key, name in self.base.execute(text)}
        text = (
            "SELECT fingerprint FROM entries WHERE state != 'failed' AND id NOT IN (SELECT entry FROM blobs "
            "WHERE name = 'frontier')"
        )
        damage |= {key: "frontier is gone" for (key,) in self.base.execute(text)}
        pages, size = (self.base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if pages * size <= SUMMED:
            text = "SELECT e.fingerprint, b.name, b.sum, b.size, b.body FROM blobs b JOIN entries e ON e.id = b.entry"
            for key, name, *blob in self.base.execute(text):
                try:
                    check_checksum(Blob(*blob))
                except FormatError as error:
                    damage.setdefault(key, f"{name} {error}")
        return damage

    def lookup(
        self,
        topology: str,
        collective: str,
        size: int | None = None,
        roots: Sequence[int] | None = None,
        ranks: int | None = None,
    ) -> list[Choice]:
        """Return the points of a machine and a collective, the least predicted time at `size` bytes first.

        Without a size they are sorted by steps. `roots` None: of any roots. `ranks` None: of any number of ranks.
        """
        facts = "p.number, p.steps, p.rounds, p.chunks, p.bandwidth, p.status, p.construction, p.rate"
        where, values = "topology = ? AND collective = ?", [topology, collective]
        if roots is not None:
            where, values = where + " AND roots = ?", [*values, ",".join(map(str, roots))]
        text = (
            f"SELECT e.fingerprint, {facts}, e.alpha, e.unit, e.share, e.ranks FROM (SELECT * FROM entries WHERE "
            f"{where}) e"
            f" JOIN points p ON p.entry = e.id UNION ALL"
            f" SELECT a.fingerprint, {facts}, a.alpha, a.unit, e.share, e.ranks FROM (SELECT * FROM aliases WHERE "
            f"{where}) a"
            f" JOIN entries e ON e.id = a.entry JOIN points p ON p.entry = e.id"
        )
        with sqlite_errors(self.path):
            rows = [row for row in self.base.execute(text, (*values, *values)) if ranks in (None, row[-1])]
        choices = []
        for row in rows:
            steps, (rate, alpha, unit, share) = row[2], row[8:12]
            time = None if size is None else steps * alpha * 1e-6 + rate * size * share / (unit * 1e9)
            choices.append(Choice._make((*row[:8], time)))
        return sorted(choices, key=lambda c: (c.seconds or 0.0, c.steps, c.fingerprint))

    def measurements(self, name: str) -> list[dict]:
        """Return the measured documents attached to an entry, oldest first. Raises FormatError for a damaged one."""
        return self.documents(self.row_of(name))

    def documents(self, number: int) -> list[dict]:
        """Return the measured documents attached to the entry in row `number`, as `measurements` does."""
        with sqlite_errors(self.path):
            rows = self.base.execute(
                "SELECT sum, size, body FROM measurements WHERE entry = ? ORDER BY id", (number,)
            ).fetchall()
        return [unpack(Blob(*row)) for row in rows]

    def __len__(self) -> int:
        with sqlite_errors(self.path):
            return int(self.base.execute("SELECT count(*) FROM entries").fetchone()[0])

    def fingerprints(self, state: str | None = None) -> list[str]:
        """Return the fingerprints of all entries (in `state`, None: any), in the order in which they were added."""
        where, values = ("WHERE state = ?", (state,)) if state else ("", ())
        with sqlite_errors(self.path):
            return [row[0] for row in self.base.execute(f"SELECT fingerprint FROM entries {where} ORDER BY id", values)]

    def _alias(self, name: str, blob: Blob) -> Alias:
        try:
            return Alias.read(blob)
        except (FormatError, KeyError, ValueError, TypeError) as error:
            raise FormatError(
                f"entry {name[:12]} is damaged: as another machine's it cannot be read: {error}"[:300]
            ) from None

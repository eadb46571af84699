"""Reader: what a catalog's database holds, by fingerprint, by machine and collective, or all of it."""

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
from synth.catalog.store.blobs import Blob, intact, unpack
from synth.catalog.store.find import Alias
from synth.catalog.store.programs import Kept, read
from synth.catalog.store.rows import LIGHT, Choice, Row, entry, light
from synth.catalog.store.sqlite_file import connect, said, snapshot
from synth.errors import FormatError, UsageError
from synth.model.frontier import Frontier
from synth.program.program import Program

DIGITS = frozenset("0123456789abcdef")
# Of a file of up to so many bytes `ls` takes the checksums of all documents; of larger ones it only compares lengths.
SUMMED = 8 << 20


class Reader:
    """An open catalog. Errors of the database are SynthErrors of one line each."""

    def __init__(self, base: sqlite3.Connection, path: Path) -> None:
        self.base, self.path = base, path

    @classmethod
    def open(cls, path: str | Path, *, create: bool = False) -> Self:
        """The catalog at `path`, made where there is none if `create`. Raises FormatError (no catalog, a newer
        version), SynthError."""
        return cls(connect(Path(path), create, cls._finish), Path(path))

    @classmethod
    def _finish(cls, base: sqlite3.Connection, version: int) -> None:
        """Version 1 knew no invariants: without them no entry would be found for a machine in another numbering."""
        for (number,) in base.execute("SELECT id FROM entries WHERE invariant = '' AND ? = 1", (version,)).fetchall():
            try:
                found = cls(base, Path()).entry(number, measurements=False)
            except FormatError:  # `verify` names it, `gc` removes it
                continue
            if isinstance(found.frontier, Frontier):
                value = invariant(found.frontier.network, found.frontier.collective, found.options)
                base.execute("UPDATE entries SET invariant = ? WHERE id = ?", (value, number))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self.base.close()

    def has(self, fingerprint: str) -> str | None:
        """The state of the entry of exactly this problem, or of one that answers it by an alias; None where there is
        none."""
        with said(self.path):
            found = self.base.execute(
                "SELECT state FROM entries WHERE fingerprint = ?1 UNION ALL"
                " SELECT e.state FROM aliases a JOIN entries e ON e.id = a.entry WHERE a.problem = ?1",
                (fingerprint,),
            ).fetchone()
        return None if found is None else str(found[0])

    def get(self, name: str) -> Entry:
        """The entry of this fingerprint, or of the one that begins so. Raises UsageError (none, several), FormatError
        (damaged).

        Where it is that of a machine which another's entry answers for, the answer is given in this machine's
        numbering.
        """
        number, fingerprint, blob = self._named(name)
        found = self.entry(number)
        if blob is None:
            return found
        try:
            return replace(self._alias(fingerprint, blob).of(found), fingerprint=fingerprint)
        except FormatError as error:
            raise (
                error if "damaged" in str(error) else FormatError(f"entry {fingerprint[:12]} is damaged: it {error}")
            ) from None

    def summary(self, name: str) -> EntrySummary:
        """Return the summary of the entry whose fingerprint is or begins with `name`, read without its schedules.

        Raises UsageError (none, several), FormatError (damaged).
        """
        number, fingerprint, alias = self._named(name)
        with said(self.path), snapshot(self.base):
            text, own = (LIGHT[0], "e") if alias is None else (LIGHT[1], "a")
            row = self.base.execute(f"{text} WHERE {own}.fingerprint = ?", (fingerprint,)).fetchone()
            provenance = self.columns(number)["provenance"]
            document = self.base.execute(
                "SELECT sum, size, body FROM blobs WHERE entry = ? AND name = 'frontier'", (number,)
            ).fetchone()
            points = self.base.execute(
                "SELECT steps, bandwidth, status FROM points WHERE entry = ?", (number,)
            ).fetchall()
        return summarize(light(row), provenance, None if document is None else Blob(*document), points)

    def entry(self, number: int, *, measurements: bool = True) -> Entry:
        """The entry in row `number`. Raises FormatError where it is damaged."""
        with said(self.path), snapshot(self.base):
            documents = self.base.execute(
                "SELECT sum, size, body FROM measurements WHERE entry = ? ORDER BY id", (number,)
            ).fetchall()
            kept = tuple(Blob(*row) for row in documents) if measurements else ()
            return entry(self.columns(number), self.blobs(number), kept)

    def _named(self, name: str) -> tuple[int, str, Blob | None]:
        """The row of the entry that `name` begins, its fingerprint, and for an alias what is kept of it."""
        text = name.strip().lower()
        if not text or not DIGITS.issuperset(text):
            raise UsageError(f"{name!r} is no entry; an id is made of 0-9 and a-f (`synth catalog ls` shows them)")
        with said(self.path):
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
            raise UsageError(
                f"{name} begins more than one entry: {', '.join(row[1][:12] for row in rows)}; give more digits"
            )
        number, fingerprint, *blob = rows[0]
        return number, fingerprint, None if blob[2] is None else Blob(*blob)

    def row_of(self, name: str) -> int:
        """The number of the row of the entry that `name` begins, or of the one that answers for it. Raises
        UsageError."""
        return self._named(name)[0]

    def entry_of(self, name: str) -> str:
        """The fingerprint of that row. Raises UsageError."""
        return str(self.columns(self.row_of(name))["fingerprint"])

    def programs(self, name: str) -> list[Kept]:
        """The programs that an entry's points were lowered to, as far as they were kept."""
        number = self.row_of(name)
        with said(self.path):
            text = (
                "SELECT fingerprint, point, runtime, protocol, instances FROM programs WHERE entry = ? ORDER BY "
                "point, id"
            )
            return [Kept(*row) for row in self.base.execute(text, (number,))]

    def program(self, fingerprint: str) -> Program | None:
        """The program of exactly this fingerprint, None where the catalog has none. Raises FormatError for a damaged
        one."""
        with said(self.path):
            row = self.base.execute(
                "SELECT sum, size, body FROM programs WHERE fingerprint = ? LIMIT 1", (fingerprint,)
            ).fetchone()
        return None if row is None else read(Blob(*row), fingerprint)

    def columns(self, number: int) -> dict[str, Any]:
        """The row of an entry by its number. Raises UsageError where it was removed meanwhile."""
        found = self.base.execute("SELECT * FROM entries WHERE id = ?", (number,))
        names = [column[0] for column in found.description]
        row = found.fetchone()
        if row is None:
            raise UsageError(f"the entry was removed from {self.path} meanwhile")
        return dict(zip(names, row, strict=True))

    def blobs(self, number: int) -> dict[str, Blob]:
        """The documents of an entry as they lie in the database."""
        rows = self.base.execute("SELECT name, sum, size, body FROM blobs WHERE entry = ?", (number,))
        return {name: Blob(*blob) for name, *blob in rows}

    def ls(
        self,
        topology: str | None = None,
        collective: str | None = None,
        state: str | None = None,
        ranks: int | None = None,
    ) -> Iterator[Row | FormatError]:
        """The entries by topology and collective, read without their frontiers; one that is damaged as the error that
        says so."""
        wanted = {"topology": topology, "collective": collective, "state": state, "ranks": ranks}
        given = {name: value for name, value in wanted.items() if value is not None}
        with said(self.path), snapshot(self.base):
            broken = self._broken()
            rows = []
            for text, own in zip(LIGHT, ("e", "a"), strict=True):
                where = [f"{own if name in ('topology', 'collective') else 'e'}.{name} = ?" for name in given]
                rows += self.base.execute(
                    f"{text} WHERE {' AND '.join(where) or 'TRUE'}", list(given.values())
                ).fetchall()
        try:
            rows.sort(key=itemgetter(1, 2, 3, 5))  # topology, collective, roots, options
        except TypeError:  # a damaged row
            rows.sort(key=lambda columns: tuple(map(str, columns)))
        for columns in rows:
            try:
                made = light(columns)
                if made.fingerprint in broken:
                    raise FormatError(f"entry {made.id} is damaged: its {broken[made.fingerprint]}")
                yield made
            except FormatError as error:
                yield error

    def _broken(self) -> dict[str, str]:
        """By fingerprint, what is wrong with documents of entries: lengths that do not fit and, of a small catalog,
        checksums."""
        text = (
            "SELECT e.fingerprint, b.name FROM blobs b JOIN entries e ON e.id = b.entry WHERE length(b.body) != "
            "b.packed"
        )
        found = {key: f"{name} is not as long as what was written" for key, name in self.base.execute(text)}
        text = (
            "SELECT fingerprint FROM entries WHERE state != 'failed' AND id NOT IN (SELECT entry FROM blobs "
            "WHERE name = 'frontier')"
        )
        found |= {key: "frontier is gone" for (key,) in self.base.execute(text)}
        pages, size = (self.base.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
        if pages * size <= SUMMED:
            text = "SELECT e.fingerprint, b.name, b.sum, b.size, b.body FROM blobs b JOIN entries e ON e.id = b.entry"
            for key, name, *blob in self.base.execute(text):
                try:
                    intact(Blob(*blob))
                except FormatError as error:
                    found.setdefault(key, f"{name} {error}")
        return found

    def lookup(
        self,
        topology: str,
        collective: str,
        size: int | None = None,
        roots: Sequence[int] | None = None,
        ranks: int | None = None,
    ) -> list[Choice]:
        """The points kept for that machine and collective, the least predicted time at `size` bytes first (by steps
        without a size).

        `roots` None: of any root.
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
        with said(self.path):
            rows = [row for row in self.base.execute(text, (*values, *values)) if ranks in (None, row[-1])]
        found = []
        for row in rows:
            steps, (rate, alpha, unit, share) = row[2], row[8:12]
            time = None if size is None else steps * alpha * 1e-6 + rate * size * share / (unit * 1e9)
            found.append(Choice._make((*row[:8], time)))
        return sorted(found, key=lambda c: (c.seconds or 0.0, c.steps, c.fingerprint))

    def measurements(self, name: str) -> list[dict]:
        """The measured documents attached to an entry, in the order they came. Raises FormatError for a damaged one."""
        return self.documents(self.row_of(name))

    def documents(self, number: int) -> list[dict]:
        """The same of the entry in row `number`."""
        with said(self.path):
            rows = self.base.execute(
                "SELECT sum, size, body FROM measurements WHERE entry = ? ORDER BY id", (number,)
            ).fetchall()
        return [unpack(Blob(*row)) for row in rows]

    def __len__(self) -> int:
        with said(self.path):
            return int(self.base.execute("SELECT count(*) FROM entries").fetchone()[0])

    def fingerprints(self, state: str | None = None) -> list[str]:
        """Of all entries (in `state`), in the order they were put."""
        where, values = ("WHERE state = ?", (state,)) if state else ("", ())
        with said(self.path):
            return [row[0] for row in self.base.execute(f"SELECT fingerprint FROM entries {where} ORDER BY id", values)]

    def _alias(self, name: str, blob: Blob) -> Alias:
        try:
            return Alias.read(blob)
        except (FormatError, KeyError, ValueError, TypeError) as error:
            raise FormatError(
                f"entry {name[:12]} is damaged: as another machine's it cannot be read: {error}"[:300]
            ) from None

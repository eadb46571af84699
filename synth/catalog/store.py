"""Store: the catalog's database. Two processes may write at once; what is put is there whole or not at all.

with Store.open("catalog.db") as store:
    store.put(entry)
    found = store.find(network, collective, options)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from synth.catalog.entry import FAILED, Entry, Options, fingerprint
from synth.catalog.isomorphic import Relabelling
from synth.catalog.store_blobs import Blob, pack, unpack
from synth.catalog.store_file import connect, said, transaction
from synth.catalog.store_rows import LIGHT, WORTH, Choice, Packed, Row, entry, light, packed
from synth.collective import Collective
from synth.errors import FormatError, UsageError
from synth.frontier import Frontier
from synth.topology import Network

DIGITS = frozenset("0123456789abcdef")


class Store:
    """An open catalog. Errors of the database are SynthErrors of one line each."""

    def __init__(self, base: sqlite3.Connection, path: Path) -> None:
        self.base, self.path = base, path

    @staticmethod
    def open(path: str | Path, *, create: bool = False) -> Store:
        """The catalog at `path`, made where there is none if `create`. Raises FormatError (no catalog, a newer version), SynthError."""
        return Store(connect(Path(path), create), Path(path))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self.base.close()

    def put(self, given: Entry) -> bool:
        """Keep `given`, whole or not at all; True unless what is there under its fingerprint is worth as much.

        An entry that is done stays; a failed one never replaces another. Measurements are added to those that are there.
        """
        return self.put_all([given])[0]

    def put_all(self, given: Sequence[Entry]) -> list[bool]:
        """The same for several entries at once: all of them or none."""
        ready = [packed(one) for one in given]
        with said(self.path), transaction(self.base):
            return [self._put(one) for one in ready]

    def _put(self, given: Packed) -> bool:
        fingerprint, state = given.columns["fingerprint"], given.columns["state"]
        old = self.base.execute("SELECT id, state FROM entries WHERE fingerprint = ?", (fingerprint,)).fetchone()
        fresh = old is None or WORTH[state] > WORTH.get(old[1], 0) or (state == old[1] and WORTH[state] < 2)
        number = old[0] if old is not None else None
        if fresh or number is None:
            number = self._write(given, number)
        for executor, blob in given.measurements:
            self._measured(number, executor, blob)
        return fresh

    def _write(self, given: Packed, number: int | None) -> int:
        if number is None:
            names = ", ".join(given.columns)
            marks = ", ".join("?" * len(given.columns))
            values = tuple(given.columns.values())
            number = self.base.execute(f"INSERT INTO entries ({names}) VALUES ({marks})", values).lastrowid
        else:
            names = ", ".join(f"{name} = ?" for name in given.columns)
            self.base.execute(f"UPDATE entries SET {names} WHERE id = ?", (*given.columns.values(), number))
            for table in ("points", "blobs", "programs"):  # programs were lowered from points that are gone
                self.base.execute(f"DELETE FROM {table} WHERE entry = ?", (number,))
        assert number is not None
        self.base.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [(number, *row) for row in given.points])
        rows = [(number, name, blob.sum, len(blob.body), blob.size, blob.body) for name, blob in given.blobs.items()]
        self.base.executemany("INSERT INTO blobs (entry, name, sum, packed, size, body) VALUES (?, ?, ?, ?, ?, ?)", rows)
        return number

    def _measured(self, number: int, executor: str, blob: Blob) -> bool:
        made = self.base.execute(
            "INSERT OR IGNORE INTO measurements (entry, executor, sum, size, body) VALUES (?, ?, ?, ?, ?)",
            (number, executor, blob.sum, blob.size, blob.body),
        )
        return made.rowcount > 0

    def has(self, fingerprint: str) -> str | None:
        """The state of the entry of exactly this fingerprint; None where there is none."""
        with said(self.path):
            found = self.base.execute("SELECT state FROM entries WHERE fingerprint = ?", (fingerprint,)).fetchone()
        return None if found is None else str(found[0])

    def get(self, name: str) -> Entry:
        """The entry of this fingerprint, or of the one that begins so. Raises UsageError (none, several), FormatError (damaged)."""
        number = self._number(name)
        with said(self.path):
            columns = self._columns(number)
            measured = self.base.execute("SELECT sum, size, body FROM measurements WHERE entry = ? ORDER BY id", (number,)).fetchall()
            return entry(columns, self._blobs(number), tuple(Blob(*row) for row in measured))

    def _number(self, name: str) -> int:
        text = name.strip().lower()
        if not text or not DIGITS.issuperset(text):
            raise UsageError(f"{name!r} is no entry; an id is made of 0-9 and a-f (`synth catalog ls` shows them)")
        with said(self.path):
            end = text + "g"
            rows = self.base.execute(
                "SELECT id, fingerprint FROM entries WHERE fingerprint >= ? AND fingerprint < ? LIMIT 3", (text, end)
            ).fetchall()
        if not rows:
            raise UsageError(f"there is no entry {name} in {self.path} (`synth catalog ls` shows them)")
        if len(rows) > 1:
            raise UsageError(f"{name} begins more than one entry: {', '.join(row[1][:12] for row in rows)}; give more digits")
        return rows[0][0]

    def _columns(self, number: int) -> dict[str, Any]:
        found = self.base.execute("SELECT * FROM entries WHERE id = ?", (number,))
        names = [column[0] for column in found.description]
        return dict(zip(names, found.fetchone(), strict=True))

    def _blobs(self, number: int) -> dict[str, Blob]:
        rows = self.base.execute("SELECT name, sum, size, body FROM blobs WHERE entry = ?", (number,))
        return {name: Blob(*blob) for name, *blob in rows}

    def find(
        self, network: Network, collective: Collective, options: Options = (), labels: Sequence[int] = ()
    ) -> tuple[Entry, Relabelling | None] | None:
        """The entry that answers this problem, for `network` as it is given: its name, GB/s and latencies; None where there is none.

        The relabelling is None where the entry has this very numbering.
        """
        asked = fingerprint(network, collective, options)
        if self.has(asked) in (None, FAILED):
            return None
        found = self.get(asked)
        if not isinstance(found.frontier, Frontier):
            return None
        points = tuple(replace(p, schedule=replace(p.schedule, network=network, collective=collective)) for p in found.frontier.points)
        moved = replace(found.frontier, network=network, collective=collective, points=points, labels=tuple(labels))
        return replace(found, topology=network.name, frontier=moved), None

    def ls(
        self, topology: str | None = None, collective: str | None = None, state: str | None = None, ranks: int | None = None
    ) -> Iterator[Row | FormatError]:
        """The entries by topology and collective, read without their frontiers; one that is damaged as the error that says so."""
        wanted = {"topology": topology, "collective": collective, "state": state, "ranks": ranks}
        where = [f"{name} = ?" for name, value in wanted.items() if value is not None]
        values = [value for value in wanted.values() if value is not None]
        text = (
            f"SELECT {LIGHT} FROM entries LEFT JOIN"
            " (SELECT entry, count(*) many, min(steps) low, max(steps) high FROM points GROUP BY entry) ON entry = id"
            f" {'WHERE ' + ' AND '.join(where) if where else ''} ORDER BY topology, collective, roots, options"
        )
        with said(self.path):
            for columns in self.base.execute(text, values):
                try:
                    yield light(columns)
                except FormatError as error:
                    yield error

    def lookup(
        self, topology: str, collective: str, size: int | None = None, roots: Sequence[int] | None = None, ranks: int | None = None
    ) -> list[Choice]:
        """The points kept for that machine and collective, the least predicted time at `size` bytes first (by steps without a size).

        `roots` None: of any root.
        """
        text = (
            "SELECT e.fingerprint, p.number, p.steps, p.rounds, p.chunks, p.bandwidth, p.status, p.construction, p.rate, e.alpha, e.unit,"
            " e.share FROM entries e JOIN points p ON p.entry = e.id WHERE e.topology = ? AND e.collective = ?"
        )
        values: list[Any] = [topology, collective]
        if roots is not None:
            text, values = text + " AND e.roots = ?", [*values, ",".join(map(str, roots))]
        if ranks is not None:
            text, values = text + " AND e.ranks = ?", [*values, ranks]
        with said(self.path):
            rows = self.base.execute(text, values).fetchall()
        found = []
        for row in rows:
            steps, (rate, alpha, unit, share) = row[2], row[8:]
            time = None if size is None else steps * alpha * 1e-6 + rate * size * share / (unit * 1e9)
            found.append(Choice._make((*row[:8], time)))
        return sorted(found, key=lambda c: (c.seconds or 0.0, c.steps, c.fingerprint))

    def add_measurement(self, name: str, document: dict) -> bool:
        """Attach a document ``synth.measured/1`` to an entry; False where it is there already."""
        number, blob = self._number(name), pack(document)
        with said(self.path), transaction(self.base):
            return self._measured(number, str(document.get("executor", "")), blob)

    def measurements(self, name: str) -> list[dict]:
        """The documents attached to an entry, in the order they came. Raises FormatError for a damaged one."""
        number = self._number(name)
        with said(self.path):
            rows = self.base.execute("SELECT sum, size, body FROM measurements WHERE entry = ? ORDER BY id", (number,)).fetchall()
        return [unpack(Blob(*row)) for row in rows]

    def delete(self, name: str) -> None:
        """Remove an entry with all that belongs to it. Raises UsageError where there is none."""
        number = self._number(name)
        with said(self.path), transaction(self.base):
            self.base.execute("DELETE FROM entries WHERE id = ?", (number,))

    def __len__(self) -> int:
        with said(self.path):
            return int(self.base.execute("SELECT count(*) FROM entries").fetchone()[0])

    def fingerprints(self, state: str | None = None) -> list[str]:
        """Of all entries (in `state`), in the order they were put."""
        where, values = ("WHERE state = ?", (state,)) if state else ("", ())
        with said(self.path):
            return [row[0] for row in self.base.execute(f"SELECT fingerprint FROM entries {where} ORDER BY id", values)]

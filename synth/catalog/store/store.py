"""The store: a catalog that is written to, by several processes at once; an entry is added as a whole or not at all.

with Store.open("catalog.db") as store:
    store.put(entry)
    answer = store.find(network, collective, options)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from synth.catalog.entry import FAILED, Entry, Options, fingerprint
from synth.catalog.isomorphism import Relabelling, invariant
from synth.catalog.store.blobs import Blob
from synth.catalog.store.find import Alias, find_isomorphic
from synth.catalog.store.reader import Reader
from synth.catalog.store.rows import WORTH, Packed, packed
from synth.catalog.store.sqlite_file import sqlite_errors, transaction
from synth.model.collective import Collective
from synth.model.topology import Network


class Store(Reader):
    """An open catalog that is also written to. Errors of the database are raised as SynthErrors of one line each."""

    def put(self, entry: Entry) -> bool:
        """Add `entry`, as a whole or not at all; return False if the stored entry of its fingerprint is kept instead.

        A complete or infeasible entry is never replaced, and a failed one replaces failed ones alone. Measurements are
        added to the stored ones in any case.
        """
        return self.put_all([entry])[0]

    def put_all(self, entries: Sequence[Entry]) -> list[bool]:
        """Add several entries as `put` does, all of them or none."""
        rows = [packed(entry) for entry in entries]
        with sqlite_errors(self.path), transaction(self.base):
            return [self._put(entry) for entry in rows]

    def _put(self, entry: Packed) -> bool:
        fingerprint, state = entry.columns["fingerprint"], entry.columns["state"]
        old = self.base.execute("SELECT id, state FROM entries WHERE fingerprint = ?", (fingerprint,)).fetchone()
        fresh = old is None or WORTH[state] > WORTH.get(old[1], 0) or (state == old[1] and WORTH[state] < 2)
        number = old[0] if old is not None else None
        if fresh or number is None:
            number = self._write(entry, number)
        for executor, blob in entry.measurements:
            self.attach(number, executor, blob, ())
        return fresh

    def _write(self, entry: Packed, number: int | None) -> int:
        if number is None:
            names = ", ".join(entry.columns)
            marks = ", ".join("?" * len(entry.columns))
            values = tuple(entry.columns.values())
            number = int(self.base.execute(f"INSERT INTO entries ({names}) VALUES ({marks})", values).lastrowid or 0)
        else:
            names = ", ".join(f"{name} = ?" for name in entry.columns)
            self.base.execute(f"UPDATE entries SET {names} WHERE id = ?", (*entry.columns.values(), number))
            for table in ("points", "blobs", "programs"):  # programs were lowered from points that are gone
                self.base.execute(f"DELETE FROM {table} WHERE entry = ?", (number,))
        self.base.executemany(
            "INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [(number, *row) for row in entry.points]
        )
        rows = [(number, name, blob.sum, len(blob.body), blob.size, blob.body) for name, blob in entry.blobs.items()]
        self.base.executemany(
            "INSERT INTO blobs (entry, name, sum, packed, size, body) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
        return number

    def attach(self, number: int, executor: str, blob: Blob, programs: Sequence[str]) -> bool:
        """Attach a measured document that times `programs` (fingerprints) to the entry in row `number`.

        Returns False where it is attached already. Must be called inside a transaction.
        """
        cursor = self.base.execute(
            "INSERT OR IGNORE INTO measurements (entry, executor, sum, size, body) VALUES (?, ?, ?, ?, ?)",
            (number, executor, blob.sum, blob.size, blob.body),
        )
        measurement = self.base.execute(
            "SELECT id FROM measurements WHERE entry = ? AND sum = ?", (number, blob.sum)
        ).fetchone()[0]
        rows = [(measurement, program) for program in programs]
        self.base.executemany("INSERT OR IGNORE INTO measured (measurement, program) VALUES (?, ?)", rows)
        return cursor.rowcount > 0

    def find(
        self,
        network: Network,
        collective: Collective,
        options: Options = (),
        labels: Sequence[int] = (),
        *,
        remember: bool = False,
    ) -> tuple[Entry, Relabelling | None] | None:
        """Return the entry that answers this problem, and the relabelling; None where there is none.

        The answer has the numbering, name, GB/s and latencies of `network`. The entry of an isomorphic problem is
        relabelled, and its schedules and certificates are checked again. The relabelling is None where the
        entry has this very numbering. A failed entry is no answer. With `remember` the machine is stored as an alias of
        the entry: `state_of`, `get`, `ls` and `lookup` find it from then on.
        """
        problem = fingerprint(network, collective, options)
        known = self._known(problem)
        if known is not None:
            number, stored = known
            entry = self.entry(number)
            alias = Alias(network, collective, tuple(labels), None if stored is None else stored.map)
            answer = alias.of(entry)
            new = not _is_of_machine(entry, alias)
        else:
            with sqlite_errors(self.path):
                text = "SELECT id FROM entries WHERE invariant = ? AND state != ? ORDER BY id"
                rows = self.base.execute(text, (invariant(network, collective, options), FAILED)).fetchall()
            candidates = ((row[0], partial(self.entry, row[0])) for row in rows)
            match = find_isomorphic(network, collective, options, labels, candidates)
            if match is None:
                return None
            number, alias, answer = match
            new = True
        if remember and new:
            self._remember(problem, number, alias)
        return answer, alias.map

    def _known(self, problem: str) -> tuple[int, Alias | None] | None:
        """Return the row of the entry of this very problem and None, or the row and the alias that lead to it, or
        None."""
        with sqlite_errors(self.path):
            row = self.base.execute(
                "SELECT id FROM entries WHERE fingerprint = ? AND state != ?", (problem, FAILED)
            ).fetchone()
            if row is not None:
                return row[0], None
            row = self.base.execute(
                "SELECT entry, sum, size, body FROM aliases WHERE problem = ? LIMIT 1", (problem,)
            ).fetchone()
        return None if row is None else (row[0], self._alias(problem, Blob(*row[1:])))

    def _remember(self, problem: str, number: int, alias: Alias) -> None:
        fingerprint, blob = alias.packed(problem)
        network, collective = alias.network, alias.collective
        roots = ",".join(map(str, collective.roots))
        speeds = float(network.latency), float(network.unit)
        row = (fingerprint, problem, number, network.name, collective.name, roots, *speeds, *blob)
        with sqlite_errors(self.path), transaction(self.base):
            self.base.execute(
                "INSERT OR IGNORE INTO aliases (fingerprint, problem, entry, topology, collective, roots, alpha, "
                "unit, sum, size, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def delete(self, name: str) -> None:
        """Remove an entry with its documents, programs and aliases, or remove one alias. Raises UsageError where there
        is none."""
        number, fingerprint, blob = self._find_row(name)
        with sqlite_errors(self.path), transaction(self.base):
            if blob is None:
                self.base.execute("DELETE FROM entries WHERE id = ?", (number,))
            else:
                self.base.execute("DELETE FROM aliases WHERE fingerprint = ?", (fingerprint,))


def _is_of_machine(entry: Entry, alias: Alias) -> bool:
    """Return True if the entry is of this very machine, with the same names, speeds and labels."""
    frontier = entry.exact
    if frontier is None or frontier.labels != alias.labels:
        return False
    return frontier.network.document == alias.network.document
